"""An audit of one cluster model: its controls, its slices and its refusals."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey import (
    Attack,
    ClientUpdate,
    ConfigError,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    Signals,
    Streams,
    Target,
    TrainingJob,
    mean_per_cluster,
)
from covey.base.components import create
from covey.base.params import subtract
from covey.data.examples import Client, Rotation
from covey.membership.audit import QUARTERS, Auditor, ClusterAuditResult, examine_cluster
from covey.membership.references import RetrainRecipe
from covey.membership.truth import Reference
from covey.models.build import initial_params

STREAMS = Streams(0).at("audit")
RECIPE = Recipe(local_epochs=20, batch_size=10, learning_rate=0.1, momentum=0.9)


def tiny_mlp(streams: Streams) -> nn.Module:
    with streams.lent_to_torch():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


ENGINE = ReferenceEngine(tiny_mlp(Streams(0)))


def init(streams: Streams) -> Params:
    return initial_params(tiny_mlp(streams))


def play_round(_: int, params: Params, sets: tuple[Examples, ...], streams: Streams) -> Params:
    jobs = [TrainingJob(params, each, streams.at(i), RECIPE) for i, each in enumerate(sets)]
    updates = (
        ClientUpdate(str(i), 0, subtract(local, params), 1.0)
        for i, local in enumerate(ENGINE.train(jobs))
    )
    return mean_per_cluster((params,), updates, streams).clusters[0]


AUDITOR = Auditor(
    attacks={
        name: create("attack", name, "attack", Attack)
        for name in ("loss", "shokri", "lira", "rmia")
    },
    from_updates=True,
    references=2,
    retrain_recipe=RetrainRecipe(init, play_round, RECIPE, rounds=1),
    observe=lambda _, __: None,
)
UNTRAINED = replace(
    AUDITOR, from_updates=False, retrain_recipe=replace(AUDITOR.retrain_recipe, rounds=0)
)
"""References that learnt nothing: quick, where it does not matter what they say."""


@pytest.fixture(scope="module")
def noisy(digits: Examples) -> Examples:
    """Digits with random labels: whoever answers right has seen them."""
    labels = np.random.default_rng(0).integers(10, size=len(digits))
    return Examples(digits.inputs, torch.from_numpy(labels))


def part(examples: Examples, start: int, stop: int) -> Examples:
    return examples.take(torch.arange(start, stop))


@pytest.fixture(scope="module")
def target(noisy: Examples, make_client: Callable[..., Client]) -> Target:
    """Three clients' model that learnt 120 random labels by heart."""
    clients = tuple(
        make_client(f"c{i}", part(noisy, 40 * i, 40 * i + 40), group=0) for i in range(3)
    )
    params = init(STREAMS.at("target"))
    for each in range(2):
        sets = tuple(client.train for client in clients)
        params = play_round(each, params, sets, STREAMS.at("target", each))
    return Target(0, params, clients, 1)


@pytest.fixture(scope="module")
def matched(noisy: Examples) -> Reference:
    return Reference((part(noisy, 200, 700),))


@pytest.fixture(scope="module")
def found(target: Target, matched: Reference) -> ClusterAuditResult:
    return examine_cluster(ENGINE, target, matched, AUDITOR, STREAMS)


def test_a_model_of_random_labels_gives_its_members_away(found: ClusterAuditResult):
    assert set(found.attacks) == {*AUDITOR.attacks, "fedmia"}
    assert (found.members, found.non_members, found.background) == (120, 120, 0)
    assert found.reason == ""
    for name, figures in found.attacks.items():
        assert (figures.overall.auc.low or 0) > 0.5, name


def test_records_that_nobody_trained_on_give_nothing_away(
    noisy: Examples, matched: Reference, target: Target, make_client
):
    strangers = tuple(
        make_client(f"s{i}", part(noisy, 800 + 60 * i, 860 + 60 * i), group=0) for i in range(3)
    )
    unseen = examine_cluster(
        ENGINE, replace(target, members=strangers), matched, UNTRAINED, STREAMS
    )
    for name in ("loss", "lira", "rmia"):
        area = unseen.attacks[name].overall.auc.value
        # 180 a side: SE .03, 3.3 of them
        assert area == pytest.approx(0.5, abs=0.1), name


