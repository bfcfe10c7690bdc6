import os
import shutil
import signal
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from covey.base import files as atomic_io
from desk.tiny import play

Make = Callable[[Path], object]


@pytest.fixture(scope="session")
def three(once: Callable[[str, Make], Path]) -> Path:
    """Three runs that know the same names, only to be read."""
    return once("cases", play)


@pytest.fixture
def runs(three: Path, tmp_path: Path) -> Path:
    """The same three runs, for oneself."""
    return shutil.copytree(three, tmp_path / "runs")


@pytest.fixture
def register(tmp_path: Path) -> Path:
    """The folder of a register that is not begun."""
    return tmp_path / "register"


@pytest.fixture(scope="session")
def dying() -> Callable[[Callable[[], object], int], bool]:
    """Do a deed in a child that dies by SIGKILL before its change `n`; say if it died.

    A change is one of a file's or of a folder's on the disk, or a database's commit.
    """

    def die(deed: Callable[[], object], n: int) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # pytest-xdist's thread
            child = os.fork()
        if child == 0:
            _die_at(n)
            try:
                deed()
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return True
        assert status == 0, "it failed instead of dying"
        return False

    return die


def _die_at(n: int) -> None:
    left = n

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Deadly(atomic_io.Disk):
        pass

    for name in ("write", "sync", "rename", "delete", "make_folder", "sync_folder"):
        setattr(Deadly, name, _after(count, getattr(atomic_io.Disk, name)))
    atomic_io.disk = Deadly()
    event.listen(Engine, "commit", count)

    class DeadlyDatabase(sqlite3.Connection):
        def execute(self, sql, *values):  # pyright: ignore[reportIncompatibleMethodOverride]
            if sql in ("COMMIT", "VACUUM"):
                count()
            return super().execute(sql, *values)

    connect = sqlite3.connect
    sqlite3.connect = lambda *a, **k: connect(*a, **{"factory": DeadlyDatabase, **k})


def _after(count: Callable[..., None], change: Callable[..., None]):
    def deadly(*args: object) -> None:
        count()
        change(*args)

    return deadly
