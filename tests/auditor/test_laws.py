"""What an audit of a model must find, what it must not depend on, and what it says."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from auditor.tiny import Sides, broken, halves, network, records, train
from covey import ConfigError, Examples, ModelAudit, ModelError, Streams, audit_model
from support.browsing import browser, needs_browser, problems


def area(audit: ModelAudit, attack: str) -> float:
    value = audit.figure(attack, "auc").value
    assert value is not None
    return value


@pytest.mark.parametrize("attack", ["loss", "shokri", "lira", "rmia"])
def test_random_labels_learnt_by_heart_are_found(audit, attack):
    assert area(audit, attack) > 0.9
    assert (audit.figure(attack, "balanced_accuracy").low or 0) > 0.8
    assert "Members can be distinguished" in audit.verdict
    assert audit.references == 4


def test_nothing_is_found_in_halves_that_the_model_never_saw():
    model = train(Examples(*records(200, 99, learnable=True)), seed=1)
    within = silent = 0
    for seed in range(4):
        audit = audit_model(model, *halves(150, seed, learnable=True), seed=seed)
        auc = audit.to_dict()["attacks"]["loss"]["overall"]["auc"]
        within += abs(auc["value"] - 0.5) < 2 * auc["error"]
        silent += "No attack here" in audit.verdict
    assert within >= 3  # in 120 such halves, 116 were, and 118 verdicts were silent
    assert silent >= 3


def brighter(sides: Sides) -> Sides:
    return sides._replace(non_members=(sides.non_members[0] + 1, sides.non_members[1]))


def of_fewer_classes(sides: Sides) -> Sides:
    x, y = sides.non_members
    return sides._replace(non_members=(x, y.clamp(max=1)))


@pytest.mark.parametrize("change", [brighter, of_fewer_classes])
def test_sides_that_differ_without_the_model_are_refused(heart, sides, change):
    changed = change(sides)
    audit = audit_model(heart, *changed, references=train)
    assert audit.refused
    assert audit.reason.startswith("refused: a classifier that never sees")
    assert not audit.controls["blind"].holds
    assert audit.attacks == {}
    assert audit_model(heart, *reversed(changed)).refused


def test_models_that_were_brought_are_as_good_as_those_trained_here(heart, sides):
    models: list[nn.Module] = []
    held: list[set[bytes]] = []

    def noted(examples: Examples, seed: int) -> nn.Module:
        models.append(train(examples, seed))
        held.append({x.numpy().tobytes() for x in examples.inputs})
        return models[-1]

    here = audit_model(heart, *sides, references=noted, num_references=4)
    everything = torch.cat([sides.members[0], sides.non_members[0]])
    inside = [[x.numpy().tobytes() in own for own in held] for x in everything]
    audit = audit_model(heart, *sides, references=(models, inside))
    assert json.loads(audit.to_json()) == json.loads(here.to_json())
    assert [len(own) for own in held] == [len(sides.members[1])] * 4


def test_without_references_what_needs_them_is_withheld(heart, sides):
    audit = audit_model(heart, *sides)
    assert audit.exposures is None
    assert audit.most_exposed() == []
    assert set(audit.attacks) == {"loss", "inverse-hessian"}
    assert set(audit.withheld) == {"shokri", "lira", "rmia", "bavaria"}
    assert all("Pass references" in why for why in audit.withheld.values())


@pytest.mark.parametrize("kind", ["weights", "answers", "guesses"])
def test_what_diverged_never_looks_private(heart, sides, kind):
    def answers(x: Tensor) -> Tensor:
        return heart(x) * torch.where(x[:, :1] > 2, torch.nan, 1.0)

    with Streams(0).at("network").lent_to_torch():
        untrained = network()
    model = {"weights": broken(heart), "answers": answers, "guesses": untrained}[kind]
    audit = audit_model(model, *sides)
    assert audit.refused
    verb = "is no better than guessing" if kind == "guesses" else "diverged"
    assert audit.reason.startswith(f"the model {verb}: ")
    assert "private" not in audit.verdict or "is no model" in audit.verdict


def test_a_reference_that_diverged_withholds_what_learns_from_it(heart, sides):
    audit = audit_model(
        heart, *sides, references=lambda e, s: broken(train(e, s)), num_references=2
    )
    assert set(audit.attacks) == {"loss", "inverse-hessian"}
    assert "diverged" in audit.withheld["lira"]


def test_too_few_records_have_no_figure(heart, sides):
    x, y = sides.members
    audit = audit_model(heart, (x[:9], y[:9]), sides.non_members)
    assert audit.refused
    assert "at least 10" in audit.reason
    same = audit_model(heart, sides.members, sides.members)
    assert same.refused
    assert "400 on both sides" in same.reason


def test_the_model_is_left_as_it_was(heart, sides):
    model = nn.Sequential(copy.deepcopy(heart), nn.Dropout(0.9)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first, second = (audit_model(model, *sides).to_json() for _ in range(2))
    assert first == second  # no dropout was at work
    assert all(module.training for module in model.modules())
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.slow
def test_records_with_a_wrong_label_are_exposed_wherever_they_stand():
    sides = halves(200, 21, learnable=True)
    x, y = sides.members
    wrong = np.arange(10)
    y[wrong] = (y[wrong] + 1) % 4
    model = train(Examples(x, y), seed=1)
    turned = Sides((x.flip(0), y.flip(0)), sides.non_members)
    audit, again = (
        audit_model(model, *pair, references=train, num_references=4) for pair in (sides, turned)
    )
    assert audit.exposures is not None
    assert again.exposures is not None
    assert audit.exposures.tolist() == again.exposures[::-1].tolist()
    assert audit.exposures[wrong].mean() > np.quantile(audit.exposures, 0.75)
    assert again.most_exposed() == [199 - place for place in audit.most_exposed()]
    exposed = audit.to_dict()["exposed"]
    assert exposed["records"] == len(audit.most_exposed()) == 2
    assert 0.5 < exposed["everybody"] < exposed["exposure"] <= 1


__all__ = ["browser"]


def test_json_holds_every_figure_with_its_interval(audit):
    record = json.loads(audit.to_json())
    assert record == audit.to_dict()
    for figures in record["attacks"].values():
        for rate in ("auc", "balanced_accuracy", "advantage"):
            one = figures["overall"][rate]
            assert one["low"] <= one["value"] <= one["high"]
            assert 0 < one["error"] < 0.1
        assert figures["overall"]["tpr_at_1_percent"]["value"] is None
        assert set(figures["by_class"]) == set("0123")
    assert any("at least 1,000" in reason for reason in record["unknown"])
    assert all(control["holds"] for control in record["controls"].values())


def test_the_page_needs_nothing_beside_it(audit, tmp_path):
    page = audit.write_html(tmp_path / "below" / "audit.html")
    text = page.read_text()
    assert "http" not in text.partition("<body>")[2]
    assert "Members can be distinguished" in text
    assert "What this does not say" in text


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1300)])
def test_the_page_is_readable_narrow_and_wide_light_and_dark(
    browser, audit, tmp_path, scheme, width
):
    page = audit.write_html(tmp_path / "audit.html")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(page.as_uri())
    assert problems(tab, minor=True) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda x: x[:, :1], "at least 4 classes"),
        (lambda x: x @ torch.zeros(3, 3), "found RuntimeError"),
    ],
)
def test_a_model_without_scores_is_refused(model, sentence, sides):
    with pytest.raises(ModelError, match=sentence):
        audit_model(model, *sides)


@pytest.mark.parametrize(
    ("references", "sentence"),
    [
        (nn.Linear(1, 1), "must be a function train"),
        (([train], np.zeros((399, 1))), r"shape \(400, 1\)"),
        (lambda _, __: 3, "must be an nn.Module, or a function"),
        (lambda _, __: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_references_that_are_none_are_refused(heart, sides, references, sentence):
    with pytest.raises(ConfigError, match=sentence):
        audit_model(heart, *sides, references=references)
