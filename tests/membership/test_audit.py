"""An audit of one cluster model: its controls, its slices and its refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from covey import Attack, Examples, Params, Recipe, Streams, Target
from covey.base.components import create
from covey.data.examples import Rotation
from covey.engine.optimizers import Sgd
from covey.membership.audit import Auditor, examine_cluster
from covey.membership.references import RetrainRecipe
from covey.membership.truth import NonMembers
from membership import memorising
from membership.memorising import Federation, part

STREAMS = Streams(0).at("audit")
RECIPE = Recipe(local_epochs=20, batch_size=10, learning_rate=0.1, optimizer=Sgd(momentum=0.9))


HERE = Federation(RECIPE)
AUDITOR = Auditor(
    attacks={
        name: create("attack", name, "attack", Attack)
        for name in ("loss", "shokri", "lira", "rmia")
    },
    from_updates=True,
    references=2,
    retrain_recipe=RetrainRecipe(HERE.init, HERE.play_round, RECIPE, rounds=1),
    observe=lambda _, __: None,
)
UNTRAINED = replace(
    AUDITOR, from_updates=False, retrain_recipe=replace(AUDITOR.retrain_recipe, rounds=0)
)
"""References that learnt nothing: quick, where it does not matter what they say."""


@pytest.fixture(scope="module")
def noisy(digits) -> Examples:
    return memorising.noisy(digits)


@pytest.fixture(scope="module")
def target(noisy, make_client) -> Target:
    """Three clients' model that learnt 120 random labels by heart."""
    clients = tuple(
        make_client(f"c{i}", part(noisy, 40 * i, 40 * i + 40), group=0) for i in range(3)
    )
    params = HERE.played(tuple(client.train for client in clients), 2)
    return Target(0, params, clients, 1)


@pytest.fixture(scope="module")
def matched(noisy) -> NonMembers:
    return NonMembers((part(noisy, 200, 700),))


def test_a_model_of_random_labels_gives_its_members_away(target, matched):
    audit = examine_cluster(HERE.engine, target, matched, AUDITOR, STREAMS)
    assert set(audit.attacks) == {*AUDITOR.attacks, "fedmia"}
    assert (audit.members, audit.non_members, audit.background) == (120, 120, 0)
    assert audit.reason == ""
    for name, figures in audit.attacks.items():
        assert (figures.overall.auc.low or 0) > 0.5, name
        for parts in (figures.by_group, figures.by_class, figures.by_difficulty):
            assert sum(cluster_part.members for cluster_part in parts.values()) == 120
    seen = audit.accuracies
    assert seen["members"] > seen["non_members"] + 0.2
    assert seen["references_inside"] > seen["references_outside"] + 0.2


def test_records_that_nobody_trained_on_give_nothing_away(noisy, matched, target, make_client):
    strangers = tuple(
        make_client(f"s{i}", part(noisy, 800 + 60 * i, 860 + 60 * i), group=0) for i in range(3)
    )
    unseen = examine_cluster(
        HERE.engine, replace(target, members=strangers), matched, UNTRAINED, STREAMS
    )
    for name in ("loss", "lira", "rmia"):  # 180 a side: SE .03, 3.3 of them
        assert unseen.attacks[name].overall.auc.value == pytest.approx(0.5, abs=0.1), name


def test_sides_that_do_not_match_are_refused(target, noisy):
    others = part(noisy, 200, 500)
    turned = Rotation().apply(others.inputs, torch.full((300,), 40.0), np.random.default_rng(0))
    reference = NonMembers((Examples(turned, others.labels),))
    refused = examine_cluster(HERE.engine, target, reference, AUDITOR, STREAMS)
    assert refused.attacks == {}
    assert "refused: a classifier that never sees the model" in refused.reason
    assert float(refused.blind_auc) > 0.7


def test_what_cannot_be_audited_says_why(target, noisy):
    few = examine_cluster(
        HERE.engine, target, NonMembers((part(noisy, 200, 205),)), AUDITOR, STREAMS
    )
    assert "fewer than 10 members or non-members" in few.reason
    empty_audit = examine_cluster(
        HERE.engine, replace(target, members=()), NonMembers(()), AUDITOR, STREAMS
    )
    assert "no client" in empty_audit.reason
    assert empty_audit.attacks == {}


def test_references_that_diverged_show_nothing(target, matched):
    recipe = UNTRAINED.retrain_recipe

    def diverged(streams: Streams) -> Params:
        return {name: value * torch.nan for name, value in HERE.init(streams).items()}

    broken = replace(UNTRAINED, retrain_recipe=replace(recipe, init=diverged))
    seen = examine_cluster(HERE.engine, target, matched, broken, STREAMS)
    assert seen.attacks == {}
    assert "diverged" in seen.reason
