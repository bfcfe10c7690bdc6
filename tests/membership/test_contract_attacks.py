"""What every attack keeps to, whoever wrote it."""

from itertools import product

import numpy as np
import pytest
from numpy import ndarray

from covey import Attack, Signals
from covey.base.built_ins import BUILT_INS
from covey.base.components import create
from covey.membership.attacks import Lira, LiraOffline, Rmia, RmiaOffline, lira_offline, lira_online
from plugins.attack_margin import Margin

BUILT = {name: create("attack", name, "--attack", Attack) for name in BUILT_INS["attack"]}
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
    return Signals(labels, log_probs(target), log_probs(others), inside)


@pytest.fixture(params=ALL.values(), ids=list(ALL))
def attack(request: pytest.FixtureRequest) -> Attack:
    return request.param


def test_every_record_has_a_finite_score(attack: Attack, signals: Signals):
    scores = np.asarray(attack(signals))
    assert scores.shape == (RECORDS,)
    assert np.isfinite(scores).all()


def test_members_score_higher(attack: Attack, signals: Signals):
    scores = attack(signals)
    assert scores[: RECORDS // 2].mean() > scores[RECORDS // 2 :].mean()


def test_the_same_signals_have_the_same_scores(attack: Attack, signals: Signals):
    assert np.array_equal(attack(signals), attack(signals))


def test_its_name_and_options_make_it_again(attack: Attack):
    name, options = attack.name, attack.own_settings()
    assert create("attack", {"name": name, **options}, "--attack", Attack) == attack


def test_options_reach_the_attack(signals: Signals):
    phi = np.log(np.exp(signals.target) / -np.expm1(signals.target))
    rest = np.log(np.exp(signals.references) / -np.expm1(signals.references))
    rows = np.arange(RECORDS), signals.labels
    seen = phi[rows], rest[rows[0], :, rows[1]], signals.inside
    expected = lira_online(*seen, "per-example")
    assert Lira(variance="per-example")(signals) == pytest.approx(expected)
    offline = lira_offline(*seen, "per-example")
    assert LiraOffline(variance="per-example")(signals) == pytest.approx(offline)
    assert (Rmia(gamma=3.0)(signals) <= Rmia()(signals)).all()
    few, many = RmiaOffline(a=0.0)(signals), RmiaOffline(a=1.0)(signals)
    assert not np.array_equal(few, many)
