"""What every attack and every estimator of risk keeps to, whoever wrote it."""

from itertools import product

import numpy as np
import pytest
import torch
from numpy import ndarray

from covey import Attack, RiskContext, RiskEstimator, Signals, Streams, Target
from covey.base.built_ins import built_ins
from covey.base.components import create
from covey.membership.attacks import Lira, Rmia
from covey.membership.truth import NonMembers
from plugins.attack_margin import Margin
from plugins.risk_confidence import ConfidenceGap

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
    gradients = [
        {"w": torch.from_numpy(gradient)} for gradient in right - np.exp(log_probs(target))
    ]
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


ESTIMATORS = {
    name: create("risk_estimator", name, "risk.name", RiskEstimator)
    for name in built_ins("risk_estimator")
}
ALL_ESTIMATORS: dict[str, RiskEstimator] = {**ESTIMATORS, "one's own": ConfidenceGap(sharpness=2.0)}
STREAMS = Streams(0).at("round", 5)


@pytest.fixture
def context(look_up, lossy) -> RiskContext:
    draw = np.random.default_rng(1)
    reference = NonMembers((lossy(draw.exponential(1.0, 80)),))
    return RiskContext(look_up, reference=reference)


@pytest.fixture
def target(lossy, make_client, make_target) -> Target:
    draw = np.random.default_rng(0)
    return make_target(
        *(
            make_client(f"c{i}", lossy(draw.exponential(0.5, 30)), lossy(draw.random(20)), group=0)
            for i in range(3)
        )
    )


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS.values(), ids=ALL_ESTIMATORS)
def test_every_estimator_finds_a_risk_with_an_error_or_says_why_not(
    estimator, target, make_target, context
):
    estimate = estimator.estimate(target, context, STREAMS)
    assert estimate.reason
    assert estimate.counts == estimate.is_known
    if estimate.is_known:
        assert 0 <= estimate.risk <= 1
        assert 0 < estimate.standard_error < 0.5
        assert estimate.members == 90
    assert estimator.assess(target, context, STREAMS).estimate == estimate
    assert not estimator.estimate(make_target(), context, STREAMS).is_known
    settings = {"name": estimator.name, **estimator.own_settings()}
    assert create("risk_estimator", settings, "risk.name", RiskEstimator) == estimator
