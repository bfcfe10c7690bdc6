"""What is said of a run in which a model diverged: by hand, on a story that is told."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import (
    ClientExposed,
    ClientsAssigned,
    ClusterAudited,
    Event,
    ModelDiverged,
    RiskMeasured,
    RoundMeasured,
    RunFinished,
    RunStarted,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import history_of
from covey.report.comparison import comparison, means
from covey.report.queries import Reported
from covey.report.summary import Exposure, Violations, summary

WHY = "is no better than guessing"
CLIENTS = {"h0": 0, "h1": 0, "h2": 1, "h3": 1}


def risk(j: int, t: int, value: float | None = 0.7) -> RiskMeasured:
    figure = Figure(value, 0.01, reason="" if value else "x")
    return RiskMeasured(j, RiskEstimate(figure, 0.7, 9, 9, source="oracle", round_index=t))


def told(*rounds: list[Event]) -> History:
    began = RunStarted("0", "ifca", "c", "d", 2, 3, ("small", "large"),
                       dict(zip(CLIENTS, (0, 0, 1, 1), strict=True)),
                       dict.fromkeys(CLIENTS, 0.6), 10, ())  # fmt: skip
    played = [
        [*([began] if t == 0 else []), ClientsAssigned(CLIENTS, "clients"), *events,
         RoundMeasured(0.5, {}, (2, 2))]
        for t, events in enumerate(rounds)
    ]  # fmt: skip
    return history_of(list(enumerate(played)))


def void(j: int) -> ClusterAudited:
    none = RiskEstimate.of_diverged(WHY, LOSS)
    return ClusterAudited(j, none, none.figure, none.figure)


def ended(history: History, diverged: int, audits: Callable[..., ClusterAudited]) -> History:
    """End a story in which cluster `diverged` has no model, and the other's risk is .7."""
    other = 1 - diverged
    sound = audits(other, 0.7)
    events = [
        ModelDiverged(diverged, 3, WHY),
        *sorted([sound, void(diverged)], key=lambda e: e.cluster),
        *(
            ClientExposed(h, j, 0.5, Figure(None if j == diverged else 0.7))
            for h, j in CLIENTS.items()
        ),
        RunFinished("abc", 0.5, {"small": 0.5, "large": 0.5}, 1.0),
    ]
    rest = list(history.all_events)
    return history_of([(0, rest), (3, events)])


@pytest.fixture
def audits() -> Callable[..., ClusterAudited]:
    def audited(j: int, risk: float) -> ClusterAudited:
        truth = RiskEstimate(Figure(risk, 0.01), 0.7, rests_on="matched", source=LOSS)
        return ClusterAudited(j, truth, truth.figure, Figure.unknown("no client"), 0.5)

    return audited


@pytest.fixture
def one_of_two(audits) -> History:
    return ended(told([risk(0, 0), risk(1, 0)]), 0, audits)


def test_what_rests_on_a_diverged_model_is_null_and_the_rest_is_not(one_of_two):
    told_ = summary(one_of_two)
    assert told_.diverged == [ModelDiverged(0, 3, WHY)]
    none, sound = told_.clusters
    assert none.risk is none.true_risk is none.auc is none.blind_auc is None
    unknown = Figure.unknown(f"the model {WHY}")
    assert none.measured.figure == none.truth.figure == unknown
    assert none.exposed_risk == none.traced_risk == unknown
    assert none.reason == f"the model {WHY}"
    assert none.measured.diverged == none.truth.diverged == WHY
    assert sound.true_risk == sound.risk == 0.7
    rests = f"it rests on the model of cluster 0, which {WHY}"
    assert told_.violations == Violations(
        unknown=4, unknown_by_group={"small": 2, "large": 2}, reason=rests
    )
    assert told_.fairness_reason == rests
    assert told_.exposure == Exposure(Figure.unknown(rests), Figure.unknown(rests))
    assert told_.fairness is None
    assert told_.accuracy.overall == 0.5


def test_who_left_a_model_that_diverged_has_no_exposure_but_a_risk(audits):
    # h0 trained cluster 0 and sits in cluster 1 now, like everybody else.
    history = ended(told([]), 0, audits)
    history = replace(
        history,
        assignment=dict.fromkeys(CLIENTS, 1),
        moves={"h0": (2,)},
        exposures=tuple(
            ClientExposed(h, 1, 0.5, Figure(None if h == "h0" else 0.7)) for h in CLIENTS
        ),
    )
    found = summary(history)
    assert found.violations.count == 4
    assert found.violations.count_exposed is None
    assert found.exposure.mean.value is None
    assert found.moves.moved_and_exposed is None
    assert "cluster 0" in found.exposure.mean.reason


def test_a_diverged_run_never_counts_as_zero_among_others(one_of_two, audits):
    fair = ended(told([risk(0, 0)]), 0, audits)
    sound = replace(
        fair,
        diverged={},
        audits=(audits(0, 0.7), audits(1, 0.7)),
        exposures=tuple(ClientExposed(h, j, 0.5, Figure(0.7)) for h, j in CLIENTS.items()),
    )
    config = "seed = {}\n[method]\nname = 'ifca'\n"
    runs = [Reported("a", one_of_two, config.format(0)), Reported("b", sound, config.format(1))]
    rows = comparison(runs)
    assert [row["violations"] for row in rows] == [None, 4]
    assert [row["diverged"] for row in rows] == [[0], []]
    assert WHY in rows[0]["reason"]
    (row,) = means(runs)
    assert row["diverged"] == 1
    assert row["violations"]["mean"] is None
    assert row["violations"]["reason"] == "unknown in 1 of 2 runs"
