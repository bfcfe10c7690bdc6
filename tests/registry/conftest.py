import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from covey import run
from registry.tiny import TINY

Make = Callable[[Path], object]


@pytest.fixture(scope="session")
def tiny_run(once: Callable[[str, Make], Path]) -> Path:
    """A whole run, only to be read."""
    return once("registry", lambda at: run(config=TINY, out=at / "run")) / "run"


@pytest.fixture
def put(tiny_run: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Put a copy of the whole run below the folder `roots`."""
    return lambda name: shutil.copytree(tiny_run, tmp_path / "roots" / name)


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    folder = tmp_path / "roots"
    folder.mkdir()
    return folder
