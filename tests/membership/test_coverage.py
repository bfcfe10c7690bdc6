"""Intervals of fitted thresholds hold what a large audit of the same model finds."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import covey
from covey.base.figure import RiskEstimate
from covey.membership.attacks import cross_fitted
from covey.membership.estimators import combined_counts, loss_counts, risk_of_counts


def rates_by_counts(apart: float, clients: int, generator: np.random.Generator):
    """Rates of clients with 48 members and 12 held-out examples each."""
    inside, outside = (
        [loss_counts(np.exp(generator.normal(-mean, 1, size)), generator) for _ in range(clients)]
        for mean, size in ((apart, 48), (0.0, 12))
    )
    return risk_of_counts(*combined_counts(inside, outside))


def rates_by_scores(apart: float, clients: int, generator: np.random.Generator):
    """The same where every score is at hand."""
    inside = generator.normal(apart, 1, clients * 48)
    outside = generator.normal(0, 1, clients * 12)
    return cross_fitted(inside, outside, generator)


@pytest.mark.parametrize("rates", [rates_by_counts, rates_by_scores])
@pytest.mark.parametrize("clients", [4, 16])
@pytest.mark.parametrize("apart", [0.05, 0.3, 1.0, 3.0])
def test_intervals_cover_the_risk_of_the_best_threshold(rates, clients, apart):
    # Between N(0, 1) and N(apart, 1) the best threshold is right with Phi(apart / 2).
    # 500 draws: SE of a share of 0.95 is 0.0097, of which 0.93 is two away.
    truth, generator = norm.cdf(apart / 2), np.random.default_rng(0)
    found = [rates(apart, clients, generator) for _ in range(500)]
    held = [abs(r.risk - truth) <= 1.96 * r.standard_error for r in found]
    assert np.mean(held) >= 0.93


def test_the_error_of_a_fitted_threshold_by_hand():
    # a = (0.9 + 0.5) / 2 = 0.7: of 40 and 20 with one more right and one wrong, 29 / 42
    # and 15 / 22; D = 0.76 - 0.7 = 0.06
    rates = RiskEstimate.of_rates(0.9, 0.5, members=40, non_members=20, fitted=0.76)
    expected = (29 * 13 / 42**3 + 15 * 7 / 22**3) / 4 + 0.06**2 / 3
    assert rates.standard_error == pytest.approx(math.sqrt(expected))


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 999), st.floats(0, 1))
def test_whoever_fits_a_threshold_knows_less_than_who_has_one(tpr, tnr, n, fitted):
    given_one = RiskEstimate.of_rates(tpr, tnr, n, n)
    own = RiskEstimate.of_rates(tpr, tnr, n, n, fitted=fitted)
    assert own.standard_error >= given_one.standard_error - 1e-12


@pytest.mark.slow
def test_federated_intervals_cover_the_true_risk_of_fresh_models(tmp_path: Path):
    """24 models, each with a cluster of four clients and one of eight; seeds of their own.

    The truth is from 800 examples per group that nobody trained on.
    """
    settings = {
        "rounds": 12,
        "population": {
            "clients": 12,
            "examples_per_client": 60,
            "minority_share": 1 / 3,
            "audit_examples": 800,
        },
        "model": {"name": "mlp"},
        "train": {"local_epochs": 5, "optimizer": {"momentum": 0.9}},
        "method": {"name": "ifca", "initialisation": "groups"},
        "risk": {"every": 12},
    }
    held: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(3000, 3024):
        run = covey.run(config={**settings, "seed": seed}, out=tmp_path / str(seed))
        for each in run.summary.clusters:
            reach = 1.96 * each.measured.standard_error
            held[each.clients <= 4].append(abs(each.measured.risk - each.truth.risk) <= reach)
    assert min(map(len, held.values())) >= 20
    assert np.mean([*held[True], *held[False]]) >= 0.93
    assert np.mean(held[True]) >= 0.93
