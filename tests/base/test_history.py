"""The history and its events."""

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from covey import History, RiskEstimate
from covey.base.events import (
    ClientLeft,
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    ModelsPooled,
    RiskMeasured,
    RiskUnknown,
    RoundMeasured,
    RunFinished,
    RunRolledBack,
    event_from,
    kind_and_body,
)
from covey.base.figure import Figure
from covey.base.history import RoundRow, history_of, pooled_clusters, trained_clusters, with_entries
from covey.report.clients import client_summaries
from covey.report.summary import summary
from support.events import started

STARTED = started(groups={"A": 0, "B": 1, "C": 1}, risk_thresholds={"A": 0.6, "B": 0.7, "C": 0.8})


def figure(
    cluster: int, round_index: int, risk: float | None, error: float | None = 0.01
) -> RiskMeasured:
    estimate = RiskEstimate(Figure(risk, error), risk, 20, 20, round_index=round_index)
    return RiskMeasured(cluster, estimate)


def measured(clients: tuple[int, ...], accuracy: float = 0.5) -> RoundMeasured:
    return RoundMeasured(accuracy, {"minority": accuracy}, clients)


def risks(row: RoundRow) -> tuple[tuple[float, float | None] | None, ...]:
    return tuple((e.value is not None and (e.value, e.error)) or None for e in row.risks)


def chosen(by: str = "clients", **clusters: int) -> ClientsAssigned:
    return ClientsAssigned(clusters, by)


HISTORY: list[tuple[int, list[Event]]] = [
    (0, [STARTED, CohortSampled(("A", "B", "C")), chosen("shared", A=0, B=0, C=0)]),
    (0, [ModelsMerged("h", (3,)), measured((0, 0), 0.2)]),
    (1, [chosen(A=0, B=1, C=1), measured((1, 2))]),
    # risks 0.75 and 0.65: above A's 0.6; not above B's 0.7 or C's 0.8
    (2, [figure(0, 2, 0.75), figure(1, 2, 0.65), chosen(A=0), measured((1, 2))]),
    # B moves into cluster 0 at 0.75 > 0.7: two are over, and one of the two moved;
    # the figure of cluster 1 is withheld, so its older one stands
    (3, [figure(1, 3, None, None), chosen(A=0, B=0), measured((2, 1))]),
    # A leaves 0 for 1 (0.65 > 0.6) and C joins 0 (0.75 < 0.8): all but C are over
    (4, [chosen("final", A=1, B=0, C=0), RunFinished("h", 0.6, {}, 1.0)]),
]


def test_a_story_by_hand():
    history = history_of(HISTORY)
    assert history.started == STARTED
    assert history.assignment == {"A": 1, "B": 0, "C": 0}
    assert history.finished == RunFinished("h", 0.6, {}, 1.0)
    rows = history.rounds
    assert [row.round_index for row in rows] == [0, 1, 2, 3]
    assert [row.participants for row in rows] == [0, 3, 1, 2]
    assert [row.moved for row in rows] == [0, 0, 0, 1]
    assert [row.over for row in rows] == [None, None, 1, 2]
    assert [row.clients for row in rows] == [(0, 0), (1, 2), (1, 2), (2, 1)]
    assert [row.accuracy for row in rows] == [0.2, 0.5, 0.5, 0.5]
    assert risks(rows[1]) == (None, None)
    assert risks(rows[2]) == risks(rows[3]) == ((0.75, 0.01), (0.65, 0.01))
    assert history.over() == 2
    assert len(history.measured) == 3


def test_shared_rounds_and_the_last_choice_train_no_cluster():
    # A trained 0; B trained 1, then 0; C trained 1. The final choice trains nothing.
    assert trained_clusters(history_of(HISTORY), 2) == [{"A", "B"}, {"B", "C"}]


def test_the_count_is_unknown_while_one_chosen_clusters_risk_is_unknown():
    # A sits in cluster 0 at 0.9 > 0.6, B in cluster 1, of which nothing is known.
    rounds = [(0, [STARTED, chosen(A=0, B=1), figure(0, 0, 0.9), measured((1, 1))])]
    history = history_of(rounds)
    assert risks(history.rounds[-1]) == ((0.9, 0.01), None)
    assert history.over() is None
    assert with_entries(history, [(1, [chosen(B=0)])]).over() == 2  # 0.9 > 0.7 as well
    assert history_of([(0, [STARTED, chosen(A=0)])]).over() is None
    assert History().over() is None


def test_a_risk_equal_to_the_threshold_is_accepted():
    history = history_of([(0, [STARTED, chosen(A=0), figure(0, 0, 0.6)])])
    assert history.over() == 0


def test_a_figure_that_clients_could_not_use_is_not_in_force():
    # Clients chose without a figure of cluster 0: the strategy knows best.
    history = history_of(
        [
            (2, [STARTED, figure(0, 2, 0.9), figure(1, 2, 0.7)]),
            (3, [RiskUnknown((0,)), chosen(A=1), measured((0, 1))]),
        ]
    )
    assert risks(history.rounds[-1]) == (None, (0.7, 0.01))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_an_estimate_counts_for_its_lifetime_and_no_round_longer(measured_in, lives, later):
    estimate = figure(0, measured_in, 0.7).estimate
    assert estimate.counts
    assert estimate.is_valid(measured_in + later, lives) == (later <= lives)
    assert not figure(0, measured_in, None, None).estimate.counts


def test_a_figure_that_is_not_calibrated_is_counted_nowhere():
    fact = figure(0, 2, 0.9)
    bare = RiskMeasured(0, replace(fact.estimate, calibrated=False, steers=True))
    history = history_of([(2, [STARTED, bare, chosen(A=0, B=0, C=0), measured((3, 0))])])
    assert history.in_force == {0: bare.estimate}
    assert not history.figures
    assert [str(risk) for risk in history.rounds[-1].risks] == [
        "unknown: not calibrated",
        "unknown",
    ]
    assert history.rounds[-1].over is None
    assert history.over() is None
    (cluster, _) = summary(history).clusters
    assert (cluster.risk, cluster.calibrated, cluster.accepted.above) == (None, False, None)
    assert str(cluster.measured) == "0.900 ± 0.010, not calibrated"
    # it takes the place of an older one, and is not a figure that expired
    later = with_entries(history_of([(1, [STARTED, figure(0, 1, 0.6)])]), [(2, [bare])])
    assert not later.figures
    assert client_summaries(later, ["A"])["A"].measured is None


def test_pooling_reaches_a_cluster_with_everybody_who_trained_until_then():
    history = history_of(
        [
            (0, [STARTED, chosen(A=0, B=1)]),
            (1, [chosen(A=0, B=1), ModelsPooled((0.5, 0.0), "h")]),
            (2, [chosen(A=0, B=1, C=1), ModelsPooled((0.0, 0.0), "h")]),
        ]
    )
    assert pooled_clusters(history, 2) == [{"B"}, set()]
    assert history.pooling == (0.0, 0.0)


# A class with slots takes the place of one of the same name.
CLASSES = list({subclass.__name__: subclass for subclass in Event.__subclasses__()}.values())
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
        rules = [part for part in inside[1:] if isinstance(part, FieldInfo)]
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
        name: getattr(rule, name)
        for rule in field.metadata
        for name in ("ge", "gt", "le", "lt", "pattern")
        if hasattr(rule, name) and getattr(rule, name) is not None
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
