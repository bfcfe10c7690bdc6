"""What the story says of who took part, folded once, and what came of one client."""

from dataclasses import replace

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
from covey.leaving.plan import Influence, influences_on, sizes_left
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
