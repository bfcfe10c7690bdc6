"""DP-SGD and clipped sums: what one example can add, and the noise over it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from covey import ConfigError, Engine, Examples, ModelError, Recipe, Streams, TrainingJob
from covey.data.examples import to_floats
from covey.engine import example_gradients
from covey.engine.cpu import ParallelEngine, ReferenceEngine
from covey.engine.example_gradients import (
    clipped_sum,
    gradient_norms,
    gradient_sum,
    private_gradients,
    sampling_rate,
)
from covey.engine.fixed_features import FixedFeatureEngine, LocalRecords
from covey.engine.optimizers import Sgd
from covey.engine.protocol import num_steps
from covey.engine.recipe import MULTICLASS
from covey.models.features import Gabor
from covey.models.linear_head import HeadAlone, LinearHeadNetwork, build_features
from covey.ridge.sums import FEATURE_STEPS
from engine.jobs import build_module, make_jobs, make_module, point_job, some_images

MakeEngine = Callable[[nn.Module], Engine]

RECIPE = Recipe(
    local_epochs=2,
    batch_size=4,
    learning_rate=0.1,
    optimizer=Sgd(momentum=0.5),
    record_clip=0.5,
    record_noise=0.7,
)
CLIPPING = replace(RECIPE, record_noise=0.0)


def still_job(weights: int, recipe: Recipe, streams: Streams) -> TrainingJob:
    """Inputs of zeros: all gradients are 0, and what moves the weights is noise."""
    examples = Examples(torch.zeros(4, weights), torch.zeros(4, dtype=torch.long))
    return TrainingJob({"weight": torch.zeros(2, weights)}, examples, streams, recipe)


def norm(gradients: list[Tensor]) -> float:
    return float(torch.cat([value.flatten() for value in gradients]).norm())


def one_by_one(module: nn.Module, examples: Examples, clip: float) -> list[Tensor]:
    """The clipped sum as the paper writes it: a loop over the examples."""
    weights = [value for value in module.parameters() if value.requires_grad]
    total = [torch.zeros_like(value) for value in weights]
    for x, y in zip(to_floats(examples.inputs), examples.labels, strict=True):
        loss = nn.functional.cross_entropy(module(x[None]), y[None])
        own = torch.autograd.grad(loss, weights, materialize_grads=True)
        factor = min(1.0, clip / max(norm(list(own)), 1e-12))
        total = [a + factor * b for a, b in zip(total, own, strict=True)]
    return total


@pytest.mark.parametrize("clip", [0.05, 100.0])
@pytest.mark.parametrize("build", ["plain", "group-norm", "inner-relu", "odd"])
def test_the_sum_is_that_of_a_loop_over_the_examples(build: str, clip: float):
    module = build_module(build)
    for size in (1, 9):
        total = clipped_sum(module, some_images(size), clip)
        expected = one_by_one(module, some_images(size), clip)
        assert norm(expected) > 0
        torch.testing.assert_close(total, expected, rtol=0, atol=1e-6)


@given(
    clip=st.floats(1e-3, 10.0),
    size=st.integers(1, 8),
    left_out=st.integers(0, 7),
    seed=st.integers(0, 100),
)
def test_no_example_adds_more_than_the_clip(clip: float, size: int, left_out: int, seed: int):
    with Streams(seed).lent_to_torch():
        module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    examples = some_images(size, seed)
    whole = clipped_sum(module, examples, clip)
    assert norm(whole) <= size * clip * (1 + 1e-5)
    others = examples.take(torch.arange(size)[torch.arange(size) != left_out % size])
    rest = clipped_sum(module, others, clip)
    change = [a - b for a, b in zip(whole, rest, strict=True)]
    assert norm(change) <= clip * (1 + 1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
def test_what_is_not_finite_adds_no_more_than_the_clip(bad: float):
    module = nn.Linear(1, 2, bias=False)
    examples = Examples(torch.tensor([[1.0], [bad]]), torch.tensor([0, 0]))
    total = clipped_sum(module, examples, 0.1)
    assert norm(total) <= 0.2 * (1 + 1e-5)


def test_two_momentum_steps_by_hand(private_engine: MakeEngine):
    # n = batch_size = 1, so q = L = 1. Gradients (p_0 - 1, p_1) x of norm 0.707 and 0.67
    # are clipped to 0.5: (-0.353553, 0.353553) both times. With momentum 0.9 the weight
    # ends in -0.1 * (1 + 1.9) of that: (0.102530, -0.102530).
    recipe = Recipe(
        local_epochs=2,
        batch_size=1,
        learning_rate=0.1,
        optimizer=Sgd(momentum=0.9),
        record_clip=0.5,
    )
    (trained,) = private_engine(nn.Linear(1, 2, bias=False)).train([point_job(recipe)])
    expected = torch.tensor([[0.102530], [-0.102530]])
    torch.testing.assert_close(trained["weight"], expected, rtol=0, atol=1e-6)


def test_the_noise_has_the_deviation_it_should(private_engine: MakeEngine):
    # L = 2, z = 1.5, C = 3: one step of rate 1 moves each weight by N(0, (1.5 * 3 / 2)^2).
    # 200,000 of them: the deviation is off by 1% with 6 standard errors, the mean by 4.
    recipe = Recipe(
        local_steps=1, batch_size=2, learning_rate=1.0, record_clip=3.0, record_noise=1.5
    )
    job = still_job(100_000, recipe, Streams(0))
    (trained,) = private_engine(nn.Linear(100_000, 2, bias=False)).train([job])
    moved = trained["weight"].double()
    assert float(moved.std()) == pytest.approx(2.25, rel=0.01)
    assert abs(float(moved.mean())) < 4 * 2.25 / 200_000**0.5


def test_momentum_carries_the_noise_on(private_engine: MakeEngine):
    # The gradients g1, g2 are noise alone, wherever the weights are:
    # they end in -0.1 (g1 + (0.5 g1 + g2)).
    recipe = replace(RECIPE, local_steps=2)
    module, job = nn.Linear(50, 2, bias=False), still_job(50, recipe, Streams(0))
    (g1,), (g2,) = private_gradients(module, job)
    assert abs(float((g1 * g2).mean())) < 0.5 * float(g1.var())  # drawn anew
    (trained,) = private_engine(module).train([job])
    torch.testing.assert_close(trained["weight"], -0.1 * (1.5 * g1 + g2))


def test_each_example_is_in_each_batch_by_a_coin_of_its_own():
    # Example i is the unit vector e_i, so its gradient shows in column i alone. Of 20,000
    # coins with q = 0.2 the mean has standard error 0.0028; two coins in a row are both
    # heads with 0.04, and 19,000 such pairs have 0.0014; batch sizes have deviation 12.6.
    n, recipe = 1000, Recipe(local_steps=20, batch_size=200, record_clip=0.1)
    examples = Examples(torch.eye(n), torch.zeros(n, dtype=torch.long))
    job = TrainingJob({}, examples, Streams(0), recipe)
    steps = private_gradients(nn.Linear(n, 2, bias=False), job)
    added = torch.stack([gradient.norm(dim=0) for (gradient,) in steps])
    inside = (added > 0).double()
    torch.testing.assert_close(added, inside.float() * 0.1 / 200)  # C / L
    assert float(inside.mean()) == pytest.approx(0.2, abs=0.012)
    assert float((inside[1:] * inside[:-1]).mean()) == pytest.approx(0.04, abs=0.006)
    assert 6 < float(inside.sum(dim=1).std()) < 25


def test_only_the_secret_repeats_the_draws():
    def noise(streams: Streams) -> Iterator[float]:
        job = still_job(3, RECIPE, streams.at("client"))
        for (gradient,) in private_gradients(nn.Linear(3, 2, bias=False), job):
            yield from gradient.flatten().tolist()

    known = list(noise(Streams(0, secret=7)))
    assert list(noise(Streams(1, secret=7))) == known
    for other in (Streams(0), Streams(0, secret=8), Streams(0, secret=7).at("other")):
        assert abs(np.corrcoef(list(noise(other)), known)[0, 1]) < 0.5


def test_secret_noise_ends_on_one_grid_whatever_the_examples_are():
    """What is released with an example and without it are the same few values."""
    steps = replace(RECIPE, local_steps=20, record_noise=2.0)

    def off_grid(size: float, streams: Streams) -> int:
        examples = Examples(torch.tensor([[size, 0.3]]), torch.tensor([0]))
        job = TrainingJob({}, examples, streams, steps)
        module = nn.Linear(2, 2, bias=False)
        released = torch.cat(list(chain(*private_gradients(module, job))))
        # one example: L = 1; the noise's deviation is 2 * 0.5, and 16 steps are 1
        return int((released * 16 % 1 != 0).sum())

    assert off_grid(0.0, Streams(0, secret=7)) == off_grid(0.7, Streams(0, secret=7)) == 0
    assert off_grid(0.0, Streams(0)) == 80


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (nn.BatchNorm2d(2), "BatchNorm2d.*GroupNorm"),
        (nn.InstanceNorm2d(2, track_running_stats=True), "InstanceNorm2d.*GroupNorm"),
        (nn.Dropout(0.1), "Dropout.*remove it"),
    ],
)
def test_layers_without_a_gradient_of_one_example_are_refused(private_engine, layer, said):
    module = make_module(layer)
    (job,) = make_jobs(module, (4,), CLIPPING)
    with pytest.raises(ModelError, match=rf"privacy\.record_clip.*{said}"):
        list(private_engine(module).train([job]))


def test_noise_without_a_clip_is_refused():
    with pytest.raises(ConfigError, match="needs record_clip > 0"):
        Recipe(record_noise=1.0)


@pytest.mark.parametrize(
    ("n", "recipe", "steps", "rate"),
    [
        (10, Recipe(batch_size=4), 3, 0.4),
        (10, Recipe(batch_size=4, local_epochs=3), 9, 0.4),
        (10, Recipe(batch_size=4, local_epochs=3, local_steps=5), 5, 0.4),
        (3, Recipe(batch_size=25, local_epochs=2), 2, 1.0),
    ],
)
def test_steps_and_rates_by_hand(n: int, recipe: Recipe, steps: int, rate: float):
    private = replace(recipe, record_clip=1.0)
    assert num_steps(n, recipe) == steps
    assert sampling_rate(n, recipe) == rate
    job = point_job(private, count=n)
    assert len(list(private_gradients(nn.Linear(1, 2, bias=False), job))) == steps


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


def summed_one_by_one(module: nn.Module, examples: Examples, clip: float) -> list[Tensor]:
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
        total = gradient_sum(module, job(examples, module, recipe))
    for value, expected in zip(total, summed_one_by_one(module, examples, clip), strict=True):
        assert torch.allclose(value, expected, atol=1e-5)


@given(st.integers(1, 30), st.integers(0, 29), st.floats(0.01, 2))
def test_a_record_more_or_less_moves_a_sum_by_the_clip_at_most(count, which, clip):
    module, examples = network(), images(count)
    recipe = replace(SUMS, record_clip=clip)
    others = examples.take(
        torch.tensor([i for i in range(count) if i != which % count], dtype=torch.int64)
    )
    sums = [gradient_sum(module, job(inputs, module, recipe)) for inputs in (examples, others)]
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
    (trained,) = on_features(module).train([start])
    for name, value in expected.items():
        assert not torch.equal(value, start.start[name])
        assert torch.allclose(trained[name], value, atol=2e-3)  # features are on a grid


@pytest.mark.parametrize("clip", [0.05, 0.7, 100.0])
def test_a_head_is_summed_in_closed_form(clip: float):
    """Residual times feature, against a gradient by itself of the same network."""
    module, recipe = head(), replace(SUMS, record_clip=clip)
    start = job(images(40), module, recipe)
    records = LocalRecords(module, MULTICLASS, 3)
    slow, fast = ReferenceEngine(module), FixedFeatureEngine(ReferenceEngine(module), records)
    (expected,), (trained,) = slow.train([start]), fast.train([start])
    for name, value in expected.items():
        assert torch.allclose(trained[name], value, atol=0.02 * clip)  # features are on a grid
    norms = records.gradient_norms(start)
    assert torch.allclose(norms, gradient_norms(module, start), rtol=0.01, atol=0.01)
