from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

NUMBERS = count()
"""Never the same twice: pytest may make the fixture again, and the server stays."""


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def fresh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Gives a place without a ledger, another one each time, on each database."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("ledgers")
        return (f"{folder}/{n}.sqlite" for n in NUMBERS).__next__
    postgres = request.getfixturevalue("postgres")
    return (postgres.run(f"{n}") for n in NUMBERS).__next__


@pytest.fixture
def where(fresh: Callable[[], str]) -> str:
    """A place without a ledger."""
    return fresh()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there, for what only a file can show."""
    return tmp_path / "ledger.sqlite"
