"""Ratios, limits and regressions by hand, and every bench of performance once."""

from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Literal

import pytest
import torch

from covey.errors import ConfigError
from covey.rng import Streams
from covey_papers.bench import MEMORY, SCALE, SPEED, Comparison, Effort, changes
from covey_papers.bench.performance.around import Parts, parts_of
from covey_papers.bench.performance.card import (
    NO_CARD,
    OnCard,
    fractions_of,
    product_flops,
    round_flops,
)
from covey_papers.bench.performance.comparison import Limit, Timed, compared, unknown
from covey_papers.bench.performance.federation import Federation, Shape, images_of
from covey_papers.bench.performance.local_training import module_of
from covey_papers.bench.performance.memory import bound_of
from covey_papers.bench.performance.memory_probe import MemoryCase, MemoryFound
from covey_papers.bench.performance.peers import PeerError, PeerLoop
from covey_papers.bench.performance.plain_loop import PlainLoop
from covey_papers.bench.performance.scale import early_and_late
from covey_papers.bench.performance.shapes import BLAZEFL, PFL_CIFAR, sized
from covey_papers.bench.performance.timing import alternated, rate
from covey_papers.bench.performance.uneven import least_makespan, log_normal_sizes

QUICK = Effort(quick=True, repeats=1, workers=2)
TINY = Shape((7, 4), (1, 1, 5), "linear", batch=2, epochs=3)


def row(name: str, ratio: float | None, *, smaller: bool = False) -> Comparison:
    spread = None if ratio is None else (ratio, ratio)
    return Comparison(name, "1", "2", ratio, spread, "", None, smaller)


def test_the_figure_is_the_median_of_the_pairs() -> None:
    timed = Timed(covey=(1.0, 2.0, 4.0), peer=(2.0, 2.0, 2.0))
    assert timed.speeds == (2.0, 1.0, 0.5)
    assert timed.durations == (0.5, 1.0, 2.0)
    found = compared("a", ("x", "y"), timed.speeds, Limit(1.0))
    assert (found.ratio, found.spread, found.met) == (1.0, (0.5, 2.0), True)
    assert found.limit == ">= 1"
    assert not found.smaller_is_better


@pytest.mark.parametrize(
    ("limit", "met"),
    [
        (Limit(1.5), False),
        (Limit(1.5, at_most=True), True),
        (Limit(50, at_most=True, unit="microseconds"), False),
        (None, None),
    ],
)
def test_a_limit_holds_of_the_ratio_or_of_what_is_judged(
    limit: Limit | None,
    met: bool | None,  # noqa: FBT001
) -> None:
    judged = 60.0 if limit and limit.unit else None
    assert compared("a", ("", ""), [1.2], limit, judged).met is met


def test_what_is_not_compared_has_no_ratio_and_is_not_met() -> None:
    found = unknown("a", "-", Limit(3), "not installed")
    assert (found.ratio, found.met, found.limit) == (None, None, ">= 3")


def test_a_change_is_worse_beyond_the_tolerance_in_the_figures_own_direction() -> None:
    before = [row("up", 1.0), row("down", 1.0, smaller=True), row("gone", 1.0)]
    now = [row("up", 0.89), row("down", 1.12, smaller=True), row("new", 1.0)]
    found = {each.figure: each for each in changes(before, now, 0.1)}
    assert set(found) == {"up", "down"}
    assert found["up"].worse
    assert found["down"].worse
    assert found["up"].factor == pytest.approx(0.89)
    within = [row("up", 0.91), row("down", 1.1, smaller=True)]
    assert not any(each.worse for each in changes(before, within, 0.1))
    assert changes([row("up", None)], now, 0.1) == []


def test_a_row_reads_back_and_another_object_does_not() -> None:
    assert Comparison.of(asdict(row("a", 2.0))) == row("a", 2.0)
    with pytest.raises(ConfigError, match="figure, covey, peer"):
        Comparison.of({"figure": "a"})


def test_pairs_are_measured_in_turn_after_one_that_does_not_count() -> None:
    calls: list[str] = []
    ticks = count()
    timed = alternated(
        lambda: calls.append("c"),
        lambda: calls.append("p"),
        replace(QUICK, repeats=2),
        lambda: float(next(ticks)),
    )
    assert "".join(calls) == "cp" + "cp" + "pc"
    assert timed == Timed((1.0, 1.0), (1.0, 1.0))
    assert rate(10, (1.0, 2.0, 5.0), "images") == "5 images/s"


def test_the_least_makespan_by_hand() -> None:
    assert least_makespan((10, 10, 40), workers=2) == 40
    assert least_makespan((10, 10, 40), workers=1) == 60
    sizes = log_normal_sizes(100)
    assert all(n % 10 == 0 and n > 0 for n in sizes)
    assert max(sizes) > 4 * sorted(sizes)[50]


def test_quarters_of_a_run() -> None:
    assert early_and_late([1, 2, 3, 4, 5, 6, 7, 8]) == ([1, 2], [7, 8])


