"""Event files for TensorBoard."""

from pathlib import Path
from typing import Any

from covey.tracking.base import Figures, TrackedRun, Tracker, needed

__all__ = ["TensorBoard"]


class TensorBoard(Tracker):
    """Writes scalars that `tensorboard --logdir RUN/tracking` shows.

    They are single precision, as TensorBoard keeps them. A run that is carried on, or
    whose rounds were rolled back, is written again as a whole in place of what was there.
    """

    folder: str = ""
    """Where the runs' folders are to be; else the run's own."""
    _writer: Any = None

    def begin(self, run: TrackedRun) -> int:
        """Begin a new file, and tell readers of the earlier one to forget it."""
        board = needed("torch.utils.tensorboard", "tensorboard")
        place, mark = self._place(run), f".{run.id}"
        for earlier in place.glob(f"events.out.tfevents.*{mark}"):
            earlier.unlink()
        self.close()
        self._writer = board.SummaryWriter(
            str(place), purge_step=0, filename_suffix=mark
        )
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
