"""A linear head over fixed features: a network like any other, whose state is small."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import covey
from covey import ConfigError, Streams
from covey.base.components import create
from covey.models.build import ModelFactory, check_model
from covey.models.build import build_model as built_model
from covey.models.features import LinearHead, LinearHeadNetwork


def build_model(name, shape, classes, streams, task="multiclass", options=None):
    """A network by its name and its settings."""
    settings = {"name": name, "task": task, **(options or {})}
    made = create("model", settings, "model.name", ModelFactory)
    return built_model(made, shape, classes, streams)


weight = [1.0]  # as if read from a file


def weighted() -> nn.Module:
    layer = nn.Linear(64, 2, bias=False)
    nn.init.constant_(layer.weight, weight[0])
    return nn.Sequential(nn.Flatten(), layer)


OPTIONS = {"features": {"filters": 9, "size": 4, "pool": 2}}


def played(folder: Path, engine: str = "reference", **model: Any) -> covey.Run:
    config = covey.Config(
        rounds=2,
        seed=4,
        method={"name": "fedavg"},
        engine={"name": engine},
        population={"clients": 4, "examples_per_client": 30, "audit_examples": 0},
        risk={"name": "none"},
        model={"name": "linear-head", **OPTIONS, **model},
    )
    return covey.run(config=config, out=folder)


def test_the_state_is_the_head_alone_and_starts_at_zero():
    module = build_model("linear-head", (1, 8, 8), 3, Streams(0), options=OPTIONS)
    check_model(module, (1, 8, 8), 3)
    assert {name: tuple(value.shape) for name, value in module.state_dict().items()} == {
        "head.weight": (3, 72),
        "head.bias": (3,),
    }
    assert not module(torch.rand(2, 1, 8, 8)).any()


def test_the_scale_multiplies_the_logits():
    one, five = (
        build_model("linear-head", (1, 8, 8), 3, Streams(0), options=OPTIONS | {"scale": scale})
        for scale in (1.0, 5.0)
    )
    for module in (one, five):
        assert isinstance(module, LinearHeadNetwork)
        torch.nn.init.ones_(module.head.weight)
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(5 * one(images), five(images))


def test_all_models_of_a_run_have_the_same_features_and_those_of_another_seed_others():
    one, other, another = (
        build_model("linear-head", (1, 8, 8), 3, streams, options=OPTIONS)
        for streams in (Streams(0).at("a"), Streams(0).at("b", 1), Streams(1).at("a"))
    )
    images = torch.rand(2, 1, 8, 8)
    assert isinstance(one, LinearHeadNetwork)
    assert isinstance(other, LinearHeadNetwork)
    assert isinstance(another, LinearHeadNetwork)
    assert torch.equal(one.features(images), other.features(images))
    assert not torch.equal(one.features(images), another.features(images))
    with pytest.raises(ConfigError, match="build_for"):
        LinearHead().build((1, 8, 8), 3)


def test_a_run_goes_on_with_the_weights_alone_that_began_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A backbone's weights lie outside of its source file."""
    monkeypatch.setattr(sys.modules[__name__], "weight", [1.0])
    run = played(tmp_path / "run", features=f"{__name__}:weighted")
    assert covey.resume(run.folder).summary.rounds == 2
    monkeypatch.setattr(sys.modules[__name__], "weight", [2.0])
    with pytest.raises(covey.RunError, match=r"tensors of model\.features must be the"):
        covey.resume(run.folder)


def test_every_engine_trains_it_to_the_same_head(tmp_path: Path):
    runs = [played(tmp_path / e, e) for e in ("reference", "parallel", "vmap")]
    for run in runs[1:]:
        torch.testing.assert_close(run.params(0), runs[0].params(0), atol=1e-4, rtol=1e-3)
    assert set(runs[0].params(0)) == {"head.weight", "head.bias"}
    assert runs[0].params(0)["head.weight"].any()
    used = runs[0].history.components
    assert used is not None
    told = used.components["model.features"]
    assert told["name"] == "gabor"
    assert len(told["tensors"]) == 64
    assert told["source"] == ""
