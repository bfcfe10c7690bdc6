"""The store and its chain: what is written is read, and what is rewound is no longer told."""

import hashlib
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import count, groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import NullPool, create_engine, delete

from covey import LedgerError, LedgerMismatch
from covey.ledger.chain import (
    REWIND,
    Link,
    Record,
    canonical_body,
    counts,
    rewound_to,
    seal,
    verify,
)
from covey.ledger.rows import seal_tables
from covey.ledger.store import Ledger
from covey.ledger.tables import clients
from ledger.conftest import noon

FACTS = [
    [Record(0, "cohort_sampled", {"clients": ["7f3a", "09bc"]})],
    [
        Record(1, "cohort_sampled", {"clients": []}),
        Record(1, "risk_measured", {"cluster": 0, "risk": 0.625}),
    ],
]
NAMES = {"7f3a": "client-00001", "09bc": "client-00002"}


def written(where: str | Path, rounds: list[list[Record]] = FACTS) -> str:
    """Write a ledger of these rounds and return its head."""
    with Ledger.create(where, noon) as ledger:
        for index, records in enumerate(rounds):
            ledger.append(index, records)
        return ledger.head()


histories = st.lists(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8),
            st.dictionaries(
                st.text(max_size=4),
                st.integers() | st.text() | st.floats(-1e300, 1e300),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=3,
).map(
    lambda rounds: [
        [Record(index, kind, body) for kind, body in facts] for index, facts in enumerate(rounds)
    ]
)


@pytest.mark.slow
@settings(max_examples=15)
@given(histories)
def test_replaying_gives_what_was_appended(fresh: Callable[[], str], rounds: list[list[Record]]):
    where = fresh()
    head = written(where, rounds)
    ledger = Ledger.read(where)
    assert ledger.replay() == [one for records in rounds for one in records]
    assert ledger.head() == head
    for index, records in enumerate(rounds):
        ledger.compare(index, records)


def test_equal_runs_end_in_equal_heads_whatever_the_clock_says(tmp_path: Path):
    ticks = count()
    with Ledger.create(tmp_path / "a.sqlite", lambda: str(next(ticks))) as ledger:
        ledger.append(0, FACTS[0])
        head = ledger.append(1, FACTS[1])[-1].hash
    assert head == written(tmp_path / "b.sqlite")
    stamps = sqlite3.connect(tmp_path / "a.sqlite")
    assert stamps.execute("SELECT * FROM clock").fetchall() == [(1, "0"), (3, "1")]
    stamps.close()


def test_a_ledger_is_carried_on_where_it_ended(where: str, tmp_path: Path):
    written(where, FACTS[:1])
    with Ledger.open(where, noon) as ledger:
        assert ledger.last_round() == 0
        head = ledger.append(1, FACTS[1])[-1].hash
        ledger.verify()
    assert head == written(tmp_path / "b.sqlite")


def test_a_round_is_appended_once_and_in_order(where: str):
    written(where)
    with Ledger.open(where, noon) as ledger:
        for index, records in enumerate(FACTS):
            with pytest.raises(LedgerError, match=f"found round {index} after 1"):
                ledger.append(index, records)
        assert ledger.replay() == FACTS[0] + FACTS[1]


@pytest.mark.parametrize(
    ("replayed", "difference"),
    [
        (FACTS[1][:1], r"event 2 \(risk_measured\) was recorded only"),
        ([*FACTS[1], Record(1, "more", {})], r"event 3 \(more\) was replayed only"),
        (
            [FACTS[1][0], Record(1, "risk_measured", {"cluster": 0, "risk": 0.626})],
            r"event 2 \(risk_measured\) differs in risk:",
        ),
        (FACTS[1][::-1], "event 1 was cohort_sampled of round 1 and is now risk_meas"),
    ],
)
def test_a_round_that_replays_otherwise_is_named(where, replayed, difference):
    written(where)
    with pytest.raises(LedgerMismatch, match=difference):
        Ledger.read(where).compare(1, replayed)


def test_a_handle_and_a_name_are_bound_once(where: str):
    with Ledger.create(where, noon) as ledger:
        for _ in range(2):
            ledger.enrol(NAMES)
        for handles in ({"7f3a": "other"}, {"eeee": "client-00001"}):
            with pytest.raises(LedgerError, match="a handle or a client bound twice") as no:
                ledger.enrol(handles)
            assert not any(name in str(no.value) for name in ("other", *NAMES.values()))
        assert ledger.names() == NAMES


def test_names_stand_beside_the_events_only(path: Path):
    with Ledger.create(path, noon) as ledger:
        ledger.enrol(NAMES)
        ledger.append(0, FACTS[0])
        shown = f"{ledger!r} {ledger.replay()!r}"
    assert "client-0" not in shown
    assert str(path) in shown
    with create_engine(f"sqlite:///{path}", poolclass=NullPool).begin() as erase:
        erase.execute(delete(clients).where(clients.c.name == "client-00001"))
        seal_tables(erase)
    Ledger.read(path).verify()


def test_a_second_ledger_is_not_begun_over_a_first(where: str):
    head = written(where)
    with pytest.raises(LedgerError, match="must be new, found a ledger"):
        Ledger.create(where, noon)
    assert Ledger.read(where).head() == head


