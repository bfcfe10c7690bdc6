"""Feature maps: fixed by name and seed, the same everywhere, and blind to brightness."""

import ast
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import covey
from covey import ConfigError, FeatureMap, ModelError, Streams
from covey.base.components import create
from covey.models.features import FrozenFeatures
from covey.models.features import build_features as built_features


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


def with_rest(**rest: object) -> nn.Module:
    """As torchvision's: with whatever else its network takes."""
    assert not rest
    return Backbone()


def words() -> nn.Module:
    return nn.EmbeddingBag(5, 2)


class Halves(covey.FeatureMap):
    """A component of a user's own."""

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        del streams
        return nn.Sequential(nn.AvgPool2d(input_shape[1]), nn.Flatten())


@pytest.fixture
def _hers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An importable module with right and wrong feature maps."""
    module = ModuleType("her_features")
    vars(module).update(
        Backbone=Backbone,
        by_shape=by_shape,
        Halves=Halves,
        with_rest=with_rest,
        words=words,
        text=lambda: "a network",
        images=nn.Identity,
        made=Backbone(),
        nothing=lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(5)),
    )
    monkeypatch.setitem(sys.modules, "her_features", module)


@pytest.mark.parametrize("name", BANKS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8)])
def test_filters_have_mean_zero_and_norm_one(name: str, shape: tuple[int, ...]):
    features = build_features(name, shape, seed=3)
    (filters,) = (
        create("features", name, "", FeatureMap).build(shape, Streams(3).at("features")).buffers()
    )
    assert filters.shape == (100, shape[0], 6, 6)
    flat = filters.flatten(1).double()
    torch.testing.assert_close(flat.sum(1), torch.zeros(100).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(flat.norm(dim=1), torch.ones(100).double(), atol=1e-5, rtol=0)
    found = features(torch.rand(5, *shape))
    assert found.shape == (5, features.size) == (5, 1800)
    assert found.dtype == torch.float32
    assert 0.1 < float(found.square().mean().sqrt()) < 2


@pytest.mark.parametrize("name", BANKS)
def test_a_feature_is_the_mean_response_of_one_sign_in_one_part(name: str):
    features = build_features(name, (2, 9, 9), 0, SMALL)
    image = torch.rand(1, 2, 9, 9)
    (filters,) = (
        create("features", {"name": name, **SMALL}, "", FeatureMap)
        .build((2, 9, 9), Streams(0).at("features"))
        .buffers()
    )
    seen = (image - image.mean()) / image.std(correction=0)
    responses = np.array(
        [
            [
                [float((f * seen[0, :, y : y + 4, x : x + 4]).sum()) for x in range(6)]
                for y in range(6)
            ]
            for f in filters
        ]
    )
    signs = (responses.clip(0), (-responses).clip(0))
    parts = [s.reshape(7, 2, 3, 2, 3).mean(axis=(2, 4)).ravel() for s in signs]
    np.testing.assert_allclose(features(image)[0], np.concatenate(parts), atol=1e-5)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    factor=st.floats(0.05, 20),
    shift=st.floats(-5, 5),
    name=st.sampled_from(BANKS),
)
def test_brightness_and_contrast_are_not_seen(seed: int, factor: float, shift: float, name: str):
    images = torch.rand(3, 2, 8, 8, generator=torch.Generator().manual_seed(seed))
    features = build_features(name, (2, 8, 8), seed, SMALL)
    torch.testing.assert_close(
        features(images), features(factor * images + shift), atol=1e-3, rtol=1e-3
    )


@pytest.mark.parametrize("name", BANKS)
def test_absolute_responses_are_the_sum_of_both_signs_and_see_no_negative(name: str):
    images = torch.rand(3, 2, 9, 9, generator=torch.Generator().manual_seed(0))
    signed = build_features(name, (2, 9, 9), 0, SMALL)(images)
    absolute = build_features(name, (2, 9, 9), 0, {**SMALL, "response": "absolute"})
    up, down = signed.chunk(2, dim=1)
    assert absolute.size == len(up[0])
    torch.testing.assert_close(absolute(images), up + down)
    torch.testing.assert_close(absolute(images), absolute(1 - images))


def test_another_process_draws_the_same():
    code = (
        "from covey import FeatureMap;"
        "from covey.base.components import create;"
        "from covey.models.features import build_features as b;"
        "of = lambda n: b(create('features', n, '', FeatureMap), (1, 28, 28), 0);"
        f"print({{n: of(n).tensors for n in {BANKS}}})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(told.stdout) == HASHES
    for name in BANKS:
        assert build_features(name, (1, 28, 28), 1).tensors != HASHES[name]


def test_no_image_and_too_small_an_image_are_refused():
    for shape in ((5,), (1, 5, 28)):
        with pytest.raises(ModelError, match="at least 6x6 pixels"):
            build_features("gabor", shape, 0)


def test_a_constant_image_and_no_image_at_all_have_features():
    features = build_features("gabor", (1, 8, 8), 0, SMALL)
    assert not features(torch.full((2, 1, 8, 8), 0.3)).any()
    assert features(torch.zeros(0, 1, 8, 8)).shape == (0, features.size)


def test_vectors_are_taken_as_they_are():
    features = build_features("none", (2, 3), 0)
    vectors = torch.rand(4, 2, 3)
    assert torch.equal(features(vectors), vectors.flatten(1))
    assert not features.tensors


@pytest.mark.usefixtures("_hers")
@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("Backbone", {"width": 2}, 72),
        ("by_shape", {"width": 4}, 144),
        ("with_rest", {}, 108),
        ("Halves", {}, 1),
    ],
)
def test_a_backbone_of_a_users_own_is_frozen(name: str, options: dict[str, object], size: int):
    features = build_features(f"her_features:{name}", (1, 8, 8), 0, options)
    again = build_features(f"her_features:{name}", (1, 8, 8), 0, options)
    images = torch.rand(6, 1, 8, 8)
    found = features.train()(images)
    assert features.size == found.shape[1] == size
    assert torch.equal(found, features(images))
    assert torch.equal(found, again(images))
    assert not found.requires_grad
    assert features.source == again.source != ""
    assert features.tensors == again.tensors
    assert not features.state_dict()
    assert not [*features.parameters(), *features.buffers()]


@pytest.mark.usefixtures("_hers")
def test_a_map_of_words_takes_ids():
    features = build_features("her_features:words", (4,), 0)
    assert features.size == 2
    assert features(torch.tensor([[0, 1, 2, 3]])).shape == (1, 2)


@pytest.mark.usefixtures("_hers")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text", "must return an nn.Module"),
        ("images", "into two rows of finite numbers"),
        ("nothing", r"on a batch of shape \(2, 1, 8, 8\), raised RuntimeError"),
    ],
)
def test_what_is_no_feature_map_is_refused(name: str, message: str):
    with pytest.raises(ModelError, match=message):
        build_features(f"her_features:{name}", (1, 8, 8), 0)


@pytest.mark.usefixtures("_hers")
def test_a_module_that_is_no_factory_of_one_is_refused():
    with pytest.raises(ConfigError, match=r"found a module itself"):
        build_features("her_features:made", (1, 8, 8), 0)


def test_options_that_a_feature_map_does_not_have_are_refused():
    with pytest.raises(ConfigError, match="width: Extra inputs"):
        build_features("gabor", (1, 8, 8), 0, {"width": 3})


def test_it_goes_along_to_another_precision():
    features = build_features("gabor", (1, 8, 8), 0, SMALL)
    assert isinstance(features, FrozenFeatures)
    doubles = nn.Sequential(features).double()
    assert doubles(torch.rand(2, 1, 8, 8)).dtype == torch.float32
