"""Pooling: what a share means, who gives, and how the measured risk steers it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Never

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithms.playing import setup_of
from covey import Clients, Examples, Recipe, ReferenceEngine, RiskEstimate, RoundResult
from covey.algorithms.round import RoundSteps
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import OwnRisks, RiskEstimates, initial_state
from covey.base.events import ModelsPooled
from covey.base.figure import Figure
from covey.base.params import model_hash
from covey.data.examples import Client
from covey_papers.pooling import (
    START,
    STEP,
    LatestLosses,
    PoolingShares,
    head_first,
    pooled,
    share_by_risk,
    with_latest_losses,
)

SHARES = st.floats(0.0, 1.0)


@given(share=SHARES, num_layers=st.integers(1, 8))
def test_head_first_shares_as_many_layers_as_it_says_from_the_output(share, num_layers):
    pull = head_first(share, num_layers)
    assert pull.sum() == pytest.approx(share * num_layers)
    assert np.all(np.diff(pull) >= 0)
    assert np.sum((pull > 0) & (pull < 1)) <= 1


@pytest.fixture
def after_one_round(point):
    """What pooling makes of a round that trained nothing.

    Client "a" of group 0 holds 1 example, "b" of group 1 holds 3.
    """
    a, b = (replace(point(n, 1.0, 1, times=2 * k + 1), group=k) for k, n in enumerate("ab"))

    def nothing(*_: object) -> Never:
        raise AssertionError

    def after(clusters, shares, layers=(("w",),)) -> RoundResult:
        state = initial_state(clusters).with_choices({"A": 0, "B": 1}).with_models(clusters)
        asked = Simulated(ReferenceEngine(torch.nn.Identity()), Recipe())
        there = Clients((a, b), asked, RoundSteps(nothing), setup_of(nothing, (a, b), layers))
        return pooled(RoundResult(state, ()), shares, there)

    return after


def values(played: RoundResult, name: str = "w") -> list[float]:
    return [float(model[name]) for model in played.state.clusters]


@pytest.mark.parametrize(
    ("start", "shares", "end"),
    [
        # theta_all = (1 * 0 + 3 * 4) / 4 = 3; half way from 0 is 1.5, from 4 is 3.5
        ((0.0, 4.0), (0.5, 0.5), (1.5, 3.5)),
        # w = 1 * (1 - 0.5), 3 * (1 - 0): theta_all = 3 * 4 / 3.5; the second is left alone
        ((0.0, 4.0), (0.5, 0.0), (0.5 * 12 / 3.5, 4.0)),
        # an empty cluster neither moves nor gives
        ((0.0, 4.0, 100.0), (1.0, 1.0, 0.0), (3.0, 3.0, 100.0)),
    ],
)
def test_a_cluster_gives_what_it_keeps(after_one_round, start, shares, end):
    clusters = tuple({"w": torch.tensor([w]), "count": torch.tensor(int(w))} for w in start)
    played = after_one_round(clusters, (*shares[:2], 1.0)[: len(start)], (("w", "count"),))
    assert values(played) == pytest.approx(end)
    assert values(played, "count") == [*start]
    fact = ModelsPooled(shares, model_hash(played.state.clusters))
    assert played.events[-1] == fact
    assert played.state.get_state(PoolingShares).shares == shares


def test_a_layer_given_up_by_one_cluster_comes_from_the_other(after_one_round):
    clusters = tuple(
        {"first": torch.tensor([x]), "head": torch.tensor([10 * x])} for x in (1.0, 2.0)
    )
    played = after_one_round(clusters, (0.5, 0.0), (("first",), ("head",)))
    assert (values(played, "first"), values(played, "head")) == ([1.0, 2.0], [20.0, 20.0])


def figure(risk: float, error: float, round_index: int = 5) -> RiskEstimate:
    return RiskEstimate(Figure(risk, error), risk, 20, 20, round_index=round_index)


@pytest.fixture(scope="module")
def ten(make_client) -> Mapping[str, Client]:
    """Ten clients that accept 0.51, 0.53, ... 0.69, and another that holds as much as they."""

    def examples(count: int) -> Examples:
        return Examples(torch.zeros(count, 1), torch.zeros(count, dtype=torch.int64))

    accepted = [0.51 + 0.02 * i for i in range(10)]
    clients = [
        make_client(f"c{i}", examples(2), preference=(0.0, tau)) for i, tau in enumerate(accepted)
    ]
    return {c.handle: c for c in (*clients, make_client("other", examples(20)))}


GUESS = math.log(2)


def shares_after(
    ten: Mapping[str, Client],
    share: float,
    seen: RiskEstimate | None,
    elsewhere: float = 0.5,
    own: Mapping[str, tuple[RiskEstimate | None, ...]] | None = None,
) -> float:
    """Return the ten's next share, if the other model has this loss on their examples."""
    choices = {handle: int(client.name == "other") for handle, client in ten.items()}
    state = initial_state(({"w": torch.zeros(1)},) * 2).with_choices(choices)
    state = replace(state, round_index=5).with_state(
        RiskEstimates(estimates=(seen, None)),
        PoolingShares(shares=(share, START)),
        LatestLosses(losses=dict.fromkeys(ten, (0.1, elsewhere))),
        OwnRisks(risks=own or {}),
    )
    return share_by_risk(state, ten, GUESS)[0]


def test_a_refused_or_unknown_risk_is_pooled_more_unless_with_a_model_that_guesses(ten):
    three_of_ten, two_of_ten = figure(0.56, 0.01), figure(0.54, 0.01)
    assert shares_after(ten, START, three_of_ten) == pytest.approx(START + STEP)
    assert shares_after(ten, START, two_of_ten) == START
    assert shares_after(ten, START, figure(0.9, 0.01), elsewhere=GUESS + 0.01) == START
    assert shares_after(ten, 0.0, None) == START
    assert shares_after(ten, 0.4, figure(0.9, 0.01, round_index=4)) == 0.4  # nothing new


def test_whoever_does_not_know_the_risk_refuses_it(ten):
    # Everybody accepts the 0.5 that it found; of ten, two found nothing, then three.
    found = RiskEstimate(Figure(0.5, 0.1), round_index=5)

    def after(knowing: int) -> float:
        own = {
            handle: (found if place < knowing else None, None) for place, handle in enumerate(ten)
        }
        return shares_after(ten, START, None, own=own)

    assert after(8) == START
    assert after(7) == pytest.approx(START + STEP)


@given(
    share=SHARES, risk=st.floats(0.3, 1.0), error=st.floats(0.0, 0.2), higher=st.floats(0.0, 0.5)
)
def test_a_higher_risk_is_never_pooled_less_and_no_share_falls(ten, share, risk, error, higher):
    def after(seen: float) -> float:
        return shares_after(ten, share, figure(seen, error))

    assert share <= after(risk) <= after(risk + higher) <= 1.0


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_the_latest_losses_are_remembered_and_a_diverged_one_is_not(point, broken):
    a, b = (point(name, 1.0, 1) for name in "ab")
    state = initial_state(({"w": torch.zeros(1)},) * 2)
    found: list[Mapping[str, tuple[float, ...]]] = []
    rounds = [([a, b], [[1, 2], [3, 4]]), ([a], [[broken, 2]]), ([b], [[5, 2]])]
    for cohort, losses in rounds:
        state = with_latest_losses(state, tuple(cohort), torch.tensor(losses, dtype=torch.float32))
        found.append(state.get_state(LatestLosses).losses)
    assert found[1:] == [{"B": (3.0, 4.0)}, {"B": (5.0, 2.0)}]
