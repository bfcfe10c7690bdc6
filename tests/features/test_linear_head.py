"""A linear head over fixed features: a network like any other, whose state is small."""

import sys

import pytest
import torch
from torch import Tensor, nn

import covey
from covey import ConfigError, Streams
from covey.base.components import create
from covey.models.build import ModelFactory, build_model
from covey.models.linear_head import LinearHead, LinearHeadNetwork

weight = [1.0]  # as if read from a file


def weighted() -> nn.Module:
    layer = nn.Linear(64, 2, bias=False)
    nn.init.constant_(layer.weight, weight[0])
    return nn.Sequential(nn.Flatten(), layer)


OPTIONS = {"features": {"filters": 9, "size": 4, "pool": 2}}


def test_all_models_of_a_run_have_the_same_features_and_those_of_another_seed_others():
    images = torch.rand(2, 1, 8, 8)

    def features(streams: Streams) -> Tensor:
        made = create("model", {"name": "linear-head", **OPTIONS}, "model.name", ModelFactory)
        module = build_model(made, (1, 8, 8), 3, streams)
        assert isinstance(module, LinearHeadNetwork)
        return module.features(images)

    one = features(Streams(0).at("a"))
    assert torch.equal(one, features(Streams(0).at("b", 1)))
    assert not torch.equal(one, features(Streams(1).at("a")))
    with pytest.raises(ConfigError, match="build_for"):
        LinearHead().build((1, 8, 8), 3)


def test_a_run_goes_on_with_the_weights_alone_that_began_it(tmp_path, monkeypatch):
    """A backbone's weights lie outside of its source file."""
    monkeypatch.setattr(sys.modules[__name__], "weight", [1.0])
    how = {
        "rounds": 2,
        "method": {"name": "fedavg"},
        "population": {"clients": 4, "examples_per_client": 30, "audit_examples": 0},
        "risk": {"name": "none"},
        "model": {"name": "linear-head", "features": f"{__name__}:weighted"},
    }
    run = covey.run(config=how, out=tmp_path / "run")
    assert set(run.params(0)) == {"head.weight", "head.bias"}
    assert covey.resume(run.folder).summary.rounds == 2
    monkeypatch.setattr(sys.modules[__name__], "weight", [2.0])
    with pytest.raises(covey.RunError, match=r"tensors of model\.features must be what"):
        covey.resume(run.folder)
