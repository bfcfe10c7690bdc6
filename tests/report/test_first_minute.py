"""What a newcomer reads first: unknown is never printed as "not above"."""

from dataclasses import replace
from pathlib import Path

from covey import History
from covey.base.figure import Figure, RiskEstimate
from covey.cli.runs import Swept
from covey.report.comparison import compared, comparison
from covey.report.queries import Reported
from covey.report.summary import Violations, describe_violations, violations


def without_risk(history: History, cluster: int) -> History:
    """The same run, but nothing is known of one cluster's model."""
    none = RiskEstimate.unknown("too few records")
    audits = [replace(a, truth=none) if a.cluster == cluster else a for a in history.audits]
    return replace(history, audits=tuple(audits))


def test_a_count_of_violations_says_of_how_many_clients_it_is_unknown(histories):
    # .70 and .55: h0, h1 of cluster 0 (the minority) and h2 are above what they accept
    known = histories["two clusters"]
    some = violations(without_risk(known, 0))
    assert (some.count, some.unknown) == (1, 2)
    assert some.by_group == {"majority": 1}
    assert some.unknown_by_group == {"minority": 2}
    assert "1 client above the accepted risk, 2 unknown" in describe_violations(some)
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
    some = compared(without_risk(histories["two clusters"], 0))
    assert (some.risk, some.violations) == (Figure(0.55, 0.01), 1)
    assert some.unknown == {"overall": 0, "minority": 0, "risk": 2, "violations": 2}
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
