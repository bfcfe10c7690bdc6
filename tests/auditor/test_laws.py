"""What an audit of a model must find, must not find, and must not depend on."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from auditor.tiny import Sides, broken, halves, network, records, shuffled, train
from covey import Examples, ModelAudit, Recipe, ReferenceEngine, Streams, Target, audit_model
from covey.auditor.audit import answers_of
from covey.auditor.records import records_of
from covey.data.examples import Client, Preference
from covey.membership.attacks import EntropyAttack, LossAttack
from covey.membership.audit import Auditor, examine_cluster
from covey.membership.references import RetrainRecipe
from covey.membership.truth import Reference
from covey.models.build import initial_params

TAKES_ALL = Preference(0.0, 1.0)


def area(found: ModelAudit, attack: str) -> float:
    value = found.figure(attack, "auc").value
    assert value is not None
    return value


@pytest.mark.parametrize("attack", ["loss", "shokri", "lira", "rmia"])
def test_random_labels_learnt_by_heart_are_found(found: ModelAudit, attack: str):
    assert area(found, attack) > 0.9
    assert (found.figure(attack, "balanced_accuracy").low or 0) > 0.8
    assert "Members can be distinguished" in found.verdict
    assert found.references == 4


def test_nothing_is_found_in_halves_that_the_model_never_saw():
    model = train(Examples(*records(200, 99, learnable=True)), seed=1)
    within = silent = 0
    for seed in range(4):
        found = audit_model(model, *halves(150, seed, learnable=True), seed=seed)
        told = found.to_dict()["attacks"]["loss"]["overall"]["auc"]
        within += abs(told["value"] - 0.5) < 2 * told["error"]
        silent += "No attack here" in found.verdict
    assert within >= 3  # in 120 such halves, 116 were, and 118 verdicts were silent
    assert silent >= 3


def test_references_find_nothing_in_unseen_halves_either():
    model = train(Examples(*records(200, 98, learnable=True)), seed=1)
    found = audit_model(model, *halves(150, 3, learnable=True), references=train, num_references=4)
    for attack in found.attacks:
        told = found.to_dict()["attacks"][attack]["overall"]["auc"]
        assert abs(told["value"] - 0.5) < 2.5 * told["error"]  # of four


def brighter(sides: Sides) -> Sides:
    return sides._replace(non_members=(sides.non_members[0] + 1, sides.non_members[1]))


def of_fewer_classes(sides: Sides) -> Sides:
    x, y = sides.non_members
    return sides._replace(non_members=(x, y.clamp(max=1)))


@pytest.mark.parametrize("change", [brighter, of_fewer_classes])
def test_sides_that_differ_without_the_model_are_refused(heart: nn.Module, sides: Sides, change):
    changed = change(sides)
    for pair in (changed, Sides(*reversed(changed))):
        if pair.members is changed.members:
            found = audit_model(heart, pair[0], pair[1], references=train)
            assert found.refused
            assert found.reason.startswith("refused: a classifier that never sees")
            assert "split one data set at random" in found.reason
            assert not found.controls["blind"].holds
            assert found.attacks == {}
        else:
            assert audit_model(heart, pair[0], pair[1]).refused


def test_swapped_sides_swap_the_ranking(heart: nn.Module):
    model = train(Examples(*records(200, 97, learnable=True)), seed=1)
    sides = halves(100, 5, learnable=True)
    there, back = (audit_model(model, *pair) for pair in (sides, Sides(*reversed(sides))))
    assert area(there, "loss") == pytest.approx(1 - area(back, "loss"), abs=1e-12)


def test_the_order_of_records_changes_nothing(sides: Sides, heart: nn.Module):
    again = Sides(*(shuffled(side, seed) for seed, side in enumerate(sides)))
    first, second = (
        audit_model(heart, *pair, references=train, num_references=2) for pair in (sides, again)
    )
    assert first.to_json() == second.to_json()


def test_logits_log_probabilities_and_probabilities_are_one_model(sides: Sides):
    model = train(Examples(*sides.members), seed=2, steps=20).double()
    examples = Examples(sides.members[0].double(), sides.members[1])
    logits, *others = (
        answers_of(form, examples)["answers"]
        for form in (
            model,
            lambda x: model(x).log_softmax(dim=1),
            lambda x: model(x).softmax(dim=1),
        )
    )
    assert all(torch.allclose(each, logits, atol=1e-9) for each in others)


def test_models_that_were_brought_are_as_good_as_those_trained_here(heart: nn.Module, sides: Sides):
    models: list[nn.Module] = []
    held: list[set[bytes]] = []

    def noted(examples: Examples, seed: int) -> nn.Module:
        models.append(train(examples, seed))
        held.append({x.numpy().tobytes() for x in examples.inputs})
        return models[-1]

    here = audit_model(heart, *sides, references=noted, num_references=4)
    everything = torch.cat([sides.members[0], sides.non_members[0]])
    inside = [[x.numpy().tobytes() in own for own in held] for x in everything]
    brought = audit_model(heart, *sides, references=(models, inside))
    assert json.loads(brought.to_json()) == json.loads(here.to_json())
    assert [len(own) for own in held] == [len(sides.members[1])] * 4


def test_a_runs_audit_of_one_client_finds_the_same(heart: nn.Module, sides: Sides):
    train, holdout = (Examples(*side) for side in sides)
    client = Client("one", "one", None, train, holdout, TAKES_ALL)
    target = Target(0, initial_params(heart), (client,), round_index=1)
    attacks = {"loss": LossAttack(), "entropy": EntropyAttack()}
    recipe = Recipe(local_epochs=1, batch_size=10, learning_rate=0.1, momentum=0.0)
    retrained = RetrainRecipe(lambda _: target.params, lambda *_: {}, recipe, rounds=0)
    auditor = Auditor(
        attacks, from_updates=False, references=2, retrain_recipe=retrained, observe=lambda *_: None
    )
    engine = ReferenceEngine(heart)
    run = examine_cluster(engine, target, Reference(()), auditor, Streams(7))
    here = audit_model(heart, *sides, attacks=["loss", "entropy"])
    for name, figures in run.attacks.items():
        theirs = figures.overall.auc.value
        assert area(here, name) == pytest.approx(theirs, abs=1e-4)  # float32 there
    assert here.accuracies["members"] == run.accuracies["members"]


def test_images_are_seen_between_0_and_1_here_and_in_training():
    seen: list[float] = []

    def model(x: Tensor) -> Tensor:
        seen.append(float(x.max()))
        return torch.stack([x.mean(dim=(1, 2, 3)), 0.5 - x.std(dim=(1, 2, 3))], dim=1)

    def trained(examples: Examples, _: int):
        seen.append(float(examples.inputs.max()))
        return model

    draw = np.random.default_rng(0)
    x = draw.integers(256, size=(80, 8, 8), dtype=np.uint8)
    y = (x.mean(axis=(1, 2)) < 127).astype(int)
    sides = (x[:40], y[:40]), (x[40:], y[40:])
    audit_model(model, *sides, references=trained, num_references=2)
    assert 0.9 < max(seen) <= 1


def test_references_that_never_saw_a_record_are_enough_offline(heart: nn.Module, sides: Sides):
    models = [train(Examples(*records(200, seed)), seed) for seed in (50, 51, 52)]
    inside = np.zeros((400, 3), dtype=bool)
    attacks = ("loss", "lira", "lira-offline", "rmia-offline")
    found = audit_model(heart, *sides, references=(models, inside), attacks=attacks)
    assert found.exposures is None
    assert set(found.attacks) == {"loss", "lira-offline", "rmia-offline"}
    assert "one that was not" in found.withheld["lira"]
    assert min(area(found, attack) for attack in found.attacks) > 0.9


def test_without_references_what_needs_them_is_withheld(heart, sides: Sides):
    found = audit_model(heart, *sides)
    assert found.exposures is None
    assert found.most_exposed() == []
    assert set(found.attacks) == {"loss"}
    assert set(found.withheld) == {"shokri", "lira", "rmia"}
    assert all("Pass references" in why for why in found.withheld.values())


def test_members_without_a_partner_are_in_every_reference(heart, sides: Sides):
    seen: list[int] = []

    def noted(examples: Examples, seed: int) -> nn.Module:
        seen.append(len(examples))
        return train(examples, seed, steps=1)

    few = (sides.non_members[0][:50], sides.non_members[1][:50])
    found = audit_model(heart, sides.members, few, references=noted, num_references=4)
    assert (found.members, found.non_members, found.background) == (50, 50, 150)
    assert found.exposures is not None
    assert np.isfinite(found.exposures).sum() == 50
    assert len(found.exposures) == 200
    assert seen == [200] * 4


@pytest.mark.parametrize("kind", ["weights", "answers", "guesses"])
def test_what_diverged_never_looks_private(heart: nn.Module, sides: Sides, kind: str):
    def answers(x: Tensor) -> Tensor:
        return heart(x) * torch.where(x[:, :1] > 2, torch.nan, 1.0)

    with Streams(0).at("network").lent_to_torch():
        untrained = network()
    model = {"weights": broken(heart), "answers": answers, "guesses": untrained}[kind]
    found = audit_model(model, *sides)
    assert found.refused
    assert found.reason.startswith("diverged: ")
    assert "private" not in found.verdict or "is no model" in found.verdict


def test_a_reference_that_diverged_withholds_what_learns_from_it(heart, sides: Sides):
    found = audit_model(
        heart, *sides, references=lambda e, s: broken(train(e, s)), num_references=2
    )
    assert set(found.attacks) == {"loss"}
    assert "diverged" in found.withheld["lira"]


def test_too_few_records_have_no_figure(heart: nn.Module, sides: Sides):
    x, y = sides.members
    found = audit_model(heart, (x[:9], y[:9]), sides.non_members)
    assert found.refused
    assert "at least 10" in found.reason
    same = audit_model(heart, sides.members, sides.members)
    assert same.refused
    assert "400 on both sides" in same.reason


def test_the_model_is_left_as_it_was(heart: nn.Module, sides: Sides):
    model = nn.Sequential(copy.deepcopy(heart), nn.Dropout(0.9)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first, second = (audit_model(model, *sides).to_json() for _ in range(2))
    assert first == second  # no dropout was at work
    assert all(each.training for each in model.modules())
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


whole = st.integers(0, 30)


@given(inside=st.lists(whole, max_size=20), outside=st.lists(whole, max_size=20))
@settings(max_examples=60, deadline=None)
def test_records_know_their_side_and_place(inside: list[int], outside: list[int]):
    lists = [inside or [99], outside or [98]]
    pairs = [(np.array(x, dtype=np.float32)[:, None], np.zeros(len(x), int)) for x in lists]
    told = records_of(pairs[0], pairs[1])
    both = set(lists[0]) & set(lists[1])
    everything = [*lists[0], *lists[1]]
    assert told.shared == sum(x in both for x in everything)
    at_place = [everything[place] for place in told.places]
    assert told.examples.inputs[:, 0].tolist() == at_place
    assert told.member.tolist() == [p < len(lists[0]) for p in told.places]
    assert sorted(at_place) == sorted(x for x in everything if x not in both)


def test_records_with_a_wrong_label_are_exposed_wherever_they_stand():
    sides = halves(200, 21, learnable=True)
    x, y = sides.members
    wrong = np.arange(10)
    y[wrong] = (y[wrong] + 1) % 4
    model = train(Examples(x, y), seed=1)
    turned = Sides((x.flip(0), y.flip(0)), sides.non_members)
    found, again = (
        audit_model(model, *pair, references=train, num_references=4) for pair in (sides, turned)
    )
    assert found.exposures is not None
    assert again.exposures is not None
    assert found.exposures.tolist() == again.exposures[::-1].tolist()
    assert found.exposures[wrong].mean() > np.quantile(found.exposures, 0.75)
    assert again.most_exposed() == [199 - place for place in found.most_exposed()]
    told = found.to_dict()["exposed"]
    assert told["records"] == len(found.most_exposed()) == 2
    assert 0.5 < told["everybody"] < told["exposure"] <= 1


def test_advantage_is_twice_what_accuracy_has_above_a_half(found: ModelAudit):
    accuracy, advantage = (
        found.figure("loss", rate) for rate in ("balanced_accuracy", "advantage")
    )
    assert advantage.value == pytest.approx(2 * (accuracy.value or 0) - 1)
    told = found.to_dict()["attacks"]["loss"]["overall"]
    assert told["advantage"]["error"] == pytest.approx(2 * told["balanced_accuracy"]["error"])
    assert replace(found, attacks={}).refused
