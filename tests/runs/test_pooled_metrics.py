"""Metrics over the unseen examples of all clients, built in or a user's own."""

import csv
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, confusion_matrix, f1_score, roc_auc_score
from torch import nn
from torch.nn.functional import softmax

import covey
from covey import ConfigError, EarlyStopping, Metric
from covey.runs.evaluation import weighted_mean
from plugins.metric_sure import SureAndRight
from runs.conftest import excluding
from support.runs import tiny

NAMES = ("f1", "auroc", "average-precision")
FIGURES = {
    "f1": lambda labels, scores: f1_score(labels, scores[:, 1] > scores[:, 0]),
    "auroc": lambda labels, scores: roc_auc_score(labels, scores[:, 1]),
    "average-precision": lambda labels, scores: average_precision_score(labels, scores[:, 1]),
}
SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "method": {"name": "ifca", "num_clusters": 2, "initialisation": "random"},
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
    "train": {"learning_rate": 0.1, "batch_size": 5},
}


def model():
    return nn.Linear(3, 2)


def clients(*, alone: bool = False):
    """Eight clients of which about a fifth of the examples are positive; c0 may have none."""
    draws = np.random.default_rng(5)

    def part(i: int, size: int, *, alone: bool):
        x = draws.normal(size=(size, 3)).astype(np.float32)
        y = ((-1) ** i * x[:, 0] + draws.normal(size=size) / 2 > 1).astype(np.int64)
        y[:2] = [0, 1]
        return x, y * (0 if alone else 1)

    return {
        f"c{i}": (part(i, 40, alone=False), part(i, 15 + i, alone=alone and i == 0))
        for i in range(8)
    }


class Sure(Metric):
    """The mean probability of the answer, of several classes alone."""

    def measure(self, scored, labels):
        assert scored.log_probs is not None
        if len(labels.unique()) < 2:
            return torch.tensor(torch.nan)
        return scored.log_probs.exp().amax(dim=1)


def played(out, metrics, *, alone=False, **changes):
    settings = {**SETTINGS, "metrics": metrics, **changes}
    return covey.run(model, clients(alone=alone), settings, out)


