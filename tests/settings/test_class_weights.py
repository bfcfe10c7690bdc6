"""Losses whose classes are weighted, by numbers or by what clients announce."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn.functional import cross_entropy

import covey
from covey import Config, ConfigError
from covey.base.events import CohortSampled
from covey.engine.recipe import CrossEntropy
from covey.settings.load import that_matter

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
    found = CrossEntropy(label_smoothing=smoothing, class_weights=(1, 2, 5)).losses(outputs, labels)
    weight = torch.tensor([1.0, 2.0, 5.0])
    by_hand = [
        cross_entropy(o[None], y[None], weight, reduction="sum", label_smoothing=smoothing)
        for o, y in zip(outputs, labels, strict=True)
    ]
    assert found.tolist() == pytest.approx([float(each) for each in by_hand])


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
        open_counts = any("examples of each class" in each for each in guarantee.does_not_cover)
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
