"""Runs of Weights & Biases."""

import os
import shutil
from typing import Any, Literal

from covey.tracking.base import Figures, TrackedRun, Tracker, needed

__all__ = ["WeightsAndBiases"]


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
