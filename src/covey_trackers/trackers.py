"""Three trackers of a run's rounds: TensorBoard, MLflow, Weights & Biases.

Each opens a record of its own in `begin`, writes a round's figures in `log`, and closes the record
in `close`. None reads or changes what it wrote before.
"""

import os
import re
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import field_validator

from covey import ConfigError, Figures, TrackedRun, Tracker
from covey.base.names import how_to_install

_PARAMETERS_PER_CALL = 100
"""Parameters that MLflow takes in one call."""

_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
"""Characters that no name of an MLflow metric may have."""


class TensorBoard(Tracker):
    """Writes scalars that `tensorboard --logdir RUN/tracking` shows.

    They are single precision, as TensorBoard keeps them. Each start of a run adds a file.
    """

    folder: str = ""
    """Where the runs' folders are to be; else the run's own."""
    _writer: Any = None

    def begin(self, run: TrackedRun) -> None:
        """Open a file, and write the settings into it as a table."""
        board = _library("torch.utils.tensorboard", "tensorboard")
        self._writer = board.SummaryWriter(
            str(Path(self.folder, run.name) if self.folder else run.folder)
        )
        rows = (f"| {key} | {value} |" for key, value in run.settings.items())
        table = "\n".join(("| setting | value |", "|---|---|", *rows))
        self._writer.add_text("settings", table)

    def log(self, round_index: int, figures: Figures) -> None:
        """Write a point of each curve."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round_index)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class MLflow(Tracker):
    """Writes metrics and parameters of one MLflow run for each start of a run.

    Into a database in the run's folder, which `mlflow ui --backend-store-uri
    sqlite:///RUN/tracking/mlflow/mlflow.db` shows.
    """

    uri: str = ""
    """Of another store; else `MLFLOW_TRACKING_URI`, if that is set, or the database."""
    experiment: str = "covey"
    _client: Any = None
    _run: str = ""

    @field_validator("uri")
    @classmethod
    def _has_no_password(cls, uri: str) -> str:
        if urlsplit(uri).password is not None:
            raise ValueError(
                "uri must hold no password, as settings are kept and shown, found one: put it into "
                "MLFLOW_TRACKING_URI, or into MLFLOW_TRACKING_PASSWORD."
            )
        return uri

    def begin(self, run: TrackedRun) -> None:
        """Create an MLflow run, and write the settings as its parameters."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        library = _library("mlflow", "mlflow")
        # quoted twice: SQLAlchemy reads a URL in it, and SQLite another
        database = quote((run.folder.resolve() / "mlflow.db").as_uri(), safe=":/")
        local = f"sqlite:///{database}?uri=true"
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or local
        self._client = library.MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(self.experiment)
        artifacts = (run.folder.resolve() / "files").as_uri() if uri == local else None
        experiment = (
            known.experiment_id
            if known
            else self._client.create_experiment(self.experiment, artifacts)
        )
        self._run = self._client.create_run(experiment, run_name=run.name).info.run_id
        param = _library("mlflow.entities", "mlflow").Param
        params = [param(key, str(value)) for key, value in run.settings.items()]
        for first in range(0, len(params), _PARAMETERS_PER_CALL):
            part = params[first : first + _PARAMETERS_PER_CALL]
            self._client.log_batch(self._run, params=part)

    def log(self, round_index: int, figures: Figures) -> None:
        """Write a round's figures in one call."""
        metric = _library("mlflow.entities", "mlflow").Metric
        now = int(time.time() * 1000)
        named = _with_allowed_names(figures).items()
        self._client.log_batch(
            self._run, metrics=[metric(name, value, now, round_index) for name, value in named]
        )

    def close(self) -> None:
        """End the MLflow run."""
        self._client.set_terminated(self._run)


def _with_allowed_names(figures: Figures) -> Mapping[str, float]:
    """Return the figures, with the numbers of those characters that MLflow does not allow."""
    return {
        _NOT_IN_NAMES.sub(lambda odd: f"_{ord(odd[0]):x}_", name): value
        for name, value in figures.items()
    }


class WeightsAndBiases(Tracker):
    """Writes one run of Weights & Biases for each start of a run.

    Offline, into the run's folder, for `wandb sync`. Nothing but figures and settings is
    written: no output of the program, no host, no arguments, no code.
    """

    project: str = "covey"
    entity: str = ""
    mode: Literal["offline", "online"] = "offline"
    """What `WANDB_MODE` says of the user's environment comes first."""
    _run: Any = None

    def begin(self, run: TrackedRun) -> None:
        """Begin a W&B run, with the settings as its configuration."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        library = _library("wandb", "wandb")
        self._run = library.init(
            entity=self.entity or None,
            project=self.project,
            name=run.name,
            dir=str(run.folder),
            config=dict(run.settings),
            mode=os.environ.get("WANDB_MODE") or self.mode,
            reinit="create_new",
            settings=library.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                host="",
                silent=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )

    def log(self, round_index: int, figures: Figures) -> None:
        """Write a step of the history."""
        self._run.log(dict(figures), step=round_index, commit=True)

    def close(self) -> None:
        """Wait until all of it is written."""
        self._run.finish()


def _library(module: str, extra: str) -> Any:  # noqa: ANN401 - a module
    """Import a library that an extra brings.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"The tracker {extra!r} needs its extra, found none ({error}): {how_to_install(extra)}."
        ) from error
