"""Client-level differential privacy and means under masks."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import covey
from algorithms.playing import rounds_of
from covey import (
    AggregationResult,
    ClientUpdate,
    ConfigError,
    ModelError,
    Params,
    Streams,
    mean_per_cluster,
)
from covey.aggregation.mean import LARGEST, Mean, NoisyMeans, clipped, masked_means, projected
from covey.algorithms.fedavg import FedAvg
from covey.base.events import ClusterWaited, SumPerturbed
from covey.settings.run import build_run
from support.aggregating import aggregated
from support.runs import small

PUBLIC = Streams(0).at("round", 3, "merge")
TINY_NOISE = 1e-9
"""A noise multiplier that leaves sums as they are."""

seeds = st.integers(0, 2**32 - 1)
radii = st.floats(0.01, 100)


def of(*values: float) -> Params:
    return {"w": torch.tensor(values, dtype=torch.float64)}


def drawn(seed: int, size: float = 1.0) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "layer.weight": size * torch.randn(2, 3, generator=draws),
        "layer.bias": size * torch.randn(3, generator=draws),
    }


def flat(model: Params) -> Tensor:
    return torch.cat([model[name].reshape(-1).double() for name in sorted(model)])


def norm(model: Params) -> float:
    return float(flat(model).norm())


def sent(*updates: Params, cluster: int = 0) -> list[ClientUpdate]:
    return [ClientUpdate(str(i), cluster, update, 1.0) for i, update in enumerate(updates)]


def hidden(secret: int) -> Streams:
    return replace(PUBLIC, secret=secret)


@given(seeds, st.floats(1e-6, 1e18), radii)
def test_a_projected_update_is_in_the_ball_and_points_where_it_did(seed, size, radius):
    for scale in (size, 1.5 * radius / norm(drawn(seed))):  # any length, and just too long
        update = drawn(seed, scale)
        inside = projected(update, radius)
        assert norm(inside) <= radius * (1 + 1e-6)
        expected = flat(update) * min(1.0, radius / norm(update))
        torch.testing.assert_close(flat(inside), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_that_diverged_becomes_nothing(value):
    assert torch.equal(projected(of(1.0, value), 2.0)["w"], of(0.0, 0.0)["w"])


def test_all_tensors_are_one_vector_and_buffers_do_not_leave_the_client():
    update = {
        "a.weight": torch.tensor([3.0]),
        "b.weight": torch.tensor([4.0]),
        "norm.running_mean": torch.tensor([1e6]),
        "norm.num_batches_tracked": torch.tensor(7),
        "mask": torch.tensor([True]),
    }
    inside = projected(update, 1.0)
    assert [float(value) for value in inside.values()] == pytest.approx([0.6, 0.8, 0, 0, 0])
    assert {n: v.dtype for n, v in inside.items()} == {n: v.dtype for n, v in update.items()}


def private_mean(clip: float, z: float, **sampled: Any) -> Callable[..., AggregationResult]:
    """The noisy mean of updates that pass the clip, as in a run."""
    begin = partial(NoisyMeans, clip=clip, noise_multiplier=z, **sampled)
    return lambda models, updates, streams: aggregated(
        begin, models, map(clipped(clip), updates), streams
    )


@pytest.mark.parametrize("weights", [(1.0, 1.0), (9.0, 2.0)])
def test_a_client_counts_once_whatever_it_weighs(weights):
    # C = 1: (3, 4) becomes (0.6, 0.8), (0, 0.5) stays; their mean is (0.3, 0.65)
    both = zip(sent(of(3.0, 4.0), of(0.0, 0.5)), weights, strict=True)
    updates = [replace(update, weight=weight) for update, weight in both]
    start = (of(10.0, 20.0), of(1.0, 1.0))
    merged = private_mean(1.0, TINY_NOISE)(start, updates, PUBLIC)
    torch.testing.assert_close(merged.clusters[0], of(10.3, 20.65))
    assert torch.equal(merged.clusters[1]["w"], of(1.0, 1.0)["w"])
    assert merged.events == (SumPerturbed(0, 1.0, TINY_NOISE, 1.0),)


@pytest.mark.parametrize(
    ("how", "clients", "std"),
    [
        ({}, 4, 2.0 * 0.5 / 4),
        ({"sampling": 0.25, "clients": 40}, 4, 2.0 * 0.5 / 10),
        ({"sampling": 0.25, "clients": 40}, 0, 2.0 * 0.5 / 10),
    ],
    ids=["all", "sampled", "nobody"],
)
def test_the_noise_has_the_deviation_that_is_recorded(how, clients, std):
    start = {"w": torch.ones(100_000)}  # in so many coordinates a deviation is known to 0.2%
    nothing = sent(*[{"w": torch.zeros(100_000)}] * clients)
    (moved,) = private_mean(0.5, 2.0, **how)((start,), nothing, PUBLIC).clusters
    assert float(moved["w"].std()) == pytest.approx(std, rel=0.01)
    assert float(moved["w"].mean()) == pytest.approx(1.0, abs=5 * std / 100_000**0.5)


def test_the_noise_is_hidden_and_every_cluster_draws_its_own():
    start = {"w": torch.zeros(10_000)}
    updates = [*sent(start, start), *sent(start, cluster=1)]

    def noise(streams: Streams) -> tuple[Tensor, Tensor]:
        merged = private_mean(1.0, 1.0)((start, start), updates, streams)
        return merged.clusters[0]["w"], merged.clusters[1]["w"]

    draws = torch.stack([*noise(hidden(1)), *noise(hidden(2))])
    deviations = torch.corrcoef(draws) - torch.eye(4)
    assert float(deviations.abs().max()) < 0.05
    assert all(map(torch.equal, noise(hidden(1)), noise(hidden(1))))


def test_secret_noise_ends_on_one_grid_whatever_the_updates_are():
    """A sum that is 0 and one that is 1/3 are released as the same few values."""
    start = {"w": torch.zeros(1000)}

    def off_grid(value: float, streams: Streams) -> int:
        updates = sent({"w": torch.zeros(1000)}, {"w": torch.full((1000,), value)})
        merged = private_mean(1.0, 1.0)((start,), updates, streams)
        # noise of the sum: 1. 16 steps are 1
        steps = 16 * 2 * merged.clusters[0]["w"].double()
        return int(((steps - steps.round()).abs() > 1e-9).sum())

    assert off_grid(0.0, hidden(7)) == off_grid(1 / 3 / 1000**0.5, hidden(7)) == 0
    assert off_grid(0.0, PUBLIC) > 900


SAMPLED = {"sampling": 0.5, "clients": 8}


@given(st.integers(0, 5), seeds, st.floats(0.1, 5), st.floats(1e-3, 1e9))
def test_a_client_changes_the_sum_by_at_most_the_clip(others, seed, clip, size):
    # n_j = 4 is the same with and without it, and so is the noise
    merge = private_mean(clip, 1.0, **SAMPLED)
    updates = [drawn(seed + i, size) for i in range(others)]
    start = {name: torch.zeros_like(value) for name, value in drawn(0).items()}
    ends = [
        flat(merge((start,), sent(*cohort_updates), PUBLIC).clusters[0]) * 4
        for cohort_updates in (updates, [*updates, drawn(seed + 99, size)])
    ]
    # sums and noise of at most some tens, in single precision
    assert float((ends[1] - ends[0]).norm()) <= clip * (1 + 1e-4)


START = ({"w": torch.zeros(3, 4), "b": torch.zeros(2)},) * 2
HERE = Streams(0)


def updates(clients: int, cluster: int = 0, weight=lambda _: 1.0):
    drawn = HERE.at("updates", cluster).generator()
    return [
        ClientUpdate(
            f"{cluster}-{i}",
            cluster,
            {
                "w": torch.from_numpy(drawn.normal(size=(3, 4))).float(),
                "b": torch.from_numpy(drawn.normal(size=2)).float(),
            },
            float(weight(i)),
        )
        for i in range(clients)
    ]


@pytest.mark.parametrize("weight", [lambda _: 1.0, lambda i: i + 1.0])
def test_the_mean_is_that_in_the_open_within_its_bound(weight):
    updates_sent = updates(6, 0, weight) + updates(5, 1, weight)
    masked = aggregated(masked_means(5), START, updates_sent, HERE)
    plain = mean_per_cluster(START, updates_sent, HERE)
    assert not masked.events
    for one, other in zip(masked.clusters, plain.clusters, strict=True):
        for name in one:
            assert one[name].dtype == torch.float32
            torch.testing.assert_close(one[name], other[name], rtol=1e-6, atol=2**-24)


def test_a_cluster_of_few_waits():
    updates_sent = updates(6) + updates(4, 1)
    masked = aggregated(masked_means(5), START, updates_sent, HERE)
    assert masked.events == (ClusterWaited(1, 4, 5),)
    assert masked.clusters[1] is START[1]


def test_what_does_not_fit_the_ring_is_cut_or_refused():
    updates_sent = updates(3)
    updates_sent[0].update["b"][0] = 1e9
    mean = aggregated(masked_means(3), START, updates_sent, HERE).clusters[0]["b"][0]
    others = sum(float(update.update["b"][0]) for update in updates_sent[1:])
    assert float(mean) == pytest.approx((LARGEST + others) / 3)
    with pytest.raises(ModelError, match="weights must stay below"):
        aggregated(masked_means(3), START, updates(3, weight=lambda _: 2.0**23), HERE)
    counters = [
        ClientUpdate(update.handle, 0, {"n": torch.tensor(3)}, 1.0) for update in updates_sent
    ]
    with pytest.raises(ModelError, match="counters"):
        aggregated(masked_means(3), START, counters, HERE)


TRAINED = small(risk={"name": "federated", "every": 1}, aggregation={"weights": "examples"})
MASKED = {"privacy": {"secure_sums": True, "min_cohort": 4}}


def test_fedavg_and_its_red_team_are_those_in_the_open():
    plain, masked = (
        [*rounds_of(build_run(covey.Config.of(how)), 2)][-1] for how in (TRAINED, TRAINED | MASKED)
    )
    for one, other in zip(plain.state.clusters, masked.state.clusters, strict=True):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-4)
    assert [*map(type, plain.events)] == [*map(type, masked.events)]
    risks = [result.state.risk_estimates()[0] for result in (plain, masked)]
    known = [risk.risk for risk in risks if risk is not None]
    assert np.isclose(*known, atol=0.05)


@pytest.mark.parametrize(
    ("changed", "settings"),
    [
        ({"aggregation": {"name": "median"}}, "the server to see single updates"),
        ({"method": {"name": "ifca"}}, "clients to send nothing but one sum"),
        ({"leaving": {"store_updates": 1}}, "clients' updates to be kept"),
        (
            {
                "privacy": {"secure_sums": True, "client_noise": 1.0, "client_clip": 1.0},
                "aggregation": {"weights": "equal"},
            },
            "needs clients to add the noise on what they send",
        ),
    ],
)
def test_what_looks_at_single_updates_is_refused_under_masks(changed, settings):
    with pytest.raises(ConfigError, match=settings):
        build_run(covey.Config.model_validate({**TRAINED, **MASKED, **changed})).clients((), 0)


class Halved(Mean):
    """A user's own, of which nothing is known under masks."""

    def begin(self, models, streams, federation):
        return super().begin(models, streams, federation)


class Looking(FedAvg):
    """A user's own, which may ask clients for their updates one by one."""


def test_what_only_inherits_from_the_mean_or_fedavg_is_not_taken_for_it():
    privacy = {"secure_sums": True, "min_cohort": 4}
    halved = covey.Config.of({**TRAINED, "aggregation": Halved(), "privacy": privacy})
    with pytest.raises(ConfigError, match=r"aggregation\.name must be 'mean' under"):
        build_run(halved)
    settings = {**TRAINED, **MASKED, "method": {"name": f"{__name__}:Looking"}}
    with pytest.raises(ConfigError, match="clients to send nothing but one sum"):
        build_run(covey.Config.of(settings))
