"""A module that begins anew is as one that loads a state, whatever the module is."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from covey.engine.cpu import ReusedModel


class Replaced(nn.Module):
    """Replaces its buffer by another tensor whenever it runs."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        self.count = self.count + 1
        return self.linear(inputs)


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    return module


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(3, 2), Replaced, tied, lambda: nn.BatchNorm1d(3)]
)
def test_a_model_begins_and_ends_as_a_loaded_state(make: Callable[[], nn.Module]):
    torch.manual_seed(0)  # noqa: TID251 - layers draw
    reused, other = ReusedModel(make()), make()
    for _ in range(3):
        start = {n: torch.rand(v.shape) for n, v in other.state_dict().items()}
        start = {n: start[n].to(v.dtype) for n, v in other.state_dict().items()}
        other.load_state_dict(start)
        reused.begin_at(start)
        assert reused.module.training
        inputs = torch.rand(4, 3)
        torch.testing.assert_close(reused.module(inputs), other(inputs), rtol=0, atol=0)
        found, wanted = reused.params(), other.state_dict()
        assert list(found) == list(wanted)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        reused.module.eval()
