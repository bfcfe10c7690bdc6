"""Events of many clients are stored as columns, and are what they would be as text."""

import json
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import LedgerError
from covey.base.columns import Column, HandleColumn, HandleMap, Lists, Words
from covey.base.events import AnonymitySetsFormed, ClientsAssigned, event_from, kind_and_body
from covey.ledger.chain import Record, seal
from covey.ledger.packing import FEWEST, PackedBody, Packer, canonical_body, packed_text
from covey.ledger.store import Ledger

HANDLES = [f"h-{n * 7919 % 1000:03d}" for n in range(40)]
SETS = tuple(tuple(sorted(HANDLES[i : i + 5])) for i in range(0, 40, 5))
ROUNDS = [
    [
        Record(t, "CohortSampled", {"handles": HANDLES[t:]}),
        Record(
            t,
            "ClientsAssigned",
            {"clusters": {h: i % 3 for i, h in enumerate(HANDLES)}, "by": "clients"},
        ),
        Record(t, *kind_and_body(AnonymitySetsFormed(0, SETS, (0.5, None) * 4))),
    ]
    for t in range(3)
]


def noon() -> str:
    return "2030-01-01T12:00:00Z"


words = st.sampled_from(HANDLES) | st.text(max_size=4)
numbers = (
    st.lists(st.integers(0, 2**63 - 2), min_size=FEWEST, max_size=24)
    | st.lists(st.integers(0, 300) | st.none(), min_size=FEWEST, max_size=24)
    | st.lists(st.booleans(), min_size=FEWEST, max_size=24)
    | st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=FEWEST, max_size=24)
    | st.lists(st.integers() | st.booleans(), min_size=FEWEST, max_size=24)
)
lists = st.lists(st.lists(words, max_size=9), max_size=9)
maps = st.tuples(st.lists(words, min_size=FEWEST, max_size=24, unique=True), numbers).map(
    lambda pair: dict(zip(*pair, strict=False))
)
bodies = st.dictionaries(
    st.text(max_size=3),
    numbers | lists | maps | st.lists(lists, max_size=3) | st.integers() | words,
    max_size=4,
)


def stored(body: dict[str, Any], known: Words) -> PackedBody | None:
    packer = Packer(known)
    found = packer.packed(body)
    known.add(packer.new)
    return PackedBody(1, *found, known) if found else None


@settings(max_examples=150, deadline=None)
@given(bodies, st.booleans())
def test_what_is_packed_has_the_text_that_it_had(
    body: dict[str, Any],
    odd: bool,  # noqa: FBT001
):
    packed = stored(body, Words(['"é'] if odd else []))
    if packed is None:
        return
    text = canonical_body(body)
    assert packed.text() == text
    assert f'"{packed.text(escaped=True)}"' == json.dumps(text)
    assert canonical_body(packed.body()) == text
    assert packed.body() == json.loads(text)
    assert stored(packed.body(), packed.words) is not None  # columns go in again


def test_a_body_by_hand():
    packed = stored(ROUNDS[0][1].body, Words(sorted(HANDLES)))
    assert packed is not None
    assert packed.forms == (
        '{"columns":{"clusters":["map",["handles",1,40],["ints",1,40]]},"rest":{"by":"clients"}}'
    )
    in_order = [i % 3 for _, i in sorted(zip(HANDLES, range(40), strict=True))]
    assert packed.columns == bytes([*range(40), *in_order])


def handles(*numbers: int) -> HandleColumn:
    return HandleColumn(Words(["a", "b", "c"]), array("q", numbers))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (HandleMap(handles(0, 2), Column([1, 2])), '{"a":1,"c":2}'),
        (HandleMap(handles(2, 0), Column([1, 2])), '{"a":2,"c":1}'),
        (Lists(array("q", [1, 3]), handles(0, 1, 2)), '[["a"],["b","c"]]'),
        (Lists(array("q", [0, 2]), handles(0, 1)), '[[],["a","b"]]'),
        (Lists(array("q", [1, 1, 2]), handles(0, 1)), '[["a"],[],["b"]]'),
    ],
)
def test_the_text_of_columns_by_hand(value: object, text: str):
    """Keys are in order, whatever the order of the handles; lists may be empty."""
    assert packed_text({"x": value}) == f'{{"x":{text}}}'
    escaped = packed_text({"x": value}, escaped=True)
    assert json.loads(f'"{escaped}"') == f'{{"x":{text}}}'


def test_few_clients_stay_text():
    assert stored({"handles": HANDLES[: FEWEST - 1]}, Words()) is None


