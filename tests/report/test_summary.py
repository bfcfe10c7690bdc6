"""Summaries, frames and guarantees: a number only with what it is about."""

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import AnonymitySetsFormed, ClientLeft, ModelAttacked
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import history_of, with_entries
from covey.cli.runs import Swept
from covey.dp.accountant import gaussian_epsilon
from covey.dp.status import guarantee_status
from covey.report.comparison import client_rows, compared, comparison
from covey.report.queries import Reported, metrics_csv, round_rows
from covey.report.summary import (
    DeniabilityBudget,
    Violations,
    deniability,
    describe_violations,
    summary,
    violations,
)


def hidden(history: History, x: int | None, *, stored: bool = False) -> History:
    """The story of six clients in two sets of three, before anybody leaves."""
    assert history.started
    started = replace(history.started, deniability_threshold=x, updates_stored=stored)
    formed = AnonymitySetsFormed(0, (("h0", "h1", "h2"), ("h3", "h4", "h5")), (1.0, 1.0))
    return history_of([(0, [started, formed])])


def test_the_budget_by_hand(histories: dict[str, History]):
    unfinished = histories["unfinished"]
    assert deniability(hidden(unfinished, 2)).budget == DeniabilityBudget(1, 0.0)
    # without h0 its set has two members: neither h1 nor h2 has one to spare any more
    after = replace(hidden(unfinished, 2), left=(ClientLeft("h0", "deny", "da7a"),))
    assert deniability(after).budget == DeniabilityBudget(0, 2 / 5)


def test_there_is_no_budget_where_nothing_can_be_denied(histories: dict[str, History]):
    unfinished = histories["unfinished"]
    for history, reason in (
        (hidden(unfinished, None), "not hidden in anonymity sets"),
        (hidden(unfinished, 2, stored=True), "raw updates are stored"),
    ):
        deniable = deniability(history)
        assert deniable.budget is None
        assert reason in deniable.budget_reason


def test_why_no_true_risk_is_known_is_what_the_audits_found(histories: dict[str, History]):
    finished = [history for history in histories.values() if history.exposures]
    assert finished
    for reason in ("too few records", "refused: the sides do not match"):
        violations_of = [summary(unjudged(history, reason)).violations for history in finished]
        assert {counted.count for counted in violations_of} == {None}
        why = f"no model in use has a true risk: {reason}"
        assert {counted.reason for counted in violations_of} == {why}


def unjudged(history: History, reason: str) -> History:
    """The same run, but for its audits: none of them could tell a risk."""
    none = RiskEstimate.unknown(reason)
    return replace(
        history,
        audits=tuple(replace(audit, truth=none) for audit in history.audits),
        exposures=tuple(replace(exposure, exposure=none.figure) for exposure in history.exposures),
    )


def test_the_metrics_file_has_every_number_of_the_rounds_and_nan_for_what_is_unknown(histories):
    history = histories["two clusters"]
    lines = list(csv.DictReader(StringIO(metrics_csv(history))))
    for line, row, played in zip(lines, round_rows(history), history.rounds, strict=True):
        assert float(line["accuracy"]) == played.accuracy
        assert (int(line["clients_0"]), int(line["clients_1"])) == played.clients
        for key, value in row.items():
            if not key.endswith("standard_error"):
                assert line[key] == ("nan" if value is None else str(value))
    assert math.isnan(float(lines[1]["over"]))
    assert (float(lines[2]["risk_1"]), float(lines[2]["risk_se_1"])) == (0.6, 0.03)


def test_every_client_has_a_row_with_what_it_ends_with(histories: dict[str, History]):
    history = histories["two clusters"]
    rows = {
        row["name"]: row for row in client_rows(history, {h.upper(): h for h in history.clients})
    }
    for end in history.exposures:
        row = rows[end.handle.upper()]
        truth = history.audits[end.cluster].truth.figure
        assert (row["cluster"], row["true_risk"]) == (end.cluster, truth.value)
        assert row["exposure"] >= row["true_risk"]


@pytest.fixture(scope="module")
def noisy(a_run: Callable[..., Reported], a_plot: Callable[..., Any]) -> Reported:
    return a_run("noisy", a_plot(noise=4.0))


def test_rounds_of_noise_are_reported_with_what_they_are_about(noisy: Reported):
    status = guarantee_status(noisy.history)
    assert status.guarantee_reason == ""
    holds = status.guarantee
    assert holds is not None
    assert holds.epsilon == pytest.approx(gaussian_epsilon(3**0.5 / 4.0, 1e-5), abs=1e-3)
    assert holds.unit == "client"
    for aspect in ("relation", "adversary", "covers", "does_not_cover", "holds_if"):
        assert getattr(holds, aspect)
    assert status.guarantees == (holds,)


