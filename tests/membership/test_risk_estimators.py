"""Figures from losses that are looked up, so that a reader can redo them."""

import math

import numpy as np
import pytest

from covey import Engine, Examples, RiskContext, RiskEstimate, Streams, Target
from covey.base.figure import Figure
from covey.membership.estimators import ClientEstimator, FederatedEstimator, OracleEstimator
from covey.membership.intervals import stratified
from covey.membership.truth import NonMembers, true_risk

STREAMS = Streams(0).at("round", 5)


def federated(engine: Engine, target: Target) -> RiskEstimate:
    return FederatedEstimator().estimate(target, RiskContext(engine), STREAMS)


def test_a_federated_figure_by_hand(look_up, lossy, make_client, make_target):
    # Two clients; all 20 members of A have loss 0.01, all 20 of B have 1, and so have all
    # 20 holdouts. From 0.01 down "member": TPR 1/2, TNR 1: risk 0.75, in every fold.
    # AUC: a member of A beats every holdout, one of B ties: (1 + 1/2) / 2 = 0.75
    # SE: one more is right and one wrong on each side, p = 31 / 42 of 42, 16 / 22 of 22;
    # the threshold is the same wherever it is fitted, and leaves nothing open
    target = make_target(
        make_client("a", lossy([0.01] * 20), lossy([1.0] * 10)),
        make_client("b", lossy([1.0] * 20), lossy([1.0] * 10)),
    )
    figure = federated(look_up, target)
    assert figure.is_known
    assert figure.risk == figure.auc == 0.75
    expected = math.sqrt(31 * 11 / 42**3 + 16 * 6 / 22**3) / 2
    assert figure.standard_error == pytest.approx(expected)
    assert (figure.members, figure.non_members) == (40, 20)
    assert figure.calibrated
    assert figure.reason == "40 members and 20 held-out examples of its clients"


@pytest.mark.parametrize("sizes", [(30, 9), (9, 30), (0, 0)])
def test_a_federated_figure_on_too_few_records_is_withheld(
    look_up, lossy, make_client, make_target, sizes
):
    members, holdouts = sizes
    only = make_client("a", lossy([0.1] * members), lossy([1.0] * holdouts))
    finding = federated(look_up, make_target(only))
    assert not finding.is_known
    assert f"{members} members and {holdouts} held-out" in finding.reason
    assert not finding.counts


def figure_of(risk: float, error: float, members: int, others: int = 10) -> RiskEstimate:
    return RiskEstimate(Figure(risk, error), risk, members, others)


def test_stratified_figures_by_hand():
    # 30 and 10 members: shares 3/4 and 1/4
    # risk 0.75 * 0.8 + 0.25 * 0.6 = 0.75;  SE sqrt((0.75 * 0.02)^2 + (0.25 * 0.04)^2)
    merged = stratified([figure_of(0.8, 0.02, 30), figure_of(0.6, 0.04, 10)])
    assert merged is not None
    assert merged.risk == merged.auc == pytest.approx(0.75)
    assert merged.standard_error == pytest.approx(math.sqrt(0.015**2 + 0.01**2))
    assert (merged.members, merged.non_members) == (40, 20)


def test_a_mixed_cluster_is_not_attackable_by_telling_groups_apart(look_up, lossy, make_client):
    # Group 0 has losses near 0.1, group 1 near 5, members or not. Nine in ten members
    # are of group 0, and the reference holds as many of each: mixed up, "low loss" is
    # right 0.9 / 2 + 0.5 / 2 = 70% of the time. Within each group there is no signal.
    draw = np.random.default_rng(0)

    def losses(group: int, size: int) -> Examples:
        return lossy([0.1, 5.0][group] * draw.uniform(0.5, 1.5, size))

    clients = [
        *(make_client(f"a{i}", losses(0, 50), group=0) for i in range(9)),
        make_client("b", losses(1, 50), group=1),
    ]
    reference = NonMembers((losses(0, 250), losses(1, 250)))
    honest = true_risk(look_up, {}, clients, reference, STREAMS)
    assert honest is not None
    # Beyond 3 SE with probability 0.003.
    assert abs(honest.risk - 0.5) < 3 * honest.standard_error
    assert (honest.members, honest.non_members) == (500, 500)


def test_without_a_reference_the_members_own_holdouts_stand_in(look_up, lossy, make_client):
    clients = [
        make_client("a", lossy([0.1] * 20), lossy([1.0] * 10), group=0),
        make_client("b", lossy([0.1] * 20), lossy([]), group=0),
    ]
    truth = true_risk(look_up, {}, clients, NonMembers(()), STREAMS)
    assert truth is not None
    assert (truth.risk, truth.members, truth.non_members) == (1.0, 40, 10)


def test_a_diverged_model_reveals_nothing(look_up, lossy, make_client, make_target):
    # Where every loss is NaN all records tie: a coin toss, and no NaN among the facts.
    nothing, unseen = lossy([math.nan] * 20), lossy([math.nan] * 20)
    target = make_target(make_client("a", nothing, unseen, group=0))
    context = RiskContext(look_up, reference=NonMembers((unseen,)))
    for estimator in (FederatedEstimator(), OracleEstimator()):
        figure = estimator.estimate(target, context, STREAMS)
        assert figure.is_known
        assert (figure.risk, figure.auc) == (0.5, 0.5)


def test_a_client_judges_itself_by_hand(look_up, lossy, make_client):
    # Half of A's 20 members have loss 0.01, the other half and all 20 held-out examples 1:
    # "member" from 0.01 down: TPR 1/2, TNR 1. B's held-out examples are too few.
    a = make_client("a", lossy([0.01, 1.0] * 10), lossy([1.0] * 20))
    b = make_client("b", lossy([0.01] * 20), lossy([1.0] * 9))
    estimates = ClientEstimator().judge(({}, {}), (a, b), RiskContext(look_up), STREAMS)
    assert estimates["B"] == [None, None]
    for figure in estimates["A"]:
        assert figure is not None
        assert figure.risk == 0.75
        expected = math.sqrt(2 * 16 * 6 / 22**3) / 2  # p = (15 + 1) / (20 + 2)
        assert figure.standard_error == pytest.approx(expected)
