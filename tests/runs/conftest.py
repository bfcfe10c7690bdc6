import hashlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from covey import Config, Run, load, run
from runs.left_runs import left_runs
from support.runs import tiny

Make = Callable[[Path], object]


def excluding(config: Config, *clients: str) -> Config:
    """Return settings of the same run, which never meets some clients."""
    written = config.model_dump()
    written["population"]["exclude"] = list(clients)
    return Config.of(written)


@pytest.fixture(scope="session")
def whole(once: Callable[[str, Make], Path]) -> Callable[[Config], Run]:
    """Play a run once, whoever asks for it; nobody may write into its folder."""

    @cache
    def played(written: str) -> Run:
        config = Config.of(tomllib.loads(written))
        name = hashlib.sha256(written.encode()).hexdigest()[:16]
        folder = once(name, lambda folder: run(config=config, out=folder / "run"))
        return load(folder / "run")

    return lambda config: played(config.toml())


@pytest.fixture(scope="session")
def copied(whole: Callable[[Config], Run]) -> Callable[[Config, Path], Run]:
    """Put a copy of a whole run into a folder."""

    def put(config: Config, out: Path) -> Run:
        played = whole(config)
        return load(shutil.copytree(played.folder, out), trust_code=True)

    return put


@pytest.fixture
def play(tmp_path: Path, copied: Callable[[Config, Path], Run]) -> Callable[..., Run]:
    """Play a tiny run, in a folder of one's own."""
    numbers = count()

    def played(**sections: object) -> Run:
        return copied(tiny(**sections), tmp_path / f"run-{next(numbers)}")

    return played


@pytest.fixture(scope="session")
def settings() -> Callable[..., Config]:
    return tiny


DEADLY = """
import os, signal, sys
from covey.ledger.store import Ledger
from covey.leaving import case
from covey.runs import loop

when, what, calls, *words = sys.argv[1:]
left = int(calls)

def deadly(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = function(*args, **kwargs)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    return call

place, name = {
    "append": (Ledger, "append"),
    "serve": (Ledger, "serve"),
    "answered": (Ledger, "answered"),
    "delete": (case, "delete_from"),
    "keep": (case, "keep_subtracted"),
    "save": (loop, "save_state"),
}[what]
setattr(place, name, deadly(getattr(place, name)))
"""


@pytest.fixture(scope="session")
def cut() -> Callable[[Path, int], None]:
    """Take a run back to its first so many rounds, as if it had been stopped there."""

    def taken_back(folder: Path, rounds: int) -> None:
        with closing(sqlite3.connect(folder / "ledger.sqlite")) as database, database:
            database.execute("DELETE FROM events WHERE round >= ?", (rounds,))
            database.execute(
                "DELETE FROM clock WHERE position > (SELECT max(position) FROM events)"
            )
        database.close()
        for checkpoint in sorted((folder / "checkpoints").iterdir())[rounds:]:
            checkpoint.unlink()

    return taken_back


@pytest.fixture(scope="session")
def killed() -> Callable[..., None]:
    """Run a program over `words` that dies before or after a call of what writes."""

    def kill(program: str, where: str, calls: int, *words: object) -> None:
        command = [*where.split(), str(calls), *map(str, words)]
        child = subprocess.run(
            [sys.executable, "-c", DEADLY + program, *command], capture_output=True, check=False
        )
        assert child.returncode == -signal.SIGKILL, child.stderr.decode()

    return kill


@pytest.fixture(scope="session")
def left(tmp_path_factory):
    """Runs that a client left with each answer."""
    return left_runs(tmp_path_factory.mktemp("left"))
