import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from covey.base.events import ClientLeft, Event, RunRolledBack, event_from, kind_and_body

# A class with slots takes the place of one of the same name.
CLASSES = list({each.__name__: each for each in Event.__subclasses__()}.values())
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=8),
    bool: st.booleans(),
    type(None): st.none(),
    Any: st.text(max_size=8),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        rules = [each for each in inside[1:] if isinstance(each, FieldInfo)]
        return bounded(inside[0], rules[0]) if rules else values_of(inside[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, inside))
    if origin in (tuple, Sequence):
        return st.lists(values_of(inside[0]), max_size=3).map(tuple)
    if origin is Mapping:
        key, value = map(values_of, inside)
        return st.dictionaries(key, value, max_size=3)
    if origin is Literal:
        return st.sampled_from(inside)
    if isinstance(hint, type) and is_dataclass(hint):
        return fields_of(hint).map(lambda values: hint(**values))
    return PLAIN[hint]


def bounded(of: type, field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values that a field's own rule lets through."""
    rules = {
        name: getattr(each, name)
        for each in field.metadata
        for name in ("ge", "gt", "le", "lt", "pattern")
        if hasattr(each, name) and getattr(each, name) is not None
    }
    if "pattern" in rules:
        return st.from_regex(rules["pattern"].replace("$", r"\Z"))
    least, most = rules.get("ge", rules.get("gt")), rules.get("le", rules.get("lt"))
    if of is int:
        return st.integers(least, most or 2**53)
    return st.floats(
        least,
        most,
        exclude_min="gt" in rules,
        exclude_max="lt" in rules,
        allow_nan=False,
        allow_infinity=False,
    )


def fields_of(of: type) -> st.SearchStrategy[dict[str, Any]]:
    hints = get_type_hints(of, include_extras=True)
    return st.fixed_dictionaries({n: values_of(hint) for n, hint in hints.items()})


@pytest.mark.parametrize("of", CLASSES)
@given(data=st.data())
def test_an_event_survives_json(of, data):
    event = of(**data.draw(fields_of(of)))
    kind, body = kind_and_body(event)
    restored = event_from(kind, json.loads(json.dumps(body, allow_nan=False)))
    assert restored == event
    assert type(restored) is of
    assert kind_and_body(restored) == (kind, body)


def test_a_field_that_is_missing_is_not_filled_in():
    kind, body = kind_and_body(RunRolledBack(0, 1, "anew"))
    del body["until"]
    with pytest.raises(ValueError, match="'until' of RunRolledBack must be there"):
        event_from(kind, body)
    kind, body = kind_and_body(ClientLeft("h", "deny", None))
    del body["subject"]
    with pytest.raises(ValueError, match="'subject' of ClientLeft must be there"):
        event_from(kind, body)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("ClusterAbandoned", {"cluster": -1}, "'cluster' of ClusterAbandoned"),
        ("ClusterAbandoned", {"cluster": 1, "odd": 2}, "'odd' of ClusterAbandoned"),
        ("ClusterAbandoned", {}, "'cluster' of ClusterAbandoned"),
        ("CohortSampled", {"handles": {"a": 1}}, "'handles' of CohortSampled"),
    ],
)
def test_what_is_no_event_is_one_line_that_names_the_field(kind, body, said):
    with pytest.raises(ValueError, match=said) as raised:
        event_from(kind, body)
    assert "\n" not in str(raised.value)
