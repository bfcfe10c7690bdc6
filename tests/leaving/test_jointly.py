"""Requests that are answered at once: what is true of all of them together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import RunError
from covey.base.events import AnonymitySetsFormed, ClientLeft, ClientsAssigned, RunRolledBack
from covey.base.names import ANSWERS
from covey.leaving.handover import sealed, unsealed
from covey.leaving.plan import AnswerRules, Option, answer_for, options, replay_kind
from covey.leaving.planning import choose_answers
from covey.ledger.participation import AnonymitySet, Participation, participation_of
from covey.ledger.requests import LeaveRequest

CLIENTS = "ABCDEFGH"
RULES = AnswerRules(2, stored_updates=False, restorable=(0, 1, 2, 3, 4), next_round=4)

# per round, the clients that are there, and how many of them are in the first set
rounds = st.lists(
    st.tuples(st.permutations(CLIENTS), st.integers(2, 8), st.integers(0, 8)), max_size=4
)
leavers = st.lists(st.sampled_from(CLIENTS), min_size=1, max_size=4, unique=True)


def played(drawn: list[tuple[list[str], int, int]]) -> Participation:
    """Return the story of these rounds, each with a set or two."""
    sets: list[AnonymitySet] = []
    trained: dict[str, dict[int, int]] = {}
    for t, (order, count, cut) in enumerate(drawn):
        here = order[:count]
        sets += [
            AnonymitySet(t, 0, frozenset(part), 1.0) for part in (here[:cut], here[cut:]) if part
        ]
        for client in here:
            trained.setdefault(client, {})[t] = 0
    return Participation(tuple(sets), trained)


@given(rounds, leavers)
def test_after_all_have_left_every_set_that_stays_keeps_x(drawn, gone):
    participation = played(drawn)
    choices = choose_answers(participation, [LeaveRequest(client) for client in gone], RULES)
    starts = [c.chosen.first_replayed_round for c in choices if c.chosen]
    end = min((s for s in starts if s is not None), default=RULES.next_round)
    for held in participation.sets:
        if held.round_index < end and held.members & set(gone):
            assert len(held.members - set(gone)) >= 2


@given(rounds, leavers)
def test_all_who_need_a_replay_share_one(drawn, gone):
    choices = choose_answers(played(drawn), [LeaveRequest(client) for client in gone], RULES)
    shared = {
        (c.chosen.first_replayed_round, c.chosen.rounds_replayed)
        for c in choices
        if c.chosen is not None and c.chosen.first_replayed_round is not None
    }
    assert len(shared) <= 1
    for choice in choices:
        alone = [o.first_replayed_round for o in choice.options if o.possible]
        if choice.chosen is not None and choice.chosen.first_replayed_round is not None:
            own = next(o for o in choice.options if o.answer == choice.chosen.answer)
            assert own.first_replayed_round in alone
            assert choice.chosen.first_replayed_round <= (own.first_replayed_round or 0)


@given(rounds, leavers)
def test_denials_at_once_are_those_of_one_after_the_other(drawn, gone):
    participation = played(drawn)
    together = choose_answers(
        participation, [LeaveRequest(client, "deny") for client in gone], RULES
    )
    for client, choice in zip(gone, together, strict=True):
        deny, *_ = options(participation, client, RULES)
        assert (choice.chosen is not None) == deny.possible
        if deny.possible:
            participation = replace(participation, left=(*participation.left, client))


def test_a_set_that_loses_two_denies_only_the_first_by_hand():
    # x = 2: of A B C D, C and D may go both; a third may not. Round 1: all in one set
    participation = Participation(
        sets=(
            AnonymitySet(0, 0, frozenset("ABC"), 1.0),
            AnonymitySet(1, 0, frozenset("ABCD"), 1.0),
        ),
        trained={"A": {0: 0, 1: 0}, "B": {0: 0, 1: 0}, "C": {0: 0, 1: 0}, "D": {1: 0}},
    )
    first, second = choose_answers(participation, [LeaveRequest("D"), LeaveRequest("A")], RULES)
    assert first.chosen == Option("deny")
    assert second.chosen == Option("deny")
    # B alone could be denied in round 0, but A is gone: B's first round is replayed
    *_, third = choose_answers(
        participation, [LeaveRequest("D"), LeaveRequest("A"), LeaveRequest("B")], RULES
    )
    assert third.chosen == Option("retrain", "", 0, 0, 4)


def test_who_would_be_rolled_back_is_retrained_where_all_choose_anew_anyway():
    # x = 2. B came in round 1 and is in a set of two there, A was there from the start
    participation = Participation(
        sets=(
            AnonymitySet(0, 0, frozenset("ACDEF"), 1.0),
            AnonymitySet(1, 0, frozenset("ABC"), 1.0),
            AnonymitySet(2, 0, frozenset("BD"), 1.0),
        ),
        trained={"A": {0: 0, 1: 0}, "B": {1: 0, 2: 0}, "C": {0: 0}, "D": {0: 0, 2: 0}},
    )
    alone, _ = choose_answers(participation, [LeaveRequest("B"), LeaveRequest("E")], RULES)
    assert alone.chosen == Option("roll_back", "", 2, 2, 2)
    requests = [LeaveRequest("B"), LeaveRequest("A", "retrain")]
    beside, other = choose_answers(participation, requests, RULES)
    assert beside.chosen == Option("retrain", "", 1, 0, 4)
    assert other.chosen == Option("retrain", "", 0, 0, 4)
    assert replay_kind([Option("roll_back"), Option("retrain")]) == "anew"
    assert replay_kind([Option("roll_back")]) == "recorded"
    # asked for by name, it stays what it is called
    choice, _ = choose_answers(
        participation, [LeaveRequest("B", "roll_back"), *requests[1:]], RULES
    )
    assert choice.chosen == Option("roll_back", "", 2, 0, 4)


@given(rounds, leavers, st.sampled_from(["auto", "retrain", "roll_back", "calibrate"]))
def test_erasure_is_never_a_denial(drawn, gone, wanted):
    choices = choose_answers(
        played(drawn), [LeaveRequest(g, wanted, "erasure") for g in gone], RULES
    )
    for choice in choices:
        assert choice.chosen is None or choice.chosen.answer != "deny"
        if wanted == "auto":
            assert choice.chosen is not None
            assert choice.chosen.answer == "retrain"


PLAIN = (
    Option("deny", "no sets"),
    Option("subtract", "no sums"),
    Option("roll_back", "no sets"),
    Option("retrain", "", 0, 0, 3),
    Option("calibrate", "none stored"),
    Option("stop"),
)
HIDDEN = (Option("deny"), PLAIN[1], Option("roll_back", "none would"), *PLAIN[3:])
SUMS = (PLAIN[0], Option("subtract", "", 2, 2, 1), *PLAIN[2:])


@pytest.mark.parametrize(
    ("wanted", "basis", "applied", "given_or_said"),
    [
        ("auto", "none", HIDDEN, "deny"),
        ("auto", "withdrawal", HIDDEN, "deny"),
        ("auto", "withdrawal", PLAIN, "stop"),
        ("auto", "restriction", HIDDEN, "stop"),
        ("auto", "objection", HIDDEN, "stop"),
        ("retrain", "objection", HIDDEN, "retrain"),
        ("deny", "objection", HIDDEN, "--answer deny, which removes nothing"),
        ("deny", "erasure", HIDDEN, "--answer deny, which removes nothing"),
        ("stop", "erasure", HIDDEN, "--answer stop, which removes nothing"),
        ("auto", "erasure", PLAIN, "retrain"),
        ("retrain", "restriction", HIDDEN, "deletes the client's name"),
        ("auto", "none", SUMS, "subtract"),
        ("auto", "erasure", SUMS, "subtract"),
    ],
)
def test_the_basis_bounds_the_answer(wanted, basis, applied, given_or_said):
    if given_or_said in ANSWERS:
        assert answer_for(applied, wanted, basis).answer == given_or_said
        return
    with pytest.raises(RunError, match=given_or_said):
        answer_for(applied, wanted, basis)


LEFT = (None, ClientLeft("A", "deny", ""))


def chosen_again(participation: Participation, wanted: str = "retrain"):
    (choice,) = choose_answers(participation, [LeaveRequest("A", wanted)], RULES)
    return choice.chosen


def test_who_was_denied_and_retrained_counts_once_and_in_no_set():
    # the round is played again without A; its two marks are one client that left
    again = (
        (None, ClientLeft("A", "retrain", "")),
        (None, RunRolledBack(0, 4, "anew")),
        (0, ClientsAssigned(dict.fromkeys("BCD", 0), "mean")),
        (0, AnonymitySetsFormed(0, (tuple("BCD"),), (1.0,))),
    )
    participation = participation_of([LEFT, *again])
    assert participation.left == ("A",)
    assert participation.sets_of("A") == ()
    assert participation.first_trace("A") is None
    assert chosen_again(participation) == Option("retrain")


@pytest.mark.parametrize(
    ("how", "first", "trace"),
    [("recorded", 2, 2), ("recorded", 5, 3), ("calibrated", 2, 2), ("anew", 2, None)],
)
def test_who_left_lingers_in_others_choices_until_they_choose_anew(how, first, trace):
    participation = participation_of(
        [LEFT, (None, RunRolledBack(3, 6, "recorded")), (None, RunRolledBack(first, 6, how))]
    )
    assert participation.first_round("A") is None
    assert participation.first_trace("A") == trace


names = st.text(st.characters(codec="utf-8"), max_size=12)
salts = st.binary(min_size=16, max_size=16)


@given(names, salts, names, salts)
def test_only_name_and_salt_together_open_what_is_sealed(name, salt, other, wrong):
    record = sealed("h-5c2885f7420d", name, salt)
    assert unsealed(record, name, salt) == "h-5c2885f7420d"
    if (other, wrong) != (name, salt):
        assert unsealed(record, other, wrong) is None
    assert "5c2885f7420d" not in record
