"""What the server makes of aggregated models: by hand, and what all of them keep to."""

import math

import pytest
import torch

from covey import Params, ServerOptimizer, States
from covey.aggregation.server import FedAdam, Momentum, Yogi
from covey.base.built_ins import built_ins
from covey.base.component_state import decoded, encoded
from covey.base.components import create

NAMES = tuple(built_ins("server_optimizer"))


def component(name: str) -> ServerOptimizer:
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
    models, states, found = ({"w": torch.zeros(1)},), {}, []
    for change in changes:
        target = ({"w": models[0]["w"] + change},)
        models, states = optimizer.step(models, target, states)
        found.append(float(models[0]["w"]))
    assert found == pytest.approx(expected)


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


def played(optimizer: ServerOptimizer, models: tuple[Params, ...], states: States, rounds: range):
    """Play rounds in which cluster 1 is trained every second time, and 2 never."""
    for t in rounds:
        before = models
        target = (drawn(10 + t), drawn(50 + t) if t % 2 else models[1], models[2])
        models, states = optimizer.step(before, target, states)
        for key in ("bn.running_var", "bn.num_batches_tracked", "mask"):  # no gradient moves
            assert torch.equal(models[0][key], target[0][key])
        assert not same(models[0], before[0])
        assert t % 2 or same(models[1], before[1])
        assert same(models[2], before[2])
    return models, states


@pytest.mark.parametrize("name", NAMES)
def test_who_is_not_trained_stays_and_the_state_comes_through_a_checkpoint(name):
    optimizer = component(name)
    start = tuple(drawn(j) for j in range(3))
    models, states = played(optimizer, start, {"somebody else's": {"x": 1}}, range(4))
    assert all(map(same, start, (drawn(j) for j in range(3))))
    for key, value in drawn(0).items():
        assert (models[0][key].shape, models[0][key].dtype) == (value.shape, value.dtype)
    assert states["somebody else's"] == {"x": 1}
    on, off = (
        played(optimizer, models, each, range(4, 7)) for each in (states, decoded(*encoded(states)))
    )
    assert all(map(same, on[0], off[0]))
    (plain, tensors), (other, others) = encoded(on[1]), encoded(off[1])
    assert plain == other
    assert same(tensors, others)
