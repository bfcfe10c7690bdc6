"""A tracker of a user's own: a line of JSON per round, in a file of the run's folder."""

import json
from pathlib import Path

import covey


class Lines(covey.Tracker):
    """Appends to `NAME-REPLAYS.jsonl`, and goes on where it stopped."""

    file: str = "rounds"
    _path: Path = Path()

    def begin(self, run: covey.TrackedRun) -> int:
        self._path = run.folder / f"{self.file}-{run.replays}.jsonl"
        self._path.touch()
        whole = [
            each
            for each in self._path.read_text().splitlines(keepends=True)
            if each.endswith("\n") and not each.startswith('["end"')
        ]
        self._path.write_text("".join(whole))  # without what a kill cut off
        return len(whole)

    def log(self, round_index: int, figures: covey.Figures) -> None:
        self._append(round_index, figures)

    def end(self, figures: covey.Figures) -> None:
        self._append("end", figures)

    def _append(self, what: int | str, figures: covey.Figures) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([what, figures]) + "\n")
