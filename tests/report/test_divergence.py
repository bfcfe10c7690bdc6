"""What is said of a run in which a model diverged: by hand, on a story that is told."""

from dataclasses import replace

import pytest

from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import ClientExposed, ClusterAudited, ModelDiverged, RunFinished
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import with_entries
from covey.report.comparison import comparison, means
from covey.report.summary import Exposure, Violations, summary
from report.conftest import HANDLES, ROUNDS, Plot, audited, reported, story

WHY = "is no better than guessing"
RISK = 0.9  # above what anybody accepts


@pytest.fixture
def one_of_two() -> History:
    """Cluster 0, where the minority is, has no model at the end; the other's risk is .9."""
    none = RiskEstimate.of_diverged(WHY, LOSS)
    plot = Plot(finished=False)
    events = [
        ModelDiverged(0, ROUNDS, WHY),
        ClusterAudited(0, none, none.figure, none.figure),
        audited(1, RISK),
        *(
            ClientExposed(h, j, 0.5, Figure(RISK if j else None))
            for h, j in zip(HANDLES, plot.clusters, strict=True)
        ),
        RunFinished("abc", 0.5, {"minority": 0.5, "majority": 0.5}, 1.0),
    ]
    return with_entries(story(plot), [(ROUNDS, events)])


def test_what_rests_on_a_diverged_model_is_null_and_the_rest_is_not(one_of_two):
    told = summary(one_of_two)
    assert told.diverged == [ModelDiverged(0, ROUNDS, WHY)]
    none, sound = told.clusters
    assert none.risk is none.true_risk is none.auc is none.blind_auc is None
    unknown = Figure.unknown(f"the model {WHY}")
    assert none.measured.figure == none.truth.figure == unknown
    assert none.exposed_risk == none.traced_risk == unknown
    assert none.reason == f"the model {WHY}"
    assert none.measured.diverged == none.truth.diverged == WHY
    assert (sound.true_risk, sound.risk) == (RISK, 0.6)
    rests = f"it rests on the model of cluster 0, which {WHY}"
    assert told.violations == Violations(
        unknown=6, unknown_by_group={"minority": 2, "majority": 4}, reason=rests
    )
    assert told.fairness_reason == rests
    assert told.exposure == Exposure(Figure.unknown(rests), Figure.unknown(rests))
    assert told.fairness is None
    assert told.accuracy.overall == 0.5


def test_who_left_a_model_that_diverged_has_no_exposure_but_a_risk(one_of_two):
    # h0 trained cluster 0 and sits in cluster 1 now, like everybody else.
    history = replace(
        one_of_two,
        assignment=dict.fromkeys(HANDLES, 1),
        moves={"h0": (2,)},
        exposures=tuple(
            ClientExposed(h, 1, 0.5, Figure(None if h == "h0" else RISK)) for h in HANDLES
        ),
    )
    found = summary(history)
    assert found.violations.count == 6
    assert found.violations.count_exposed is None
    assert found.exposure.mean.value is None
    assert found.moves.moved_and_exposed is None
    assert "cluster 0" in found.exposure.mean.reason


def test_a_diverged_run_never_counts_as_zero_among_others(one_of_two):
    plot = Plot(risks=(RISK, RISK))
    runs = [replace(reported("a", plot), history=one_of_two), reported("b", plot, seed=1)]
    rows = comparison(runs)
    assert [row["violations"] for row in rows] == [None, 6]
    assert [row["diverged"] for row in rows] == [[0], []]
    assert WHY in rows[0]["reason"]
    (row,) = means(runs)
    assert row["diverged"] == 1
    assert row["violations"]["mean"] is None
    assert row["violations"]["reason"] == "unknown in 1 of 2 runs"
