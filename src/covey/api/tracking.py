"""Trackers that the settings name follow a run's rounds, each in a thread of its own."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, cast

from covey.base.files import make_folder
from covey.report.queries import round_figures
from covey.runs.evaluation import OnRound, RoundMetrics
from covey.runs.folder import RunFolder
from covey.settings.load import Config, flat
from covey.settings.reference import choices, settings_by_key
from covey.settings.schema import Figures, TrackedRun, Tracker

log = logging.getLogger(__name__)

PATIENCE = 20.0
"""Seconds that the end of a run waits for what is still to be recorded."""


@contextmanager
def tracked(
    config: Config, folder: RunFolder, on_round: OnRound | None
) -> Generator[OnRound | None]:
    """Yield a callback that also passes each round to the trackers of these settings.

    None of them delays a round or stops the run: one that fails is dropped with a warning, and
    so is what one has not recorded a few seconds after the last round.
    """
    if not config.tracking:
        yield on_round
        return
    followers = [_Follower(tracker, config, folder) for tracker in config.tracking]

    def pass_on(played: RoundMetrics) -> None:
        for follower in followers:
            follower.rounds.put((played.round_index, round_figures(played)))
        if on_round is not None:
            on_round(played)

    try:
        yield pass_on
    finally:
        for follower in followers:
            follower.rounds.put(None)
        deadline = monotonic() + PATIENCE
        for follower in followers:
            follower.wait(max(0.0, deadline - monotonic()))


class _Follower:
    """One tracker in a thread.

    Attributes:
        rounds: what it is to record; None: nothing comes any more.
    """

    def __init__(self, tracker: Tracker, config: Config, folder: RunFolder) -> None:
        self.rounds = SimpleQueue[tuple[int, Figures] | None]()
        self._name = tracker.name
        place = (folder.tracking / self._name.replace(":", "-")).resolve()
        make_folder(folder.tracking)
        make_folder(place)
        run = TrackedRun(folder.path.resolve().name, place, shareable_settings(config))
        # the settings' own object may follow another run of this program
        self._tracker = tracker.model_copy(deep=True)
        self._thread = Thread(target=self._follow, args=(run,), daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the tracker to close, and drop it if it has not."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._warn(f"it has not recorded all rounds {PATIENCE:g} s after the last one")

    def _follow(self, run: TrackedRun) -> None:
        try:
            self._tracker.begin(run)
            while (played := self.rounds.get()) is not None:
                self._tracker.log(*played)
            self._tracker.close()
        except BaseException as error:  # whatever somebody's code raises
            self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, why: str) -> None:
        log.warning(
            "The tracker %s was dropped: %s. The run goes on without it",
            self._name,
            why.rstrip("."),
        )


def shareable_settings(config: Config) -> dict[str, Any]:
    """Return the settings that say nothing of who takes part, and of no place.

    Numbers and truths, and names of components and other choices; of tables of options
    the numbers that stand in them. Whatever is free text may hold a name, a path or a
    URL, and what a user's own component calls its own may be anything.
    """
    settings, known = flat(config.model_dump(mode="json")), settings_by_key()

    def is_shareable(key: str, value: object) -> bool:
        above, _, option = key.rpartition(".")
        own = option != "name" and ":" in str(settings.get(f"{above}.name", ""))
        here = known.get(key) or known.get(key.removesuffix(".name"))
        if own or here is None:
            return False
        return bool(choices(here.spec)) or (value != [] and _without_text(value))

    return {key: value for key, value in settings.items() if is_shareable(key, value)}


def _without_text(value: object) -> bool:
    if isinstance(value, Mapping):
        value = list(cast("Mapping[str, object]", value).values())
    if isinstance(value, list):
        return all(map(_without_text, cast("list[object]", value)))
    return not isinstance(value, str)
