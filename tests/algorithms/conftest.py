from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from algorithms.playing import clients_with
from covey import Clients, Examples, Params, Recipe, ReferenceEngine, RiskEstimate, Streams, Target
from covey.algorithms.simulated import Simulated
from covey.base.figure import Figure
from covey.data.examples import Client
from covey.membership.truth import Assessment, RedTeam

MakeClient = Callable[..., Client]


class OneWeight(nn.Module):
    """Logits 0 and w x: P(class 1 | x) = 1 / (1 + exp(-w x)), with one parameter w."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(inputs), self.w * inputs], dim=1)


@pytest.fixture
def one_weight() -> nn.Module:
    return OneWeight()


@pytest.fixture
def one_step(one_weight) -> Callable[..., Clients]:
    """The steps of a round: one of gradient descent with rate 1; a weighted mean."""

    def make(weights: Literal["equal", "examples"]) -> Clients:
        recipe = Recipe(local_steps=1, learning_rate=1.0)
        return clients_with(Simulated(ReferenceEngine(one_weight), recipe, weights))

    return make


@pytest.fixture
def steps(one_step) -> Clients:
    return one_step("equal")


@pytest.fixture
def point(make_client) -> Callable[..., Client]:
    """A client that holds one number x of class y, as often as it is told to."""

    def make(name: str, x: float, y: int, times: int = 1, weight: float = 0.0) -> Client:
        examples = Examples(torch.full((times, 1), float(x)), torch.full((times,), y))
        return make_client(name, examples, preference=(weight, 0.8))

    return make


class Scripted:
    """A red team that states the risks it is told to, and remembers whom it looked at."""

    def __init__(self, risks: dict[int, float | None]) -> None:
        self.risks = risks
        self.seen: list[Target] = []

    def __call__(self, target: Target, _: Streams) -> Assessment:
        self.seen.append(target)
        risk, now = self.risks[target.cluster], target.round_index
        if risk is None:
            return Assessment(RiskEstimate.unknown("told so"))
        return Assessment(
            RiskEstimate(Figure(risk, 0.001), risk, 20, 20, round_index=now, source="scripted")
        )


@pytest.fixture
def scripted() -> Callable[[dict[int, float | None]], RedTeam]:
    return Scripted


@pytest.fixture
def models() -> Callable[..., Callable[[Streams], Params]]:
    """The initial models w = 1, -1, ... for clusters 0, 1, ..., whatever is drawn."""

    def make(*weights: float) -> Callable[[Streams], Params]:
        def init(streams: Streams) -> Params:
            j = streams.path[-1]
            return {"w": torch.tensor([weights[int(j)]])}

        return init

    return make
