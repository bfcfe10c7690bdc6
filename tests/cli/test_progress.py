"""The live display, on a terminal that a test can read."""

from io import StringIO

import pytest
from rich.console import Console

from covey import Config, run
from covey.cli import progress


@pytest.fixture
def terminal(monkeypatch):
    written = StringIO()
    wide = Console(file=written, force_terminal=True, width=100, height=40)
    monkeypatch.setattr(progress, "console", wide)
    return written


@pytest.mark.parametrize("method", ["ifca-mir", "local"])
def test_shows_rounds_accuracy_risk_violations_and_time_left(terminal, tmp_path, method):
    settings = {
        "rounds": 4,
        "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 60},
        "model": {"name": "mlp"},
        "method": {"name": method},
        "risk": {"every": 1},
    }
    with progress.shown("example") as observe:
        run(config=Config.of(settings), out=tmp_path / "run", observe=observe)
    text = terminal.getvalue()
    assert "round 4 of 4" in text
    assert "s left" in text
    for word in ("accuracy", "minority", "cluster", "measured risk", "unknown"):
        assert word in text
    assert ("..." in text) == (method == "local")  # it has a cluster per client
    assert "clients are in a cluster whose measured risk is above" in text
