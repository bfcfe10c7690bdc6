"""What every aggregation and server optimizer keeps to, and what they make by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import (
    Aggregation,
    ClientUpdate,
    Config,
    ConfigError,
    Params,
    ServerOptimizer,
    States,
    Streams,
    mean_per_cluster,
)
from covey.aggregation.base import FederationInfo
from covey.aggregation.server import FedAdam, Momentum, Yogi
from covey.base.built_ins import built_ins
from covey.base.component_state import decoded, encoded
from covey.base.components import create
from support.aggregating import aggregated as all_of

NAMES = tuple(built_ins("aggregation"))
ROBUST = {"trimmed-mean", "median", "krum", "geometric-median", "norm-bounded"}
"""Those that one client cannot move far."""

seeds = st.integers(0, 2**31)


def component(name: str) -> Aggregation:
    return create("aggregation", name, "aggregation.name", Aggregation)


def drawn(seed: int, size: float = 1.0) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "weight": size * torch.randn(2, 3, generator=draws),
        "bn.running_var": size * torch.rand(3, generator=draws, dtype=torch.float64),
        "count": torch.randint(100, (), generator=draws),
        "mask": torch.tensor([True, False]),
    }


def updates_of(choices: Sequence[int], seed: int = 0) -> list[ClientUpdate]:
    return [ClientUpdate(f"C{i:02}", j, drawn(seed + i, 0.1), 1.0) for i, j in enumerate(choices)]


def aggregated(
    name: str, models: tuple[Params, ...], updates: Sequence[ClientUpdate]
) -> tuple[Params, ...]:
    begin = partial(component(name).begin, federation=FederationInfo(clients=len(updates)))
    return all_of(begin, models, updates, Streams(1)).clusters


def same(left: Params, right: Params) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


MODELS = tuple(drawn(1000 + j) for j in range(3))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(st.lists(st.integers(0, 2), max_size=20))
def test_a_cluster_without_clients_does_not_move_and_kinds_stay(name, choices):
    updates = updates_of(choices)
    after = aggregated(name, MODELS, updates)
    assert len(after) == len(MODELS)
    for j, (old, new) in enumerate(zip(MODELS, after, strict=True)):
        assert j in choices or same(old, new)
        assert list(old) == list(new)
        for key, value in old.items():
            assert (new[key].shape, new[key].dtype) == (value.shape, value.dtype)
    for model, untouched in zip(MODELS, (drawn(1000 + j) for j in range(3)), strict=True):
        assert same(model, untouched)  # nobody wrote into what was given
    for update, untouched in zip(updates, updates_of(choices), strict=True):
        assert same(update.update, untouched.update)


@pytest.mark.parametrize("name", ["mean", *sorted(ROBUST)])
@settings(max_examples=8)
@given(seeds, st.sampled_from([1e3, 1e6]))
def test_one_outlier_moves_a_robust_aggregation_by_little(name, seed, size):
    updates = updates_of([0] * 9, seed)
    huge = {
        key: value * size if value.is_floating_point() else value
        for key, value in updates[0].update.items()
    }
    attacked = [replace(updates[0], update=huge), *updates[1:]]
    before, after = (
        aggregated(name, MODELS[:1], sent)[0]["weight"] for sent in (updates, attacked)
    )
    assert (float((after - before).norm()) < 0.5) == (name in ROBUST)


@pytest.mark.parametrize("name", NAMES)
def test_noise_on_sums_is_for_aggregations_of_sums(name):
    noise = {"client_noise": 1.0, "client_clip": 1.0}
    if name == "mean":
        assert Config.of({"aggregation": {"name": name}, "privacy": noise})
        return
    with pytest.raises(ConfigError, match="to see single updates"):
        Config.of({"aggregation": {"name": name}, "privacy": noise})


# the mean, by hand


NO_DRAWS = Streams(0)


def test_three_clients_and_two_clusters_by_hand():
    # cluster 0 at 10: clients 1 and 3 with updates +2 (weight 1) and -1 (weight 3):
    #   10 + (1 * 2 + 3 * -1) / 4 = 9.75;  counter 5 + max(4, 7) = 12
    # cluster 1 at 20: client 2 with update +1 (weight 2): 21;  counter 0 + 3 = 3
    def model(value: float, count: int) -> Params:
        return {"w": torch.tensor([value]), "n": torch.tensor(count)}

    updates = [
        ClientUpdate("A", 0, model(2.0, 4), 1.0),
        ClientUpdate("B", 1, model(1.0, 3), 2.0),
        ClientUpdate("C", 0, model(-1.0, 7), 3.0),
    ]
    merged = mean_per_cluster((model(10.0, 5), model(20.0, 0)), iter(updates), NO_DRAWS)
    assert merged.events == ()
    assert [float(cluster["w"]) for cluster in merged.clusters] == [9.75, 21.0]
    assert [int(cluster["n"]) for cluster in merged.clusters] == [12, 3]


@pytest.mark.parametrize("size", [1, 2])
def test_a_counter_takes_the_largest_count_and_not_the_mean(size):
    start = {"n": torch.tensor(1), "w": torch.zeros(1)}
    updates = [
        ClientUpdate(f"C{i}", 0, {"n": torch.tensor(3 + i), "w": torch.ones(1)}, 1.0)
        for i in range(size)
    ]
    (moved,) = mean_per_cluster((start,), updates, NO_DRAWS).clusters
    assert moved["n"].dtype == torch.int64
    assert int(moved["n"]) == 1 + 3 + (size - 1)


OPTIMIZERS = tuple(built_ins("server_optimizer"))


def optimizer_of(name: str) -> ServerOptimizer:
    return create("server_optimizer", name, "aggregation.server_optimizer", ServerOptimizer)


@pytest.mark.parametrize(
    ("optimizer", "changes", "expected"),
    [
        # v = 0.5 v + g, w = w - v, with g = -change: v = -1, w = 1;  v = -0.5 - 2 = -2.5,
        # w = 3.5;  v = -1.25 + 4 = 2.75, w = 0.75
        (Momentum(momentum=0.5), (1.0, 2.0, -4.0), (1.0, 3.5, 0.75)),
        # a server learning rate of 1/2 takes half of every step
        (Momentum(momentum=0.5, learning_rate=0.5), (1.0, 2.0), (0.5, 1.75)),
        # m = (m + d) / 2;  v = (3 v + d^2) / 4 from tau^2 = 1;  w = w + m / (sqrt(v) + 1)
        #   d = 1: m = 1/2, v = 1, w = 1/4
        #   d = 3: m = 7/4, v = 3, w = 1/4 + 7/4 / (sqrt(3) + 1)
        (
            FedAdam(learning_rate=1.0, beta_1=0.5, beta_2=0.75, tau=1.0),
            (1.0, 3.0),
            (0.25, 0.25 + 1.75 / (math.sqrt(3) + 1)),
        ),
        # v = v - d^2 sign(v - d^2) / 4 from tau^2 = 1
        #   d = 1: sign 0, v = 1;  d = 3: sign -1, v = 1 + 9/4
        (
            Yogi(learning_rate=1.0, beta_1=0.0, beta_2=0.75, tau=1.0),
            (1.0, 3.0),
            (0.5, 0.5 + 3 / (math.sqrt(3.25) + 1)),
        ),
    ],
)
def test_by_hand(optimizer, changes, expected):
    models, states, final_states = ({"w": torch.zeros(1)},), {}, []
    for change in changes:
        target = ({"w": models[0]["w"] + change},)
        models, states = optimizer.step(models, target, states)
        final_states.append(float(models[0]["w"]))
    assert final_states == pytest.approx(expected)


def drawn_models(seed: int) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(2, 3, generator=draws),
        "half": torch.randn(3, generator=draws).to(torch.bfloat16),
        "bn.running_var": torch.rand(3, generator=draws),
        "bn.num_batches_tracked": torch.randint(100, (), generator=draws),
        "mask": torch.tensor([True, False]),
    }


def played(optimizer: ServerOptimizer, models: tuple[Params, ...], states: States, rounds: range):
    """Play rounds in which cluster 1 is trained every second time, and 2 never."""
    for t in rounds:
        before = models
        target = (drawn_models(10 + t), drawn_models(50 + t) if t % 2 else models[1], models[2])
        models, states = optimizer.step(before, target, states)
        for key in ("bn.running_var", "bn.num_batches_tracked", "mask"):  # no gradient moves
            assert torch.equal(models[0][key], target[0][key])
        assert not same(models[0], before[0])
        assert t % 2 or same(models[1], before[1])
        assert same(models[2], before[2])
    return models, states


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_who_is_not_trained_stays_and_the_state_comes_through_a_checkpoint(name):
    optimizer = optimizer_of(name)
    start = tuple(drawn_models(j) for j in range(3))
    models, states = played(optimizer, start, {"somebody else's": {"x": 1}}, range(4))
    assert all(map(same, start, (drawn_models(j) for j in range(3))))
    for key, value in drawn_models(0).items():
        assert (models[0][key].shape, models[0][key].dtype) == (value.shape, value.dtype)
    assert states["somebody else's"] == {"x": 1}
    on, off = (
        played(optimizer, models, start, range(4, 7))
        for start in (states, decoded(*encoded(states)))
    )
    assert all(map(same, on[0], off[0]))
    (plain, tensors), (other, others) = encoded(on[1]), encoded(off[1])
    assert plain == other
    assert same(tensors, others)
