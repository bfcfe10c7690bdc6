"""What the server makes of aggregated models: by hand, and what all of them keep to."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import Config, Params, ServerOptimizer, States
from covey.aggregation.server import Adam, Momentum, Yogi
from covey.base.built_ins import BUILT_INS
from covey.base.component_state import decoded, encoded
from covey.base.components import create

NAMES = tuple(BUILT_INS["server_optimizer"])


def component(name: str) -> ServerOptimizer:
    return create("server_optimizer", name, "aggregation.server_optimizer", ServerOptimizer)


def model(*values: float) -> Params:
    return {"w": torch.tensor(values)}


def played(optimizer: ServerOptimizer, start: float, *changes: float) -> list[float]:
    """Return where rounds lead whose clients ask for these changes."""
    models, states, found = (model(start),), dict[str, object](), list[float]()
    for change in changes:
        target = (model(float(models[0]["w"]) + change),)
        models, states = optimizer.step(models, target, states)
        found.append(float(models[0]["w"]))
    return found


def test_momentum_by_hand():
    # v = 0.5 v + g, w = w - v, with g = -change:
    #   v = -1, w = 11;  v = -0.5 - 2 = -2.5, w = 13.5;  v = -1.25 + 4 = 2.75, w = 10.75
    optimizer = Momentum(momentum=0.5)
    assert played(optimizer, 10.0, 1.0, 2.0, -4.0) == [11.0, 13.5, 10.75]
    # a server learning rate of 1/2 takes half of every step
    slow = Momentum(momentum=0.5, learning_rate=0.5)
    assert played(slow, 10.0, 1.0, 2.0) == [10.5, 11.75]


def test_adam_by_hand():
    # m = (m + d) / 2;  v = (3 v + d^2) / 4 from tau^2 = 1;  w = w + m / (sqrt(v) + 1)
    #   d = 1: m = 1/2, v = 1, w = 1/4
    #   d = 3: m = 7/4, v = 3, w = 1/4 + 7/4 / (sqrt(3) + 1)
    adam = Adam(learning_rate=1.0, beta_1=0.5, beta_2=0.75, tau=1.0)
    assert played(adam, 0.0, 1.0, 3.0) == pytest.approx([0.25, 0.25 + 1.75 / (math.sqrt(3) + 1)])


def test_yogi_by_hand():
    # v = v - d^2 sign(v - d^2) / 4 from tau^2 = 1
    #   d = 1: sign 0, v = 1;  d = 3: sign -1, v = 1 + 9/4;  d = 1: sign +1, v = 13/4 - 1/4
    yogi = Yogi(learning_rate=1.0, beta_1=0.0, beta_2=0.75, tau=1.0)
    first = 0.5
    second = first + 3 / (math.sqrt(3.25) + 1)
    third = second + 1 / (math.sqrt(3) + 1)
    assert played(yogi, 0.0, 1.0, 3.0, 1.0) == pytest.approx([first, second, third])


def test_momentum_of_nothing_is_federated_averaging():
    assert played(Momentum(momentum=0.0), 1.0, 2.0, -8.0) == [3.0, -5.0]


def drawn(seed: int) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(2, 3, generator=draws),
        "half": torch.randn(3, generator=draws).to(torch.bfloat16),
        "bn.running_var": torch.rand(3, generator=draws),
        "bn.num_batches_tracked": torch.randint(100, (), generator=draws),
        "mask": torch.tensor([True, False]),
    }


def same(left: Params, right: Params) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


def rounds(optimizer: ServerOptimizer, states: States, first: int, last: int):
    """Play rounds in which cluster 1 is trained every second time, and 2 never."""
    models = tuple(drawn(j) for j in range(3))
    if first:
        models = tuple(drawn(500 + j) for j in range(3))
    for t in range(first, last):
        target = (drawn(10 + t), drawn(50 + t) if t % 2 else models[1], models[2])
        models, states = optimizer.step(models, target, states)
    return models, states


@pytest.mark.parametrize("name", NAMES)
def test_what_no_gradient_moves_follows_the_aggregate(name: str):
    optimizer = component(name)
    states: States = {}
    models = (drawn(0),)
    for t in range(3):
        target = (drawn(10 + t),)
        models, states = optimizer.step(models, target, states)
        for key in ("bn.running_var", "bn.num_batches_tracked", "mask"):
            assert torch.equal(models[0][key], target[0][key])
        for key, value in drawn(0).items():
            assert (models[0][key].shape, models[0][key].dtype) == (value.shape, value.dtype)
    assert same(drawn(0), drawn(0))


@pytest.mark.parametrize("name", NAMES)
def test_a_cluster_that_nobody_trained_stays(name: str):
    optimizer = component(name)
    start = tuple(drawn(j) for j in range(3))
    models, states = optimizer.step(start, (drawn(7), drawn(8), start[2]), {})
    again, _ = optimizer.step(models, (drawn(9), *models[1:]), states)
    assert same(models[2], start[2])
    assert not same(models[0], start[0])
    assert same(again[1], models[1])
    assert same(again[2], start[2])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(st.integers(0, 2**31))
def test_clusters_are_moved_one_by_one(name: str, seed: int):
    optimizer = component(name)
    starts, targets = (drawn(seed), drawn(seed + 1)), (drawn(seed + 2), drawn(seed + 3))
    together, _ = optimizer.step(starts, targets, {})
    for j in range(2):
        (alone,), _ = optimizer.step(starts[j : j + 1], targets[j : j + 1], {})
        assert same(together[j], alone)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_comes_through_a_checkpoint(name: str):
    optimizer = component(name)
    _, states = rounds(optimizer, {"somebody else's": {"x": 1}}, 0, 4)
    assert states["somebody else's"] == {"x": 1}
    read = decoded(*encoded(states))
    on, off = rounds(optimizer, states, 4, 7), rounds(optimizer, read, 4, 7)
    assert all(map(same, on[0], off[0]))
    plain, tensors = encoded(on[1])
    other, others = encoded(off[1])
    assert plain == other
    assert same(tensors, others)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_was_given_is_written_into(name: str):
    optimizer = component(name)
    models, targets = (drawn(0),), (drawn(1),)
    _, states = optimizer.step(models, targets, {})
    kept = {key: value.clone() for key, value in encoded(states)[1].items()}
    optimizer.step(targets, models, states)
    assert same(models[0], drawn(0))
    assert same(targets[0], drawn(1))
    assert same(kept, encoded(states)[1])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_in_the_settings_and_passed_as_an_object(name: str):
    named = Config.of({"aggregation": {"server_optimizer": name}})
    assert named == Config.of({"aggregation": {"server_optimizer": component(name)}})
