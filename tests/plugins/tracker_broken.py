"""A tracker of a user's own that fails, or never answers."""

from threading import Event
from typing import Literal

import covey


class Broken(covey.Tracker):
    when: Literal["begin", "log", "close"] = "log"
    how: Literal["fails", "hangs"] = "fails"

    def begin(self, run: covey.TrackedRun) -> None:
        self._break("begin")

    def log(self, round_index: int, figures: covey.Figures) -> None:
        self._break("log")

    def close(self) -> None:
        self._break("close")

    def _break(self, where: str) -> None:
        if where == self.when and self.how == "hangs":
            Event().wait()
        if where == self.when:
            raise OSError(f"no answer to {where}")
