"""Selections that keep every cluster alive: their laws, and small cases by hand."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey import SelectionInputs, Streams, select_by_loss, select_by_threshold
from covey.algorithms.selection import UNASSIGNED
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

    def row(each: st.SearchStrategy[Any], count: int) -> Tensor:
        return torch.tensor(draw(st.lists(each, min_size=count, max_size=count)))

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
    assert torch.equal(unconstrained_choice(inputs)[accepts], select_by_threshold(inputs)[accepts])
    unsuited = ~accepts
    assert torch.equal(unconstrained_choice(inputs)[unsuited], select_by_loss(inputs)[unsuited])


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
    own = select_by_threshold(inputs)
    chosen = rebalanced(select_by_threshold, target)(inputs)
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
