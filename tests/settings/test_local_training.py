"""From settings to a recipe, its weights of classes, and populations."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn.functional import cross_entropy

import covey
from covey import Config, ConfigError, DataError, Recipe, Streams
from covey.base.events import CohortSampled
from covey.engine.cpu import ParallelEngine
from covey.engine.kinds import faster_for_many
from covey.engine.recipe import MULTICLASS, CrossEntropy
from covey.engine.vmap import VmapEngine
from covey.settings.clients import population_and_notes
from covey.settings.load import that_matter
from covey.settings.run import build_run
from covey.settings.schema import recipe_of
from data.layouts import write_leaf, written
from plugins.loss_generalized import GeneralizedCrossEntropy
from support.runs import small

TINY = small(population={"clients": 4}, model={"name": "mlp"}, engine={"name": "parallel"})


def once(round_index: int, rounds: int) -> float:
    """The first round trains; all others have a rate of 0."""
    return float(round_index == 0)


class Contrast(GeneralizedCrossEntropy):
    mixes_examples = True


def recipe(**train: object) -> Recipe:
    return recipe_of(Config.of({"train": train}))


@pytest.mark.parametrize("name", ["RMSprop", "torch.optim:RMSprop", torch.optim.RMSprop])
def test_torchs_optimizers_go_by_their_names(name):
    optimizer = recipe(optimizer={"name": name, "alpha": 0.5}).optimizer
    made = optimizer.make([torch.zeros(2)], 0.25)
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
def test_what_does_not_fit_is_reported_in_a_sentence(settings, said):
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


BALANCED = {"name": "cross-entropy", "class_weights": "balanced"}
SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
}
TRAIN = {"learning_rate": 0.1, "batch_size": 5}


def model():
    return nn.Linear(2, 3)


def clients(*without: str):
    """Six clients of three classes, of which the last is rare."""
    parts = {}
    for i in range(6):
        draws = np.random.default_rng(i)
        labels = draws.choice(3, size=20, p=[0.6, 0.3, 0.1])
        labels[:3] = range(3)
        inputs = draws.normal(size=(20, 2)).astype(np.float32) + labels[:, None]
        parts[f"c{i}"] = (inputs.astype(np.float32), labels), (inputs[:4], labels[:4])
    return {name: part for name, part in parts.items() if name not in without}


def played(out, loss, *without: str, **changes):
    settings = {**SETTINGS, **changes, "train": {**TRAIN, **changes.get("train", {}), "loss": loss}}
    return covey.run(lambda: model(), clients(*without), Config.of(settings), out)


def weights(*without: str) -> list[float]:
    labels = np.concatenate([train[1] for train, _ in clients(*without).values()])
    return compute_class_weight("balanced", classes=np.arange(3), y=labels).tolist()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_weighted_loss_is_torchs_of_every_example(smoothing):
    outputs, labels = (
        torch.randn(7, 3, generator=torch.Generator().manual_seed(1)),
        torch.arange(7) % 3,
    )
    losses = CrossEntropy(label_smoothing=smoothing, class_weights=(1, 2, 5)).losses(
        outputs, labels
    )
    weight = torch.tensor([1.0, 2.0, 5.0])
    by_hand = [
        cross_entropy(o[None], y[None], weight, reduction="sum", label_smoothing=smoothing)
        for o, y in zip(outputs, labels, strict=True)
    ]
    assert losses.tolist() == pytest.approx([float(loss) for loss in by_hand])


@pytest.mark.parametrize("engine", ["reference", "vmap"])
def test_balanced_weights_are_those_of_all_training_examples(tmp_path, engine):
    names = {"engine": {"name": engine}}
    balanced = played(tmp_path / "balanced", BALANCED, **names)
    listed = played(tmp_path / "listed", {**BALANCED, "class_weights": weights()}, **names)
    plain = played(tmp_path / "plain", "cross-entropy", **names)
    for name, tensor in balanced.params(0).items():
        assert torch.allclose(tensor, listed.params(0)[name], atol=1e-5)
    assert balanced.summary.model_hash != plain.summary.model_hash
    assert any("they announce" in note for note in balanced.summary.notes)
    assert not any("they announce" in note for note in listed.summary.notes)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_who_leaves_weighs_nothing_any_more(tmp_path, method):
    changes = {
        "method": {"name": method},
        "train": {"participation": 0.6},
        "secrets": {"source": "seeded"},
    }
    run = played(tmp_path / "left", BALANCED, **changes)
    first = next(e for e in run.history.all_events if isinstance(e, CohortSampled))
    late = next(name for name, handle in run.names.items() if handle not in first.handles)
    run.forget(late, "retrain")
    never = played(tmp_path / "never", BALANCED, late, **changes)
    assert covey.load(run.folder).summary.model_hash == never.summary.model_hash


def test_a_guarantee_says_that_it_does_not_cover_the_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    noise = {
        "privacy": {"client_clip": 1.0, "client_noise": 2.0},
        "secrets": {"source": "os"},
        "aggregation": {"name": "mean", "weights": "equal"},
    }
    for name, loss in (("balanced", BALANCED), ("plain", {**BALANCED, "class_weights": [1, 2, 3]})):
        (guarantee,) = played(tmp_path / name, loss, **noise).guarantee.guarantees
        open_counts = any(
            "examples of each class" in sentence for sentence in guarantee.does_not_cover
        )
        assert open_counts == (name == "balanced")


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({"engine": {"name": "flower"}}, "engine.name"),
        ({"aggregation": {"name": "anonymity-sets"}}, "aggregation.name"),
        (
            {"privacy": {"client_clip": 1.0, "client_noise": 1.0, "exposure": 0.6}},
            "privacy.exposure",
        ),
    ],
)
def test_balanced_is_refused_where_counts_would_be_in_the_open(changes, other):
    with pytest.raises(ConfigError, match=r"class_weights as a list") as refused:
        Config.of({**SETTINGS, **changes, "train": {"loss": BALANCED}})
    assert other in str(refused.value)


@pytest.mark.parametrize("wrong", [[1.0, 2.0], [1.0, 2.0, 0.0], [1.0, -1.0, 2.0], "balance"])
def test_weights_that_fit_no_classes_are_refused_before_anything_is_written(tmp_path, wrong):
    with pytest.raises(ConfigError, match="class_weights"):
        played(tmp_path / "run", {**BALANCED, "class_weights": wrong})
    assert not (tmp_path / "run").exists()


def test_settings_without_weights_have_the_hash_that_they_had():
    known = that_matter(Config.of({"train": {"loss": "cross-entropy"}}))
    assert known == {"train.loss.name": "cross-entropy"}


def settings(folder, name, **population):
    own = {"clients": 4, "examples_per_client": 5, "audit_examples": 3, **population}
    return Config.of({"data": {"name": name, "dir": str(folder)}, "population": own})


def test_the_settings_reach_the_deal(tmp_path):
    # Each writer writes one character only, so labels tell the writers.
    users = {f"writer_{number}": written(*[number] * 8) for number in range(12)}
    write_leaf(tmp_path / "femnist" / "train" / "a.json", **users)
    write_leaf(tmp_path / "femnist" / "test" / "a.json", writer_0=written(0))
    config = settings(tmp_path, "femnist", partition="by-writer", images="per-group")
    population, notes = population_and_notes(config, None, Streams(0))
    assert notes == ()
    for client in population.clients:
        assert len({*client.train.labels.tolist(), *client.holdout.labels.tolist()}) == 1
    assert [len(member) for member in population.non_members] == [3, 3]


def test_the_server_holds_as_many_images_as_the_settings_say():
    def dealt(risk, **population):
        config = Config.of({"risk": {"name": risk}, "population": population})
        return population_and_notes(config, None, Streams(0))[0]

    # of 1,797 digits 1,200 are the clients' and 400 the audit's; half of the others test
    rest, fifty = dealt("shadow"), dealt("shadow", pool=50)
    assert [len(task.pool) for task in (rest, fifty)] == [98, 50]
    assert [len(task.test[0]) for task in (rest, fifty)] == [99, 147]
    assert not len(dealt("federated").pool)
    for usual, other in zip(rest.clients, fifty.clients, strict=True):
        assert torch.equal(usual.train.inputs, other.train.inputs)
    with pytest.raises(DataError, match=r"198 for the pool.*or \.pool"):
        dealt("shadow", pool=198)
