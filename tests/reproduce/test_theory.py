"""The theory of the first paper, by hand and on real runs."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Streams
from covey.settings.run import build_run
from covey_papers.linear_mixture import LinearMixture
from covey_papers.reproduce.mixtures import MixtureSetting, models_of, start_of
from covey_papers.reproduce.record import RunCache
from covey_papers.reproduce.theory import (
    TILTED,
    Choice,
    Descent,
    Tilt,
    contraction_bound,
    descent,
    noise_floor,
    safe_risk_weight,
    tilt,
)

SMALL = MixtureSetting(clients=10, dimension=4, examples=50, noise=0.05, rounds=8)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Descent:
    return descent(SMALL, "ifca", 0, cache_in(tmp_path_factory.mktemp("quiet")))


@pytest.fixture(scope="module")
def tilted(tmp_path_factory: pytest.TempPathFactory) -> Tilt:
    few = replace(TILTED, rounds=8)
    return tilt(few, 0.7, 0, cache_in(tmp_path_factory.mktemp("tilted")))


def test_the_bound_by_hand():
    assert contraction_bound(0.5, 1.0, 1.0) == 1 - 1 / 16
    assert contraction_bound(0.25, 0.5, 4.0) == 1 - 1 / 256


def test_the_noise_floor_is_where_least_squares_ends():
    mixture = LinearMixture(dimension=3, noise=0.5, separation=1.0, condition=4.0)
    optimum = mixture.optima(1, Streams(0))[0]
    draws = np.random.default_rng(0)
    squares: list[float] = []
    for _ in range(200):
        drawn = mixture.draw(100, optimum, draws)
        found, *_ = np.linalg.lstsq(drawn.inputs.numpy(), drawn.labels.numpy())
        squares.append(float(((found - optimum) ** 2).sum()))
    assert np.sqrt(np.mean(squares)) == pytest.approx(noise_floor(mixture, 100), rel=0.1)


@given(
    smallest=st.floats(0.01, 1),
    apart=st.floats(0.1, 10),
    share=st.floats(0, 0.999),
    risk_gap=st.floats(-0.5, 0.5),
)
def test_below_the_safe_weight_no_risk_draws_a_client_away(
    smallest: float, apart: float, share: float, risk_gap: float
):
    beta = share * safe_risk_weight(smallest, apart)
    choice = Choice(beta, smallest * apart**2 / 2, risk_gap, first=False, joined=True)
    assert choice.margin > 0
    assert choice.lawful


def test_the_start_by_hand():
    mixture = LinearMixture(dimension=2, noise=1.0, separation=1.0)
    optima = np.eye(2)
    at = start_of(mixture, optima, optima, (100, 50, 0.5))
    # the variance of y - <x, theta> is 1, and 1 + 2 for the other group's model
    assert at.margin == 0.5
    assert at.examples_needed == pytest.approx(2 * (3**2 / 2) / (0.25 * 4))
    assert at.share_needed == math.log(5000) / 100
    assert at.holds
    assert not replace(at, examples=8).holds
    assert not replace(at, share=0.05).holds
    far = start_of(mixture, optima, optima[::-1], (100, 50, 0.5))
    assert far.margin == pytest.approx(-0.5)
    assert far.examples_needed == math.inf
    assert not far.holds


def test_where_nobody_minds_the_risk_every_step_is_within_the_bound(quiet: Descent):
    judged = [step for step in quiet.steps if step.judged]
    assert {step.cluster for step in judged} == {0, 1}
    assert quiet.start.margin > 0
    assert quiet.holds
    assert quiet.worst < quiet.bound == 1 - 0.3 * 0.25 / 8
    assert quiet.worst == pytest.approx(quiet.expected, abs=0.1)
    assert quiet.misassigned == 0.0


def test_distances_are_those_of_gradient_descent_by_hand(quiet: Descent):
    run = build_run(SMALL.config("ifca", 0))
    optima = SMALL.mixture.optima(2, Streams(0))
    thetas = models_of(run.algorithm.init(run.streams)).copy()
    found = {(step.round_index, step.cluster): step.after for step in quiet.steps}
    for t in range(SMALL.rounds):
        for j, theta in enumerate(thetas):
            gradients = [
                x.T @ (x @ theta - y) / len(y)
                for client in run.population.clients
                if client.group == j
                for x, y in [
                    (client.train.inputs.double().numpy(), client.train.labels.double().numpy())
                ]
            ]
            thetas[j] = theta - np.mean(gradients, axis=0)
            if (t, j) in found:
                distance = float(np.linalg.norm(thetas[j] - optima[j]))
                assert found[t, j] == pytest.approx(distance, abs=1e-5)
    assert len(found) == 2 * (SMALL.rounds - 2)  # two rounds from the true groups


def test_clients_leave_exactly_where_the_margin_says(tilted: Tilt):
    assert tilted.unlawful == 0
    assert not tilted.safe
    left = [c for c in tilted.choices if c.margin < 0 < c.loss_gap]
    assert left
    assert not any(c.joined for c in left)
    assert any(c.joined and c.risk_gap > 0 for c in tilted.choices)
    assert 0 < tilted.misassigned_at_last <= 0.15


def cache_in(folder: Path) -> RunCache:
    return RunCache(folder, lambda _: nullcontext(lambda _: None))
