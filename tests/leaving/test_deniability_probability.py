import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.leaving.deniability import (
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


def test_it_counts_what_brute_force_counts():
    for clients, k, x, requests in SMALL:
        sets = dealt(clients, k)
        leavers = list(combinations(range(clients), requests))
        broken = sum(not keeps(sets, each, x) for each in leavers)
        found = rollback_probability(clients, k, x, 1, requests)
        assert found == broken / len(leavers), (clients, k, x, requests)


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


def test_impossible_settings_are_refused():
    for wrong in ((5, 2, 3, 1, 1), (5, 6, 2, 1, 1), (5, 2, 0, 1, 1), (5, 2, 2, 1, 6)):
        with pytest.raises(ValueError, match=r"must .*, found .*: "):
            rollback_probability(*wrong)
    with pytest.raises(ValueError, match=r"found 5\.0"):
        settings_below(5.0, 20, 10, 3)


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


def test_the_probability_to_have_been_the_representative():
    assert representative_probability([]) == 0
    assert representative_probability([4]) == 0.25
    assert representative_probability([2, 4]) == 1 - 0.5 * 0.75
    assert representative_probability([9, 1]) == 1


def test_the_budget_is_set_by_the_smallest_set():
    assert budget([7, 5, 6], x=3, at_risk=2, clients=8) == DeniabilityBudget(2, 0.25)
    assert budget([7, 3], x=3, at_risk=8, clients=8) == DeniabilityBudget(0, 1.0)
    assert budget([2], x=3, at_risk=2, clients=8).denials_left == 0
    assert budget([], x=3, at_risk=0, clients=0) == DeniabilityBudget(None, None)
