"""From settings to a recipe, and what the settings make of it in a run."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import covey
from covey import Config, ConfigError, Recipe, Streams
from covey.engine.cpu import ParallelEngine
from covey.engine.kinds import faster_for_many
from covey.engine.recipe import MULTICLASS
from covey.engine.vmap import VmapEngine
from covey.settings.run import build_run
from covey.settings.schema import recipe_of
from plugins.loss_generalized import GeneralizedCrossEntropy

TINY = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


def once(round_index: int, rounds: int) -> float:
    """The first round trains; all others have a rate of 0."""
    return float(round_index == 0)


class Contrast(GeneralizedCrossEntropy):
    mixes_examples = True


def recipe(**train: object) -> Recipe:
    return recipe_of(Config.of({"train": train}))


@pytest.mark.parametrize("name", ["RMSprop", "torch.optim:RMSprop", torch.optim.RMSprop])
def test_torchs_optimizers_go_by_their_names(name):
    found = recipe(optimizer={"name": name, "alpha": 0.5}).optimizer
    made = found.make([torch.zeros(2)], 0.25)
    assert isinstance(made, torch.optim.RMSprop)
    assert (made.defaults["lr"], made.defaults["alpha"]) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train": {"optimizer": "RMSProp"}}, "has no attribute 'RMSProp'"),
        ({"train": {"optimizer": {"name": "adam", "alfa": 1}}}, "found 'train.optimizer.alfa'"),
        (
            {"train": {"optimizer": "RMSprop"}, "engine": {"name": "vmap"}},
            "'RMSprop' needs every client to be trained by itself",
        ),
        (
            {"train": {"loss": "cross-entropy"}, "model": {"task": "regression"}},
            "needs one class per example, found model.task = 'regression'",
        ),
        (
            {"train": {"loss": Contrast()}, "privacy": {"record_clip": 1.0}},
            "the gradient of a batch's mean loss, found privacy.record_clip = 1.0",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(settings, said):
    with pytest.raises(ConfigError) as refused:
        recipe_of(Config.of(settings))
    assert said in str(refused.value)


def test_a_schedule_is_followed_by_clients_and_by_shadows(tmp_path):
    config = Config.of({**TINY, "train": {"schedule": once}})
    one = covey.run(config=Config.of({**TINY, "rounds": 1}), out=tmp_path / "one")
    two = covey.run(config=config, out=tmp_path / "two")
    assert two.summary.model_hash == one.summary.model_hash
    built = build_run(config)
    start = built.init(Streams(0))
    sets = tuple(client.train for client in built.population.clients)
    for index, moves in ((0, True), (1, False)):
        end = built.retrain_recipe.play_round(index, start, sets, Streams(0))
        moved = [not torch.equal(end[name], value) for name, value in start.items()]
        assert any(moved) == moves


@pytest.mark.parametrize(
    ("model", "more", "stacked"),
    [
        ("linear", {}, True),
        ("mlp", {}, True),
        ("mnist-cnn", {}, False),
        ("linear", {"engine": {"precision": "bfloat16"}}, False),
        ("linear", {"privacy": {"record_clip": 1.0}}, False),
    ],
)
def test_small_references_are_trained_as_one_operation(model, more, stacked, monkeypatch):
    built = build_run(Config.of({**TINY, "model": {"name": model}, **more}))
    start, sets = built.init(Streams(0)), tuple(c.train for c in built.population.clients)
    play_round = replace(built, module=None).retrain_recipe.play_round
    alone = play_round(0, start, sets, Streams(0))
    if stacked:  # threads would fail
        monkeypatch.delattr(ParallelEngine, "train")
    else:
        monkeypatch.delattr(VmapEngine, "train")
    end = built.retrain_recipe.play_round(0, start, sets, Streams(0))
    for name, value in end.items():
        torch.testing.assert_close(value, alone[name], rtol=1e-4, atol=1e-6)


class Own(nn.Sequential):
    def forward(self, input):
        return super().forward(input if input.max().item() > 0 else input + 1)


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
    module[2].weight = module[1].weight
    return module


@pytest.mark.parametrize("make", [lambda: Own(nn.Flatten(), nn.Linear(64, 10)), tied])
def test_references_of_what_may_not_be_batched_are_trained_by_threads(make):
    module, recipe = make(), Recipe()
    engine = ParallelEngine(module)
    assert faster_for_many(engine, module, recipe, MULTICLASS) is engine
