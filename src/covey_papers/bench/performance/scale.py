"""The figures of `covey bench scale`: what a run is around its rounds, and what grows.

A further figure is one function of its name and the effort, and one line of `SCALE`.
"""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType

from covey.build import BuiltRun, Overrides, build_run
from covey.config import Config
from covey.rng import Streams
from covey.runtime import PlayedRound, RunFolder, continue_run, open_session
from covey_papers.bench.performance.around import AroundRounds
from covey_papers.bench.performance.comparison import Comparison, Limit, compared
from covey_papers.bench.performance.federation import (
    Federation,
    images_of,
    settings_of,
)
from covey_papers.bench.performance.large import anonymity_sets, large_ledger
from covey_papers.bench.performance.shapes import MANY
from covey_papers.bench.performance.speed import Measure
from covey_papers.bench.performance.timing import Effort, alternated, clock_of

__all__ = ["SCALE", "early_and_late", "round_seconds", "tiny_run"]

FLAT = Limit(1.05, at_most=True)
LINEAR = Limit(1.1, at_most=True)
WARM_UP = 5
"""Rounds that do not count: the first ones find nothing in caches."""


def flat_rounds(figure: str, effort: Effort) -> Comparison:
    """Return the time of a round late in a run, on its ledger, against early in it."""
    clients, rounds = (10, 30) if effort.quick else (20, 600)
    with TemporaryDirectory() as folder:
        seconds = round_seconds(Path(folder), clients, rounds, effort)
    early, late = early_and_late(seconds[WARM_UP:])
    ratios = [b / a for a, b in zip(early, late, strict=True)]
    told = f"late {1e3 * median(late):.1f} ms", f"early {1e3 * median(early):.1f} ms"
    # Single rounds differ by more than the limit; a run grows in its median.
    return replace(
        compared(figure, told, [median(late) / median(early)], FLAT),
        spread=(min(ratios), max(ratios)),
    )


def tiny_run(folder: Path, clients: int, rounds: int, effort: Effort) -> BuiltRun:
    """Return a run in which next to nothing is trained; its key is in this folder."""
    shape = replace(MANY, sizes=(10,) * clients)
    data = {f"client-{i:03d}": e for i, e in enumerate(images_of(shape, Streams(0)))}
    key = {"source": "seeded", "key_path": str(folder / "signing-key.pem")}
    settings = {
        **settings_of(shape, effort.workers),
        "rounds": rounds,
        "secrets": key,
    }
    return build_run(Config.of(settings), Overrides(clients=data))


def round_seconds(
    folder: Path,
    clients: int,
    rounds: int,
    effort: Effort,
    after: Callable[[int], None] = lambda _: None,
) -> list[float]:
    """Play all rounds but the last of a tiny run in this folder; return their times.

    `after` is called with the number of each round.
    """
    run, clock = tiny_run(folder, clients, rounds, effort), clock_of(effort)
    begun, lasted = [clock()], array("d")

    def on_round(played: PlayedRound) -> None:
        ended = clock()
        lasted.append(ended - begun[0])
        after(played.round)
        begun[0] = clock()

    place = RunFolder.create(folder / "run", run.config)
    with open_session(run, place) as session:
        continue_run(session, rounds - 1, on_round=on_round)
    return lasted.tolist()


def early_and_late(seconds: list[float]) -> tuple[list[float], list[float]]:
    """Return the first and the last quarter, of one length."""
    quarter = max(1, len(seconds) // 4)
    return seconds[:quarter], seconds[-quarter:]


def clients_per_round(figure: str, effort: Effort) -> Comparison:
    """Return what one client of a large cohort takes, against one of a small cohort."""
    few, many = (10, 100) if effort.quick else (100, 10_000)
    large = replace(MANY, sizes=(10,) * many)
    small = replace(large, sizes=(10,) * few)
    made = [
        Federation(shape, images_of(shape, Streams(0)), effort)
        for shape in (large, small)
    ]

    def small_rounds() -> None:
        for _ in range(many // few):
            made[1].play()

    timed = alternated(made[0].play, small_rounds, effort)
    each = 1e6 / many
    told = (
        f"{each * median(timed.covey):,.0f} microseconds each of {many:,}",
        f"{each * median(timed.peer):,.0f} microseconds each of {few:,}",
    )
    return compared(figure, told, timed.durations, LINEAR)


SCALE: Mapping[str, Measure] = MappingProxyType(
    {
        "first-round": AroundRounds("fedavg", 4, only_before=True),
        "around-fedavg": AroundRounds("fedavg", 8),
        "around-ifca": AroundRounds("ifca", 12),
        "rounds": flat_rounds,
        "clients-per-round": clients_per_round,
        "anonymity-sets": anonymity_sets,
        "ledger": large_ledger,
    }
)
"""What is measured, by name."""
