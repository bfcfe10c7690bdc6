from collections.abc import Callable
from typing import Any

import pytest

from covey.report.comparison import comparison, means
from covey.report.queries import Reported
from covey.report.summary import spread


def test_a_row_per_run_with_equal_keys(two_seeds: list[Reported]):
    rows = comparison(two_seeds)
    assert [row["name"] for row in rows] == [run.name for run in two_seeds]
    assert len({tuple(row) for row in rows}) == 1
    first = rows[0]
    assert (first["method"], first["selection"], first["seed"]) == ("ifca-mir", "threshold", 0)
    assert (first["accuracy_minority"], first["accuracy_majority"]) == (0.80, 0.95)
    assert (first["violations"], first["violations_lower"]) == (3, 2)  # see Plot
    assert first["true_risk_minority"] == 0.70  # the minority's home is cluster 0
    assert first["true_risk_majority_standard_error"] == 0.01
    assert rows[-1]["selection"] == ""


def test_a_row_says_why_it_lacks_figures(
    a_run: Callable[..., Reported], a_plot: Callable[..., Any]
):
    runs = [
        a_run("a", a_plot(finished=False)),
        a_run("b", a_plot(groups=False)),
        a_run("c", a_plot(risks=(None, 0.55))),
    ]
    rows = comparison(runs)
    assert rows[0]["violations"] is None
    assert rows[0]["reason"] == "not finished"
    assert rows[1]["adjusted_rand_index"] is None
    assert rows[1]["reason"] == "the clients have no known groups"
    assert rows[2]["reason"] == "refused: they do not match"
    assert rows[2]["violations_unknown"] == 2


def test_means_over_two_seeds_by_hand(two_seeds: list[Reported]):
    mir, ifca, fedavg = means(two_seeds)
    assert mir["setting"] == "ifca-mir threshold"
    assert mir["runs"] == 2
    assert mir["accuracy"]["mean"] == pytest.approx(0.92)  # (.90 + .94) / 2
    assert mir["accuracy"]["deviation"] == pytest.approx(0.02 * 2**0.5)
    assert mir["minority_accuracy"]["mean"] == pytest.approx(0.75)  # (.80 + .70) / 2
    assert mir["violations"]["mean"] == 2.0  # 3 and 1
    # Pairs: .90 - .88 = .02 and .94 - .90 = .04.
    assert mir["minus_fedavg"]["accuracy"]["mean"] == pytest.approx(0.03)
    assert mir["minus_fedavg"]["accuracy"]["deviation"] == pytest.approx(0.01 * 2**0.5)
    # FedAvg's one model has .55 ± .02: only h2 (.50) is below. 3 - 1 and 1 - 1.
    assert mir["minus_fedavg"]["violations"]["mean"] == 1.0
    # IFCA: 3 violations each. 3 - 3 and 1 - 3.
    assert mir["minus_ifca"]["violations"]["mean"] == -1.0
    assert ifca["minus_ifca"] is None
    assert ifca["minus_fedavg"]["accuracy"]["mean"] == pytest.approx(0.02)  # .03, .01
    assert fedavg["minus_fedavg"] is None


def test_an_unknown_number_makes_its_mean_unknown(
    a_run: Callable[..., Reported], a_plot: Callable[..., Any]
):
    runs = [a_run("a", a_plot()), a_run("b", a_plot(risks=(None, 0.55)), seed=1)]
    (row,) = means(runs)
    assert row["violations"]["mean"] is None
    assert str(spread(row["violations"])) == "unknown: unknown in 1 of 2 runs"
    assert str(spread(row["accuracy"])) == "0.900 ± 0.000"
