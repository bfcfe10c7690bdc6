import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey import Run, load, run
from covey.report.queries import metrics_csv
from support.runs import small

LINES = "plugins.tracker_lines:Lines"
TINY = small(
    rounds=3,
    train={"learning_rate": 0.5},
    method={"name": "ifca-mir", "initialisation": "random"},
    risk={"name": "federated", "every": 2},
)


def named(column: str) -> str:
    """What trackers call a column of metrics.csv."""
    for prefix in ("clients_", "risk_se_", "risk_"):
        if column.startswith(prefix):
            return f"{prefix[:-1]}/cluster_{column.removeprefix(prefix)}"
    return column.replace("accuracy_", "accuracy/", 1)


def curves_of(folder: Path) -> dict[str, dict[int, float]]:
    """What metrics.csv holds, as points of curves; what is unknown is none."""
    rows = csv.DictReader(metrics_csv(load(folder).history).splitlines())
    scalars: dict[str, dict[int, float]] = {}
    for row in rows:
        for column, text in row.items():
            if text != "nan" and column != "round":
                points = scalars.setdefault(named(column), {})
                points[int(row["round"])] = float(text)
    return scalars


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a folder: (step, value) of each curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder))
    board.Reload()
    return {
        tag: [(scalar.step, scalar.value) for scalar in board.Scalars(tag)]
        for tag in board.Tags()["scalars"]
    }


def mlflow_run(folder: Path) -> tuple[Any, dict[str, list[tuple[int, float]]]]:
    """The one run of MLflow, and (step, value) of each metric."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.resolve()}/mlflow.db")
    experiment = client.get_experiment_by_name("covey")
    assert experiment is not None
    (mlflow_record,) = client.search_runs([experiment.experiment_id])
    return mlflow_record, {
        key: [
            (metric.step, metric.value)
            for metric in client.get_metric_history(mlflow_record.info.run_id, key)
        ]
        for key in mlflow_record.data.metrics
    }


def single(curves: dict[str, dict[int, float]]) -> dict[str, list[tuple[int, float]]]:
    """Curves as TensorBoard keeps them: in single precision."""
    return {
        name: [(step, float(np.float32(value))) for step, value in sorted(points.items())]
        for name, points in curves.items()
    }


def lines_of(folder: Path) -> list[Any]:
    """What the tracker that writes lines got, in order."""
    place = folder / "tracking" / LINES.replace(":", "-")
    return [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Run]:
    """Play a tiny run with these settings beside the usual ones."""

    def played(name: str = "run", **settings: Any) -> Run:
        return run(config={**TINY, **settings}, out=tmp_path / name)

    return played
