"""Every number of clients is of those who are in the run now."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

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
several = pytest.mark.parametrize("told", ANSWERS, ids=str)


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
        yield from ((t, each) for each in events)


FINISHED = RunFinished("0de1", 0.5, {"minority": 0.5}, 1.0)


def audit(cluster: int, clients: int) -> ClusterAudited:
    truth = RiskEstimate.unknown("matched", LOSS)
    if clients:
        truth = RiskEstimate(Figure(0.6, 0.01), 0.6, rests_on="matched", source=LOSS)
    return ClusterAudited(cluster, truth, truth.figure, truth.figure, 0.5)


def recorded(given_answers: Sequence[tuple[str, str]]) -> LedgerRecord:
    """Return a ledger of six clients, who leave one after the other once it ended."""
    present: list[str] = [*HANDLES]
    found = [*rounds(HANDLES)]
    for handle, answer in given_answers:
        present.remove(handle)
        first = FIRST[answer]
        facts: list[Event] = [ClientLeft(handle, answer, "da7b")]
        if first is not None:
            how = HOW.get(answer, "recorded")
            facts.append(RunRolledBack(first, ROUNDS + 1, how))
        found += [(None, each) for each in facts]
        if first is not None:
            found += rounds(present, first)
    return LedgerRecord([f"{i:064x}" for i in range(len(found))], found)


def numbers_of_clients(record: LedgerRecord) -> dict[str, int]:
    """Return every number of all clients that is told anywhere, by where it is told."""
    history = record.history
    told = summary(history)
    axes = violations_figure(history).axes[0]
    points = sum(np.size(line.get_xdata()) for line in axes.lines if line.get_marker() == "o")
    assert told.violations.count is not None
    names = {h: h for h in HANDLES if h in history.clients}
    return {
        "history": len(history.clients),
        "choices": len(history.assignment),
        "clusters": sum(each.clients for each in told.clusters),
        "groups of clusters": sum(sum(each.groups.values()) for each in told.clusters),
        "violations and unknown": told.violations.count + told.violations.unknown,
        "groups": sum(group_sizes(history).values()),
        "figure": points,
        "frame": sum(row["cluster"] is not None for row in client_rows(history, names)),
        "frame, groups": sum(row["group"] is not None for row in client_rows(history, names)),
    }


@several
def test_after_any_answers_every_number_of_clients_is_of_those_in_the_run(
    told: list[tuple[str, str]],
):
    found = numbers_of_clients(recorded(told))
    assert found == dict.fromkeys(found, len(HANDLES) - len(told))


def reached(history: History) -> list[set[str]]:
    """Return whose examples are in each model."""
    pairs = zip(trained_clusters(history, 2), pooled_clusters(history, 2), strict=True)
    return [trained | pooled for trained, pooled in pairs]


@several
def test_of_those_who_left_only_who_was_denied_or_rolled_back_is_in_a_model(
    told: list[tuple[str, str]],
):
    history = recorded(told).history
    stays = {h for h, answer in told if answer in {"deny", "roll_back"}}
    for j, inside in enumerate(reached(history)):
        left = inside - history.clients
        assert left <= {h for h in stays if CHOSEN[h] == j}
    if told and told[-1][1] == "deny":
        h = told[-1][0]
        assert h in reached(history)[CHOSEN[h]]


def test_figures_that_were_measured_with_somebody_who_left_say_so():
    (note, _) = summary(recorded([("h0", "deny"), ("h2", "deny")]).history).notes
    assert "with 2 clients more, who left after it" in note
    assert len(summary(recorded([("h0", "retrain")]).history).notes) == 1
