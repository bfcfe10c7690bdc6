"""Metrics that the settings name: measured at the end, and shown where accuracy is."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import ConfigError, Metric
from covey.runs.evaluation import weighted_mean
from plugins.metric_sure import SureAndRight
from runs.conftest import excluding, tiny

NAMED = ["top-k", {"name": "top-k", "k": 1}, {"name": "plugins.metric_sure:SureAndRight"}]
SURE = "plugins.metric_sure:SureAndRight"
WITH = {"method": {"name": "fedavg"}, "train": {"cohort_size": 3}, "metrics": NAMED}


@pytest.mark.slow
def test_a_run_with_metrics_and_cohorts_of_a_fixed_size(copied, tmp_path):
    run = copied(tiny(**WITH), tmp_path / "run")
    assert {row.participants for row in run.history.rounds} == {3}
    found = run.summary.metrics
    assert list(found) == ["top-k", "top-k (k=1)", SURE]
    accuracy = run.summary.accuracy
    assert found["top-k (k=1)"].overall.value == pytest.approx(accuracy.overall)
    assert found["top-k (k=1)"].by_group == pytest.approx(accuracy.by_group)
    top, sure = found["top-k"], found[SURE].overall
    assert 0 < (top.lowest or 0) <= float(top.overall) <= (top.highest or 0) <= 1
    assert float(sure) <= float(found["top-k (k=1)"].overall) <= float(top.overall)
    page = run.report().read_text()
    assert '<th scope="row">top-k (k=1)</th>' in page
    frame = run.clients_frame()
    assert frame["top-k (k=1)"].tolist() == frame["accuracy"].tolist()
    again = covey.load(run.folder)
    assert again.summary.metrics == found


@pytest.mark.slow
def test_who_leaves_is_in_no_metric_any_more(copied, whole, tmp_path):
    config = tiny(**WITH | {"metrics": [SureAndRight()]})
    run = copied(config, tmp_path / "met")
    leaver = min(run.names)
    handle = run.names[leaver]
    run.forget(leaver, answer="retrain")
    never = whole(excluding(config, leaver))
    assert covey.load(run.folder).summary.model_hash == never.summary.model_hash
    assert covey.load(run.folder).summary.metrics == never.summary.metrics
    assert all(handle not in each.clients for each in covey.load(run.folder).history.metrics)


class Raising(Metric):
    def measure(self, scored, labels):
        raise ZeroDivisionError("of mine")


class TooFew(Metric):
    def measure(self, scored, labels):
        return scored.losses[:1]


def ended(metric: Metric, out: Path) -> covey.Run:
    sections = WITH | {"metrics": [metric]}
    return covey.run(config=tiny(**sections, rounds=1), out=out)


@pytest.mark.parametrize("metric", [Raising(), TooFew()])
def test_a_mistake_in_a_metric_names_it(metric, tmp_path):
    with pytest.raises(ConfigError, match=f"metric .*{type(metric).__name__}"):
        ended(metric, tmp_path / "run")


@given(st.lists(st.tuples(st.lists(st.integers(-9, 9), min_size=1, max_size=6)), min_size=1))
def test_the_weighted_mean_is_that_of_all_examples_together(clients):
    sizes = [len(values) for (values,) in clients]
    means = [float(np.mean(values)) for (values,) in clients]
    together = np.concatenate([values for (values,) in clients])
    assert weighted_mean(means, sizes) == pytest.approx(together.mean())
    assert weighted_mean([*means, np.nan], [*sizes, 7]) == pytest.approx(together.mean())
    assert np.isinf(weighted_mean([*means, np.inf], [*sizes, 7]))
    assert np.isnan(weighted_mean([np.nan], [1]))
