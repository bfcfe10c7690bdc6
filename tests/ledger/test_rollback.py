"""Rewinding: what was recorded stays sealed, what was superseded is no longer told."""

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import LedgerError, LedgerMismatch
from covey.ledger.chain import REWIND, Record, counts, rewound_to
from covey.ledger.store import Ledger
from ledger.conftest import noon


def fact(round_index: int, word: str = "told") -> Record:
    return Record(round_index, "fact", {"word": word})


def rewind(to: int) -> Record:
    return Record(None, REWIND, {"round_index": to})


LEFT = Record(None, "ClientLeft", {"handle": "7f3a"})


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """What a run can write: rounds in order, and now and then back to an earlier one."""
    records: list[Record] = []
    next_round = 0
    for number in range(draw(st.integers(0, 8))):
        match draw(st.sampled_from(["round", "round", "left", "rewind"])):
            case "round":
                facts = draw(st.integers(1, 2))
                records += [fact(next_round, f"{number}.{n}") for n in range(facts)]
                next_round += 1
            case "left":
                records.append(LEFT)
            case _:
                next_round = draw(st.integers(0, next_round))
                records.append(rewind(next_round))
    return records


def numbered(records: list[Record]) -> list[int]:
    return [one.round_index for one in records if one.round_index is not None]


def between(records: list[Record]) -> list[Record]:
    return [one for one in records if one.round_index is None]


def current_records(records: list[Record]) -> list[Record]:
    """What counts, by the positions of the rewinds."""
    found = [(at, rewound_to(one)) for at, one in enumerate(records, 1)]
    rewinds = [(at, first) for at, first in found if first is not None]
    return [r for at, r in enumerate(records, 1) if counts(rewinds, at, r.round_index)]


@given(histories())
def test_the_rounds_of_a_story_are_in_order_and_none_is_missing(facts: list[Record]):
    rounds = numbered(current_records(facts))
    assert rounds == sorted(rounds)
    assert set(rounds) == set(range(len(set(rounds))))


def test_a_story_by_hand():
    facts = [fact(0), fact(1, "old"), LEFT, fact(2, "old"), rewind(1), fact(1, "new")]
    assert current_records(facts) == [fact(0), LEFT, rewind(1), fact(1, "new")]


def record(ledger: Ledger, facts: list[Record]) -> None:
    for index, same in groupby(facts, key=lambda one: one.round_index):
        if index is None:
            ledger.append_between(list(same))
        else:
            ledger.append(index, list(same))


@settings(max_examples=10)
@given(histories())
def test_a_ledger_tells_the_story_and_keeps_everything(
    fresh: Callable[[], str], facts: list[Record]
):
    with Ledger.create(fresh(), noon) as ledger:
        record(ledger, facts)
        told = current_records(facts)
        assert ledger.replay() == facts
        assert [one.record() for one in ledger.look({one.kind for one in facts})] == told
        assert ledger.last_round() == max(numbered(told), default=None)
        for index in set(numbered(facts)):
            of_round = [one for one in told if one.round_index == index]
            ledger.compare(index, of_round)


def test_a_superseded_round_compares_no_longer(where: str):
    with Ledger.create(where, noon) as ledger:
        record(ledger, [fact(0), fact(1, "old"), rewind(1)])
        with pytest.raises(LedgerMismatch, match=r"event 1 \(fact\) was replayed only"):
            ledger.compare(1, [fact(1, "old")])
        with pytest.raises(LedgerError, match="found round 0 after 0"):
            ledger.append(0, [fact(0)])
        ledger.append(1, [fact(1, "new")])
        with pytest.raises(LedgerMismatch, match="differs in word"):
            ledger.compare(1, [fact(1, "old")])
        ledger.verify()


def test_a_rewind_that_belongs_to_a_round_rewinds_nothing():
    facts = [fact(0), Record(1, REWIND, {"round_index": 0})]
    assert current_records(facts) == facts


def test_a_rewind_to_no_round_is_refused(where: str):
    with Ledger.create(where, noon) as ledger:
        for body in ({}, {"round_index": -1}, {"round_index": True}):
            with pytest.raises(LedgerError, match="must name a round to go on before"):
                ledger.append_between([LEFT, Record(None, REWIND, body)])
        assert ledger.replay() == []


def test_a_record_of_a_round_is_not_one_between_rounds(where: str):
    with Ledger.create(where, noon) as ledger:
        with pytest.raises(LedgerError, match=r"between two rounds .* one of round 3"):
            ledger.append_between([LEFT, fact(3)])
        with pytest.raises(LedgerError, match=r"of round 0 .* one of no round"):
            ledger.append(0, [fact(0), LEFT])
        with pytest.raises(LedgerError, match="at least one event"):
            ledger.append_between([])
