import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.aggregation.partition import public_random
from covey.unlearning.participation import (
    DeniabilityBudget,
    budget,
    representative_probability,
    rollback_probability,
    settings_below,
)

SMALL = [
    (n, k, x, left)
    for n in range(2, 9)
    for k in range(1, n + 1)
    for x in range(1, k + 1)
    for left in range(n + 1)
]


def dealt(clients: int, k: int) -> list[range]:
    count = clients // k
    return [range(c, clients, count) for c in range(count)]


def keeps(sets: list[range], leavers: tuple[int, ...], x: int) -> bool:
    return all(len(set(members) - set(leavers)) >= x for members in sets)


def test_one_round_worked_by_hand():
    # N = 6 in 2 sets of 3, of which 2 must remain: two leavers must not share a set.
    # Of binom(6, 2) = 15 pairs 3 * 3 = 9 do not.
    assert rollback_probability(6, 3, 2, rounds=1, requests=2) == 6 / 15
    assert rollback_probability(6, 3, 2, 3, 2) == pytest.approx(1 - (9 / 15) ** 3)


def test_sets_of_two_sizes_worked_by_hand():
    # N = 5, k = 2: sets of 3 and 2, one member must remain. Of binom(5, 2) = 10 pairs
    # only the one that empties the set of 2 is too many.
    assert rollback_probability(5, 2, 1, rounds=1, requests=2) == 1 / 10


def test_it_counts_what_brute_force_counts():
    for clients, k, x, requests in SMALL:
        sets = dealt(clients, k)
        leavers = list(combinations(range(clients), requests))
        broken = sum(not keeps(sets, each, x) for each in leavers)
        found = rollback_probability(clients, k, x, 1, requests)
        assert found == broken / len(leavers), (clients, k, x, requests)


def test_it_is_what_a_simulation_of_leavers_finds():
    clients, k, x, rounds, requests = 20, 4, 3, 3, 2
    draws = np.random.default_rng(0)
    forced = 0
    for _ in range(4000):
        sets = [public_random(clients, k, draws) for _ in range(rounds)]
        remaining = set(range(clients))
        for leaver in draws.choice(clients, requests, replace=False).tolist():
            remaining.discard(leaver)
        forced += any(len(remaining & set(members)) < x for each in sets for members in each)
    expected = rollback_probability(clients, k, x, rounds, requests)
    assert 0.3 < expected < 0.5
    assert forced / 4000 == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 4000))


@given(st.sampled_from(SMALL), st.integers(0, 60))
def test_more_rounds_more_requests_and_a_higher_x_never_lower_it(
    case: tuple[int, int, int, int], rounds: int
):
    clients, k, x, requests = case
    found = rollback_probability(clients, k, x, rounds, requests)
    assert 0 <= found <= 1
    assert found <= rollback_probability(clients, k, x, rounds + 1, requests)
    if requests < clients:
        assert found <= rollback_probability(clients, k, x, rounds, requests + 1)
    if x < k:
        assert found <= rollback_probability(clients, k, x + 1, rounds, requests)


@given(st.integers(1, 60), st.data())
def test_the_certain_cases(clients: int, data: st.DataObject):
    k = data.draw(st.integers(1, clients))
    x = data.draw(st.integers(1, k))
    assert rollback_probability(clients, k, x, 50, 0) == 0
    assert rollback_probability(clients, k, x, 0, clients) == 0
    assert rollback_probability(clients, k, x, 1, clients) == 1
    spare = k - x  # whatever set they hit, it bears that many
    assert rollback_probability(clients, k, x, 50, spare) == 0


def test_tiny_probabilities_do_not_vanish():
    # One set of the two must lose all 50 of its members: 2 of binom(100, 50) choices.
    found = rollback_probability(100, 50, 1, rounds=1, requests=50)
    assert found == 2 / math.comb(100, 50)


@pytest.mark.parametrize(
    ("clients", "k", "x", "rounds", "requests"),
    [
        (5, 2, 3, 1, 1),
        (5, 6, 2, 1, 1),
        (5, 2, 0, 1, 1),
        (5, 2, 2, 1, 6),
        (5, 2, 2, 1, -1),
        (5, 2, 2, -1, 1),
    ],
)
def test_impossible_settings_are_refused(clients: int, k: int, x: int, rounds: int, requests: int):
    with pytest.raises(ValueError, match=r"expected .*, found .*: "):
        rollback_probability(clients, k, x, rounds, requests)


def test_the_settings_are_all_pairs_with_their_probability():
    rows = settings_below(0.25, clients=20, rounds=10, requests=3)
    assert [(row.k, row.x) for row in rows] == [
        (k, x) for k in range(2, 11) for x in range(2, k + 1)
    ]
    for row in rows:
        assert row.sets == 20 // row.k
        odds = rollback_probability(20, row.k, row.x, 10, 3)
        assert row.rollback_probability == odds
        assert row.fine == (odds <= 0.25)
    assert {row.fine for row in rows} == {True, False}


def test_the_largest_set_proposed_has_32_and_three_clients_get_no_proposal():
    assert max(row.k for row in settings_below(0.05, 100, 2, 2)) == 32
    assert settings_below(0.05, 3, 2, 2) == ()


def test_a_target_that_is_no_probability_is_refused():
    with pytest.raises(ValueError, match=r"found 5\.0"):
        settings_below(5.0, 20, 10, 3)


def test_the_probability_to_have_been_the_representative():
    assert representative_probability([]) == 0
    assert representative_probability([4]) == 0.25
    assert representative_probability([2, 4]) == 1 - 0.5 * 0.75
    assert representative_probability([9, 1]) == 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_it_is_the_share_of_the_draws_in_which_member_0_is_drawn(sizes: list[int]):
    missed = math.prod(size - 1 for size in sizes)
    assert representative_probability(sizes) == pytest.approx(1 - missed / math.prod(sizes))


def test_the_budget_is_set_by_the_smallest_set():
    assert budget([7, 5, 6], x=3, at_risk=2, clients=8) == DeniabilityBudget(2, 0.25)
    assert budget([7, 3], x=3, at_risk=8, clients=8) == DeniabilityBudget(0, 1.0)
    assert budget([2], x=3, at_risk=2, clients=8).denials_left == 0


def test_without_sets_or_clients_there_is_nothing_to_say():
    assert budget([], x=3, at_risk=0, clients=8) == DeniabilityBudget(None, 0.0)
    assert budget([4], x=3, at_risk=0, clients=0) == DeniabilityBudget(1, None)
