"""Figures from losses that are looked up, so that a reader can redo them."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from covey import Engine, Examples, RiskContext, RiskEstimate, Streams, Target
from covey.base.figure import Figure
from covey.data.examples import Client
from covey.membership.attacks import auc, cross_fitted
from covey.membership.estimators import ClientEstimator, FederatedEstimator, OracleEstimator
from covey.membership.intervals import stratified
from covey.membership.truth import Reference, true_risk

Lossy = Callable[..., Examples]
MakeClient = Callable[..., Client]
MakeTarget = Callable[..., Target]
STREAMS = Streams(0).at("round", 5)


def federated(engine: Engine, target: Target) -> RiskEstimate:
    return FederatedEstimator().estimate(target, RiskContext(engine), STREAMS)


def oracle(engine: Engine, target: Target, reference: Reference) -> RiskEstimate:
    context = RiskContext(engine, reference=reference)
    return OracleEstimator().estimate(target, context, STREAMS)


def test_a_federated_figure_by_hand(
    look_up: Engine, lossy: Lossy, make_client: MakeClient, make_target: MakeTarget
):
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


def test_only_the_clusters_own_clients_are_asked(
    look_up: Engine, lossy: Lossy, make_client: MakeClient, make_target: MakeTarget
):
    # Every client's own members and holdout match: the two groups' levels differ, and
    # pooling all members against all holdouts keeps both sides equally mixed.
    level = {"a": 0.1, "b": 5.0}
    clients = [
        make_client(name, lossy([loss] * 20), lossy([loss] * 20)) for name, loss in level.items()
    ]
    figure = federated(look_up, make_target(*clients))
    assert figure.is_known
    assert figure.auc == 0.5
    assert figure.risk == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("sizes", [(30, 9), (9, 30), (30, 0), (0, 0)])
def test_a_federated_figure_on_too_few_records_is_withheld(
    look_up: Engine,
    lossy: Lossy,
    make_client: MakeClient,
    make_target: MakeTarget,
    sizes: tuple[int, int],
):
    members, holdouts = sizes
    only = make_client("a", lossy([0.1] * members), lossy([1.0] * holdouts))
    finding = federated(look_up, make_target(only))
    assert not finding.is_known
    assert f"{members} members and {holdouts} held-out" in finding.reason
    assert not finding.counts


def test_a_cluster_without_clients_has_no_figure(look_up: Engine, make_target: MakeTarget):
    context = RiskContext(look_up)
    for estimator in (FederatedEstimator(), OracleEstimator(), ClientEstimator()):
        found = estimator.estimate(make_target(), context, STREAMS)
        assert not found.is_known
        assert not found.diverged


def test_a_figure_depends_on_streams_and_not_on_the_order_of_clients(
    look_up: Engine, lossy: Lossy, make_client: MakeClient, make_target: MakeTarget
):
    draw = np.random.default_rng(0)
    clients = [
        make_client(f"c{i}", lossy(draw.exponential(size=20)), lossy(draw.random(9)))
        for i in range(4)
    ]
    first = federated(look_up, make_target(*clients))
    assert federated(look_up, make_target(*clients)) == first
    assert federated(look_up, make_target(*clients[::-1])) == first


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


def test_no_strata_give_no_figure_and_one_stratum_gives_itself():
    assert stratified([]) is None
    assert stratified([figure_of(0.75, 0.02, 30)]) == figure_of(0.75, 0.02, 30)


def test_a_mixed_cluster_is_not_attackable_by_telling_groups_apart(
    look_up: Engine, lossy: Lossy, make_client: MakeClient
):
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
    reference = Reference((losses(0, 250), losses(1, 250)))
    honest = true_risk(look_up, {}, clients, reference, STREAMS)
    assert honest is not None
    # Beyond 3 SE with probability 0.003.
    assert abs(honest.risk - 0.5) < 3 * honest.standard_error
    assert (honest.members, honest.non_members) == (500, 500)

    inside = np.concatenate([-c.train.inputs[:, 0].numpy() for c in clients])
    outside = np.concatenate([-e.inputs[:, 0].numpy() for e in reference.by_group])
    mixed = cross_fitted(inside.astype(float), outside.astype(float), np.random.default_rng(0))
    assert mixed.risk == pytest.approx(0.7, abs=0.03)


def test_the_oracle_states_the_truth(
    look_up: Engine, lossy: Lossy, make_client: MakeClient, make_target: MakeTarget
):
    draw = np.random.default_rng(1)
    member = make_client("a", lossy(draw.exponential(0.3, 60)), group=0)
    reference = Reference((lossy(draw.exponential(1.0, 80)),))
    figure = oracle(look_up, make_target(member), reference)
    assert figure.is_known
    truth = true_risk(look_up, {}, [member], reference, STREAMS)
    assert truth is not None
    assert (figure.risk, figure.standard_error) == (truth.risk, truth.standard_error)
    assert figure.calibrated
    assert (figure.members, figure.non_members) == (60, 80)
    sides = (-e.inputs[:, 0].double().numpy() for e in (member.train, *reference.by_group))
    assert figure.auc == pytest.approx(auc(*sides))


def test_without_a_reference_the_members_own_holdouts_stand_in(
    look_up: Engine, lossy: Lossy, make_client: MakeClient
):
    clients = [
        make_client("a", lossy([0.1] * 20), lossy([1.0] * 10), group=0),
        make_client("b", lossy([0.1] * 20), lossy([]), group=0),
    ]
    truth = true_risk(look_up, {}, clients, Reference(()), STREAMS)
    assert truth is not None
    assert (truth.risk, truth.members, truth.non_members) == (1.0, 40, 10)


def test_a_diverged_model_tells_nothing(
    look_up: Engine, lossy: Lossy, make_client: MakeClient, make_target: MakeTarget
):
    # Where every loss is NaN all records tie: a coin toss, and no NaN among the facts.
    nothing, unseen = lossy([math.nan] * 20), lossy([math.nan] * 20)
    member = make_client("a", nothing, unseen, group=0)
    target = make_target(member)
    for figure in (federated(look_up, target), oracle(look_up, target, Reference((unseen,)))):
        assert figure.is_known
        assert (figure.risk, figure.auc) == (0.5, 0.5)


def test_a_client_judges_itself_by_hand(look_up: Engine, lossy: Lossy, make_client: MakeClient):
    # Half of A's 20 members have loss 0.01, the other half and all 20 held-out examples 1:
    # "member" from 0.01 down: TPR 1/2, TNR 1. B's held-out examples are too few.
    a = make_client("a", lossy([0.01, 1.0] * 10), lossy([1.0] * 20))
    b = make_client("b", lossy([0.01] * 20), lossy([1.0] * 9))
    found = ClientEstimator().judge(({}, {}), (a, b), RiskContext(look_up), STREAMS)
    assert found["B"] == [None, None]
    for figure in found["A"]:
        assert figure is not None
        assert figure.risk == 0.75
        expected = math.sqrt(2 * 16 * 6 / 22**3) / 2  # p = (15 + 1) / (20 + 2)
        assert figure.standard_error == pytest.approx(expected)


def test_a_client_that_is_not_remembered_finds_a_coin_toss(
    look_up: Engine, lossy: Lossy, make_client: MakeClient
):
    # On the same 50 records of noise the best threshold would score 0.56 and more.
    draw = np.random.default_rng(0)
    cohort = [
        make_client(f"c{i}", lossy(draw.random(25)), lossy(draw.random(25))) for i in range(200)
    ]
    found = ClientEstimator().judge(({},), cohort, RiskContext(look_up), STREAMS)
    risks = [figures[0].risk for figures in found.values() if figures[0]]
    assert len(risks) == 200
    assert abs(np.mean(risks) - 0.5) < 0.015  # SE of the mean below 0.005
