"""A tracker that fails or hangs costs a warning, never a round."""

import logging
from time import monotonic

import pytest

from covey.api import tracking
from trackers.conftest import LINES, lines_of

BROKEN = "plugins.tracker_broken:Broken"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "how"), [("begin", "fails"), ("close", "fails"), ("log", "fails"), ("log", "hangs")]
)
def test_the_run_ends_as_it_would_have(play, caplog, monkeypatch, when, how):
    monkeypatch.setattr(tracking, "PATIENCE", 1.0)
    with caplog.at_level(logging.WARNING, "covey"):
        played = play(tracking=[{"name": BROKEN, "when": when, "how": how}, LINES])
    assert played.summary.finished
    assert [t for t, _ in lines_of(played.folder)] == [0, 1, 2, "end"]
    (warning,) = [record.getMessage() for record in caplog.records]
    cause = f"no answer to {when}" if how == "fails" else "has not recorded all rounds 1 s"
    assert cause in warning
    assert warning.startswith(f"The tracker {BROKEN} was dropped")
    assert warning.endswith("The run goes on without it")


def test_several_that_hang_are_waited_for_together(play, caplog, monkeypatch):
    monkeypatch.setattr(tracking, "PATIENCE", 0.2)
    hanging = {"name": BROKEN, "when": "begin", "how": "hangs"}
    began = monotonic()
    with caplog.at_level(logging.WARNING, "covey"):
        assert play(tracking=[hanging] * 50, rounds=1).summary.finished
    assert monotonic() - began < 8  # and not 50 times as long as one takes
    assert len(caplog.records) == 50
