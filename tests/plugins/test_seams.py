"""What changes one step of a paper is one file: against numpy, and nothing where it is off."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
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
    mean_per_cluster,
)
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import initial_state
from covey.engine.recipe import REGRESSION
from plugins.aggregation_clipped import ClippedTrimmedMean
from plugins.attack_gradient_norm import GradientNorm
from plugins.exploring import Exploring
from plugins.fedavgm import FedAvgM
from plugins.scaffold import Scaffold

RATE, STEPS, ROUNDS = 0.1, 3, 4
SMALL = {
    "rounds": 3,
    "population": {"clients": 6, "examples_per_client": 20},
    "model": {"name": "linear"},
    "engine": {"name": "reference"},
}
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
    setup = Setup(lambda _: {}, cohort, ROUNDS, (), 0.0)
    return Clients(cohort, Simulated(engine, recipe), mean_per_cluster, setup)


def played(algorithm: Algorithm, clients: Clients) -> Vector:
    """Return the model after every round."""
    state: ServerState = initial_state(({"weight": torch.zeros(1, 2)},))
    found = []
    for t in range(ROUNDS):
        state = algorithm.round(state, clients, Streams(0).at("round", t)).state
        found.append(state.clusters[0]["weight"].numpy().ravel().copy())
    return np.array(found)


def trained(w: Vector, client: Any, shift: Vector | float = 0.0) -> Vector:
    """Return w after steps of gradient descent on 1/2 (x w - y)^2, in float64."""
    x, y = client.train.inputs.double().numpy(), client.train.labels.double().numpy()
    for _ in range(STEPS):
        w = w - RATE * (x.T @ (x @ w - y) / len(y) + shift)
    return w


@pytest.mark.parametrize("algorithm", [FedAvgM(beta=0.0), Scaffold(clients=3, beta=0.0)])
def test_without_momentum_the_bits_are_those_of_fedavg(make_client, algorithm):
    clients = federation(make_client, algorithm)
    plain = federation(make_client, Algorithm())
    theirs = played(covey.Config.of({"method": {"name": "fedavg"}}).method, plain)
    rounds = ROUNDS if isinstance(algorithm, FedAvgM) else 1  # then nobody drifts any more
    assert (played(algorithm, clients)[:rounds] == theirs[:rounds]).all()


def test_server_momentum_is_that_of_numpy(make_client):
    clients = federation(make_client, FedAvgM())
    w, v, expected = np.zeros(2), np.zeros(2), []
    for _ in range(ROUNDS):
        v = 0.6 * v + np.mean([trained(w, each) for each in clients.cohort], axis=0) - w
        w = w + v
        expected.append(w)
    assert played(FedAvgM(beta=0.6), clients) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_scaffold_with_nesterov_is_that_of_numpy(make_client, beta):
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


def test_who_never_explores_plays_ifca_to_the_bit(tmp_path):
    found = [
        covey.run(config={**SMALL, "method": method}, out=tmp_path / str(i)).summary.model_hash
        for i, method in enumerate(
            (
                {"selection": Exploring(epsilon=0.0), "initialisation": "random"},
                {"selection": "loss", "initialisation": "random"},
            )
        )
    ]
    assert found[0] == found[1]


def test_who_explores_goes_where_its_own_stream_says():
    clients, losses = 200, torch.tensor([[0.1, 0.2, 0.3]]).repeat(200, 1)
    streams = [Streams(0).at(i) for i in range(clients)]
    nothing = torch.zeros(clients)
    inputs = SelectionInputs(
        losses=losses,
        risks=losses,
        risk_errors=losses,
        risk_weights=nothing,
        risk_thresholds=nothing,
        available=torch.tensor([True, False, True]),
        current=nothing.long(),
        absent_counts=torch.zeros(3).long(),
        prices=torch.zeros(3),
        streams=Streams(0),
        client_streams=streams,
    )
    picked = Exploring(epsilon=0.3).select(inputs)
    expected = []
    for own in streams:
        draw = own.at("explore").generator()
        expected.append([0, 2][draw.integers(2)] if draw.random() < 0.3 else 0)
    assert picked.tolist() == expected
    assert 0.05 < float((picked == 2).float().mean()) < 0.3


ROWS = st.lists(
    st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=3), min_size=5, max_size=9
)


def updates_of(rows: list[list[float]]) -> list[ClientUpdate]:
    return [
        ClientUpdate(f"h{i}", 0, {"w": torch.tensor(row[:2]), "b": torch.tensor(row[2:])}, 1.0)
        for i, row in enumerate(rows)
    ]


@given(rows=ROWS, bound=st.floats(0.5, 100), cut=st.integers(0, 2))
def test_a_clipped_trimmed_mean_is_that_of_numpy(rows, bound, cut):
    found = ClippedTrimmedMean(bound=bound, cut=cut).combined(updates_of(rows))
    values = np.array(rows)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    clipped = values * np.minimum(1, bound / np.maximum(norms, 1e-12))
    expected = np.sort(clipped, axis=0)[cut : len(rows) - cut].mean(axis=0)
    assert [*found["w"].tolist(), *found["b"].tolist()] == pytest.approx(expected, abs=1e-3)
    assert np.linalg.norm(expected) <= bound * np.sqrt(3) + 1e-3


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


def test_gradients_are_those_of_the_attacked_model(tmp_path):
    population = {"clients": 8, "examples_per_client": 40}
    config = {**SMALL, "population": population, "method": {"name": "fedavg"}}
    run = covey.run(config=config, out=tmp_path / "run")
    audit = run.audit(attacks=[Compared()])
    (seen,) = Compared.seen
    assert seen["found"] == pytest.approx(seen["expected"], abs=1e-4)
    (name,) = audit.clusters[0].attacks
    assert "Compared" in name
