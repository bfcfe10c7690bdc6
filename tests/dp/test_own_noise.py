"""What noise of clients' own guarantees, and what budgets of their own allow."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.aggregation.privacy import Masks, PrivacyPlan
from covey.base.events import (
    BudgetSpent,
    ClientsAssigned,
    Event,
    ModelsMerged,
    RiskMeasured,
    RunEndedEarly,
    SharesPerturbed,
    SumPerturbed,
    UpdatesPerturbed,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.guarantee import NoGuarantee, Term
from covey.dp.accountant import epsilon_bound, gaussian, gaussian_epsilon, shares
from covey.dp.budget import fits, released, rounds_within, weight_within
from covey.dp.run_guarantees import NoisePlan, forecast, guarantees, multiplier
from covey.settings.run import build_run

DELTA = 1e-5
SHARED = ClientsAssigned({"a": 0, "b": 0}, "shared")
MERGED = ModelsMerged("", (2,))
SUM = SharesPerturbed("updates", 0, 1.0, 2.0, 4)
RISK = RiskMeasured(0, RiskEstimate(Figure(0.6, error=0.1)))


def found(facts: list[Event]):
    return guarantees(facts, DELTA, secret=True)


def test_shares_are_concentrated_and_hide_from_the_server():
    (held,) = found([SHARED, SUM, MERGED] * 5)
    bound = epsilon_bound([shares(2.0)] * 5, DELTA)
    assert bound is not None
    assert held.epsilon is not None
    assert held.epsilon == bound.epsilon
    # what is concentrated costs more than what is known to be Gaussian, and not much more
    exact = gaussian_epsilon(math.sqrt(5) / 2, DELTA)
    assert exact < held.epsilon < 1.15 * exact
    assert held.adversary == Term.SEES_SUMS
    assert Term.SERVER not in held.does_not_cover
    assert Term.MASKS_HOLD in held.holds_if


def test_counts_under_noise_are_paid_for_and_bare_ones_are_named():
    counted = SharesPerturbed("counts", 0, math.sqrt(2), 1.0, 4)
    (bare,) = found([RISK, SHARED, SUM, MERGED])
    (noisy,) = found([counted, RISK, SHARED, SUM, MERGED])
    assert Term.RISKS in bare.does_not_cover
    assert Term.RISKS not in noisy.does_not_cover
    assert Term.EVERY_COUNT in noisy.covers
    bound = epsilon_bound([shares(2.0), shares(1.0)], DELTA)
    assert bound is not None
    assert noisy.epsilon == bound.epsilon
    (unhidden,) = found([counted, RISK, SHARED, MERGED])  # counts hide no updates
    assert unhidden.reason_code == NoGuarantee.BARE


def test_noise_of_one_s_own_is_paid_by_who_added_it_in_both_relations():
    both = UpdatesPerturbed(1.0, 2.0, ("a", "b"))
    alone = UpdatesPerturbed(1.0, 2.0, ("a",))
    facts = [SHARED, both, MERGED, ClientsAssigned({"a": 0}, "shared"), alone, MERGED]
    counts, replaced = found(facts)
    assert counts.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2) / 2, DELTA), abs=5e-3)
    assert replaced.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2), DELTA), abs=5e-3)
    assert (counts.adversary, replaced.relation) == (Term.SEES_UPDATES, Term.CLIENT_REPLACED)
    missing, _ = found([SHARED, alone, MERGED])  # b's came without
    assert missing.reason_code == NoGuarantee.BARE_STEPS


def test_the_weakest_noise_decides_against_whom_it_holds():
    central = SumPerturbed(0, 1.0, 2.0, 1.0)
    (held,) = found([SHARED, SUM, MERGED, SHARED, central, MERGED])
    assert held.adversary == Term.SEES_MODELS


def test_an_end_by_budgets_says_nothing_of_data_and_one_by_a_figure_does():
    by_budgets = RunEndedEarly(1, 5, "budgets", 0.0, 0, 0, 0.0, 1)
    by_figure = RunEndedEarly(1, 5, "accuracy", 0.9, 0, 1, 0.0)
    facts = [SHARED, SUM, MERGED, BudgetSpent(("a",))]
    assert found([*facts, by_budgets])[0].epsilon is not None
    assert found([*facts, by_figure])[0].reason_code == NoGuarantee.UNKNOWN_EVENT


@pytest.mark.parametrize("noise", ["client", "distributed", "local"])
def test_the_noise_for_an_epsilon_delivers_it(noise):
    plan = NoisePlan(noise, 7, DELTA, clients=20, coordinates=10_000)
    held = forecast(plan, multiplier(plan, 3.0))
    assert held.epsilon is not None
    assert 2.98 < held.epsilon <= 3.0


@settings(max_examples=8)
@given(
    model=st.sampled_from(["central", "distributed", "local"]),
    multiplier=st.floats(2, 20),
    limit=st.floats(0.2, 6),
    counts=st.booleans(),
)
def test_a_budget_lasts_as_long_as_it_is_not_spent(model, multiplier, limit, *, counts):
    masks = Masks(5) if model == "distributed" else None
    noise = PrivacyPlan(noise=multiplier, by=model, masks=masks, rounds=5, delta=DELTA)
    plan, size = replace(noise, counts=80 if counts else 0, counts_every=3), 10_000
    lasting = rounds_within(plan, size, limit, 12)
    assert lasting == 0 or fits(released(plan, size, lasting), limit, DELTA)
    assert lasting == 12 or not fits(released(plan, size, lasting + 1), limit, DELTA)
    weight = weight_within(plan, size, limit)
    if lasting >= 5:
        assert weight == 1
    elif weight:
        assert fits(released(plan, size, 5, weight), limit, DELTA)
        assert not fits(released(plan, size, 5, weight + 0.001), limit, DELTA)
    assert fits((), limit, DELTA)
    assert not fits((gaussian(1e-4),), limit, DELTA)


LIMITED = {
    "rounds": 4,
    "population": {"clients": 12, "epsilon_limits": [0.5, 3.3, 50.0]},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "privacy": {"client_clip": 0.5, "client_noise": 2.0},
}


def test_shares_are_cut_for_who_may_drop_out_and_who_may_tell():
    """By hand: 20 of 200 may drop out and 10 tell, so 170 shares have to be enough."""
    privacy = {**LIMITED["privacy"], "noise_model": "distributed", "secure_sums": True}
    config = covey.Config.model_validate(
        {**LIMITED, "privacy": {**privacy, "min_cohort": 180, "colluders": 10}}
    )
    cut = config.privacy_plan.shares(0.5)
    assert cut is not None
    assert (cut.honest, cut.bound, cut.multiplier) == (170, 0.5, 2.0)
    assert cut.std(170) == pytest.approx(1.0)


def played(tmp_path, **privacy):
    limited = {**LIMITED, "privacy": {**LIMITED["privacy"], **privacy}}
    return covey.run(config=limited, out=tmp_path / "run", progress=False)


def test_simulated_clients_stop_when_their_budgets_are_spent(tmp_path):
    """By hand: releases of multiplier 2 cost 2.0, 3.0 and 3.7; so limits allow 0, 2 and all."""
    run = played(tmp_path)
    clients = build_run(covey.Config.model_validate(LIMITED)).population.clients
    limits = {c.handle: c.preference.epsilon_limit for c in clients}
    merged = [sum(f.participants) for f in run.history.all_events if isinstance(f, ModelsMerged)]
    often = {each: sum((v or 0) >= each for v in limits.values()) for each in (3.3, 50.0)}
    assert merged == [often[3.3]] * 2 + [often[50.0]] * 2


def test_clients_that_count_less_last_to_the_end(tmp_path):
    run = played(tmp_path, weigh_by_budget=True)
    merged = [sum(f.participants) for f in run.history.all_events if isinstance(f, ModelsMerged)]
    assert merged == [12] * 4
