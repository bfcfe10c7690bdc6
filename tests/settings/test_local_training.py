"""From settings to a recipe, and what the settings make of it in a run."""

import pytest
import torch

import covey
from covey import Adam, Config, ConfigError, Recipe, Sgd, Streams
from covey.engine.cpu import ParallelEngine
from covey.engine.recipe import OwnSchedule
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
STOPPED = {"schedule": {"name": "step", "every": 1, "gamma": 0.0}}
"""The first round trains; all others have a rate of 0."""


class Contrast(GeneralizedCrossEntropy):
    mixes_examples = True


def recipe(**train: object) -> Recipe:
    return recipe_of(Config.of({"train": train}))


def test_the_defaults_are_those_of_a_recipe():
    assert recipe() == Recipe()
    assert recipe(optimizer={"momentum": 0.9}) == Recipe(momentum=0.9)


def test_settings_of_an_optimizer_stand_in_its_table():
    found = recipe(optimizer={"momentum": 0.9, "nesterov": True})
    assert found.optimizer == Sgd(momentum=0.9, nesterov=True)


@pytest.mark.parametrize("name", ["RMSprop", "torch.optim:RMSprop", torch.optim.RMSprop])
def test_torchs_optimizers_go_by_their_names(name):
    found = recipe(optimizer={"name": name, "alpha": 0.5}).optimizer
    made = found.make([torch.zeros(2)], 0.25)
    assert isinstance(made, torch.optim.RMSprop)
    assert (made.defaults["lr"], made.defaults["alpha"]) == (0.25, 0.5)


def test_a_function_is_a_schedule():
    def halving(round_index: int, rounds: int, least: float = 0.0) -> float:
        return max(least, 0.5**round_index * rounds / rounds)

    own = OwnSchedule(function=halving)
    assert Recipe(schedule=own).at(2, 5).learning_rate == 0.05 / 4
    named = recipe(schedule={"name": halving, "least": 0.5})
    assert named.at(2, 5).learning_rate == 0.025


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train": {"optimizer": "RMSProp"}}, "has no attribute 'RMSProp'"),
        ({"train": {"optimizer": "LBFGS"}}, "one step with these gradients"),
        (
            {"train": {"optimizer": {"name": "RMSprop", "alfa": 1}}},
            "unexpected keyword argument 'alfa'",
        ),
        (
            {"train": {"optimizer": {"name": "adam", "alfa": 1}}},
            "Unknown setting 'train.optimizer.alfa'",
        ),
        (
            {"train": {"optimizer": "RMSprop"}, "engine": {"name": "vmap"}},
            "'RMSprop' needs every client to be trained by itself",
        ),
        (
            {"train": {"loss": "huber"}},
            "needs labels that are numbers, but model.task = 'multiclass' rules it out",
        ),
        (
            {"train": {"loss": "focal"}, "model": {"task": "multilabel"}},
            "needs one class per example, but model.task = 'multilabel' rules it out",
        ),
        (
            {"train": {"loss": Contrast()}, "privacy": {"record_clip": 1.0}},
            "the gradient of a batch's mean loss, but privacy.record_clip = 1.0 rules",
        ),
        (
            {"train": {"objective": "plugins.loss_generalized:GeneralizedCrossEntropy"}},
            "must be a covey.Objective",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(settings, said):
    with pytest.raises(ConfigError) as refused:
        recipe_of(Config.of(settings))
    assert said in str(refused.value)


def test_what_the_vmap_engine_cannot_train_is_trained_in_parallel(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = Config.of({**TINY, "train": {"optimizer": "Adagrad"}})
    assert isinstance(build_run(config).engine, ParallelEngine)


def test_momentum_is_no_setting_of_another_optimizer_and_goes_with_it(tmp_path):
    with pytest.raises(
        ConfigError, match=r"is a setting of train\.optimizer = 'sgd', found 'adam'"
    ):
        recipe(optimizer={"name": "adam", "momentum": 0.5})
    path = tmp_path / "config.toml"
    path.write_text("[train]\noptimizer.momentum = 0.5\n")
    assert covey.load_config(path, ["train.optimizer.name=adam"]).train.optimizer == Adam()


def test_a_schedule_is_followed_by_clients_and_by_shadows(tmp_path):
    config = Config.of({**TINY, "train": STOPPED})
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
