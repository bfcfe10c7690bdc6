"""What the bench concludes from rows whose errors a reader can add up."""

import math
from collections.abc import Mapping

import pytest

from covey.events import RiskMeasured
from covey.membership import RiskEstimate
from covey_papers.bench import (
    SOURCES,
    Cost,
    Measured,
    Row,
    checks,
    costs_of,
    error_of,
    knowledge,
)


def told(source: str, risk: float | None, reason: str = "because") -> RiskMeasured:
    return RiskMeasured(
        cluster=0,
        round_index=1,
        source=source,
        risk=risk,
        standard_error=None if risk is None else 0.03,
        auc=risk,
        members=10,
        non_members=10,
        calibrated=risk is not None and not reason.startswith("extrapolated"),
        reason=reason,
    )


def row(
    truth: float,
    shadow: float | None,
    federated: float | None = 0.5,
    reason: str = "because",
    *,
    matchable: bool = True,
) -> Row:
    by_source = {
        "shadow": told("shadow", shadow, reason),
        "federated": told("federated", federated),
    }
    return Row("a set", 0, 100, matchable, 1, truth, 0.04, by_source)


def test_errors_by_hand():
    # SE: sqrt(0.03^2 + 0.04^2) = 0.05, so 2 SE are 0.1
    assert error_of(row(0.6, 0.5), "shadow") == pytest.approx((-0.1, 0.05))
    assert error_of(row(0.6, None), "shadow") is None


def test_knowledge_by_hand():
    rows = [row(0.6, 0.62), row(0.7, 0.58), row(0.8, 0.81), row(0.9, 1.0)]
    known = knowledge(rows, "shadow")
    # errors 0.02, -0.12, 0.01, 0.1
    assert known.figures == 4
    assert known.mean_error == pytest.approx(0.25 / 4)
    assert known.bias == pytest.approx(0.01 / 4)
    assert known.largest_error == pytest.approx(0.12)
    assert known.most_standard_errors == pytest.approx(2.4)
    assert known.within == 0.75  # the second is beyond 0.1
    # ranks 1 2 3 4 against 2 1 3 4: 1 - 6 * 2 / (4 * 15) = 0.8
    assert known.rank_correlation == pytest.approx(0.8)


def test_only_what_the_pool_can_match_may_be_called_withheld():
    rows = [
        row(0.6, 0.6),
        row(0.6, None),
        row(0.6, None, matchable=False),
        row(0.6, 0.66, reason="extrapolated: from less", matchable=False),
    ]
    known = knowledge(rows, "shadow")
    assert (known.figures, known.withheld, known.extrapolated) == (1, 0.5, 1)
    assert known.extrapolated_error == pytest.approx(0.06)
    assert known.mean_error == 0.0  # the extrapolated one counts apart


def test_no_figures_are_no_success():
    silent = measured(row(0.6, None), row(0.7, None), row(0.5, None))
    found = {check.name: check for check in checks([silent], whole=True)}
    assert found["shadow mean_error"].value is None
    assert not found["shadow mean_error"].ok
    assert found["shadow withheld"].value == 1.0
    assert not found["shadow withheld"].ok


def control(risk: float) -> RiskEstimate:
    return RiskEstimate(risk, 0.02, risk, 50, 50)


AS_KNOWN = {"random labels": control(0.9), "unseen halves, cluster 0": control(0.48)}


def measured(
    *rows: Row, controls: Mapping[str, RiskEstimate] | None = None
) -> Measured:
    # Clients train 100 images in 10 s; shadows 300 images, so 30 s of training would be
    # due; they take 31, and a second for two looks. Those are four in a usual run of 20
    # rounds: 33 s. So are the counts' two looks of 1 s each: 4 s beside the clients' 12.
    costs = {
        "clients": Cost(images=100, training=10.0, seconds=12.0),
        "shadow": Cost(images=300, training=31.0, seconds=32.0),
        "federated": Cost(seconds=2.0),
    }
    return Measured(rows, costs, looks=2, rounds=20, controls=controls or AS_KNOWN)


def test_costs_by_hand():
    found = costs_of([measured(), measured()])
    assert (found.shadow_images, found.client_images) == (600, 200)
    assert found.shadow_seconds == pytest.approx(1.1)
    assert found.federated_share == pytest.approx(4 / 16)


def test_a_good_red_team_passes_and_a_costly_one_does_not():
    rows = [row(0.5 + 0.01 * i, 0.51 + 0.01 * i, 0.5 + 0.01 * i) for i in range(9)]
    found = {check.name: check for check in checks([measured(*rows)], whole=True)}
    missed = {name for name, check in found.items() if not check.ok}
    assert missed == {"cost federated_share"}
    assert found["cost federated_share"].limit == "<= 0.05"
    assert {name.split()[0] for name in found} == {*SOURCES, "cost", "failed"}


@pytest.mark.parametrize(
    ("name", "risk", "fails"),
    [
        ("random labels", 0.57, 0),
        ("random labels", 0.55, 1),  # what is learnt by heart is not found
        ("unseen halves, cluster 1", 0.45, 0),
        ("unseen halves, cluster 1", 0.57, 1),  # what is not there is found
        ("unseen halves, cluster 1", 0.43, 1),
    ],
)
def test_a_control_that_fails_fails_the_bench(name: str, risk: float, fails: int):
    known = measured(row(0.6, None, 0.6), controls={**AS_KNOWN, name: control(risk)})
    first, *_ = checks([known], whole=False)
    assert (first.name, first.value, first.ok) == ("failed controls", fails, not fails)


def test_a_biased_source_is_caught_either_way():
    for shift in (-0.02, 0.02):
        rows = [row(0.6 + 0.01 * i, 0.6 + shift + 0.01 * i) for i in range(4)]
        found = {check.name: check for check in checks([measured(*rows)], whole=True)}
        assert not found["shadow bias"].ok
        assert found["shadow mean_error"].ok
        assert math.isclose(found["shadow bias"].value or 0, shift)


def test_a_few_rows_are_held_to_what_they_can_show():
    few = checks([measured(row(0.6, None, 0.6))], whole=False)
    assert {check.name for check in few} == {
        "failed controls",
        "federated most_standard_errors",
        "federated withheld",
    }
    assert all(check.ok for check in few)