def test_the_parts_are_the_whole(found: ClusterAuditResult):
    figures = found.attacks["loss"]
    for parts in (figures.by_group, figures.by_class, figures.by_difficulty):
        assert sum(each.members for each in parts.values()) == 120
        assert sum(each.non_members for each in parts.values()) == 120
    assert list(figures.by_group) == ["0"]
    assert list(figures.by_class) == [str(c) for c in range(10)]
    assert tuple(figures.by_difficulty) == QUARTERS
    assert figures.roc[0][0] == pytest.approx(1 / 120)


def test_the_references_learnt_their_half(found: ClusterAuditResult):
    seen = found.accuracies
    assert seen["members"] > seen["non_members"] + 0.2
    assert seen["references_inside"] > seen["references_outside"] + 0.2


def test_an_audit_is_deterministic(target: Target, matched: Reference):
    first, again, other = (
        examine_cluster(ENGINE, target, matched, UNTRAINED, STREAMS.at(name))
        for name in ("one", "one", "other")
    )
    assert first == again
    assert first != other


def test_sides_that_do_not_match_are_refused(target: Target, noisy: Examples):
    others = part(noisy, 200, 500)
    turned = Rotation().apply(others.inputs, torch.full((300,), 40.0), np.random.default_rng(0))
    reference = Reference((Examples(turned, others.labels),))
    refused = examine_cluster(ENGINE, target, reference, AUDITOR, STREAMS)
    assert refused.attacks == {}
    assert "refused: a classifier that never sees the model" in refused.reason
    assert (refused.blind_auc or 0) > 0.7


def test_what_cannot_be_audited_says_why(target: Target, noisy: Examples):
    few = examine_cluster(ENGINE, target, Reference((part(noisy, 200, 205),)), AUDITOR, STREAMS)
    assert "fewer than 10 members or non-members" in few.reason
    nobody = examine_cluster(ENGINE, replace(target, members=()), Reference(()), AUDITOR, STREAMS)
    assert "no client" in nobody.reason
    assert nobody.attacks == {}


def test_references_that_diverged_show_nothing(target: Target, matched: Reference):
    recipe = UNTRAINED.retrain_recipe

    def diverged(streams: Streams) -> Params:
        return {name: value * torch.nan for name, value in init(streams).items()}

    broken = replace(UNTRAINED, retrain_recipe=replace(recipe, init=diverged))
    seen = examine_cluster(ENGINE, target, matched, broken, STREAMS)
    assert seen.attacks == {}
    assert "diverged" in seen.reason


def test_two_clients_are_too_few_for_fedmia(target: Target, matched: Reference):
    pair = replace(target, members=target.members[:2])
    seen = examine_cluster(ENGINE, pair, matched, replace(UNTRAINED, from_updates=True), STREAMS)
    assert "fedmia" not in seen.attacks
    assert "fedmia needs more than 2 clients" in seen.reason


@pytest.mark.parametrize("wrong", [lambda s: s.target, lambda s: s.labels * np.nan])
def test_an_attack_of_ones_own_must_return_a_score_per_record(
    target: Target, matched: Reference, wrong: Callable[[Signals], np.ndarray]
):
    mine = replace(UNTRAINED, attacks={"mine:wrong": wrong})
    with pytest.raises(ConfigError, match="attack mine:wrong must return one finite"):
        examine_cluster(ENGINE, target, matched, mine, STREAMS)


def test_an_audit_of_updates_alone_is_compared_with_references_too(
    target: Target, matched: Reference
):
    seen = examine_cluster(ENGINE, target, matched, replace(AUDITOR, attacks={}), STREAMS)
    assert set(seen.attacks) == {"fedmia"}
    assert {"references_inside", "references_outside"} <= seen.accuracies.keys()
