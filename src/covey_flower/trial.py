"""A whole federation on this machine, for a look: started, played, left, verified and ended."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey import ConfigError, RunError
from covey.base.as_json import OPTIONAL
from covey.base.files import read_bounded, read_text
from covey.base.names import how_to_install
from covey_flower.deployment import DeploymentPlan, write_federation

if TYPE_CHECKING:
    import psutil

_TRIED = """
rounds = 3
[data]
name = "npz"
[model]
name = "mlp"
[train]
local_epochs = 5
optimizer.momentum = 0.9
[method]
name = "fedavg"
[risk]
name = "none"
"""
_STAYING, _LEAVING = ("alice", "bob"), "carol"


_TRIAL_SECONDS = 600.0  # a trial takes about one minute

_END_SECONDS = 10.0  # for the processes of a trial that were killed

_POLL_SECONDS = 0.2

_CONFIG_VARIABLE = "XDG_CONFIG_HOME"


@dataclass(frozen=True, slots=True)
class Tried:
    """A federation that was played on one machine.

    Attributes:
        left: the client that was forgotten.
        proof_holds: whether the proof of that was verified.
        folder: of the federation, its run and its logs; None: it is deleted, with the proof.
    """

    left: str
    proof_holds: bool
    seconds: float
    folder: Path | None = field(default=None, metadata=OPTIONAL)
    proof: Path | None = field(default=None, metadata=OPTIONAL)


def try_federation(folder: Path, report: Callable[[str], None]) -> Tried:
    """Play a federation of three nodes over TLS on this machine, of which one leaves.

    Every process that it starts has ended when it returns or raises.

    Args:
        folder: a new one.
        report: called with every step that was taken.

    Raises:
        ConfigError: there is no Flower, or something in the folder.
        RunError: a step failed; the logs say more.
    """
    if any(find_spec(name) is None for name in ("flwr", "psutil")):
        raise ConfigError(f"A trial needs Flower, found none: {how_to_install('flower')}.")
    if folder.exists():
        raise ConfigError(f"--out must be a new folder, found {folder}: give another.")
    began, names = time.monotonic(), (*_STAYING, _LEAVING)
    port, *node_ports = _free_ports(1 + len(names))
    (folder / "logs").mkdir(parents=True)
    (folder / "federation.toml").write_text(_TRIED)
    plan = DeploymentPlan(names, port=port)
    home = write_federation(folder / "federation.toml", folder / "fed", plan, datetime.now(UTC))
    _share_digits([home / "nodes" / name for name in names])
    report(f"{home}: settings, certificates, and a folder with a key and data for each node")
    run = folder / "run"
    with _Processes(folder) as processes:
        processes.start("server", home / "server.sh")
        processes.play("register", home / "register.sh")
        report(f"the server answers at {plan.address}, and has the nodes' keys")
        for name, own in zip(names, node_ports, strict=True):
            processes.start(name, home / "nodes" / name / "start.sh", "--port", str(own))
        covey = sys.executable, "-m", "covey"
        processes.play("run", *covey, "run", home / "covey.toml", "--out", run)
        report(f"{', '.join(names)} came, and 3 rounds are played")
        processes.play("forget", *covey, "forget", run, _LEAVING, "--basis", "erasure")
        processes.play("resume", *covey, "resume", run)
        (proof,) = (run / "proofs").glob("*.json")
        report(f"{_LEAVING} left: {' and '.join(_STAYING)} played the rounds again without it")
        processes.play("verify", *covey, "verify", proof, "--ledger", run)
        report(f"its proof holds: {proof}")
    report("server and nodes have ended")
    return Tried(_LEAVING, True, round(time.monotonic() - began, 1), folder, proof)  # noqa: FBT003


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    with ExitStack() as held:
        trials = [held.enter_context(socket.socket()) for _ in range(count)]
        for trial in trials:
            trial.bind(("127.0.0.1", 0))
        return [trial.getsockname()[1] for trial in trials]


def _share_digits(nodes: Sequence[Path]) -> None:
    """Give each node a part of scikit-learn's digits."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    for place, node in enumerate(nodes):
        mine = slice(place, None, len(nodes))
        images = (digits.images[mine] / 16).astype(np.float32)
        np.savez(node / "mine.npz", x=images, y=digits.target[mine])
        file = node / "node.toml"
        file.write_text(read_text(file).replace('# data = "examples.npz"', 'data = "mine.npz"'))


class _Processes:
    """Processes of one trial, all of which end with it, and all that these have started.

    Each is in a session of its own, so that Ctrl-C reaches this one alone, which ends them. Their
    environment marks what they start: a list of children misses those that start meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._logs, self._running = folder / "logs", dict[str, subprocess.Popen[bytes]]()
        self._end = time.monotonic() + _TRIAL_SECONDS
        programs = (str(Path(sys.executable).parent), sysconfig.get_path("scripts"))
        path = os.pathsep.join([*programs, os.environ["PATH"]])
        # nothing is read or written in the user's own folders
        own = {"PATH": path, _CONFIG_VARIABLE: str((folder / "config").absolute())}
        self._environment = {**os.environ, **own}

    def __enter__(self) -> "_Processes":
        return self

    def __exit__(self, *_: object) -> None:
        from psutil import NoSuchProcess, wait_procs

        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, signal.SIG_IGN) for number in signals]
        for process in reversed(self._running.values()):  # the nodes before the server
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10.0)
            process.kill()
            process.wait()
        end = time.monotonic() + _END_SECONDS
        while (left := self._started()) and time.monotonic() < end:
            for child in left:
                with suppress(NoSuchProcess):
                    child.kill()
            wait_procs(left, timeout=_POLL_SECONDS)
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)

    def _started(self) -> "list[psutil.Process]":
        """Return the processes with this trial's environment, however they were started."""
        from psutil import Error, process_iter

        started = []
        for process in process_iter():
            with suppress(Error):  # it has ended, or is another user's
                if process.environ().get(_CONFIG_VARIABLE) == self._environment[_CONFIG_VARIABLE]:
                    started.append(process)
        return started

    def start(self, name: str, *words: str | Path) -> "subprocess.Popen[bytes]":
        """Start a process that goes on."""
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - no word is from elsewhere
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self._running[name] = process
        return process

    def play(self, name: str, *words: str | Path) -> None:
        """Start a process, and wait until it has done what it is for."""
        process = self.start(name, *words)
        self.wait(lambda: process.poll() is not None, name)
        del self._running[name]

    def wait(self, is_so: Callable[[], bool], wanted: str) -> None:
        """Wait until something is so, and nothing has failed."""
        while True:
            codes = {name: process.poll() for name, process in self._running.items()}
            done = is_so()
            for name, code in codes.items():
                if code or (code == 0 and not done):
                    raise self._failed(name, f"found that {name} ended with code {code}")
            if done:
                return
            if time.monotonic() > self._end:
                raise self._failed("server", f"found nothing in {_TRIAL_SECONDS:.0f} s: {wanted}")
            time.sleep(_POLL_SECONDS)

    def _failed(self, name: str, reason: str) -> RunError:
        said = read_bounded(self._log(name)).decode(errors="replace").strip().splitlines()[-3:]
        return RunError(
            f"Every step of a trial must succeed, {reason}: {' / '.join(said)}: look into "
            f"{self._logs}, and at `covey deploy check {self._logs.parent / 'fed'}`."
        )

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"
