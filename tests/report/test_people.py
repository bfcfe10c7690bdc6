"""Every number of clients is of those who are in the run now, and of those who chose a model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.base.built_ins import LOSS
from covey.base.events import (
    ClientExposed,
    ClientLeft,
    ClientsAssigned,
    ClusterAudited,
    CohortSampled,
    Event,
    RoundMeasured,
    RunFinished,
    RunRolledBack,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import History, pooled_clusters, trained_clusters
from covey.report.clients import ClientSummary, GroupModel, group_models
from covey.report.comparison import client_rows
from covey.report.figures import violations_figure
from covey.report.queries import group_sizes
from covey.report.summary import summary
from covey.runs.ledger_record import LedgerRecord, RecordedEvent
from support.events import started

HANDLES: tuple[str, ...] = ("h0", "h1", "h2", "h3", "h4", "h5")
CHOSEN: dict[str, int] = dict(zip(HANDLES, (0, 0, 1, 1, 1, 1), strict=True))
ROUNDS = 3
FIRST = {"retrain": 0, "calibrate": 0, "roll_back": 1, "subtract": 2, "deny": None}
HOW = {"subtract": "subtracted", "calibrate": "calibrated"}

ANSWERS: list[list[tuple[str, str]]] = [
    [],
    *([("h2", answer)] for answer in FIRST),
    [("h2", "deny"), ("h3", "subtract"), ("h0", "deny"), ("h1", "roll_back")],
    [(h, "subtract") for h in ("h2", "h3", "h4", "h5")],
    [("h5", "calibrate"), ("h4", "deny"), ("h3", "retrain"), ("h2", "deny"), ("h0", "deny")],
]
several = pytest.mark.parametrize("records", ANSWERS, ids=str)


def rounds(present: Sequence[str], first: int = 0) -> Iterator[RecordedEvent]:
    """Yield what a run of these clients records from a round on, with its end."""
    chosen = {h: CHOSEN[h] for h in present}
    sizes = tuple(list(chosen.values()).count(j) for j in range(2))
    for t in range(first, ROUNDS + 1):
        events: list[Event] = []
        if t == 0:
            groups = {h: CHOSEN[h] for h in present}
            taus = dict.fromkeys(present, 0.55)
            events.append(
                started(method="ifca", rounds=ROUNDS, groups=groups, risk_thresholds=taus)
            )
        if t < ROUNDS:
            events.append(CohortSampled(tuple(present)))
        events.append(ClientsAssigned(chosen, "clients" if t < ROUNDS else "final"))
        if t < ROUNDS:
            events.append(RoundMeasured(0.5, {"minority": 0.5}, sizes))
        else:
            events += [audit(j, n) for j, n in enumerate(sizes)]
            events += [ClientExposed(h, j, 0.5, Figure(0.6)) for h, j in chosen.items()]
            events.append(FINISHED)
        yield from ((t, event) for event in events)


FINISHED = RunFinished("0de1", 0.5, {"minority": 0.5}, 1.0)


def audit(cluster: int, clients: int) -> ClusterAudited:
    truth = RiskEstimate.unknown("matched", LOSS)
    if clients:
        truth = RiskEstimate(Figure(0.6, 0.01), 0.6, rests_on="matched", source=LOSS)
    return ClusterAudited(cluster, truth, truth.figure, truth.figure, 0.5)


def recorded(answers: Sequence[tuple[str, str]]) -> LedgerRecord:
    """Return a ledger of six clients, who leave one after the other once it ended."""
    present: list[str] = [*HANDLES]
    records = [*rounds(HANDLES)]
    for handle, answer in answers:
        present.remove(handle)
        first = FIRST[answer]
        facts: list[Event] = [ClientLeft(handle, answer, "da7b")]
        if first is not None:
            how = HOW.get(answer, "recorded")
            facts.append(RunRolledBack(first, ROUNDS + 1, how))
        records += [(None, event) for event in facts]
        if first is not None:
            records += rounds(present, first)
    return LedgerRecord([f"{i:064x}" for i in range(len(records))], records)


def numbers_of_clients(record: LedgerRecord) -> dict[str, int]:
    """Return every number of all clients that is told anywhere, by where it is told."""
    history = record.history
    summarised = summary(history)
    axes = violations_figure(history).axes[0]
    points = sum(np.size(line.get_xdata()) for line in axes.lines if line.get_marker() == "o")
    assert summarised.violations.count is not None
    names = {h: h for h in HANDLES if h in history.clients}
    return {
        "history": len(history.clients),
        "choices": len(history.assignment),
        "clusters": sum(cluster.clients for cluster in summarised.clusters),
        "groups of clusters": sum(sum(cluster.groups.values()) for cluster in summarised.clusters),
        "violations and unknown": summarised.violations.count + summarised.violations.unknown,
        "groups": sum(group_sizes(history).values()),
        "figure": points,
        "frame": sum(row["cluster"] is not None for row in client_rows(history, names)),
        "frame, groups": sum(row["group"] is not None for row in client_rows(history, names)),
    }


@several
def test_after_any_answers_every_number_of_clients_is_of_those_in_the_run(records):
    numbers = numbers_of_clients(recorded(records))
    assert numbers == dict.fromkeys(numbers, len(HANDLES) - len(records))


def reached(history: History) -> list[set[str]]:
    """Return whose examples are in each model."""
    pairs = zip(trained_clusters(history, 2), pooled_clusters(history, 2), strict=True)
    return [trained | pooled for trained, pooled in pairs]


@several
def test_of_those_who_left_only_who_was_denied_or_rolled_back_is_in_a_model(records):
    history = recorded(records).history
    stays = {h for h, answer in records if answer in {"deny", "roll_back"}}
    for j, inside in enumerate(reached(history)):
        left = inside - history.clients
        assert left <= {h for h in stays if CHOSEN[h] == j}
    if records and records[-1][1] == "deny":
        h = records[-1][0]
        assert h in reached(history)[CHOSEN[h]]


def test_figures_that_were_measured_with_somebody_who_left_say_so():
    (note, _) = summary(recorded([("h0", "deny"), ("h2", "deny")]).history).notes
    assert "with 2 clients more, who left after it" in note
    assert len(summary(recorded([("h0", "retrain")]).history).notes) == 1


NONE = Figure.unknown("not attacked")


def ended(handle: str, group: str | None, cluster: int, accuracy: float | None) -> ClientSummary:
    end = ClientExposed(handle, cluster, accuracy, NONE)
    return ClientSummary(handle, group, cluster, None, None, end, None, None, NONE, frozenset())


def test_who_moves_away_is_not_in_the_minoritys_model_by_hand():
    clients = [
        *(ended(f"a{i}", "majority", 0, 0.9) for i in range(5)),
        *(ended(f"b{i}", "minority", 0, 0.4) for i in range(3)),  # most of the minority moved
        ended("c", "minority", 1, 0.8),
    ]
    models = group_models(clients, 2)
    assert replace(models["majority"], accuracy=None) == GroupModel(0, 8, None, 0)
    assert models["majority"].accuracy == pytest.approx((5 * 0.9 + 3 * 0.4) / 8)
    assert models["minority"] == GroupModel(1, 1, 0.8, 3)  # its data: (3 * 0.4 + 0.8) / 4 = 0.5


def test_a_model_that_the_whole_group_left_has_no_accuracy():
    clients = [ended("a", "majority", 1, 0.9), ended("b", "minority", 1, 0.5)]
    models = group_models(clients, 2)
    assert sorted((model.clients, model.accuracy, model.moved) for model in models.values()) == [
        (0, None, 1),
        (2, 0.7, 0),
    ]


def test_an_unknown_accuracy_and_fewer_models_than_groups_say_nothing():
    clients = [ended("a", "x", 0, None), ended("b", "y", 1, 0.5)]
    assert group_models(clients, 2)["x"].accuracy is None
    assert group_models(clients, 1) == {}
    assert group_models([ended("a", None, 0, 0.5)], 2) == {}


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), min_size=1))
def test_no_two_groups_share_a_model_and_most_clients_are_in_their_groups(choices):
    clients = [ended(f"{i}", group, j, 1.0) for i, (group, j) in enumerate(choices)]
    by_group = group_models(clients, 4)
    groups = sorted(by_group)
    assert len({model.cluster for model in by_group.values()}) == len(groups)
    at_home = sum(choices.count((group, by_group[group].cluster)) for group in groups)
    best = max(
        sum(choices.count(pair) for pair in zip(groups, models, strict=True))
        for models in permutations(range(4), len(groups))
    )
    assert at_home == best
    assert sum(model.moved for model in by_group.values()) == len(choices) - best
    assert all(
        model.clients == sum(j == model.cluster for _, j in choices) for model in by_group.values()
    )
