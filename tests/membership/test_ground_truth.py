"""The controls of the true audit: what must be found, what must not, and copies of members."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Engine, Examples, Params, Recipe, RiskContext, Streams
from covey.base.events import ClusterAudited
from covey.data.examples import Client, Rotation
from covey.engine.optimizers import Sgd
from covey.membership.controls import copied
from covey.membership.estimators import FederatedEstimator, masked_loss_counter, own_counts
from covey.membership.truth import (
    Membership,
    NonMembers,
    audit_clusters,
    beats_chance,
    blind_risk,
    true_risk,
)
from membership.memorising import Federation, noisy, part

STREAMS = Streams(0).at("audit")


def turned(examples: Examples, degrees: float) -> Examples:
    amounts = torch.full((len(examples),), degrees)
    return Examples(
        Rotation().apply(examples.inputs, amounts, np.random.default_rng(0)), examples.labels
    )


@pytest.fixture(scope="module")
def memorised(digits) -> tuple[Engine, Params, Examples]:
    """A model that learnt 100 random labels by heart, and digits labelled like that."""
    recipe = Recipe(local_epochs=60, batch_size=10, learning_rate=0.1, optimizer=Sgd(momentum=0.9))
    here, images = Federation(recipe), noisy(digits)
    return here.engine, here.played((part(images, 0, 100),), 1), images


@pytest.fixture
def member(memorised, make_client) -> Callable[..., Client]:
    """A client that holds some of the images; the model learnt the first 100."""

    def make(name: str, start: int, stop: int, degrees: float = 0.0) -> Client:
        held = part(memorised[2], start, stop)
        return make_client(name, turned(held, degrees) if degrees else held, group=0)

    return make


@pytest.fixture
def audited(memorised) -> Callable[..., ClusterAudited]:
    """The audit of the model as a cluster's, against images that nobody trained on."""
    engine, params, images = memorised

    def audit(trained, chosen=None, pooled=(), degrees: float = 0.0) -> ClusterAudited:
        others = part(images, 400, 900)
        reference = NonMembers((turned(others, degrees) if degrees else others,))
        membership = Membership((trained if chosen is None else chosen,), (trained,), (pooled,))
        (audit,) = audit_clusters(engine, [params], membership, reference, STREAMS)
        return audit

    return audit


def test_positive_control_a_model_of_random_labels_is_attackable(memorised, member, audited):
    engine, params, images = memorised
    learnt = member("a", 0, 100)
    truth = true_risk(engine, params, [learnt], NonMembers((part(images, 100, 500),)), STREAMS)
    assert truth is not None
    assert truth.risk > 0.7
    audit = audited((learnt,))
    assert audit.truth.figure.value == pytest.approx(truth.risk, abs=0.1)
    assert "members can be distinguished" in audit.truth.reason
    assert audit.blind_auc == pytest.approx(0.5, abs=0.15)  # 50 a side: SE 0.06


def test_negative_control_two_halves_of_unseen_data_score_one_half(memorised, make_client):
    engine, params, images = memorised
    order = 100 + np.random.default_rng(0).permutation(len(images) - 100)
    inside, outside = (images.take(torch.from_numpy(h)) for h in np.split(order[:1200], 2))
    never_trained = make_client("a", inside, group=0)
    truth = true_risk(engine, params, [never_trained], NonMembers((outside,)), STREAMS)
    assert truth is not None
    # Of 600 records a side the rates alone have SE 0.0144; beyond 3 of them with
    # probability 0.003. The threshold adds to the error that is stated.
    assert 0.0144 < truth.standard_error < 0.03
    assert abs(truth.risk - 0.5) < 3 * 0.0144


@pytest.mark.parametrize("others", [40, 600])
def test_the_blind_baseline_sees_labels_beside_inputs(digits, make_client, others):
    # The same images twice: once under their labels, once under each other's.
    unseen = part(digits, 600, 600 + others)
    order = torch.from_numpy(np.random.default_rng(0).permutation(others))
    relabelled = replace(unseen, labels=unseen.labels[order])
    held = make_client("a", part(digits, 0, 600), group=0)
    alike, wrong = (blind_risk([held], NonMembers((e,)), STREAMS) for e in (unseen, relabelled))
    assert alike is not None
    assert wrong is not None
    assert not beats_chance(alike)
    assert beats_chance(wrong)