@pytest.mark.parametrize(
    "url",
    ["mysql://covey:secret@host/runs?password=secret", "postgresql://covey:secret@host:port/runs"],
)
def test_another_database_is_refused_without_its_password(url: str):
    with pytest.raises(LedgerError, match="in SQLite or PostgreSQL") as no:
        Ledger.create(url, noon)
    assert "secret" not in str(no.value)
    assert no.value.__cause__ is None or "secret" not in str(no.value.__cause__)


def test_what_was_read_before_is_not_read_again(fresh: Callable[[], str]):
    where, third = fresh(), [Record(2, "cohort_sampled", {"clients": ["7f3a"]})]
    written(where)
    with Ledger.open(where, noon) as ledger:
        before = [*ledger.links()]
        assert [*ledger.pieces(before[-1])] == []
        ledger.append(2, third)
        whole = [*ledger.links()]
        assert whole[:3] == before
        assert [*ledger.pieces(before[-1])] == [whole[3:]]
        assert [*ledger.pieces(before[0])] == [whole[1:]]
        for position in (1, 4, 9):
            other = replace(before[0], position=position, hash="0" * 64)
            with pytest.raises(LedgerError, match="must hold what was read before"):
                next(ledger.pieces(other))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
bodies = st.dictionaries(st.text(max_size=4), json_values, max_size=3)
records = st.lists(
    st.builds(Record, st.integers(0, 9) | st.none(), st.text(max_size=8), bodies),
    min_size=1,
    max_size=5,
)


@given(records)
def test_what_is_sealed_is_whole_and_says_the_same(facts: list[Record]):
    links = seal(facts, after=None)
    verify(links)
    assert [one.record() for one in links] == facts


@given(records, st.data())
def test_flipping_any_bit_of_an_event_is_detected(facts: list[Record], data: st.DataObject):
    links = seal(facts, after=None)
    at = data.draw(st.integers(0, len(links) - 1))
    links[at] = data.draw(one_flip(links[at]))
    with pytest.raises(LedgerError, match=f"at position {at + 1},"):
        verify(links)


@st.composite
def one_flip(draw: st.DrawFn, whole: Link) -> Link:
    """One of the link's texts or numbers with one bit turned."""
    field = draw(st.sampled_from(["position", "round_index", "kind", "body", "hash"]))
    value = getattr(whole, field)
    if value is None:
        return replace(whole, **{field: draw(st.integers(0, 9))})
    if isinstance(value, int):
        return replace(whole, **{field: value ^ (1 << draw(st.integers(0, 30)))})
    if not value:
        return replace(whole, **{field: "\0"})
    index = draw(st.integers(0, len(value) - 1))
    turned = chr(ord(value[index]) ^ (1 << draw(st.integers(0, 6))))
    return replace(whole, **{field: value[:index] + turned + value[index + 1 :]})


@given(records, records)
def test_sealing_in_two_goes_is_sealing_in_one(first: list[Record], second: list[Record]):
    begun = seal(first, after=None)
    assert begun + seal(second, after=begun[-1]) == seal(first + second, after=None)


def test_an_event_taken_out_is_detected():
    links = seal([Record(0, "event", {"number": n}) for n in range(3)], after=None)
    with pytest.raises(LedgerError, match="at position 2,"):
        verify([links[0], links[2]])


def test_three_events_by_hand():
    links = seal(
        [
            Record(0, "cohort_sampled", {"clients": ["b", "a"]}),
            Record(1, "risk_measured", {"risk": 0.5, "cluster": 1}),
            Record(None, "client_left", {}),
        ],
        after=None,
    )
    zeros = "0" * 64
    first = hashlib.sha256(
        f'["{zeros}",0,"cohort_sampled","{{\\"clients\\":[\\"b\\",\\"a\\"]}}"]'.encode()
    ).hexdigest()
    second = hashlib.sha256(
        f'["{first}",1,"risk_measured","{{\\"cluster\\":1,\\"risk\\":0.5}}"]'.encode()
    ).hexdigest()
    third = hashlib.sha256(f'["{second}",null,"client_left","{{}}"]'.encode()).hexdigest()
    assert [one.hash for one in links] == [first, second, third]


def test_what_json_cannot_say_is_refused():
    for value in (math.nan, {1, 2}, b"bytes"):
        with pytest.raises(LedgerError, match="only what JSON can say"):
            canonical_body({"value": value})


def fact(round_index: int, word: str = "told") -> Record:
    return Record(round_index, "fact", {"word": word})


def rewind(to: int) -> Record:
    return Record(None, REWIND, {"round_index": to})


LEFT = Record(None, "ClientLeft", {"handle": "7f3a"})


@st.composite
def rewound_histories(draw: st.DrawFn) -> list[Record]:
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
    heads = [(at, rewound_to(one)) for at, one in enumerate(records, 1)]
    rewinds = [(at, first) for at, first in heads if first is not None]
    return [r for at, r in enumerate(records, 1) if counts(rewinds, at, r.round_index)]


@given(rewound_histories())
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
@given(rewound_histories())
def test_a_ledger_returns_all_its_events_in_order(fresh, facts):
    with Ledger.create(fresh(), noon) as ledger:
        record(ledger, facts)
        current = current_records(facts)
        assert ledger.replay() == facts
        assert [one.record() for one in ledger.look({one.kind for one in facts})] == current
        assert ledger.last_round() == max(numbered(current), default=None)
        for index in set(numbered(facts)):
            of_round = [one for one in current if one.round_index == index]
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
