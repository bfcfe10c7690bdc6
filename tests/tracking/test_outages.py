"""A tracker that fails or hangs costs a warning, never a round."""

import logging
from collections.abc import Iterator
from threading import Event
from time import monotonic

import pytest

from covey.settings import trackers as background
from covey.settings.trackers import Background
from tracking.conftest import LINES, lines_of

BROKEN = "plugins.tracker_broken:Broken"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "how"), [("begin", "fails"), ("close", "fails"), ("log", "hangs")]
)
def test_the_run_ends_as_it_would_have(play, caplog, monkeypatch, when, how):
    monkeypatch.setattr(background, "PATIENCE", 1.0)
    with caplog.at_level(logging.WARNING, "covey"):
        played = play(tracking=[{"name": BROKEN, "when": when, "how": how}, LINES])
    assert played.summary.finished
    assert [t for t, _ in lines_of(played.folder)] == [0, 1, 2, "end"]
    (told,) = [each.getMessage() for each in caplog.records]
    cause = f"no answer to {when}" if how == "fails" else "has not answered for 1 s"
    assert cause in told
    assert told.startswith(f"The tracker {BROKEN} was dropped")
    assert told.endswith("The run goes on without it")


def test_several_that_hang_are_waited_for_together(monkeypatch):
    monkeypatch.setattr(background, "PATIENCE", 0.2)
    never, failures = Event(), list[str]()

    def act(_: int) -> Iterator[bool]:
        yield never.wait()

    threads = [Background[int](act, lambda: None, failures.append) for _ in range(50)]
    began = monotonic()
    for each in threads:
        each.submit(1)
    for each in threads:
        each.stop()
    for each in threads:
        each.wait()
    assert monotonic() - began < 8  # and not 50 times as long as one takes
    assert failures == ["it has not answered for 0.2 s"] * 50
    never.set()  # who wakes up later does nothing more, and says nothing again
    for each in threads:
        each._thread.join()
    assert len(failures) == 50
