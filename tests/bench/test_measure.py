"""One small federation through the bench: what is counted, and what is kept."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

from covey.config import Config
from covey.data.examples import Examples
from covey.engine import Recipe, Scored, ScoringJob, TrainingJob
from covey.rng import Streams
from covey_papers.bench import (
    FULL,
    QUICK,
    BenchSet,
    Measured,
    Metered,
    Row,
    found,
    measured,
    put,
)

SMALL = BenchSet(
    "a small set",
    {
        "rounds": 4,
        "population": {
            "clients": 4,
            "examples_per_client": 30,
            "minority_share": 0.5,
            "audit_examples": 60,
        },
        "model": {"name": "mlp"},
        "method": {"name": "ifca", "initialisation": "groups"},
        "redteam": {"shadows": 2, "pool": 300},
    },
    (1, 2),
)


@pytest.fixture(scope="module")
def looked() -> tuple[Measured, list[Row]]:
    seen: list[Row] = []
    ticks = count()
    return measured(SMALL, lambda: float(next(ticks)), seen.append), seen


def test_every_cluster_is_looked_at_before_every_round(
    looked: tuple[Measured, list[Row]],
):
    found, seen = looked
    assert [(r.cluster, r.round_index) for r in seen] == [
        (0, 1),
        (1, 1),
        (0, 2),
        (1, 2),
    ]
    assert found.rows == tuple(seen)
    for row in seen:
        assert row.size == 2 * 24
        assert row.matchable
        assert set(row.told) == {"shadow", "federated"}
        assert row.told["federated"].risk is not None
        assert row.told["federated"].round_index == row.round_index


def test_the_controls_are_run_on_the_last_models(looked: tuple[Measured, list[Row]]):
    controls = looked[0].controls
    assert set(controls) == {
        "random labels",
        "unseen halves, cluster 0",
        "unseen halves, cluster 1",
    }
    assert controls["random labels"].risk > 0.7
    assert abs(controls["unseen halves, cluster 0"].risk - 0.5) < 0.2  # 120 records


def test_images_are_counted_where_they_are_trained(looked: tuple[Measured, list[Row]]):
    # 4 clients of 24 images, 2 rounds; two shadows as large as each cluster.
    costs = looked[0].costs
    assert costs["clients"].images == 4 * 24 * 2
    assert costs["shadow"].images == 2 * costs["clients"].images
    assert costs["federated"].images == 0
    assert all(cost.seconds > 0 for cost in costs.values())


def test_the_sources_do_not_disturb_the_run(looked: tuple[Measured, list[Row]]):
    late = measured(replace(SMALL, looks=(2,)), lambda: 0.0, lambda _: None)
    truths = {(r.cluster, r.round_index): r.truth for r in looked[0].rows}
    assert {(r.cluster, r.round_index): r.truth for r in late.rows} == {
        place: truth for place, truth in truths.items() if place[1] == 2
    }
    figures = [r.told["shadow"].risk for r in looked[0].rows if r.round_index == 2]
    built_later = [r.told["shadow"].risk for r in late.rows]
    assert None not in figures
    assert len(figures) == len(built_later)


def test_a_figure_says_that_the_groups_were_inferred():
    settings = {**SMALL.settings, "redteam": {"profile": "inferred", "pool": 300}}
    guessed = BenchSet("guessed", settings, (2,))
    reasons = [
        row.told["shadow"].reason
        for row in measured(guessed, lambda: 0.0, lambda _: None).rows
    ]
    assert any("groups inferred from the model's loss" in reason for reason in reasons)


def test_what_lies_on_the_shelf_is_what_was_put_there(
    looked: tuple[Measured, list[Row]], tmp_path: Path
):
    assert found(tmp_path, SMALL) is None
    put(tmp_path, SMALL, looked[0])
    assert found(tmp_path, SMALL) == looked[0]
    assert found(tmp_path, replace(SMALL, looks=(1,))) is None
    assert [path.name for path in tmp_path.iterdir()] == ["a-small-set.json"]


class Slow:
    """Trains nothing, and takes a second for each job."""

    def __init__(self) -> None:
        self.now = 0.0

    def train(self, jobs):
        for job in jobs:
            self.now += 1
            yield job.start

    def score(self, jobs) -> list[Scored]:
        self.now += 10 * len(jobs)
        return []


def test_a_meter_counts_epochs_and_steps_and_only_training_time():
    slow = Slow()
    meter = Metered(slow, lambda: slow.now)
    empty = torch.empty(7, 1), torch.zeros(7, dtype=torch.int64)
    epochs, steps = Recipe(local_epochs=3), Recipe(local_steps=4, batch_size=5)
    jobs = [TrainingJob({}, Examples(*empty), Streams(0), r) for r in (epochs, steps)]
    with meter:
        for _ in meter.train(jobs):
            slow.now += 100  # what the caller does with a model is no training
        meter.score([ScoringJob({}, Examples(*empty))])
    assert meter.cost.images == 3 * 7 + 4 * 5
    assert meter.cost.training == 2
    assert meter.cost.seconds == 212


@pytest.mark.parametrize("bench", [*QUICK, *FULL], ids=lambda each: each.name)
def test_every_set_is_a_valid_run_that_reaches_its_looks(bench: BenchSet):
    config = Config.of({**bench.settings, "redteam": {"source": "shadow"}})
    assert max(bench.looks) <= config.rounds
    assert config.population.holdout > 0  # `federated` needs it


def test_the_whole_bench_has_sixty_models():
    assert sum(2 * len(bench.looks) for bench in FULL) >= 60
