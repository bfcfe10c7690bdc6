import hashlib
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import LedgerError
from covey.ledger.chain import Link, Record, canonical_body, seal, verify

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


@settings(max_examples=40)
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


@settings(max_examples=40)
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
