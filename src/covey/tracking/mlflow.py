"""Runs of MLflow."""

import os
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import field_validator

from covey.tracking.base import Figures, TrackedRun, Tracker, needed

__all__ = ["MLflow"]

AT_ONCE = 100
"""Parameters that MLflow takes in one call."""

ODD = re.compile(r"[^\w\-. :/]")
"""What no name of MLflow's may have in it."""

MARK = "covey.run"
"""The tag that says which run of covey an MLflow run is."""


class MLflow(Tracker):
    """Writes metrics and parameters of one MLflow run.

    Into a database in the run's folder, which `mlflow ui --backend-store-uri
    sqlite:///RUN/tracking/mlflow/mlflow.db` shows. A run that is carried on goes on
    there. Where its rounds were rolled back, the MLflow run is put into MLflow's bin, and
    another one begins.
    """

    uri: str = ""
    """Of another store; else `MLFLOW_TRACKING_URI`, if that is set, or the database."""
    experiment: str = "covey"
    _client: Any = None
    _run: str = ""

    @field_validator("uri")
    @classmethod
    def _tells_no_password(cls, uri: str) -> str:
        if urlsplit(uri).password is not None:
            raise ValueError(
                "uri must hold no password: settings are kept and shown with the run. Put "
                "it into MLFLOW_TRACKING_URI, or into MLFLOW_TRACKING_PASSWORD."
            )
        return uri

    def begin(self, run: TrackedRun) -> int:
        """Find the MLflow run or create it, and return how many rounds it holds."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        library = needed("mlflow", "mlflow")
        local = f"sqlite:///{run.folder.resolve()}/mlflow.db"
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or local
        self._client = library.MlflowClient(tracking_uri=uri)
        place = None if uri != local else (run.folder.resolve() / "files").as_uri()
        known = self._client.get_experiment_by_name(self.experiment)
        where = known and known.experiment_id
        where = where or self._client.create_experiment(self.experiment, place)
        tags = {MARK: run.id, "covey.replays": str(run.replays)}
        self._run = ""
        for each in self._client.search_runs([where], f"tags.`{MARK}` = '{run.id}'"):
            if each.data.tags.get("covey.replays") == tags["covey.replays"]:
                self._run = each.info.run_id
            else:
                self._client.delete_run(each.info.run_id)
        if not self._run:
            made = self._client.create_run(where, tags=tags, run_name=run.name)
            self._run = made.info.run_id
        self._client.update_run(self._run, status="RUNNING")
        self._set(run.settings)
        points = self._client.get_metric_history(self._run, "participants")
        return max((point.step + 1 for point in points), default=0)

    def _set(self, settings: Mapping[str, Any]) -> None:
        """Write the settings that do not stand there: a parameter never changes."""
        held = self._client.get_run(self._run).data.params
        param = needed("mlflow.entities", "mlflow").Param
        new = [param(k, str(v)) for k, v in settings.items() if k not in held]
        for first in range(0, len(new), AT_ONCE):
            self._client.log_batch(self._run, params=new[first : first + AT_ONCE])

    def log(self, round_index: int, figures: Figures) -> None:
        """Write a round's figures in one transaction."""
        metric = needed("mlflow.entities", "mlflow").Metric
        now = int(time.time() * 1000)
        metrics = [metric(_name(k), v, now, round_index) for k, v in figures.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, figures: Figures) -> None:
        """Write the final figures that do not stand there, and end the MLflow run."""
        held = self._client.get_run(self._run).data.metrics
        new = {k: v for k, v in figures.items() if held.get(_name(k)) != v}
        if new:
            self.log(0, new)
        self._client.set_terminated(self._run)


def _name(figure: str) -> str:
    """Return a figure's name with the characters of others as their numbers."""
    return ODD.sub(lambda found: f"_{ord(found[0]):x}_", figure)
