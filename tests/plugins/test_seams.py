"""What changes one step of a paper is one file: against numpy, and nothing where it is off."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import covey
from covey import (
    Algorithm,
    Clients,
    ClientUpdate,
    Examples,
    Recipe,
    ReferenceEngine,
    SelectionInputs,
    ServerState,
    Setup,
    Streams,
)
from covey.aggregation.base import FederationInfo
from covey.algorithms.own_steps import checked_selection
from covey.algorithms.round import RoundSteps
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import initial_state
from covey.engine.recipe import REGRESSION
from plugins.aggregation_clipped_trimmed import ClippedTrimmedMean
from plugins.attack_gradient_norm import GradientNorm
from plugins.fedavgm import FedAvgM
from plugins.scaffold import Scaffold
from plugins.selection_exploring import Exploring
from support.aggregating import aggregated, means

RATE, STEPS, ROUNDS = 0.1, 3, 4
Vector = np.ndarray


def federation(make_client: Any, algorithm: Algorithm) -> Clients:
    """Three clients with lines of their own through the origin of a plane."""
    draw = np.random.default_rng(0)
    cohort = tuple(
        make_client(
            f"c{i}",
            Examples(
                torch.from_numpy(draw.normal(size=(5, 2)).astype(np.float32)),
                torch.from_numpy(draw.normal(size=5).astype(np.float32)),
            ),
        )
        for i in range(3)
    )
    engine = ReferenceEngine(nn.Linear(2, 1, bias=False), REGRESSION)
    recipe = Recipe(local_steps=STEPS, batch_size=5, learning_rate=RATE)
    if algorithm.objective is not None:
        recipe = replace(recipe, objective=algorithm.objective)
    setup = Setup(lambda _: {}, cohort, ROUNDS)
    return Clients(cohort, Simulated(engine, recipe), RoundSteps(means), setup)


def played(algorithm: Algorithm, clients: Clients) -> Vector:
    """Return the model after every round."""
    state: ServerState = initial_state(({"weight": torch.zeros(1, 2)},))
    values = []
    for t in range(ROUNDS):
        state = algorithm.round(state, clients, Streams(0).at("round", t)).state
        values.append(state.clusters[0]["weight"].numpy().ravel().copy())
    return np.array(values)


def trained(w: Vector, client: Any, shift: Vector | float = 0.0) -> Vector:
    """Return w after steps of gradient descent on 1/2 (x w - y)^2, in float64."""
    x, y = client.train.inputs.double().numpy(), client.train.labels.double().numpy()
    for _ in range(STEPS):
        w = w - RATE * (x.T @ (x @ w - y) / len(y) + shift)
    return w


def test_server_momentum_is_that_of_numpy(make_client):
    clients = federation(make_client, FedAvgM())
    w, v, expected = np.zeros(2), np.zeros(2), []
    for _ in range(ROUNDS):
        v = 0.6 * v + np.mean([trained(w, client) for client in clients.cohort], axis=0) - w
        w = w + v
        expected.append(w)
    assert played(FedAvgM(beta=0.6), clients) == pytest.approx(np.array(expected), abs=1e-5)


def test_scaffold_with_nesterov_is_that_of_numpy(make_client):
    beta = 0.5
    algorithm = Scaffold(scale=STEPS * RATE, clients=3, beta=beta)
    clients = federation(make_client, algorithm)
    w, v, c, own, expected = np.zeros(2), np.zeros(2), np.zeros(2), np.zeros((3, 2)), []
    for _ in range(ROUNDS):
        ends = [trained(w, k, c - c_i) for k, c_i in zip(clients.cohort, own, strict=True)]
        after = own - c + (w - np.array(ends)) / (STEPS * RATE)
        moved = np.mean(ends, axis=0) - w
        v = beta * v + moved
        w = w + moved + beta * v
        c, own = c + (after - own).mean(axis=0), after
        expected.append(w)
    assert played(algorithm, clients) == pytest.approx(np.array(expected), abs=1e-4)


def test_a_clipped_trimmed_mean_by_hand():
    # norms 1, 2, 3, 40: to the median 2.5 are shortened 3 and 40; of -1, 2, -2.5, 2.5 stay -1 and 2
    sent = [
        ClientUpdate(str(i), 0, {"w": torch.tensor([value])}, 1.0)
        for i, value in enumerate((-1.0, 2.0, -3.0, 40.0))
    ]
    begin = partial(ClippedTrimmedMean().begin, federation=FederationInfo(clients=4))
    (model,) = aggregated(begin, ({"w": torch.tensor([10.0])},), sent, Streams(0)).clusters
    assert float(model["w"]) == pytest.approx(10.5)


def test_a_selection_explores_as_often_as_it_says_where_it_may():
    clients = 2_000
    inputs = SelectionInputs(
        losses=torch.tensor([[0.0, 1.0, 2.0, 3.0]]).repeat(clients, 1),
        risks=torch.full((clients, 4), torch.nan),
        risk_errors=torch.full((clients, 4), torch.nan),
        risk_weights=torch.zeros(clients),
        risk_thresholds=torch.ones(clients),
        available=torch.tensor([True, True, False, True]),
        current=torch.zeros(clients, dtype=torch.int64),
        absent_counts=torch.zeros(4, dtype=torch.int64),
        states={},
        streams=Streams(0),
        client_streams=[Streams(0).at("choice", i) for i in range(clients)],
    )
    counts = torch.bincount(checked_selection(Exploring(share=0.3))(inputs), minlength=4)
    assert counts[2] == 0
    # 0.1 each of the other two; 4 standard deviations are 54
    assert counts.tolist() == pytest.approx([1600, 200, 0, 200], abs=75)
    greedy = checked_selection(Exploring(share=0.0))(inputs)
    assert not greedy.any()


class Compared(GradientNorm):
    """The norm of a softmax layer's bias gradient is |p - onehot|, which answers tell."""

    seen: ClassVar[list[Mapping[str, np.ndarray]]] = []

    def __call__(self, signals: covey.Signals) -> np.ndarray:
        assert signals.gradients is not None
        errors = np.exp(signals.target)
        errors[np.arange(len(errors)), signals.labels] -= 1
        bias = [next(v for v in g.values() if v.dim() == 1) for g in signals.gradients()]
        self.seen.append({"expected": errors, "found": torch.stack(bias).numpy()})
        return super().__call__(signals)


@pytest.mark.slow
def test_gradients_are_those_of_the_attacked_model(tmp_path):
    config = {
        "rounds": 3,
        "population": {"clients": 8, "examples_per_client": 40},
        "model": {"name": "linear"},
        "engine": {"name": "reference"},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
    }
    run = covey.run(config=config, out=tmp_path / "run")
    audit = run.audit(attacks=[Compared()])
    (seen,) = Compared.seen
    assert seen["found"] == pytest.approx(seen["expected"], abs=1e-4)
    (name,) = audit.clusters[0].attacks
    assert "Compared" in name
