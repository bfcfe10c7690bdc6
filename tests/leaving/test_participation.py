"""What the story says of who took part, and the probability with which a denial is true."""

import math
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.base.events import (
    AnonymitySetsFormed,
    ClientLeft,
    ClientsAssigned,
    CohortSampled,
    ModelsMerged,
    ModelsPooled,
    PricesSet,
    RiskMeasured,
    RoundMeasured,
    RunRolledBack,
)
from covey.base.figure import Figure, RiskEstimate
from covey.leaving.deniability import (
    DeniabilityBudget,
    budget,
    representative_probability,
    rollback_probability,
    settings_below,
)
from covey.leaving.plan import AnswerRules, Influence, influences_on, option_for, sizes_left
from covey.ledger.participation import AnonymitySet, Participation, participation_of


def risk(cluster: int, t: int, value: float | None = 0.6) -> RiskMeasured:
    return RiskMeasured(cluster, RiskEstimate(Figure(value, 0.01), 0.6, 10, 10, round_index=t))


STORY = [
    (0, CohortSampled(("A", "B", "C", "D", "E"))),
    (0, ClientsAssigned({"A": 0, "B": 0, "C": 1, "D": 1, "E": 1}, "clients")),
    (0, AnonymitySetsFormed(0, (("A", "B"),), (0.5,))),
    (0, AnonymitySetsFormed(1, (("C", "D", "E"),), (None,), (((), ("E",), ("D",)),))),
    (0, ModelsMerged("one", (2, 3))),
    (0, RoundMeasured(0.5, {}, (2, 3))),
    (None, ClientLeft("E", "deny", "hash")),
    (None, RunRolledBack(1, 1, "anew")),
    (1, risk(0, 1)),
    (1, risk(1, 1, None)),
    (1, ClientsAssigned({"A": 1, "C": 1, "D": 1}, "clients")),
    (1, PricesSet((0.25, 0.0), (0.5, 0.5), 0.4)),
    (1, AnonymitySetsFormed(1, (("A", "C", "D"),), (2.0,))),
    (1, ModelsMerged("two", (0, 3))),
    (1, ModelsPooled((0.1, 0.1), "pooled")),
    (1, RoundMeasured(0.5, {}, (1, 3))),
    (2, ClientsAssigned({"A": 0, "B": 0, "C": 1, "D": 1}, "final")),
    (2, risk(1, 2)),
]


def test_a_story_folded_by_hand():
    found = participation_of(STORY)
    assert found == Participation(
        sets=(
            AnonymitySet(0, 0, frozenset("AB"), 0.5),
            AnonymitySet(
                0,
                1,
                frozenset("CDE"),
                None,
                {"C": frozenset(), "D": frozenset("E"), "E": frozenset("D")},
            ),
            AnonymitySet(1, 1, frozenset("ACD"), 2.0),
        ),
        # the last choice trains nobody
        trained={"A": {0: 0, 1: 1}, "B": {0: 0}, "C": {0: 1, 1: 1}}
        | {"D": {0: 1, 1: 1}, "E": {0: 1}},
        left=("E",),
    )
    assert [each.round_index for each in found.sets_of("A")] == [0, 1]
    assert found.sets_of("nobody") == ()
    assert found.first_round("B") == 0
    assert found.first_round("nobody") is None


def test_who_speaks_for_a_leaver():
    anybody = AnonymitySet(0, 0, frozenset("ABCD"), 1.0)
    assert anybody.plausible_members("A", frozenset()) == 3
    assert anybody.plausible_members("A", frozenset("AB")) == 2
    near = {"A": frozenset("B"), "B": frozenset("AC"), "C": frozenset("B")}
    some = replace(anybody, near={**near, "D": frozenset()})
    assert some.plausible_members("B", frozenset()) == 2
    assert some.plausible_members("B", frozenset("C")) == 1
    assert some.plausible_members("D", frozenset()) == 0


def test_sizes_left_by_hand():
    found = participation_of(STORY)
    # round 0: D, of {C, D, E} only E was near it, and has left; round 1: A and C
    assert [(s.round_index, left) for s, left in sizes_left(found, "D")] == [(0, 0), (1, 2)]
    # who has left already is counted once
    assert [left for _, left in sizes_left(found, "E")] == [1]


def test_what_else_came_of_a_client_by_hand():
    # A sits in cluster 0, moves to 1 in round 1, and back at the end; figures of a round
    # come before its choices, so round 1's risk of cluster 0 still counts it
    assert list(influences_on(STORY, "A")) == [
        Influence(0, "cluster size", 0, 2),
        Influence(1, "risk", 0, 0.6),
        Influence(1, "cluster left", 0),
        Influence(1, "price", 1, 0.0),
        Influence(1, "cluster size", 1, 3),
        Influence(2, "cluster left", 1),
    ]
    # C stays in cluster 1; a risk that was withheld is told without a number
    assert list(influences_on(STORY, "C")) == [
        Influence(0, "cluster size", 1, 3),
        Influence(1, "risk", 1, None),
        Influence(1, "price", 1, 0.0),
        Influence(1, "cluster size", 1, 3),
        Influence(2, "risk", 1, 0.6),
    ]


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


@given(data=st.data(), size=st.integers(2, 5), x=st.integers(1, 3))
def test_as_many_denials_as_are_left_are_given_in_any_order_and_not_always_one_more(data, size, x):
    members = "ABCDE"[:size]
    near = {u: data.draw(st.frozensets(st.sampled_from(members))) - {u} for u in members}
    hidden = AnonymitySet(0, 0, frozenset(members), 1.0, near)
    denials_left = budget([hidden.members_left(frozenset())], x, 0, size).denials_left
    rules = AnswerRules(x, stored_updates=False, restorable=(0,), next_round=1)

    def denied(*requests: str) -> int:
        """Return how many are denied, one after the other, until one is refused."""
        for count, handle in enumerate(requests):
            before = Participation(sets=[hidden], left=requests[:count])
            if not option_for("deny", before, handle, rules).possible:
                return count
        return len(requests)

    assert min(denied(*order) for order in permutations(members)) == denials_left


def test_a_set_in_which_all_count_for_all_has_its_members_left():
    members = frozenset("ABCD")
    near = {u: members - {u} for u in members}
    for left in map(frozenset, ("", "A", "AB", "ABCD")):
        counts = {AnonymitySet(0, 0, members, 1.0, n).members_left(left) for n in (None, near)}
        assert counts == {len(members - left)}
