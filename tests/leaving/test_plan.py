"""Which answers are true, which one is the cheapest, and what stays true afterwards."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from covey import RunError
from covey.base.events import AnonymitySetsFormed, ClientsAssigned
from covey.leaving.plan import AnswerRules, Option, at_risk, cheapest, options, sizes_left
from covey.ledger.participation import AnonymitySet, Participation, participation_of

CLIENTS = tuple("ABCDEFGH")


Held = tuple[int, tuple[str, ...], dict[str, frozenset[str]] | None]
"""A set in plain values: covey's own types are checked, which draws at random, and no
strategy of Hypothesis may."""


@st.composite
def histories(draw: st.DrawFn, *, near: bool | None = None) -> list[Held]:
    """A few rounds, in each of which a few clients hide in one set or two."""
    limited = draw(st.booleans()) if near is None else near
    held: list[Held] = []
    for t in range(draw(st.integers(0, 4))):
        present = draw(st.permutations(CLIENTS))[: draw(st.integers(2, len(CLIENTS)))]
        cut = draw(st.integers(2, len(present)))
        for part in filter(None, (tuple(present[:cut]), tuple(present[cut:]))):
            held.append((t, part, draw(mutual(part)) if limited else None))
    return held


@st.composite
def mutual(draw: st.DrawFn, members: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Who is near whom: a distance is the same from both ends."""
    pairs = list(combinations(members, 2))
    close = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    return {
        member: frozenset(o for o in members if {(member, o), (o, member)} & close)
        for member in members
    }


def played(held: list[Held], *left: str) -> Participation:
    """The story of these sets, after these clients left."""
    trained: dict[str, dict[int, int]] = {}
    for t, members, _ in held:
        for member in members:
            trained.setdefault(member, {})[t] = 0
    sets = tuple(AnonymitySet(t, 0, frozenset(m), 1.0, near) for t, m, near in held)
    return Participation(sets=sets, trained=trained, left=left)


settings = st.fixed_dictionaries(
    {
        "deniability_threshold": st.none() | st.integers(1, 4),
        "stored_updates": st.booleans(),
        "restorable": st.sets(st.integers(1, 4)).map(lambda parts: (0, *sorted(parts))),
        "next_round": st.just(4),
        "prefix_independent": st.booleans(),
        "subtracts": st.booleans(),
    }
)
clients = st.sampled_from(CLIENTS)
HIDDEN = AnswerRules(2, stored_updates=False, restorable=(0, 1, 2, 3), next_round=3)


def after(participation: Participation, *leavers: str) -> Participation:
    return replace(participation, left=(*participation.left, *leavers))


def by_name(participation: Participation, handle: str, rules: AnswerRules) -> dict[str, Option]:
    return {option.answer: option for option in options(participation, handle, rules)}


def deniable(participation: Participation, handle: str, rules: AnswerRules = HIDDEN) -> bool:
    return by_name(participation, handle, rules)["deny"].possible


@given(histories(near=False), clients, st.sets(clients, max_size=3), st.integers(1, 4))
def test_a_denial_is_true_iff_every_set_keeps_x(held, handle, left, x):
    participation = played(held, *sorted(left - {handle}))
    keeps = all(
        len(anonymity_set.members - left - {handle}) >= x
        for anonymity_set in participation.sets
        if handle in anonymity_set.members
    )
    rules = replace(HIDDEN, deniability_threshold=x)
    assert deniable(participation, handle, rules) == keeps


ALONE = {
    client: frozenset(near) for client, near in zip("ABCD", ("", "CD", "BD", "BC"), strict=True)
}


@given(histories(), st.sets(clients, max_size=3), st.integers(1, 4))
@example([(0, tuple("ABCD"), ALONE)], {"A"}, 1)  # whoever leaves, A has nobody
def test_at_risk_are_those_who_could_not_be_denied_next(held, left, x):
    participation = played(held, *sorted(left))
    rules = replace(HIDDEN, deniability_threshold=x)

    def breaks(one: str) -> bool:
        gone = frozenset((*left, one))
        return any(
            anonymity_set.plausible_members(other, gone) < x
            for anonymity_set in participation.sets_of(one)
            for other in anonymity_set.members & gone
        )

    stay = set(CLIENTS) - left
    assert at_risk(participation, x) == {one for one in stay if breaks(one)}
    assert at_risk(participation, x) == {
        one for one in stay if not deniable(participation, one, rules)
    }


@given(histories(), clients, st.sets(clients, max_size=2), settings)
def test_what_is_played_again_starts_where_a_state_is_and_not_too_late(held, handle, left, chosen):
    rules = AnswerRules(**chosen)
    for option in options(played(held, *sorted(left)), handle, rules):
        first, start = option.first_affected_round, option.first_replayed_round
        if start is None:
            assert first is None
            assert option.rounds_replayed == 0
            continue
        assert option.possible
        assert first is not None
        assert start <= first
        if option.answer == "subtract":  # it starts from the newest state, less some sums
            assert (start, option.rounds_replayed) == (3, 1)
            continue
        assert start in rules.restorable
        assert not any(start < r <= first for r in rules.restorable)
        assert option.rounds_replayed == rules.next_round - start


