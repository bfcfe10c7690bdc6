"""Metrics that the settings name: measured at the end, and shown where accuracy is."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import ConfigError, Metric
from covey.dp.status import guarantee_status
from covey.runtime.evaluation import weighted_mean
from plugins.metric_sure import SureAndRight
from runtime.conftest import tiny

NAMED = ["top-k", {"name": "top-k", "k": 1}, {"name": "plugins.metric_sure:SureAndRight"}]
SURE = "plugins.metric_sure:SureAndRight"
WITH = {"method": {"name": "fedavg"}, "train": {"cohort_size": 3}, "metrics": NAMED}


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


def test_they_change_no_model_and_no_other_figure(whole):
    plain, more = whole(tiny(**WITH | {"metrics": []})), whole(tiny(**WITH))
    assert more.summary.model_hash == plain.summary.model_hash
    assert replace(more.summary, metrics={}) == replace(plain.summary, metrics={})
    assert plain.summary.metrics == {}
    assert guarantee_status(more.history) == guarantee_status(plain.history)


def test_who_leaves_is_in_no_metric_any_more(copied, tmp_path):
    config = tiny(**WITH | {"metrics": [SureAndRight()]})
    run = copied(config, tmp_path / "met")
    leaver = min(run.names)
    handle = run.names[leaver]
    run.forget(leaver, answer="retrain")
    population = {**config.model_dump()["population"], "exclude": [leaver]}
    never = covey.run(
        config=covey.Config.of({**config.model_dump(), "population": population}),
        out=tmp_path / "never",
    )
    assert covey.load(run.folder).summary.model_hash == never.summary.model_hash
    assert covey.load(run.folder).summary.metrics == never.summary.metrics
    assert all(handle not in each.clients for each in covey.load(run.folder).history.metrics)


def test_a_number_per_client_of_its_own_holdout_is_weighted_by_its_size(tmp_path):
    draw = np.random.default_rng(0)
    clients = {
        name: (draw.normal(size=(size, 3)).astype(np.float32), draw.normal(size=size))
        for name, size in {"a": 10, "b": 40}.items()
    }
    clients = {name: (x, y.astype(np.float32)) for name, (x, y) in clients.items()}
    config = {
        "rounds": 1,
        "model.name": "linear-map",
        "model.task": "regression",
        "method.name": "fedavg",
        "risk.name": "none",
        "metrics": ["mean-squared-error", Held()],
    }
    run = covey.run(clients=clients, config=config, out=tmp_path / "run")
    mean, sizes = run.history.metrics
    assert sizes.metric.endswith("Held")
    counts = {handle: count or 0.0 for handle, count in sizes.clients.items()}
    assert sorted(counts.values()) == [2, 8]
    assert sizes.value == pytest.approx((2 * 2 + 8 * 8) / 10)
    squared = {each.handle: each.squared_error or 0.0 for each in run.history.exposures}
    assert mean.clients == pytest.approx(squared)
    weighted = sum(counts[h] * squared[h] for h in squared) / 10
    assert mean.value == pytest.approx(weighted)


class Held(Metric):
    """How many examples a client is measured on, as one number for all of them."""

    def measure(self, scored, labels):
        return torch.tensor(float(len(labels)))


class Raising(Metric):
    def measure(self, scored, labels):
        raise ZeroDivisionError("of mine")


class TooFew(Metric):
    def measure(self, scored, labels):
        return scored.losses[:1]


class NoTensor(Metric):
    def measure(self, scored, labels):
        return cast("torch.Tensor", None)


class Writing(Metric):
    def measure(self, scored, labels):
        return scored.losses.mul_(2)


class Infinite(Metric):
    def measure(self, scored, labels):
        return scored.losses / 0


def ended(metric: Metric, out: Path) -> covey.Run:
    sections = WITH | {"metrics": [metric]}
    return covey.run(config=tiny(**sections, rounds=1), out=out)


@pytest.mark.parametrize("metric", [Raising(), TooFew(), NoTensor(), Writing()])
def test_a_mistake_in_a_metric_names_it(metric, tmp_path):
    with pytest.raises(ConfigError, match=f"metric .*{type(metric).__name__}"):
        ended(metric, tmp_path / "run")


def test_a_metric_that_failed_can_be_corrected_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = "import covey\n\nclass Mine(covey.Metric):\n    def measure(self, scored, labels):\n"
    source = tmp_path / "mine_metric.py"
    source.write_text(f"{code}        return 1 / 0\n")
    sections = WITH | {"metrics": ["mine_metric:Mine"]}
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        covey.run(config=tiny(**sections, rounds=1), out=tmp_path / "run")
    source.write_text(f"{code}        return scored.losses\n")
    monkeypatch.delitem(__import__("sys").modules, "mine_metric")
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    run = covey.resume(tmp_path / "run")
    assert float(run.summary.metrics["mine_metric:Mine"].overall) > 0


def test_a_figure_that_is_not_finite_is_unknown_and_says_so(tmp_path):
    (found,) = ended(Infinite(), tmp_path / "run").summary.metrics.values()
    assert found.overall.value is None
    assert found.lowest is None
    assert "not finite" in found.overall.reason


@given(st.lists(st.tuples(st.lists(st.integers(-9, 9), min_size=1, max_size=6)), min_size=1))
def test_the_weighted_mean_is_that_of_all_examples_together(clients):
    sizes = {str(place): len(values) for place, (values,) in enumerate(clients)}
    means = {str(place): float(np.mean(values)) for place, (values,) in enumerate(clients)}
    together = np.concatenate([values for (values,) in clients])
    assert weighted_mean(means, sizes) == pytest.approx(together.mean())
    assert weighted_mean(means | {"0": None}, sizes) is None
