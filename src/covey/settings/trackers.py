"""What else records a run's rounds: TensorBoard, MLflow, Weights & Biases."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import field_validator

from covey.base.components import Component
from covey.base.errors import ConfigError
from covey.base.names import how_to_install

Figures = Mapping[str, float]
"""Figures by name, such as `accuracy`, `accuracy/GROUP`, `risk/cluster_0`.

What is not known is not among them.
"""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run, as a tracker sees it. No client's name is in it, nor in any figure.

    Attributes:
        name: of its folder.
        id: drawn once, and the same however often the run is carried on.
        replays: how often rounds of it were rolled back so far.
        folder: the tracker's own place, inside the run's folder.
        settings: those that are numbers, truths or one of several words, by
            `section.key`. Paths and other free texts stay where they are.
    """

    name: str
    id: str
    replays: int
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Tracker(Component):
    """Keeps the figures of a run's rounds somewhere else.

    Your own derives from this and writes `begin` and `log`; keep what you open in fields
    whose names begin with an underscore. It is called in a thread of its own. What it
    raises ends the tracking, with a warning, and never the run.
    """

    def begin(self, run: TrackedRun) -> int:
        """Open what is needed, and return how many rounds are held there already.

        Called when a run is started or carried on, and again whenever its rounds were
        rolled back: then none of them counts any more, and `replays` is higher. What this
        returns is not passed again. Return 0 to get all rounds from the first one.
        """
        raise NotImplementedError

    def log(self, round_index: int, figures: Figures) -> None:
        """Keep the figures of a round; each is passed once, in order."""
        raise NotImplementedError

    def end(self, figures: Figures) -> None:
        """Keep the final figures, if the run came to its end; again if it is resumed."""

    def close(self) -> None:
        """Close what `begin` opened: nothing more comes for now."""


def needed(module: str, extra: str) -> Any:  # noqa: ANN401 - a module
    """Import a library that covey does not bring by itself.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} must be installed, but: {error}. Install it: {how_to_install(extra)}."
        ) from error


PATIENCE = 10.0
"""Seconds without a sign of life after which the end is not waited for any more."""

T = TypeVar("T")


class Background(Generic[T]):
    """Hands the newest of what it gets to a tracker that may be slow, hang or fail.

    The caller never waits: only the newest is kept, so it must hold what came before.
    """

    def __init__(
        self,
        act: Callable[[T], Iterator[object]],
        close: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """Start the thread.

        Args:
            act: called with the newest; each thing that it yields is a sign of life.
            close: called last, if nothing failed.
            failed: called once with what happened, if `act` or `close` raised or hung.
        """
        self._act, self._close, self._failed = act, close, failed
        self._changed = Condition()
        self._newest: T | None = None
        self._closing = self._idle = self._lost = False
        self._alive = monotonic()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, newest: T) -> None:
        """Have this handed on, once what came before is done with."""
        with self._changed:
            self._newest = newest
            self._changed.notify()

    def stop(self) -> None:
        """Have it end after the newest; see `wait`."""
        with self._changed:
            self._closing = True
            self._alive = monotonic() if self._idle else self._alive
            self._changed.notify()

    def wait(self) -> None:
        """Wait for the end, as long as there are signs of life."""
        while self._thread.is_alive():
            left = self._alive + PATIENCE - monotonic()
            if left <= 0:
                return self._lose(f"it has not answered for {PATIENCE:g} s")
            self._thread.join(left)
        return None

    def _work(self) -> None:
        try:
            while (newest := self._next()) is not None:
                for _ in self._act(newest):
                    self._alive = monotonic()
                    if self._lost:
                        return
            self._close()
        except BaseException as error:  # whatever somebody's code raises
            self._lose(f"{type(error).__name__}: {error}")

    def _next(self) -> T | None:
        """Wait for the newest; None: there will be none."""
        with self._changed:
            self._idle = True
            self._changed.wait_for(lambda: self._newest is not None or self._closing)
            self._idle, self._alive = False, monotonic()
            newest, self._newest = self._newest, None
            return newest

    def _lose(self, why: str) -> None:
        with self._changed:
            known, self._lost = self._lost, True
        if not known:
            self._failed(why)


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
    def _has_no_password(cls, uri: str) -> str:
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


class TensorBoard(Tracker):
    """Writes scalars that `tensorboard --logdir RUN/tracking` shows.

    They are single precision, as TensorBoard keeps them. A run that is carried on, or
    whose rounds were rolled back, is written again as a whole in place of what was there.
    """

    folder: str = ""
    """Where the runs' folders are to be; else the run's own."""
    _writer: Any = None

    def begin(self, run: TrackedRun) -> int:
        """Begin a new file, and make readers of the earlier one forget it."""
        board = needed("torch.utils.tensorboard", "tensorboard")
        place, mark = self._place(run), f".{run.id}"
        for earlier in place.glob(f"events.out.tfevents.*{mark}"):
            earlier.unlink()
        self.close()
        self._writer = board.SummaryWriter(str(place), purge_step=0, filename_suffix=mark)
        rows = (f"| {key} | {value} |" for key, value in run.settings.items())
        table = "\n".join(("| setting | value |", "|---|---|", *rows))
        self._writer.add_text("settings", table)
        return 0

    def log(self, round_index: int, figures: Figures) -> None:
        """Write a point of each curve."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round_index)
        self._writer.flush()

    def end(self, figures: Figures) -> None:
        """Write the final figures, as curves of one point."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, 0)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _place(self, run: TrackedRun) -> Path:
        return Path(self.folder, run.name) if self.folder else run.folder


class WeightsAndBiases(Tracker):
    """Writes one run of Weights & Biases.

    Offline, into the run's folder, for `wandb sync`: a run that is carried on is written
    again as a whole in place of what was there. Nothing but figures and settings is
    written: no output of the program, no host, no arguments, no code. Online, W&B says
    how many rounds it holds. A run whose rounds were rolled back has an id of its own.
    """

    project: str = "covey"
    entity: str = ""
    mode: Literal["offline", "online"] = "offline"
    """What `WANDB_MODE` says of the user's environment comes first."""
    _run: Any = None

    def begin(self, run: TrackedRun) -> int:
        """Begin a W&B run, or go on with it where it is online."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        library = needed("wandb", "wandb")
        mode = os.environ.get("WANDB_MODE") or self.mode
        self.close()
        if mode == "offline":
            shutil.rmtree(run.folder / "wandb", ignore_errors=True)
        self._run = library.init(
            entity=self.entity or None,
            project=self.project,
            id=f"{run.id}-{run.replays}" if run.replays else run.id,
            name=run.name,
            dir=str(run.folder),
            config=dict(run.settings),
            mode=mode,
            resume="allow" if mode == "online" else None,
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
        return self._run.step if mode == "online" else 0

    def log(self, round_index: int, figures: Figures) -> None:
        """Write a step of the history."""
        self._run.log(dict(figures), step=round_index, commit=True)

    def end(self, figures: Figures) -> None:
        """Write the final figures into the summary."""
        self._run.summary.update(dict(figures))

    def close(self) -> None:
        """Wait until all of it is written."""
        if self._run is not None:
            self._run.finish()
            self._run = None