@given(histories(), clients, st.sets(clients, max_size=2), settings)
def test_a_roll_back_goes_to_the_first_set_that_falls_below_x(held, handle, left, chosen):
    rules = AnswerRules(**chosen)
    participation = played(held, *sorted(left - {handle}))
    answers = by_name(participation, handle, rules)
    if rules.deniability_threshold is None:
        assert not answers["deny"].possible
        assert not answers["roll_back"].possible
        return
    first = answers["roll_back"].first_affected_round
    if first is None:
        assert answers["deny"].possible == (not rules.stored_updates)
        return
    assert not answers["deny"].possible
    before = replace(
        participation,
        sets=tuple(
            anonymity_set
            for anonymity_set in participation.sets
            if anonymity_set.round_index < first
        ),
    )
    assert deniable(before, handle, replace(rules, stored_updates=False))


@given(histories(), clients, st.sets(clients, max_size=2), settings)
def test_auto_gives_the_cheapest_exact_answer_that_is_true(held, handle, left, chosen):
    rules = AnswerRules(**chosen)
    answers = options(played(held, *sorted(left)), handle, rules)
    deny, less, back, anew, *_ = answers
    if less.possible and not deny.possible:
        assert cheapest(answers, "auto") == less
        assert less.rounds_replayed <= min(1, anew.rounds_replayed)
        return
    if not deny.possible and not back.possible:
        with pytest.raises(RunError) as refused:
            cheapest(answers, "auto")
        assert str(refused.value) == deny.reason
        return
    choice = cheapest(answers, "auto")
    assert choice.possible
    assert choice.answer != "calibrate"
    if choice.answer == "deny":
        return
    assert not deny.possible
    assert choice.rounds_replayed == back.rounds_replayed
    assert (choice is anew) == (back.rounds_replayed == anew.rounds_replayed)


def participation_in(*rounds: str) -> Participation:
    """A run's story: in each round a few sets, as words whose letters are clients."""
    events = []
    for t, words in enumerate(rounds):
        sets = tuple(tuple(word) for word in words.split())
        all_clients = dict.fromkeys("".join(words.split()), 0)
        events += [
            (t, ClientsAssigned(all_clients, "shared")),
            (t, AnonymitySetsFormed(0, sets, (1.0,) * len(sets))),
        ]
    return participation_of(events)


# x = 2. A's sets keep two members in every round. B's do until round 2, where only A is
# beside it. D comes in round 1 and stands with one other in the next.
BY_HAND = participation_in("ABC EFG", "ABCD EFG", "ACE BF DG")


@pytest.mark.parametrize(
    ("handle", "rules", "expected"),
    [
        ("A", HIDDEN, Option("deny")),
        ("B", HIDDEN, Option("roll_back", "", 2, 2, 1)),
        ("D", HIDDEN, Option("roll_back", "", 2, 2, 1)),
        ("D", replace(HIDDEN, restorable=(0,)), Option("retrain", "", 1, 0, 3)),
        ("B", replace(HIDDEN, restorable=(0, 2)), Option("roll_back", "", 2, 2, 1)),
        ("A", replace(HIDDEN, deniability_threshold=3), Option("retrain", "", 0, 0, 3)),
        ("nobody", HIDDEN, Option("deny")),
    ],
)
def test_auto_by_hand(handle, rules, expected):
    assert cheapest(options(BY_HAND, handle, rules), "auto") == expected


def test_who_is_too_far_away_speaks_for_nobody():
    # a line A - B - C: B has two near it, the ends one
    line = {"A": frozenset("B"), "B": frozenset("AC"), "C": frozenset("B")}
    participation = Participation(sets=(AnonymitySet(0, 0, frozenset("ABC"), 2.0, line),))
    assert deniable(participation, "B")
    assert not deniable(participation, "A")
    # F was denied for D and E. D keeps E and G, but F would keep E alone
    close = {"D": "EFG", "E": "DFG", "F": "DE", "G": "DE"}
    near = {client: frozenset(others) for client, others in close.items()}
    participation = Participation(sets=(AnonymitySet(0, 0, frozenset("DEFG"), 2.0, near),))
    assert deniable(participation, "F")
    assert deniable(participation, "D")
    assert [left for _, left in sizes_left(after(participation, "F"), "D")] == [2]
    assert not deniable(after(participation, "F"), "D")


def test_where_rounds_hang_on_everybody_nothing_short_of_all_is_retraining():
    rules = replace(HIDDEN, prefix_independent=False)
    assert by_name(BY_HAND, "D", rules)["retrain"] == Option("retrain", "", 0, 0, 3)
    # nor does it help that the client itself never trained: others counted it
    assert by_name(BY_HAND, "nobody", rules)["retrain"] == Option("retrain", "", 0, 0, 3)
    assert by_name(BY_HAND, "nobody", HIDDEN)["retrain"] == Option("retrain")
