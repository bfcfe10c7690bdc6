"""Trackers that the settings name follow a run's rounds, each in a thread of its own."""

import logging
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from covey.base.components import create
from covey.base.files import make_folder, read_text, replace_whole
from covey.base.history import History
from covey.base.own_code import only_from
from covey.report.queries import final_figures, replays, round_figures, settings_for_trackers
from covey.runtime.folder import RunFolder
from covey.runtime.session import Observer
from covey.settings.trackers import Background, TrackedRun, Tracker

log = logging.getLogger(__name__)


@contextmanager
def tracked(folder: RunFolder, observe: Observer) -> Generator[Observer]:
    """Pass every round to the trackers that a run's settings name, beside `observe`.

    None of them delays a round or stops the run: each has a thread of its own, one that
    fails is dropped with a warning, and one that hangs keeps the end waiting for a few
    seconds.
    """
    config = folder.config()
    if not config.tracking:
        yield observe
        return
    threads = [
        _in_background(folder, tracker.name, tracker.own_settings()) for tracker in config.tracking
    ]

    def send(history: History) -> None:
        for each in threads:
            each.submit(history)
        observe(history)

    with ExitStack() as ending:
        for each in threads:
            ending.callback(each.wait)
        for each in threads:
            ending.callback(each.stop)  # all of them, before the first is waited for
        yield send


def _in_background(folder: RunFolder, name: str, options: Mapping[str, Any]) -> Background[History]:
    def make() -> Tracker:
        with only_from(folder.origins()):  # of this thread alone
            return create("tracker", {"name": name, **options}, "tracking", Tracker)

    def failed(why: str) -> None:
        log.warning(
            "The tracker %s was dropped: %s. The run goes on without it", *(name, why.rstrip("."))
        )

    follower = Follower(folder, name, make)
    return Background(follower.follow, follower.close, failed)


class Follower:
    """One tracker, and what it received so far."""

    def __init__(self, folder: RunFolder, name: str, make: Callable[[], Tracker]) -> None:
        self._folder, self._name, self._make = folder, name, make
        make_folder(folder.tracking)
        identity = folder.tracking / "id"  # distinguishes this run from all others
        if not identity.exists():
            replace_whole(identity, secrets.token_hex(6).encode())
        self._id = read_text(identity)
        self._tracker: Tracker | None = None
        self._replays = self._next = 0
        self._ended = False

    def follow(self, history: History) -> Iterator[bool]:
        """Send what the tracker does not hold; yield often, True for a round sent.

        After a roll back, all rounds that count are sent anew.
        """
        if not history.rounds:
            return
        tracker, count = self._tracker, replays(history)
        if tracker is None or count != self._replays:
            tracker = self._tracker = tracker or self._make()
            place = (self._folder.tracking / self._name.replace(":", "-")).resolve()
            make_folder(place)
            run = TrackedRun(
                name=self._folder.path.resolve().name,
                id=self._id,
                replays=count,
                folder=place,
                settings=settings_for_trackers(self._folder.config()),
            )
            self._next = tracker.begin(run)
            self._replays, self._ended = count, False
            yield False
        for t, figures in round_figures(history, self._next):
            tracker.log(t, figures)
            self._next = t + 1
            yield True
        if history.finished and not self._ended:
            tracker.end(final_figures(history))
            self._ended = True

    def close(self) -> None:
        """Close the tracker, if it was opened."""
        if self._tracker is not None:
            self._tracker.close()
