"""Whole runs under individual noise, with one record and without: the bound is tight, and holds.

The attacker has the model of every round, all settings, and every record but the canary,
whose gradient is far outside the clip. It takes what it knows off each round's step, and
asks the likelihood ratio, which no test can beat; and it asks three questions that reveal
faults: does noise come twice, does the divisor count, and is there anything above the clip?
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy import ndarray
from torch import Tensor, nn

import covey
from covey.base.events import Event
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.dp.exposure import IndividualBound, individual_bounds
from covey.settings.clients import Overrides
from covey.settings.run import BuiltRun, build_run
from support.canaries import least_success

WIDTH, CLIP, NOISE, ROUNDS, ACCEPTED = 4, 0.5, 2.0, 2, 0.6
DRAWS = 250
LOUD = 1e3


class Scores(nn.Module):
    """One matrix, so that a gradient is r x^T."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 2, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs)


def others() -> dict[str, tuple[Tensor, Tensor]]:
    """Return 12 records in one direction, so that their sum is long, and a class 1 without any."""
    loud = torch.eye(WIDTH)[0] * LOUD
    clients = {f"client-{i}": (loud.repeat(4, 1), torch.zeros(4).long()) for i in range(3)}
    inputs, labels = clients["client-2"]
    silent = torch.cat([inputs, torch.zeros(1, WIDTH)]), torch.cat([labels, torch.ones(1).long()])
    return {**clients, "client-2": silent}


CANARY = Examples(torch.eye(WIDTH)[:1] * LOUD, torch.ones(1, dtype=torch.int64))


@cache
def built(noise_model: str, *, present: bool) -> BuiltRun:
    settings = {
        "rounds": ROUNDS,
        "train": {"learning_rate": 0.1},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "population": {"holdout": 0.0},
        "privacy": {
            "record_clip": CLIP,
            "record_noise": NOISE,
            "exposure": ACCEPTED,
            "expected_records": 12,
            "noise_model": noise_model,
            "secure_sums": noise_model == "distributed",
            "min_cohort": 3,
        },
    }
    clients = others()
    if present:
        inputs, labels = clients["client-0"]
        more = torch.cat([inputs, CANARY.inputs]), torch.cat([labels, CANARY.labels])
        clients["client-0"] = more
    return build_run(covey.Config.of(settings), Overrides(model=Scores, clients=clients))


def played(run: BuiltRun, draw: int) -> tuple[list[Tensor], list[Event]]:
    """Return the weights before every round and after the last, and the events."""
    streams = Streams(0, secret=draw)
    state, events = run.algorithm.init(run.streams), list[Event]()
    weights = [state.clusters[0]["head.weight"]]
    for t in range(ROUNDS):
        clients = run.clients(run.population.clients, t)
        result = run.algorithm.round(state, clients, streams.at("round", t))
        state, events = result.state, [*events, *result.events]
        weights.append(state.clusters[0]["head.weight"])
    return weights, events


def clipped(weights: Tensor, x: Tensor, label: int, clip: float) -> Tensor:
    """Return the clipped gradient of the cross entropy of one record, by hand."""
    residual = torch.softmax(weights @ x, dim=0) - torch.eye(2)[label]
    gradient = torch.outer(residual, x)
    return gradient * min(1.0, clip / max(float(gradient.norm()), 1e-30))


def left_over(weights: list[Tensor], exposure: float) -> list[tuple[Tensor, Tensor]]:
    """Return Y_t, what the others' gradients leave of a round's sum, and g_t, the canary's."""
    rate = 0.1 * 3 / 12  # eta, over the records that are expected of a client
    values: list[tuple[Tensor, Tensor]] = []
    for before, after in pairwise(weights):
        total = (before - after) * 3 / rate
        other = clipped(before, torch.eye(WIDTH)[0] * LOUD, 0, exposure * CLIP)
        own = clipped(before, CANARY.inputs[0], 1, exposure * CLIP)
        values.append((total - 12 * other, own))
    return values


def likelihood(seen: list[tuple[Tensor, Tensor]]) -> float:
    return sum(float((y * g).sum() - (g * g).sum() / 2) for y, g in seen)


def noise_once(seen: list[tuple[Tensor, Tensor]]) -> float:
    """Return how little two rounds differ where no canary moves them."""
    (first, g), (second, h) = seen
    return float((first - second).norm()) - float((first - g - second + h).norm())


Statistic = Callable[[list[tuple[Tensor, Tensor]]], float]


def statistics_under(noise_model: str) -> dict[str, tuple[ndarray, ndarray]]:
    statistics: dict[str, Statistic] = {"likelihood ratio": likelihood, "noise": noise_once}
    cases: dict[bool, list[list[tuple[Tensor, Tensor]]]] = {}
    for present in (True, False):
        run = built(noise_model, present=present)
        (bound,) = {b.exposure for b in bounds(run).values()}
        draws = (played(run, i + DRAWS * present)[0] for i in range(DRAWS))
        cases[present] = [left_over(draw, bound) for draw in draws]
    return {
        name: (np.array([*map(ask, cases[True])]), np.array([*map(ask, cases[False])]))
        for name, ask in statistics.items()
    }


def bounds(run: BuiltRun) -> dict[str, IndividualBound]:
    return dict(individual_bounds(played(run, 0)[1], "record"))


@pytest.mark.parametrize(
    "noise_model", ["central", pytest.param("distributed", marks=pytest.mark.slow)]
)
def test_no_attack_beats_the_bound_and_the_likelihood_ratio_attains_it(noise_model):
    statistics = statistics_under(noise_model)

    for name, cases in statistics.items():
        assert least_success(*cases) <= ACCEPTED, name
    present, absent = statistics["likelihood ratio"]
    success = (np.mean(present > 0) + np.mean(absent <= 0)) / 2
    assert success == pytest.approx(ACCEPTED, abs=3.5 * math.sqrt(0.25 / (2 * DRAWS)))


def test_a_bound_of_every_client_is_what_it_accepts_and_never_more():
    for bound in bounds(built("central", present=False)).values():
        assert ACCEPTED - 1e-5 < bound.success <= ACCEPTED
        assert (bound.unit, bound.rounds) == ("record", ROUNDS)


def test_who_is_expected_and_not_who_is_there_divides():
    assert built("central", present=True).recipe(0) == built("central", present=False).recipe(0)
