"""Feature maps and the linear head over them: fixed by name and seed, the same everywhere."""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import covey
from covey import ConfigError, FeatureMap, ModelError, Streams
from covey.base.components import create
from covey.ledger.rows import seal_tables
from covey.ledger.store import Ledger
from covey.models.build import ModelFactory, build_model
from covey.models.linear_head import LinearHead, LinearHeadNetwork
from covey.models.linear_head import build_features as built_features
from covey.runs.folder import now
from runs.lying import entries_in, write_anew


def build_features(name, shape, seed, options=None):
    """Features by their name and their settings."""
    made = create("features", {"name": name, **(options or {})}, "features", FeatureMap)
    return built_features(made, shape, seed)


BANKS = ("gabor", "random-patches")
SMALL = {"filters": 7, "size": 4, "pool": 2}
HASHES = {
    "gabor": "e9f85363a81e92ecc114df43e6ff998925f6aeb47fd2b1eb1f2f4f7eb922945e",
    "random-patches": "767eec6d9cad8b6b49319d81b7c7a27ff2569c053d9547ea843b6693fb292ca1",
}


class Backbone(nn.Module):
    """With everything that must not move: a parameter, statistics, and dropout."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.Dropout(), nn.Flatten()
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def by_shape(input_shape: tuple[int, ...], width: int = 3) -> nn.Module:
    assert input_shape == (1, 8, 8)
    return Backbone(width)


def text() -> str:
    return "a network"


def nothing() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(5))


@pytest.mark.parametrize("name", BANKS)
def test_a_feature_is_the_mean_response_of_one_sign_in_one_part(name):
    features = build_features(name, (2, 9, 9), 0, SMALL)
    image = torch.rand(1, 2, 9, 9)
    (filters,) = (
        create("features", {"name": name, **SMALL}, "", FeatureMap)
        .build((2, 9, 9), Streams(0).at("features"))
        .buffers()
    )
    seen = (image - image.mean()) / image.std(correction=0)
    parts = seen[0].unfold(1, 4, 1).unfold(2, 4, 1)  # (channels, 6, 6, 4, 4)
    responses = torch.einsum("fchw,cyxhw->fyx", filters, parts).numpy()
    signs = (responses.clip(0), (-responses).clip(0))
    parts = [s.reshape(7, 2, 3, 2, 3).mean(axis=(2, 4)).ravel() for s in signs]
    np.testing.assert_allclose(features(image)[0], np.concatenate(parts), atol=1e-5)


@pytest.mark.parametrize("name", BANKS)
def test_filters_are_those_of_the_name_and_the_seed(name):
    assert build_features(name, (1, 28, 28), 0).map.tensors == HASHES[name]
    assert build_features(name, (1, 28, 28), 1).map.tensors != HASHES[name]


def test_no_image_and_too_small_an_image_are_refused():
    for shape in ((5,), (1, 5, 28)):
        with pytest.raises(ModelError, match="at least 6x6 pixels"):
            build_features("gabor", shape, 0)


@pytest.mark.parametrize(("made", "width", "size"), [(Backbone, 2, 72), (by_shape, 4, 144)])
def test_a_backbone_of_a_users_own_is_frozen(made, width, size):
    name = f"{__name__}:{made.__name__}"
    features, again = (build_features(name, (1, 8, 8), 0, {"width": width}) for _ in range(2))
    images = torch.rand(6, 1, 8, 8)
    mapped = features.train()(images)
    assert features.size == mapped.shape[1] == size
    assert torch.equal(mapped, features(images))
    assert torch.equal(mapped, again(images))
    assert not mapped.requires_grad
    assert features.map.source == again.map.source != ""
    assert features.map.tensors == again.map.tensors
    assert not [*features.state_dict(), *features.parameters(), *features.buffers()]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (text, "must return an nn.Module"),
        (nothing, r"on a batch of shape \(2, 1, 8, 8\), raised RuntimeError"),
    ],
)
def test_what_is_no_feature_map_is_refused(made, message):
    with pytest.raises(ModelError, match=message):
        build_features(f"{__name__}:{made.__name__}", (1, 8, 8), 0)


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


WEIGHTED = {
    "rounds": 2,
    "method": {"name": "fedavg"},
    "population": {"clients": 4, "examples_per_client": 30, "audit_examples": 0},
    "risk": {"name": "none"},
    "model": {"name": "linear-head", "features": f"{__name__}:weighted"},
}


def test_a_run_goes_on_with_the_weights_alone_that_began_it(tmp_path, monkeypatch):
    """A backbone's weights lie outside of its source file."""
    monkeypatch.setattr(sys.modules[__name__], "weight", [1.0])
    run = covey.run(config=WEIGHTED, out=tmp_path / "run")
    assert set(run.params(0)) == {"head.weight", "head.bias"}
    assert covey.resume(run.folder).summary.rounds == 2
    monkeypatch.setattr(sys.modules[__name__], "weight", [2.0])
    with pytest.raises(covey.RunError, match=r"tensors of model\.features must be what"):
        covey.resume(run.folder)


def test_a_run_that_does_not_say_its_weights_does_not_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "weight", [1.0])
    run = covey.run(config=WEIGHTED, out=tmp_path / "run")
    with Ledger.open(run.folder / "ledger.sqlite", now) as ledger:
        entries = entries_in(ledger)
        (used,) = [r.body for _, own in entries for r in own if r.kind == "ComponentsUsed"]
        del used["components"]["model.features"]["tensors"]
        with ledger._database.reading() as connection:
            write_anew(connection, entries)
            seal_tables(connection)
    with pytest.raises(covey.RunError, match=r"tensors of model\.features must be what"):
        covey.resume(run.folder)
