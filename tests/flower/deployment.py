"""A federation of real processes on this machine, which ends with its test."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from covey_flower.deployment import DeploymentPlan, write_federation
from marked_processes import MARK, end_marked, marked_processes

__all__ = ["Deployment", "Submitted", "free_ports", "invited", "until"]

SERVER = "superlink"
PATIENCE = 120.0  # seconds; a node takes about ten on a quiet machine
POLL = 0.2
LIST_PAUSE = 3.0  # a list of nodes takes a processor for as long as a node takes to start

T = TypeVar("T")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with ExitStack() as held:
        trials = [held.enter_context(socket.socket()) for _ in range(count)]
        for trial in trials:
            trial.bind(("127.0.0.1", 0))
        return [trial.getsockname()[1] for trial in trials]


def invited(folder: Path, config: str, names: Sequence[str]) -> Path:
    """The folder of `covey deploy init`, on a free port and with TLS."""
    settings = folder / "settings.toml"
    settings.write_text(config, encoding="utf-8")
    made = DeploymentPlan(tuple(names), "127.0.0.1", free_ports(1)[0])
    return write_federation(settings, folder / "federation", made, datetime.now(UTC))


class Submitted:
    """A run of an app, as `flwr run --stream` shows it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def wait(self, seconds: float = PATIENCE) -> str:
        """Wait for the end of the stream; return all that it said."""
        self.process.wait(seconds)
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, word: str, seconds: float = PATIENCE) -> str:
        """Wait until the stream says a word; return what it said until then."""

        def said() -> str:
            ended = self.process.poll() is not None
            text = self.log.read_text(encoding="utf-8")
            if ended and word not in text:
                raise AssertionError(f"the run ended without {word!r}:\n{text}")
            return text if word in text else ""

        return until(said, f"the run says {word!r}", seconds)


class Deployment:
    """The server and nodes of a folder of `covey deploy init`, on free ports.

    Every process that comes from here carries a mark in its environment, which its
    children inherit, however they detach themselves. On leaving, whatever has the mark
    is ended, by its id.

    Args:
        folder: of the federation.
        names: which of its nodes to start; all by default.
        server_options: more words for `flower-superlink`, such as --database.
    """

    def __init__(
        self, folder: Path, names: Iterable[str] | None = None, server_options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        every = sorted(path.name for path in (folder / "nodes").iterdir())
        self.ports = dict(zip(every, free_ports(len(every)), strict=True))
        self.names = every if names is None else sorted(names)
        self.server_options = tuple(server_options)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._mark = secrets.token_hex(8)
        (folder / "logs").mkdir(exist_ok=True)

    def __enter__(self) -> "Deployment":
        try:
            self.start_superlink()
            self.register()
            for name in self.names:
                self.start_node(name)
            self.wait_online(*self.names)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def start_superlink(self) -> None:
        """Start the server; nobody waits until it answers."""
        self._start(SERVER, self.folder / "server.sh", *self.server_options)

    def kill_superlink(self) -> None:
        """End the server and all its children at once, as a power cut would."""
        self._kill(SERVER)

    def restart_superlink(self) -> None:
        """Start the server again, and register the keys that it does not know."""
        self.start_superlink()
        self.register()

    def register(self) -> None:
        """Register the keys of all nodes, once the server answers."""
        done = self._start("register", self.folder / "register.sh").wait(PATIENCE)
        assert done == 0, self.log("register")

    def start_node(self, name: str) -> subprocess.Popen[bytes]:
        """Start a node; nobody waits until it is online."""
        script = self.folder / "nodes" / name / "start.sh"
        return self._start(name, script, "--port", str(self.ports[name]))

    def kill_node(self, name: str) -> None:
        """End a node and all its children at once; the server notices after a minute."""
        self._kill(name)

    def wait_online(self, *names: str, seconds: float = PATIENCE) -> None:
        """Wait until the server says that these nodes are online."""

        def online() -> bool:
            for name in names:
                code = self.processes[name].poll()
                assert code is None, f"{name} ended with {code}:\n{self.log(name)}"
            return set(names) <= self.online()

        until(online, f"{', '.join(names)} are online", seconds, LIST_PAUSE)

    def online(self) -> frozenset[str]:
        """The names of the nodes that the server calls online; empty without it."""
        files = (self.folder / "flwr" / "registered").glob("*.json")
        names = {str(json.loads(path.read_text())["node-id"]): path.stem for path in files}
        done = subprocess.run(
            [self.folder / "flwr.sh", "supernode", "list", "covey", "--format", "json"],
            env=self._environment("list"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        with suppress(ValueError):
            listed = json.loads(done.stdout).get("nodes", [])
            online = (str(node["node-id"]) for node in listed if node["status"] == "online")
            return frozenset(names[number] for number in online if number in names)
        return frozenset()

    def submit(self, app: Path | None = None, *options: str) -> Submitted:
        """Run a Flower app, by default the folder's own."""
        words = ("run", str(app or self.folder / "app"), "covey", "--stream", *options)
        return self._submitted(self.folder / "flwr.sh", *words)

    def covey(self, *words: str | Path) -> Submitted:
        """Run one of covey's own commands, on the server's machine."""
        return self._submitted(sys.executable, "-m", "covey", *words)

    def log(self, role: str) -> str:
        """What the server ("superlink"), a node or a run wrote."""
        return self._log_path(role).read_text(encoding="utf-8", errors="replace")

    def running(self, role: str = "") -> list[int]:
        """The ids of all processes that come from here, or of one role's."""
        return marked_processes(f"{self._mark}/{role}" if role else self._mark)

    def end(self) -> None:
        """End everything: nodes first and politely, then whatever is still there."""
        for role in sorted(self.processes, key=SERVER.__eq__):
            process = self.processes[role]
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
        self._kill("")

    def _submitted(self, *words: str | Path) -> Submitted:
        role = f"run-{sum(process.startswith('run-') for process in self.processes)}"
        return Submitted(self._start(role, *words), self._log_path(role))

    def _start(self, role: str, *words: str | Path) -> subprocess.Popen[bytes]:
        with self._log_path(role).open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(role),
                start_new_session=True,
            )
        self.processes[role] = process
        return process

    def _environment(self, role: str) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": programs, MARK: f"{self._mark}/{role}"}

    def _kill(self, role: str) -> None:
        mark = f"{self._mark}/{role}" if role else self._mark
        end_marked(mark, lambda: [process.poll() for process in self.processes.values()])

    def _log_path(self, role: str) -> Path:
        return self.folder / "logs" / f"{role}.log"


def until(ask: Callable[[], T], wanted: str, seconds: float = PATIENCE, pause: float = POLL) -> T:
    """Ask until the answer is true; return it."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} seconds until {wanted}")
        time.sleep(pause)
    return answer
