"""Several settings and seeds; trackers that follow a run; repairing a run's folder."""

import csv
import json
import logging
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from covey.base.errors import ConfigError, RunError
from covey.base.files import make_folder, read_text, replace_whole
from covey.base.history import History
from covey.build.clients import Overrides
from covey.components.own_code import only_from
from covey.components.parts import Component, create
from covey.config.settings import Config, flat, idle_settings, take_strange
from covey.ledger.store import Ledger
from covey.report.comparison import comparison, frame_of, means
from covey.report.queries import final_figures, replays, round_figures, told_settings
from covey.runs.pages import page_over, reported
from covey.runs.parts import playable
from covey.runtime.damage import Damage, damages
from covey.runtime.folder import RunFolder, now
from covey.runtime.loop import play
from covey.runtime.session import Observer, open_session
from covey.runtime.states import missing_state
from covey.trackers import Background, TrackedRun, Tracker

log = logging.getLogger(__name__)


@contextmanager
def tracked(folder: RunFolder, observe: Observer) -> Generator[Observer]:
    """Tell the trackers that a run's settings name of every round, beside `observe`.

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

    def tell(history: History) -> None:
        for each in threads:
            each.tell(history)
        observe(history)

    with ExitStack() as ending:
        for each in threads:
            ending.callback(each.wait)
        for each in threads:
            ending.callback(each.stop)  # all of them, before the first is waited for
        yield tell


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
    """One tracker, and what it was told so far."""

    def __init__(self, folder: RunFolder, name: str, make: Callable[[], Tracker]) -> None:
        self._folder, self._name, self._make = folder, name, make
        make_folder(folder.tracking)
        identity = folder.tracking / "id"  # tells this run from all others
        if not identity.exists():
            replace_whole(identity, secrets.token_hex(6).encode())
        self._id = read_text(identity)
        self._tracker: Tracker | None = None
        self._replays = self._next = 0
        self._ended = False

    def follow(self, history: History) -> Iterator[bool]:
        """Tell what the tracker does not hold; yield often, True for a round told.

        After a roll back, all rounds that count are told anew.
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
                settings=told_settings(self._folder.config()),
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


@dataclass(frozen=True, slots=True)
class Examination:
    """What is damaged in a run's folder, and what was repaired.

    Attributes:
        damaged: now.
        repaired: was damaged before.
    """

    damaged: tuple[Damage, ...]
    repaired: tuple[Damage, ...] = ()


def examine(path: Path) -> Examination:
    """Look at every file that a run reads again; nothing is written.

    Raises:
        RunError: there is no run.
    """
    return Examination(tuple(damages(RunFolder.existing(path))))


def repair(path: Path) -> Examination:
    """Recover what can be recovered: rounds without a state are played again.

    Raises:
        CoveyError: another process is playing the run, or its rounds cannot be played
            here.
    """
    folder = RunFolder.existing(path)
    before = tuple(damages(folder))
    mendable = [each.repair for each in before if each.repair is not None]
    of_ledger = [each for each in before if each.path == folder.ledger_path]
    if mendable and any(each.repair is None for each in of_ledger):
        raise RunError(
            f"{folder.ledger_path} must be whole before anything is repaired by it: "
            f"restore it from a copy first."
        )
    if mendable:
        with Ledger.open(folder.ledger, now) as ledger:  # so nobody else writes the run
            if of_ledger:
                ledger.rebuild_participation()
            for mend in mendable:
                mend()
    with Ledger.read(folder.ledger) as ledger:
        lost, last = missing_state(folder, ledger), ledger.last_round()
        waiting = any(each.is_open for each in ledger.requests())
    if lost is not None and last is not None:  # these rounds are played, and no other
        run = playable(folder, Overrides(), "resume()")
        if run.client_backend is not None or waiting:
            raise RunError(
                f"The rounds after the last whole state are played by `covey resume "
                f"{folder.path}`: its clients are apart, or requests to leave wait for an "
                f"answer. Everything else is repaired."
            )
        with open_session(run, folder) as session:
            play(session, min(last + 1, run.config.rounds))
    after = tuple(damages(folder))
    return Examination(after, tuple(each for each in before if each not in after))