@pytest.mark.parametrize(
    ("forms", "columns"),
    [
        ('{"columns":{"a":["handles",1,3]},"rest":{}}', b"\0\1\x28"),
        ('{"columns":{"a":["handles",2,2]},"rest":{}}', b"\0\0\1\0"),
        ('{"columns":{"a":["ints",1,3]},"rest":{}}', b"\0\1"),
        ('{"columns":{"a":["ints",1,1]},"rest":{}}', b"\0\1"),
        ('{"columns":{"a":["ints",1,-1]},"rest":{}}', b""),
        ('{"columns":{"a":["ints",1,1.0]},"rest":{}}', b"\0"),
        ('{"columns":{"a":["ints",true,1]},"rest":{}}', b"\0"),
        ('{"columns":{"a":["bools",2,1]},"rest":{}}', b"\1"),
        ('{"columns":{"a":["floats",4,1]},"rest":{}}', b"\0" * 8),
        ('{"columns":{"a":["ints",1,1]},"rest":{"a":0}}', b"\0"),
        ('{"columns": {"a":["ints",1,1]},"rest":{}}', b"\0"),
        ('{"columns":{"a":["bools",1,1]},"rest":{}}', b"\2"),
        ('{"columns":{"a":["floats",8,1]},"rest":{}}', b"\xff" * 8),
        ('{"columns":{"a":["lists",["ints",1,1],["ints",1,1]]},"rest":{}}', b"\2\0"),
        ('{"columns":{"a":["map",["ints",1,1],["ints",1,1]]},"rest":{}}', b"\0\0"),
        ('{"columns":{"a":["other",1,1]},"rest":{}}', b"\0"),
        ('{"columns":{"a":[]},"rest":{}}', b""),
        ('{"columns":[],"rest":{}}', b""),
        ("[]", b""),
        ("{", b""),
    ],
)
def test_what_covey_would_not_write_is_refused(forms: str, columns: bytes):
    with pytest.raises(LedgerError, match="broken at position 7:"):
        PackedBody(7, forms, columns, Words(HANDLES)).text()


def written(where: str | Path) -> str:
    with Ledger.create(where, noon) as ledger:
        for t, records in enumerate(ROUNDS):
            ledger.append(t, records)
        return ledger.head()


def test_the_chain_is_the_one_of_texts(where: str):
    head = written(where)
    every = [record for records in ROUNDS for record in records]
    assert head == seal(every, after=None)[-1].hash
    with Ledger.open(where, noon) as ledger:
        assert ledger.replay() == [
            replace(r, body=json.loads(canonical_body(r.body))) for r in every
        ]
        for t, records in enumerate(ROUNDS):
            ledger.compare(t, records)
        ledger.append(3, [Record(3, "CohortSampled", {"handles": ["new", *HANDLES]})])
        assert ledger.round(3)[0].body == {"handles": ["new", *HANDLES]}
    assert Ledger.read(where).round(3)[0].body == {"handles": ["new", *HANDLES]}


def test_a_read_event_is_the_one_that_was_written(where: str):
    written(where)
    for record in Ledger.read(where).round(1):
        event = event_from(record.kind, record.body)
        assert canonical_body(kind_and_body(event)[1]) == canonical_body(record.body)
        if isinstance(event, ClientsAssigned):
            assert isinstance(event.clusters, HandleMap)
            assert event.clusters[HANDLES[4]] == 1
            assert "nobody" not in event.clusters


def test_columns_are_what_an_event_holds_only_where_they_fit():
    cells = stored({"handles": HANDLES}, Words())
    assert cells is not None
    found = event_from("CohortSampled", cells.body())
    assert isinstance(found.handles, HandleColumn)  # pyright: ignore
    told = {"sets": SETS, "cluster": 0, "diameters": [0.5] * 8, "near": ()}
    sets = stored(told, Words())
    assert sets is not None
    formed = event_from("AnonymitySetsFormed", sets.body())
    assert isinstance(formed.sets, Lists)  # pyright: ignore
    assert formed == AnonymitySetsFormed(0, SETS, (0.5,) * 8)
    assert canonical_body(kind_and_body(formed)[1]) == canonical_body(sets.body())
    with pytest.raises(ValueError, match="cluster"):
        event_from("ClusterAbandoned", {"cluster": cells.body()["handles"]})


def turned(place: int, bit: int) -> Callable[[str | bytes], str | bytes]:
    def turn(value: str | bytes) -> str | bytes:
        data = bytearray(value.encode() if isinstance(value, str) else value)
        data[place % len(data)] ^= 1 << bit
        return data.decode("latin-1") if isinstance(value, str) else bytes(data)

    return turn


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([("events", "body"), ("events", "packed"), ("handles", "texts")]),
    st.integers(1, 9),
    st.integers(0, 10**4),
    st.integers(0, 7),
)
def test_every_bit_of_what_is_packed_counts(
    tmp_path_factory: pytest.TempPathFactory,
    cell: tuple[str, str],
    position: int,
    place: int,
    bit: int,
):
    path = tmp_path_factory.mktemp("flipped") / "ledger.sqlite"
    written(path)
    table, column = cell
    key = "position" if table == "events" else "first"
    at = position if table == "events" else 0
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        select = f"SELECT {column} FROM {table} WHERE {key} = ?"  # noqa: S608
        ((value,),) = database.execute(select, (at,)).fetchall()
        if value is None:
            return
        change = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"  # noqa: S608
        database.execute(change, (turned(place, bit)(value), at))
    with pytest.raises(LedgerError):
        Ledger.read(path).verify()


def test_a_handle_that_is_missing_is_seen(tmp_path: Path):
    path = tmp_path / "ledger.sqlite"
    written(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM handles")
    with pytest.raises(LedgerError, match="broken at position 1:"):
        Ledger.read(path).verify()