def scores(run, names):
    """Labels, and scores of the models that clients use, on their own unseen examples."""
    labels, rows = [], []
    for name in names:
        layer = model()
        layer.load_state_dict(run.params(run.cluster_of(name)))
        x, y = clients(alone=True)[name][1]
        labels.append(y)
        rows.append(softmax(layer(torch.from_numpy(x)).detach(), dim=1).numpy())
    return np.concatenate(labels), np.concatenate(rows)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    metrics = [*NAMES, *({"name": name, "pooled": False} for name in NAMES[1:]), "confusion", Sure]
    return played(tmp_path_factory.mktemp("pooled") / "run", metrics, alone=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_pooled_figure_is_that_of_all_examples_together_and_of_each_clusters(ended, name):
    metric = ended.summary.metrics[name]
    assert float(metric.overall) == pytest.approx(FIGURES[name](*scores(ended, clients())))
    for j in range(2):
        inside = [client for client in clients() if ended.cluster_of(client) == j]
        assert inside
        assert metric.by_cluster[j] == pytest.approx(FIGURES[name](*scores(ended, inside)))
    assert metric.over == "all unseen examples together"
    assert ended.history.rounds[-1].metrics[name].clients == {}


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_mean_leaves_out_and_counts_who_has_one_class_alone(ended, name):
    metric = ended.summary.metrics[f"{name} (pooled=False)"]
    others = [scores(ended, [client]) for client in clients() if client != "c0"]
    values, sizes = (
        [FIGURES[name](*client_scores) for client_scores in others],
        [len(y) for y, _ in others],
    )
    assert float(metric.overall) == pytest.approx(np.average(values, weights=sizes))
    assert metric.over == "the mean over 7 of 8 clients"
    assert ended.summary.metrics[ended.history.metrics[-1].metric].over == metric.over


def test_the_confusion_is_counted_drawn_and_written(ended):
    counts = ended.summary.confusion
    labels, answers = scores(ended, clients())
    by_hand = confusion_matrix(labels, answers.argmax(axis=1))
    assert np.array(counts["all clients"]).tolist() == by_hand.tolist()
    clusters = np.array(counts["cluster 0"]) + np.array(counts["cluster 1"])
    assert clusters.tolist() == by_hand.tolist()
    assert "Confusion matrix of all clients" in ended.report().read_text()
    assert (ended.folder / "figures" / "confusion.svg").is_file()
    with (ended.folder / "figures" / "confusion.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(rows[1]["predicted_0"]), int(rows[1]["predicted_1"])] == by_hand[1].tolist()


def test_every_round_has_its_metrics_in_the_table_and_the_summary_is_the_end(ended):
    ended.report()
    with (ended.folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert all(0 <= float(row[name]) <= 1 for row in rows for name in (*NAMES, "f1_0", "f1_1"))


def test_groups_of_a_simulation_are_pooled_too(tmp_path):
    metrics = ["f1", {"name": "f1", "pooled": False}, "auroc", "confusion"]
    run = covey.run(config=tiny(rounds=1, metrics=metrics), out=tmp_path / "run")
    f1, counts = run.summary.metrics["f1"], run.summary.confusion
    assert set(f1.by_group) == {"minority", "majority"} <= set(counts)
    right = np.trace(np.array(counts["all clients"])) / np.array(counts["all clients"]).sum()
    assert right == pytest.approx(run.summary.accuracy.overall)
    assert 0.5 < float(run.summary.metrics["auroc"].overall) <= 1


class Error(Metric):
    """The share of wrong answers."""

    higher_is_better: ClassVar[bool] = False

    def measure(self, scored, labels):
        return (scored.predictions != labels).double()


@pytest.mark.parametrize("name", ["auroc", "auroc (pooled=False)"])
def test_the_best_round_is_the_one_by_the_metric_also_from_its_recorded_folder(tmp_path, name):
    metrics = ["f1", {"name": "auroc", "pooled": False}]
    best = {"checkpoints": {"best": name.partition(" ")[0], "every": 9}, "rounds": 6}
    run = played(tmp_path / "run", metrics, **best)
    values = [float(row.metrics["auroc (pooled=False)"].value or 0) for row in run.history.rounds]
    assert covey.load(run.folder).best(name) == (int(np.argmax(values)), max(values))


def test_less_is_better_where_the_metric_says_so_and_a_run_ends_by_it(tmp_path):
    still = {"train": {"learning_rate": 1e-9}, "rounds": 9}
    name = f"{Error.__module__}:Error"
    stop = {"figure": name, "patience": 2}
    run = played(tmp_path / "run", [Error], stopping=stop, **still)
    assert len(run.history.rounds) == 3
    assert "no improvement" in run.summary.ended_early
    learning = played(tmp_path / "learning", [Error], rounds=5)
    values = [row.metrics[name].value or 0.0 for row in learning.history.rounds]
    assert learning.best(name).value == min(values)


@pytest.mark.parametrize("key", ["stopping.figure", "checkpoints.best"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("f11", "do you mean 'f1'"),
        ("accurac", "do you mean 'accuracy'"),
        ("auroc", "or a metric of metrics, found"),
        ("confusion", "must be one of"),
    ],
)
def test_a_figure_that_no_round_has_is_refused_at_loading(key, wrong, message):
    with pytest.raises(ConfigError, match=message) as refused:
        covey.Config.of({"metrics": ["f1", "confusion"], **_nested(key, wrong)})
    assert key in str(refused.value)


def test_a_figure_of_two_metrics_of_one_name_is_named_with_its_settings():
    metrics = ["auroc", {"name": "auroc", "pooled": False}]
    covey.Config.of({"metrics": metrics, "stopping": {"figure": "auroc"}})
    both = [{"name": "top-k", "k": 1}, {"name": "top-k", "k": 2}]
    with pytest.raises(ConfigError, match=r"top-k \(k=1\)"):
        covey.Config.of({"metrics": both, "stopping": {"figure": "top-k"}})


def test_a_misspelt_figure_of_python_is_refused_with_the_nearest(ended):
    with pytest.raises(ConfigError, match="do you mean 'auroc"):
        ended.best("aurocc")
    stop = EarlyStopping(figure="f11")
    with pytest.raises(ConfigError, match="do you mean 'f1'"):
        covey.run(model, clients(), {**SETTINGS, "metrics": ["f1"]}, "unused", stop=stop)


def _nested(key: str, value: str) -> dict[str, Any]:
    section, _, name = key.partition(".")
    return {section: {name: value}}


NAMED = ["top-k", {"name": "top-k", "k": 1}, {"name": "plugins.metric_sure:SureAndRight"}]
SURE = "plugins.metric_sure:SureAndRight"
WITH = {"method": {"name": "fedavg"}, "train": {"cohort_size": 3}, "metrics": NAMED}


@pytest.mark.slow
def test_a_run_with_metrics_and_cohorts_of_a_fixed_size(copied, tmp_path):
    run = copied(tiny(**WITH), tmp_path / "run")
    assert {row.participants for row in run.history.rounds} == {3}
    metrics = run.summary.metrics
    assert list(metrics) == ["top-k", "top-k (k=1)", SURE]
    accuracy = run.summary.accuracy
    assert metrics["top-k (k=1)"].overall.value == pytest.approx(accuracy.overall)
    assert metrics["top-k (k=1)"].by_group == pytest.approx(accuracy.by_group)
    top, sure = metrics["top-k"], metrics[SURE].overall
    assert 0 < (top.lowest or 0) <= float(top.overall) <= (top.highest or 0) <= 1
    assert float(sure) <= float(metrics["top-k (k=1)"].overall) <= float(top.overall)
    page = run.report().read_text()
    assert '<th scope="row">top-k (k=1)</th>' in page
    frame = run.clients_frame()
    assert frame["top-k (k=1)"].tolist() == frame["accuracy"].tolist()
    again = covey.load(run.folder)
    assert again.summary.metrics == metrics


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
    assert all(handle not in metric.clients for metric in covey.load(run.folder).history.metrics)


class Raising(Metric):
    def measure(self, scored, labels):
        raise ZeroDivisionError("of mine")


class TooFew(Metric):
    def measure(self, scored, labels):
        return scored.losses[:1]


def ended_simulation(metric: Metric, out: Path) -> covey.Run:
    sections = WITH | {"metrics": [metric]}
    return covey.run(config=tiny(**sections, rounds=1), out=out)


@pytest.mark.parametrize("metric", [Raising(), TooFew()])
def test_a_mistake_in_a_metric_names_it(metric, tmp_path):
    with pytest.raises(ConfigError, match=f"metric .*{type(metric).__name__}"):
        ended_simulation(metric, tmp_path / "run")


@given(st.lists(st.tuples(st.lists(st.integers(-9, 9), min_size=1, max_size=6)), min_size=1))
def test_the_weighted_mean_is_that_of_all_examples_together(clients):
    sizes = [len(values) for (values,) in clients]
    means = [float(np.mean(values)) for (values,) in clients]
    together = np.concatenate([values for (values,) in clients])
    assert weighted_mean(means, sizes) == pytest.approx(together.mean())
    assert weighted_mean([*means, np.nan], [*sizes, 7]) == pytest.approx(together.mean())
    assert np.isinf(weighted_mean([*means, np.inf], [*sizes, 7]))
    assert np.isnan(weighted_mean([np.nan], [1]))
