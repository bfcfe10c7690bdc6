"""Pooling and selections that keep every cluster alive: laws, and small cases by hand."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Never

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from algorithms.playing import setup_of
from covey import (
    ByLoss,
    ByThreshold,
    Clients,
    Examples,
    Recipe,
    ReferenceEngine,
    RiskEstimate,
    RoundResult,
    SelectionInputs,
    Streams,
)
from covey.algorithms.round import RoundSteps
from covey.algorithms.selection import UNASSIGNED
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
from covey_papers.selection import (
    Prices,
    acceptance_cost,
    cluster_shares,
    dual_ascent,
    min_clients,
    posted_prices,
    rebalanced,
    select_priced,
    unconstrained_choice,
)
from selecting import choosing

STREAMS = Streams(0)


def at(prices: Sequence[float]) -> dict[str, object]:
    return {Prices.key: Prices(prices=tuple(prices))}


def eighths(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda n: n / 8)


@st.composite
def selection_inputs(draw: st.DrawFn, most: int = 7, *, priced: bool = True) -> SelectionInputs:
    """Every cluster is on offer, every client sits somewhere or is new."""
    clients, clusters = draw(st.integers(1, most)), draw(st.integers(1, 3))

    def row(values: st.SearchStrategy[Any], count: int) -> Tensor:
        return torch.tensor(draw(st.lists(values, min_size=count, max_size=count)))

    known = st.integers(32, 60).map(lambda n: n / 64)
    return choosing(
        row(eighths(0, 24), clients * clusters).view(clients, clusters),
        risks=row(known | st.just(math.nan), clients * clusters).view(clients, clusters),
        risk_thresholds=row(st.integers(32, 52).map(lambda n: n / 64), clients),
        current=row(st.integers(UNASSIGNED, clusters - 1), clients),
        absent_counts=row(st.integers(0, 2), clusters),
        states=at(row(eighths(0, 12), clusters).tolist()) if priced else {},
    )


TARGETS = st.integers(0, 8).map(lambda n: n / 24)


def sizes(inputs: SelectionInputs, chosen: Tensor) -> list[int]:
    here = torch.bincount(chosen, minlength=len(inputs.available))
    return (here + inputs.absent_counts).tolist()


def net(inputs: SelectionInputs, chosen: Tensor) -> float:
    cost = (acceptance_cost(inputs) - posted_prices(inputs)).double()
    return float(cost.gather(1, chosen[:, None]).sum())


@given(selection_inputs(priced=False))
def test_at_no_price_whoever_accepts_a_cluster_chooses_as_by_threshold(inputs):
    accepts = (inputs.risks <= inputs.risk_thresholds[:, None]).any(dim=1)
    assert torch.equal(unconstrained_choice(inputs)[accepts], ByThreshold().select(inputs)[accepts])
    unsuited = ~accepts
    assert torch.equal(unconstrained_choice(inputs)[unsuited], ByLoss().select(inputs)[unsuited])


@given(selection_inputs(most=5), TARGETS)
def test_the_moves_made_are_the_best_that_the_floors_allow(inputs, target):
    """Against every combination of staying and going."""
    inputs = replace(inputs, current=inputs.current.clamp(min=0))
    floor = min_clients(inputs, target)
    was = sizes(inputs, inputs.current)
    wish = unconstrained_choice(inputs)

    def allowed(chosen: Tensor) -> bool:
        return all(
            after >= min(floor, before) and (price == 0 or after <= max(floor, before))
            for before, after, price in zip(
                was, sizes(inputs, chosen), posted_prices(inputs).tolist(), strict=True
            )
        )

    def reached(chosen: Tensor) -> int:
        return sum(min(floor, size) for size in sizes(inputs, chosen))

    options = [
        torch.where(torch.tensor(goes), wish, inputs.current)
        for goes in itertools.product([False, True], repeat=len(wish))
    ]
    feasible = [option for option in options if allowed(option)]
    fullest = max(map(reached, feasible))
    best = min(net(inputs, option) for option in feasible if reached(option) == fullest)
    chosen = select_priced(inputs, target)
    assert allowed(chosen)
    assert reached(chosen) == fullest
    assert net(inputs, chosen) == pytest.approx(best, abs=1e-6)


def unhappy_minority() -> SelectionInputs:
    # Cluster 0 has the risk .8, cluster 1 .6; clients 0-1 sit in 0, 2-5 in 1.
    # violations of 0, 1:  tau .7: 1, 0;  tau .5: 1, 1;  tau .9: 0, 0
    # loss ln 2 is an error of 1/2, 0 of 0, ln 4 of 3/4
    two, four = math.log(2), math.log(4)
    taus = [0.7, 0.7, 0.5, 0.9, 0.7, 0.7]
    return choosing(
        [[0, two], [0, four], [four, two], *[[four, 0]] * 3],
        risks=torch.tensor([0.8, 0.6]).expand(6, 2),
        risk_thresholds=torch.tensor(taus),
        current=torch.tensor([0, 0, 1, 1, 1, 1]),
    )


def test_a_priced_cluster_changes_hands_by_hand():
    # costs of 0, 1: clients 0: 1, 1/2; 1: 1, 3/4; 2: 1 3/4, 1 1/2; 3: 3/4, 0;
    # 4 and 5: 1 3/4, 0. Everybody wants cluster 1; gains by leaving 0: 1/2 and 1/4.
    inputs = unhappy_minority()
    expected = torch.tensor(
        [[1, 1 / 2], [1, 3 / 4], [7 / 4, 3 / 2], [3 / 4, 0], [7 / 4, 0], [7 / 4, 0]]
    )
    torch.testing.assert_close(acceptance_cost(inputs), expected)
    assert unconstrained_choice(inputs).tolist() == [1] * 6
    assert cluster_shares(inputs, unconstrained_choice(inputs)).tolist() == [0, 1]
    # a third of six is two: both stay; a sixth: who gains most goes
    assert select_priced(inputs, 1 / 3).tolist() == [0, 0, 1, 1, 1, 1]
    assert select_priced(inputs, 1 / 6).tolist() == [1, 0, 1, 1, 1, 1]
    assert dual_ascent((0.0, 0.0), (0.0, 1.0), 1 / 3) == (1 / 3, 0)
    # at 3/8 client 1 stays of its own will, client 2 comes, and client 0 is free to go
    inputs = replace(inputs, states=at([3 / 8, 0]))
    assert unconstrained_choice(inputs).tolist() == [1, 0, 0, 1, 1, 1]
    assert select_priced(inputs, 1 / 3).tolist() == [1, 0, 0, 1, 1, 1]
    # at 7/8 client 3, who accepts both, wants it too, and client 0 again: no room for 3
    inputs = replace(inputs, states=at([7 / 8, 0]), current=torch.tensor([1, 0, 0, 1, 1, 1]))
    assert unconstrained_choice(inputs).tolist() == [0, 0, 0, 0, 1, 1]
    assert select_priced(inputs, 1 / 3).tolist() == [1, 0, 0, 1, 1, 1]


@given(selection_inputs(), TARGETS)
def test_rebalancing_fills_every_floor_from_clusters_above_it_and_moves_nobody_else(inputs, target):
    floor = min_clients(inputs, target)
    own = ByThreshold().select(inputs)
    chosen = rebalanced(ByThreshold().select, target)(inputs)
    were, are = sizes(inputs, own), sizes(inputs, chosen)
    # those elsewhere cannot be drawn, and may be too many
    needed = sum(max(0, floor - n) for n in inputs.absent_counts.tolist())
    assert min(are) >= floor or needed > len(chosen)
    assert int((own != chosen).sum()) <= sum(max(0, floor - n) for n in were)
    for left, joined in zip(own[own != chosen], chosen[own != chosen], strict=True):
        assert were[left] > floor
        assert are[left] >= floor
        assert were[joined] < floor
        assert are[joined] <= floor


def test_rebalancing_by_hand_and_everybody_is_as_likely_to_be_moved():
    # Of six clients one chooses cluster 0 and five cluster 1. A third of six is two: one of
    # the five moves, each with a chance of 1/5, and in 400 rounds 80 times, give or take 8.
    inputs, own = unhappy_minority(), torch.tensor([0, 1, 1, 1, 1, 1])
    counts = torch.zeros(6, dtype=torch.int64)
    for t in range(400):
        round_ = replace(inputs, streams=STREAMS.at("round", t))
        chosen = rebalanced(lambda _: own.clone(), 1 / 3)(round_)
        assert sizes(inputs, chosen) == [2, 4]
        counts += chosen != own
    assert counts[0] == 0
    assert all(abs(count - 80) < 40 for count in counts[1:].tolist())


def test_floors_of_shares_that_do_not_divide():
    inputs = replace(unhappy_minority(), absent_counts=torch.tensor([47, 47]))
    assert min_clients(inputs, 0.07) == 7  # 0.07 * 100 is a little above 7
    assert min_clients(inputs, 0.071) == 8
    assert min_clients(replace(inputs, absent_counts=torch.tensor([0, 1])), 0.5) == 3


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

    def after(clusters, shares) -> RoundResult:
        state = initial_state(clusters).with_choices({"A": 0, "B": 1}).with_models(clusters)
        backend = Simulated(ReferenceEngine(torch.nn.Identity()), Recipe())
        setup = setup_of(lambda _: clusters[0], (a, b))
        clients = Clients((a, b), backend, RoundSteps(nothing), setup)
        return pooled(RoundResult(state, ()), shares, clients, Streams(0))

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
    played = after_one_round(clusters, (*shares[:2], 1.0)[: len(start)])
    assert values(played) == pytest.approx(end)
    assert values(played, "count") == [*start]
    fact = ModelsPooled(shares, model_hash(played.state.clusters))
    assert played.events[-1] == fact
    assert played.state.get_state(PoolingShares).shares == shares


def test_a_layer_given_up_by_one_cluster_comes_from_the_other(after_one_round):
    clusters = tuple(
        {"first.w": torch.tensor([x]), "head.w": torch.tensor([10 * x])} for x in (1.0, 2.0)
    )
    played = after_one_round(clusters, (0.5, 0.0))
    assert (values(played, "first.w"), values(played, "head.w")) == ([1.0, 2.0], [20.0, 20.0])


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
    estimate = RiskEstimate(Figure(0.5, 0.1), round_index=5)

    def after(knowing: int) -> float:
        own = {
            handle: (estimate if place < knowing else None, None)
            for place, handle in enumerate(ten)
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
    risks: list[Mapping[str, tuple[float, ...]]] = []
    rounds = [([a, b], [[1, 2], [3, 4]]), ([a], [[broken, 2]]), ([b], [[5, 2]])]
    for cohort, losses in rounds:
        state = with_latest_losses(state, tuple(cohort), torch.tensor(losses, dtype=torch.float32))
        risks.append(state.get_state(LatestLosses).losses)
    assert risks[1:] == [{"B": (3.0, 4.0)}, {"B": (5.0, 2.0)}]