def test_a_seeded_run_promises_nothing_and_says_why(a_run, a_plot):
    status = guarantee_status(a_run("s", a_plot(noise=4.0, secrets="seeded")).history)
    assert status.guarantee is None
    assert "seed" in status.guarantee_reason
    assert [guarantee.epsilon for guarantee in status.guarantees] == [None]


def without_risk(history: History, cluster: int) -> History:
    """The same run, but nothing is known of one cluster's model."""
    none = RiskEstimate.unknown("too few records")
    audits = [replace(a, truth=none) if a.cluster == cluster else a for a in history.audits]
    return replace(history, audits=tuple(audits))


def test_a_count_of_violations_says_of_how_many_clients_it_is_unknown(histories):
    # .70 and .55: h0, h1 of cluster 0 (the minority) and h2 are above what they accept
    known = histories["two clusters"]
    counted = violations(without_risk(known, 0))
    assert (counted.count, counted.unknown) == (1, 2)
    assert counted.by_group == {"majority": 1}
    assert counted.unknown_by_group == {"minority": 2}
    assert "1 client above the accepted risk, 2 unknown" in describe_violations(counted)
    none = violations(without_risk(without_risk(known, 0), 1))
    assert describe_violations(none) == (f"violations: unknown for 6 clients: {none.reason}")
    early = describe_violations(Violations(reason="the run has not finished"))
    assert early == "violations: unknown: the run has not finished"


def test_runs_side_by_side_say_of_how_many_clients_each_figure_is_unknown(histories):
    both = compared(histories["two clusters"])
    assert (both.method, both.measure) == ("ifca-mir", "accuracy")
    assert (both.overall, both.minority) == (0.9, 0.8)
    assert (both.risk, both.attack, both.violations) == (Figure(0.70, 0.02), "loss", 3)
    assert set(both.unknown.values()) == {0}
    sides = compared(without_risk(histories["two clusters"], 0))
    assert (sides.risk, sides.violations) == (Figure(0.55, 0.01), 1)
    assert sides.unknown == {"overall": 0, "minority": 0, "risk": 2, "violations": 2}
    none = compared(without_risk(without_risk(histories["two clusters"], 0), 1))
    assert (none.risk.value, none.attack, none.violations) == (None, None, None)
    assert none.unknown["risk"] == none.unknown["violations"] == 6


def test_a_sweep_has_a_column_for_how_many_clients_are_unknown(histories):
    known = histories["two clusters"]
    runs = [Reported("a", known, ""), Reported("b", without_risk(known, 0), "")]
    rows = comparison(runs)
    swept = Swept([], rows, [], [], [], Path("report.html"), Path("sweep.csv"), [], [])
    head, *lines = str(next(iter(swept.lines()))).splitlines()
    assert "violations unknown" in head
    place = head.index("violations unknown")
    assert [line[place:].split()[0] for line in lines] == ["0", "2"]


def attacked(history: History, cluster: int, risk: float, of: str = "") -> History:
    now = history.finished.model_hash if history.finished else ""
    fact = ModelAttacked(cluster, RiskEstimate(Figure(risk, 0.01), source="lira"), of or now)
    return with_entries(history, [(None, [fact])])


def test_violations_follow_the_strongest_attack_and_name_it(histories: dict[str, History]):
    # .70 and .55 by the loss threshold: h0, h1 and h2 are above what they accept.
    history = histories["two clusters"]
    assert (violations(history).count, violations(history).attacks) == (3, [LOSS])
    after = attacked(history, 1, 0.65)
    counted = violations(after)
    assert counted.clients == ["h0", "h1", "h2", "h3"]  # h3 accepts .60, h4 .70
    assert counted.count_lower == 3  # of h0, h2 and h3: .65 - .0196
    assert counted.attacks == ["lira", LOSS]
    attack = summary(after).clusters[1].strongest_attack
    assert attack == RiskEstimate(Figure(0.65, 0.01), source="lira")
    assert summary(after).clusters[1].true_risk == 0.55


def test_an_attack_on_models_that_are_gone_says_nothing(histories: dict[str, History]):
    history = histories["two clusters"]
    gone = attacked(history, 1, 0.99, of="another model")
    assert summary(gone) == summary(history)


def test_runs_are_compared_by_the_attack_that_all_of_them_met(histories: dict[str, History]):
    after = attacked(histories["two clusters"], 1, 0.65)
    (row,) = comparison([Reported("a run", after, "")])
    assert row["violations"] == violations(after, LOSS).count == 3