Axis = tuple[str, Sequence[Any]]
"""A setting as `section.key`, and the values that it takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The runs of a sweep, all of them at their end.

    Attributes:
        folder: where they are, each in a folder of its name.
        rows: one per run, with every swept setting, its name, and its figures.
        compared: the same without the settings, and FedAvg runs beside some of them.
        means: one per setting, over its seeds.
        table: sweep.csv, with the rows.
        page: report.html, on which they are compared pair by pair.
        histories: by name.
    """

    folder: Path
    rows: tuple[dict[str, Any], ...]
    compared: tuple[Mapping[str, Any], ...]
    means: tuple[Mapping[str, Any], ...]
    table: Path
    page: Path
    histories: Mapping[str, History]

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}, {len(self.histories)} runs)"

    def frame(self) -> Any:  # noqa: ANN401 - pandas has no types
        """Return a pandas DataFrame of `sweep.csv`.

        Raises:
            ConfigError: pandas is not installed.
        """
        return frame_of([*self.rows])


def variants_of(
    changed: Callable[[Sequence[tuple[str, Any]]], dict[str, Any]],
    axes: Sequence[Axis],
    seeds: Sequence[int],
) -> dict[str, Config]:
    """Return the settings by name; combinations that mean the same are played once.

    Args:
        changed: returns the settings with these pairs of `section.key` and value, nested
            and unchecked. Of a pair that the components there do not have nothing comes.
        axes: what is varied.
        seeds: with which every combination is played.

    Raises:
        ConfigError: settings do not fit, or what is varied changes nothing.
    """
    found: dict[str, Config] = {}
    meanings: list[Mapping[str, Any]] = []
    without_effect: list[Mapping[str, str]] = []
    values = ([(key, value) for value in values] for key, values in axes)
    for pairs, seed in product(product(*values), seeds):
        nested = changed([*pairs, ("seed", seed)])
        strange = take_strange(nested, [key for key, _ in pairs])
        settings = Config.of(nested)
        reasons = {each.key: each.reason for each in idle_settings(settings)} | strange
        without_effect.append(reasons)
        every = flat(settings.model_dump(mode="json"))
        meaning = {key: value for key, value in every.items() if key not in reasons}
        if meaning not in meanings:
            meanings.append(meaning)
            slug = "-".join(re.sub(r"[:/\\]", "_", str(value)) for _, value in pairs)
            found[f"{slug}-seed{seed}"] = settings
    for key, _ in axes:
        if key == "seed" or all(key in reasons for reasons in without_effect):
            seeds_of = "its seeds are those of --seeds"
            first = seeds_of if key == "seed" else without_effect[0].get(key, "")
            raise ConfigError(
                f"--over {key} changes no run of this sweep: {first}. Leave it out, or "
                f"change what makes it do nothing."
            )
    return found


def check_variant(folder: RunFolder, settings: Config) -> None:
    """Refuse a folder that holds a run with other settings than these.

    Raises:
        ConfigError: it does.
    """
    if folder.config_path.is_file() and folder.config().toml() != settings.toml():
        raise ConfigError(
            f"{folder.path} holds a run with other settings. Give the sweep another --out."
        )


def concluded_sweep(root: Path, variants: Mapping[str, Config], keys: Sequence[str]) -> Sweep:
    """Write a finished sweep's page and its table, and return what is in them."""
    folders = [RunFolder.existing(root / name) for name in variants]
    runs = [reported(folder) for folder in folders]
    compared, table = comparison(runs), root / "sweep.csv"
    rows = [
        {**{key: _value_of(variants[row["name"]], key) for key in keys}, **row}
        for row in compared
        if row["name"] in variants
    ]
    text = StringIO()
    writer = csv.DictWriter(
        text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    replace_whole(table, text.getvalue().encode())
    return Sweep(
        folder=root,
        rows=tuple(rows),
        compared=tuple(compared),
        means=tuple(means(runs)),
        table=table,
        page=page_over([each.path for each in folders], root / "report.html"),
        histories={run.name: run.history for run in runs},
    )


def _value_of(config: Config, key: str) -> object:
    """Return a setting by `section.key`; None: it has none. A table is told as JSON."""
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Component):
        own = found.own_settings()
        return json.dumps({"name": found.name, **own}, sort_keys=True) if own else found.name
    told = to_jsonable_python(found)
    return json.dumps(told, sort_keys=True) if isinstance(told, dict) else told
