"""A client's one step of a round under individual noise: every gradient clipped, and summed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.engine import example_gradients
from covey.engine.cpu import ParallelEngine, ReferenceEngine
from covey.engine.example_gradients import gradient_norms, gradient_sum
from covey.engine.fixed_features import FixedFeatureEngine, LocalRecords
from covey.engine.protocol import TrainingJob, num_steps
from covey.engine.recipe import MULTICLASS, Recipe
from covey.models.features import Gabor
from covey.models.frozen import build_features
from covey.models.linear_head import HeadAlone, LinearHeadNetwork
from covey.ridge.sums import FEATURE_STEPS

SUMS = Recipe(learning_rate=0.5, record_clip=0.3, sums_gradients=True)


def images(count: int, seed: int = 0) -> Examples:
    draws = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), generator=draws, dtype=torch.uint8)
    return Examples(pixels, torch.randint(0, 3, (count,), generator=draws))


def network() -> nn.Module:
    with Streams(0).lent_to_torch():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Linear(7, 3))


def job(examples: Examples, module: nn.Module, recipe: Recipe = SUMS) -> TrainingJob:
    start = {name: value.detach().clone() for name, value in module.state_dict().items()}
    return TrainingJob(start, examples, Streams(0), recipe)


def one_by_one(module: nn.Module, examples: Examples, clip: float) -> list[Tensor]:
    """Return the sum of clipped gradients, by a loop that anybody can check."""
    total = [torch.zeros_like(value) for value in module.parameters()]
    for i in range(len(examples)):
        one = examples.take(torch.tensor([i]))
        loss = nn.functional.cross_entropy(module(one.inputs.float() / 255), one.labels)
        gradient = torch.autograd.grad(loss, [*module.parameters()])
        norm = torch.cat([value.flatten() for value in gradient]).norm()
        for value, more in zip(total, gradient, strict=True):
            value += more * min(1.0, clip / max(float(norm), 1e-30))
    return total


@given(st.integers(0, 30), st.floats(0.01, 5), st.integers(1, 400))
def test_a_sum_is_that_of_one_record_after_the_other(count, clip, memory):
    module, examples = network(), images(count)
    recipe = replace(SUMS, record_clip=clip)
    with pytest.MonkeyPatch.context() as patch:  # a part has one record, some, or all
        patch.setattr(example_gradients, "MEMORY", memory * 30)
        found = gradient_sum(module, job(examples, module, recipe))
    for value, expected in zip(found, one_by_one(module, examples, clip), strict=True):
        assert torch.allclose(value, expected, atol=1e-5)


@given(st.integers(1, 30), st.integers(0, 29), st.floats(0.01, 2))
def test_a_record_more_or_less_moves_a_sum_by_the_clip_at_most(count, which, clip):
    module, examples = network(), images(count)
    recipe = replace(SUMS, record_clip=clip)
    others = examples.take(
        torch.tensor([i for i in range(count) if i != which % count], dtype=torch.int64)
    )
    sums = [gradient_sum(module, job(each, module, recipe)) for each in (examples, others)]
    moved = torch.cat([(a - b).flatten() for a, b in zip(*sums, strict=True)]).norm()
    assert moved <= clip * (1 + 1e-5)
    norms = gradient_norms(module, job(examples, module, recipe))
    assert float(moved) == pytest.approx(min(float(norms[which % count]), clip), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("make", [ReferenceEngine, ParallelEngine])
def test_an_engine_makes_one_step_by_the_whole_sum(make):
    module, examples = network(), images(20)
    recipe = replace(SUMS, local_epochs=7, batch_size=3, local_steps=5)  # none of which counts
    (trained,) = make(module).train([job(examples, module, recipe)])
    total = gradient_sum(module, job(examples, module))
    for (name, value), step in zip(module.named_parameters(), total, strict=True):
        assert torch.allclose(trained[name], value - 0.5 * step, atol=1e-6)
    assert num_steps(20, recipe) == 1
    assert num_steps(0, recipe) == 0


@pytest.mark.parametrize("make", [ReferenceEngine, ParallelEngine])
def test_who_accepts_nothing_adds_nothing(make):
    module = network()
    recipe = replace(SUMS, record_clip=0.0)
    start = job(images(9), module, recipe)
    (trained,) = make(module).train([start])
    assert all(torch.equal(trained[name], start.start[name]) for name in trained)


def head() -> LinearHeadNetwork:
    features = build_features(Gabor(filters=4, size=3, pool=2), (1, 8, 8), 0)
    module = LinearHeadNetwork(features, 3, 2.0)
    nn.init.normal_(module.head.weight, generator=torch.Generator().manual_seed(1))
    return module


def on_features(module: LinearHeadNetwork) -> FixedFeatureEngine:
    alone = ReferenceEngine(HeadAlone(module, FEATURE_STEPS))
    return FixedFeatureEngine(alone, LocalRecords(module, MULTICLASS, 3))


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("clip", [0.0, 0.05, 0.7, 100.0])
def test_a_head_trains_on_its_features_as_the_whole_network_does(clip: float, noise: float):
    """Plain steps; and DP-SGD, whose gradients are residual times feature."""
    module = head()
    noise = noise if clip else 0.0
    recipe = Recipe(batch_size=4, record_clip=clip, record_noise=noise)
    start = job(images(20), module, recipe)
    (expected,) = ReferenceEngine(module).train([start])
    (found,) = on_features(module).train([start])
    for name, value in expected.items():
        assert not torch.equal(value, start.start[name])
        assert torch.allclose(found[name], value, atol=2e-3)  # features are on a grid


@pytest.mark.parametrize("clip", [0.05, 0.7, 100.0])
def test_a_head_is_summed_in_closed_form(clip: float):
    """Residual times feature, against a gradient by itself of the same network."""
    module, recipe = head(), replace(SUMS, record_clip=clip)
    start = job(images(40), module, recipe)
    records = LocalRecords(module, MULTICLASS, 3)
    slow, fast = ReferenceEngine(module), FixedFeatureEngine(ReferenceEngine(module), records)
    (expected,), (found,) = slow.train([start]), fast.train([start])
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=0.02 * clip)  # features are on a grid
    norms = records.gradient_norms(start)
    assert torch.allclose(norms, gradient_norms(module, start), rtol=0.01, atol=0.01)
