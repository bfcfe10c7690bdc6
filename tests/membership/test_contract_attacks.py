"""What every attack keeps to, whoever wrote it."""

from itertools import product

import numpy as np
import pytest
import torch
from numpy import ndarray

from covey import Attack, Signals
from covey.base.built_ins import built_ins
from covey.base.components import create
from covey.membership.attacks import Lira, Rmia
from plugins.attack_margin import Margin

BUILT = {name: create("attack", name, "--attack", Attack) for name in built_ins("attack")}
ALL: dict[str, Attack] = {
    **BUILT,
    "lira, own variances": Lira(variance="per-example"),
    "rmia, far ahead": Rmia(gamma=2.0),
    "one's own": Margin(rank=2),
}
RECORDS, MODELS, CLASSES = 40, 6, 4


def log_probs(logits: ndarray) -> ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def signals() -> Signals:
    """Models that are surer of what they learnt; the target learnt the first half."""
    draw = np.random.default_rng(0)
    labels = draw.integers(CLASSES, size=RECORDS)
    inside = np.zeros((RECORDS, MODELS), dtype=bool)
    for i, m in product(range(RECORDS), range(0, MODELS, 2)):
        inside[i, m + draw.integers(2)] = True
    right = np.eye(CLASSES)[labels]
    target = draw.normal(size=(RECORDS, CLASSES))
    target += 2 * right * (np.arange(RECORDS) < RECORDS // 2)[:, None]
    others = draw.normal(size=(RECORDS, MODELS, CLASSES))
    others += 2 * right[:, None] * inside[..., None]
    gradients = [{"w": torch.from_numpy(each)} for each in right - np.exp(log_probs(target))]
    return Signals(labels, log_probs(target), log_probs(others), inside, lambda: iter(gradients))


@pytest.mark.parametrize("attack", ALL.values(), ids=ALL)
def test_every_attack_scores_members_higher_alike_and_is_made_again_by_its_settings(
    attack, signals
):
    scores = np.asarray(attack(signals))
    assert scores.shape == (RECORDS,)
    assert np.isfinite(scores).all()
    assert scores[: RECORDS // 2].mean() > scores[RECORDS // 2 :].mean()
    assert np.array_equal(attack(signals), scores)
    settings = {"name": attack.name, **attack.own_settings()}
    assert create("attack", settings, "--attack", Attack) == attack
