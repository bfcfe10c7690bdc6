from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey import Config, Result, run

TINY = {
    "rounds": 4,
    "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 60},
    "model": {"name": "mlp"},
    "train": {"learning_rate": 0.5},
    "redteam": {"every": 2},
}


def tiny(**sections: Any) -> Config:
    """Return settings of a run that takes a second, with some sections replaced."""
    merged: dict[str, Any] = dict(TINY)
    for name, value in sections.items():
        inner = isinstance(value, dict)
        merged[name] = {**merged.get(name, {}), **value} if inner else value
    return Config.of(merged)


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Result]:
    """Play a tiny run in a folder of its own."""
    made: list[Result] = []

    def played(**sections: object) -> Result:
        made.append(run(config=tiny(**sections), out=tmp_path / f"run-{len(made)}"))
        return made[-1]

    return played


@pytest.fixture(scope="session")
def settings() -> Callable[..., Config]:
    return tiny
