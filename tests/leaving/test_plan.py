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
def stories(draw: st.DrawFn, *, near: bool | None = None) -> list[Held]:
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
        each: frozenset(o for o in members if {(each, o), (o, each)} & close) for each in members
    }


def played(held: list[Held], *left: str) -> Participation:
    """The story of these sets, after these clients left."""
    trained: dict[str, dict[int, int]] = {}
    for t, members, _ in held:
        for each in members:
            trained.setdefault(each, {})[t] = 0
    sets = tuple(AnonymitySet(t, 0, frozenset(m), 1.0, near) for t, m, near in held)
    return Participation(sets=sets, trained=trained, left=left)


settings = st.fixed_dictionaries(
    {
        "deniability_threshold": st.none() | st.integers(1, 4),
        "stored_updates": st.booleans(),
        "restorable": st.sets(st.integers(1, 4)).map(lambda some: (0, *sorted(some))),
        "next_round": st.just(4),
        "prefix_independent": st.booleans(),
        "subtracts": st.booleans(),
    }
)
clients = st.sampled_from(CLIENTS)
HIDDEN = AnswerRules(2, stored_updates=False, restorable=(0, 1, 2, 3), next_round=3)


def after(story: Participation, *leavers: str) -> Participation:
    return replace(story, left=(*story.left, *leavers))


def by_name(story: Participation, handle: str, rules: AnswerRules) -> dict[str, Option]:
    return {each.answer: each for each in options(story, handle, rules)}


def deniable(story: Participation, handle: str, rules: AnswerRules = HIDDEN) -> bool:
    return by_name(story, handle, rules)["deny"].possible


@given(stories(near=False), clients, st.sets(clients, max_size=3), st.integers(1, 4))
def test_a_denial_is_true_iff_every_set_keeps_x(held, handle, left, x):
    story = played(held, *sorted(left - {handle}))
    keeps = all(
        len(each.members - left - {handle}) >= x for each in story.sets if handle in each.members
    )
    rules = replace(HIDDEN, deniability_threshold=x)
    assert deniable(story, handle, rules) == keeps


ALONE = {who: frozenset(near) for who, near in zip("ABCD", ("", "CD", "BD", "BC"), strict=True)}


@given(stories(), st.sets(clients, max_size=3), st.integers(1, 4))
@example([(0, tuple("ABCD"), ALONE)], {"A"}, 1)  # whoever leaves, A has nobody
def test_at_risk_are_those_who_could_not_be_denied_next(held, left, x):
    story = played(held, *sorted(left))
    rules = replace(HIDDEN, deniability_threshold=x)

    def breaks(one: str) -> bool:
        gone = frozenset((*left, one))
        return any(
            each.plausible_members(other, gone) < x
            for each in story.sets_of(one)
            for other in each.members & gone
        )

    stay = set(CLIENTS) - left
    assert at_risk(story, x) == {one for one in stay if breaks(one)}
    assert at_risk(story, x) == {one for one in stay if not deniable(story, one, rules)}


@given(stories(), clients, st.sets(clients, max_size=2), settings)
def test_what_is_played_again_starts_where_a_state_is_and_not_too_late(held, handle, left, chosen):
    rules = AnswerRules(**chosen)
    for each in options(played(held, *sorted(left)), handle, rules):
        first, start = each.first_affected_round, each.first_replayed_round
        if start is None:
            assert first is None
            assert each.rounds_replayed == 0
            continue
        assert each.possible
        assert first is not None
        assert start <= first
        if each.answer == "subtract":  # it starts from the newest state, less some sums
            assert (start, each.rounds_replayed) == (3, 1)
            continue
        assert start in rules.restorable
        assert not any(start < r <= first for r in rules.restorable)
        assert each.rounds_replayed == rules.next_round - start


@given(stories(), clients, st.sets(clients, max_size=2), settings)
def test_a_roll_back_goes_to_the_first_set_that_falls_below_x(held, handle, left, chosen):
    rules = AnswerRules(**chosen)
    story = played(held, *sorted(left - {handle}))
    found = by_name(story, handle, rules)
    if rules.deniability_threshold is None:
        assert not found["deny"].possible
        assert not found["roll_back"].possible
        return
    first = found["roll_back"].first_affected_round
    if first is None:
        assert found["deny"].possible == (not rules.stored_updates)
        return
    assert not found["deny"].possible
    before = replace(story, sets=tuple(each for each in story.sets if each.round_index < first))
    assert deniable(before, handle, replace(rules, stored_updates=False))


@given(stories(), clients, st.sets(clients, max_size=2), settings)
def test_auto_gives_the_cheapest_exact_answer_that_is_true(held, handle, left, chosen):
    rules = AnswerRules(**chosen)
    found = options(played(held, *sorted(left)), handle, rules)
    deny, less, back, anew, *_ = found
    if less.possible and not deny.possible:
        assert cheapest(found, "auto") == less
        assert less.rounds_replayed <= min(1, anew.rounds_replayed)
        return
    if not deny.possible and not back.possible:
        with pytest.raises(RunError) as refused:
            cheapest(found, "auto")
        assert str(refused.value) == deny.reason
        return
    given = cheapest(found, "auto")
    assert given.possible
    assert given.answer != "calibrate"
    if given.answer == "deny":
        return
    assert not deny.possible
    assert given.rounds_replayed == back.rounds_replayed
    assert (given is anew) == (back.rounds_replayed == anew.rounds_replayed)


def told(*rounds: str) -> Participation:
    """A run's story: in each round a few sets, as words whose letters are clients."""
    story = []
    for t, words in enumerate(rounds):
        sets = tuple(tuple(word) for word in words.split())
        everybody = dict.fromkeys("".join(words.split()), 0)
        story += [
            (t, ClientsAssigned(everybody, "shared")),
            (t, AnonymitySetsFormed(0, sets, (1.0,) * len(sets))),
        ]
    return participation_of(story)


# x = 2. A's sets keep two members in every round. B's do until round 2, where only A is
# beside it. D comes in round 1 and stands with one other in the next.
BY_HAND = told("ABC EFG", "ABCD EFG", "ACE BF DG")


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
    story = Participation(sets=(AnonymitySet(0, 0, frozenset("ABC"), 2.0, line),))
    assert deniable(story, "B")
    assert not deniable(story, "A")
    # F was denied for D and E. D keeps E and G, but F would keep E alone
    close = {"D": "EFG", "E": "DFG", "F": "DE", "G": "DE"}
    near = {who: frozenset(others) for who, others in close.items()}
    story = Participation(sets=(AnonymitySet(0, 0, frozenset("DEFG"), 2.0, near),))
    assert deniable(story, "F")
    assert deniable(story, "D")
    assert [left for _, left in sizes_left(after(story, "F"), "D")] == [2]
    assert not deniable(after(story, "F"), "D")


def test_where_rounds_hang_on_everybody_nothing_short_of_all_is_retraining():
    rules = replace(HIDDEN, prefix_independent=False)
    assert by_name(BY_HAND, "D", rules)["retrain"] == Option("retrain", "", 0, 0, 3)
    # nor does it help that the client itself never trained: others counted it
    assert by_name(BY_HAND, "nobody", rules)["retrain"] == Option("retrain", "", 0, 0, 3)
    assert by_name(BY_HAND, "nobody", HIDDEN)["retrain"] == Option("retrain")
