"""Precision at the most exposed 1%, where the truth is known."""

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray

from covey.build import build_run
from covey.config import Config
from covey_papers.bench import (
    ChoiceOutcome,
    ReferenceTraces,
    choice_means,
    play_references,
    precisions,
    read_references,
)

RECORDS, MODELS, ROUNDS = 1200, 16, 8


@pytest.fixture(scope="module")
def known() -> ReferenceTraces:
    """One record in 20 gives itself away: 10 more in confidence, and its loss falls."""
    draw = np.random.default_rng(0)
    firsts = [draw.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS // 2)]
    inside = np.stack([side for half in firsts for side in (half, ~half)], axis=1)
    weak = np.arange(RECORDS) % 20 == 0
    confidences = draw.normal(size=inside.shape) + 10 * (inside & weak[:, None])
    falling = np.linspace(3, 0, ROUNDS) * weak[:, None, None]
    losses = 1 + draw.normal(0, 0.05, (*inside.shape, ROUNDS)) + falling
    losses[~inside] = np.nan
    return ReferenceTraces(confidences, inside, losses, losses, (10.0, 0.5))


def test_what_is_told_by_the_losses_is_found(known: ReferenceTraces):
    found = {(r.score, r.false_positives): r.precision for r in precisions(known)}
    assert found["LT-IQR, as training sees them", 0.01] == 1.0
    assert found["LiRA, other references", 0.01] > 0.9
    assert 0.03 < found["any member (chance)", 0.01] < 0.09


def test_losses_that_tell_nothing_find_what_chance_finds(known: ReferenceTraces):
    noise: ndarray = np.random.default_rng(1).normal(1, 0.1, known.trained.shape)
    noise[~known.inside] = np.nan
    blind = ReferenceTraces(known.confidences, known.inside, noise, noise, (1.0, 0.0))
    found = {(r.score, r.false_positives): r for r in precisions(blind)}
    row = found["LT-IQR, as training sees them", 0.01]
    assert abs(row.precision - 0.06) < 4 * row.standard_error + 0.02


def test_references_are_played_once(tmp_path: Path):
    settings = {
        "rounds": 2,
        "population": {
            "clients": 4,
            "examples_per_client": 30,
            "minority_share": 0.25,
            "audit_examples": 100,
        },
        "model": {"name": "linear"},
        "method": {"name": "fedavg"},
        "train": {"keep_losses": True},
    }
    run, played = build_run(Config.of(settings)), list[int]()
    play_references(run, 3, tmp_path, lambda index, _: played.append(index))
    play_references(run, 4, tmp_path, lambda index, _: played.append(index))
    assert played == [0, 1, 2, 3]
    found = read_references(run, tmp_path)
    assert found.inside.shape == (192, 4)  # 4 clients with 24, and as many others
    assert (found.inside.sum(axis=0) == 96).all()
    assert (found.inside[:, 0] != found.inside[:, 1]).all()
    for losses in (found.trained, found.received):
        assert np.array_equal(np.isfinite(losses).all(axis=2), found.inside)


def test_means_by_hand():
    runs = [ChoiceOutcome("a", s, 40, v, v, 0.5, 1) for s, v in enumerate((3, 5))]
    (row,) = choice_means(runs)
    assert (row.violations, row.violations_error, row.seeds) == (4.0, 1.0, 2)
    assert choice_means(runs[:1])[0].violations_error is None