def test_an_audit_refuses_its_figure_where_the_sides_do_not_match(member, audited):
    audit = audited((member("a", 0, 100),), degrees=40.0)
    assert audit.truth.figure.value is audit.truth.figure.error is audit.truth.auc is None
    assert audit.exposed.value is None
    assert audit.truth.reason.startswith("refused: ")
    assert (audit.blind_auc or 0) > 0.8
    # so it does for one that only chose: its records are judged too
    trained, newcomer = member("a", 0, 40), member("b", 100, 400, degrees=40.0)
    audit = audited((trained,), chosen=(trained, newcomer))
    assert audit.truth.figure.value is None
    assert audit.truth.reason.startswith("refused: ")


def test_exposure_counts_the_clients_that_left(member, audited):
    trained, newcomer = member("a", 0, 100), member("b", 100, 300)
    stayed = audited((trained,), chosen=(newcomer,))
    assert abs(stayed.truth.risk - 0.5) < 0.12  # the newcomer is in no model
    assert stayed.exposed.value > 0.7
    left = audited((trained,), chosen=())
    assert left.truth.figure.value is None
    assert left.exposed.value > 0.7
    assert left.truth.reason.startswith("fewer than")


def test_traces_are_judged_apart_from_those_who_trained(member, audited):
    audit = audited((member("b", 100, 300),), pooled=(member("a", 0, 100),))
    assert audit.traced.value > 0.7
    assert abs(audit.exposed.value - 0.5) < 0.12


@pytest.mark.parametrize("kind", ["numbers", "several labels"])
def test_labels_that_do_not_match_are_seen_where_the_inputs_do(make_client, look_up, kind):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(800, 3))).float()
    features = x[:, 0] if kind == "numbers" else (x[:, :2] > 0).long()
    other = -features if kind == "numbers" else 1 - features
    held = make_client("ada", part(Examples(x, features), 0, 400), group=0)
    alone = Membership(((held,),), ((held,),), ((),))
    for labels, matches in ((features, True), (other, False)):
        reference = NonMembers((part(Examples(x, labels), 400, 800),))
        (audit,) = audit_clusters(look_up, [{}], alone, reference, STREAMS)
        assert (audit.truth.figure.value is not None) == matches
        assert audit.truth.reason.startswith("refused") != matches


NUMBERED_STREAMS = Streams(0)


def numbered(first: int, size: int) -> Examples:
    """Images that are all different, the same for the same numbers."""
    inputs = torch.arange(first, first + size).float()[:, None]
    return Examples(inputs, torch.zeros(size, dtype=torch.int64))


@given(st.integers(0, 60), st.integers(1, 300), st.integers(0, 9))
def test_more_than_one_in_a_hundred_is_refused(copies, new, label):
    held = Examples.joined([numbered(0, copies), numbered(1000, new)])
    held = replace(held, labels=held.labels + label)  # another label changes nothing
    why = copied([numbered(0, 40), numbered(40, 20)], [held.first(0), held])
    assert bool(why) == (copies > 0.01 * (copies + new))
    if why:
        assert f"found {copies} of {copies + new}" in why


@pytest.fixture
def cheats(lossy, make_client) -> list[Client]:
    """Four clients; two of them hold out what each other trains on."""
    a, b, c, d = (lossy(np.full(20, 0.1)) for _ in range(4))
    crossed = [make_client("a", a, b), make_client("b", b, a)]
    own = [make_client("c", c, c), make_client("d", d, lossy(np.ones(20)))]
    return [*crossed, *own]


def test_no_risk_is_measured_on_what_other_members_train_on(look_up, cheats, make_target):
    crossed, alone = make_target(*cheats[:2]), make_target(cheats[3])
    finding, honest = (
        FederatedEstimator().estimate(target, RiskContext(look_up), NUMBERED_STREAMS)
        for target in (crossed, alone)
    )
    assert not finding.is_known
    assert "found 40 of 40 with the inputs of a member" in finding.reason
    assert honest.is_known


def test_who_counts_by_itself_counts_nothing_on_copies(look_up, cheats, make_target):
    *_, copies, honest = cheats
    assert not np.any(own_counts(look_up, {}, copies, NUMBERED_STREAMS))
    target = make_target(copies, honest, *cheats[:2])
    inside, outside = masked_loss_counter(look_up, 3)(target, NUMBERED_STREAMS)
    assert (inside.sum(), outside.sum()) == (60, 60)  # who sees its own alone: a, b, d


def test_the_audit_at_the_end_refuses_copies(look_up, cheats):
    here = tuple(cheats[2:])
    membership = Membership(chosen=(here,), trained=(here,), pooled=((),))
    (audit,) = audit_clusters(look_up, [{}], membership, NonMembers(()), NUMBERED_STREAMS)
    assert audit.truth.figure.value is audit.exposed.value is None
    assert audit.truth.reason.startswith("refused: non-members must not be what clients")
