"""A tracker of a user's own: a line of JSON per round, in a file of the run's folder."""

import json
from pathlib import Path

import covey


class Lines(covey.Tracker):
    """Appends to `NAME.jsonl`."""

    file: str = "rounds"
    _path: Path = Path()

    def begin(self, run: covey.TrackedRun) -> None:
        self._path = run.folder / f"{self.file}.jsonl"

    def log(self, round_index: int, figures: covey.Figures) -> None:
        self._append(round_index, figures)

    def close(self) -> None:
        self._append("end", {})

    def _append(self, what: int | str, figures: covey.Figures) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([what, figures]) + "\n")