def test_the_bound_of_memory_by_hand() -> None:
    case = MemoryCase(clients=4, images=1, hidden=0, workers=2, clusters=3)
    assert bound_of(case, MemoryFound(start=0, peak=0, data=100, model=7)) == 205


def test_the_plain_loop_takes_the_same_steps_as_the_federation() -> None:
    """Each epoch of 7 and 4 images in batches of 2: 4 and 2 steps."""
    data = images_of(TINY, Streams(0))
    steps: list[int] = []

    class Counting:
        def zero_grad(self) -> None: ...

        def step(self) -> None:
            steps.append(torch.get_num_threads())

    before = torch.get_num_threads()
    PlainLoop(
        module_of(TINY), TINY, data, QUICK, optimizer=lambda _, __: Counting()
    ).play()
    assert steps == [1] * 3 * (4 + 2)
    assert torch.get_num_threads() == before
    assert TINY.images == 33


def test_a_federation_plays_one_round_after_another() -> None:
    federation = Federation(TINY, images_of(TINY, Streams(0)), QUICK)
    assert federation.data_bytes == 11 * (5 + 8)
    assert federation.model_bytes == 60 * 4
    federation.play()
    federation.play()


def test_operations_by_hand() -> None:
    """Five inputs and ten outputs: 100 forward and 100 for the weights' gradient.

    Matrices of width 256 and twenty products: 2 n^3 operations each.
    """
    data = images_of(TINY, Streams(0))
    assert round_flops(module_of(TINY), TINY, data[0]) == 33 * 200
    assert product_flops(256) == 20 * 2 * 256**3
    assert fractions_of([1.0, 3.0], [4.0, 4.0]) == [0.25, 0.75]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rounds_as_a_fraction_of_the_processors_matrix_rate(
    precision: Literal["float32", "bfloat16"],
) -> None:
    figure = OnCard(TINY, precision)
    found = figure.measured("vmap", QUICK, torch.device("cpu"))
    assert found.ratio is not None
    assert 0 < found.ratio < 1
    assert found.covey.endswith("TFLOP/s")
    assert (found.limit, found.met) == ("", None)
    if not torch.cuda.is_available():
        assert figure("vmap", QUICK).note == NO_CARD


def test_the_benchmarks_of_others_have_their_shapes() -> None:
    assert (len(PFL_CIFAR.sizes), PFL_CIFAR.sizes[0]) == (1000, 50)
    assert (PFL_CIFAR.cohort, PFL_CIFAR.batch) == (50, 10)
    assert (len(BLAZEFL.sizes), BLAZEFL.epochs, BLAZEFL.batch) == (100, 5, 50)
    assert sum(p.numel() for p in module_of(BLAZEFL).parameters()) == 62_006
    assert sized(BLAZEFL, QUICK).images == 6 * 100 * 5
    assert sized(BLAZEFL, Effort()) is BLAZEFL


def program(folder: Path, text: str) -> Path:
    """Write an interpreter that runs a text, whatever it is asked to run."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_peer_plays_a_round_for_every_line(tmp_path: Path) -> None:
    rounds = "echo ready; while read word; do echo done; echo ready; done"
    python = program(tmp_path, rounds)
    with PeerLoop(python, "pfl_fedavg.py", tmp_path / "task.pt", 1) as peer:
        peer.play()
        peer.play()


def test_a_peer_that_stops_says_why(tmp_path: Path) -> None:
    python = program(tmp_path, "echo ready; read word; echo 'no memory' >&2; exit 3")
    with (
        PeerLoop(python, "pfl_fedavg.py", tmp_path / "task.pt", 1) as peer,
        pytest.raises(PeerError, match="no memory"),
    ):
        peer.play()


@pytest.mark.parametrize("name", [n for n in SPEED if "pfl-" in n or "flower" in n])
def test_without_a_peer_its_rows_say_how_to_get_it(name: str, tmp_path: Path) -> None:
    if name == "pfl-cifar10":
        return
    found = SPEED[name](name, replace(QUICK, peers=tmp_path))
    assert found.ratio is None
    assert "make bench-peers" in found.note


def test_what_is_not_rounds_is_told_apart_by_the_ledger() -> None:
    """Rounds of 2, 2 and 3 seconds: the first begins 5 s after the command."""
    written = [107.0, 109.0, 111.0, 114.0, 120.0]  # the last one after the audit
    assert parts_of(100.0, written, 121.0) == Parts(before=5.0, after=7.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPEED, *SCALE, *MEMORY])
def test_every_figure_in_its_small_version(name: str, tmp_path: Path) -> None:
    for figures in (SPEED, SCALE, MEMORY):
        if name in figures:
            found = figures[name](name, replace(QUICK, peers=tmp_path))
            assert found.figure == name
            if found.ratio is None:
                missing = ("make bench-peers", NO_CARD, "COVEY_DATA")
                assert any(each in found.note for each in missing)
            elif figures is not MEMORY:  # next to nothing may take no memory
                assert found.ratio > 0
