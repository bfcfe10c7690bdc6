"""Trackers: components that record the figures of a run's rounds somewhere else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.base.components import Component

Figures = Mapping[str, float]
"""Figures by name, such as `accuracy`, `accuracy/GROUP`, `risk/cluster_0`.

Unknown figures are omitted.
"""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run, as a tracker sees it. No client's name is in it, nor in any figure.

    Attributes:
        name: of its folder.
        folder: the tracker's own place, inside the run's folder.
        settings: those that are numbers, truths or one of several words, by
            `section.key`. Paths and other free texts stay where they are.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Tracker(Component):
    """Records the figures of a run's rounds somewhere else.

    Your own derives from this and writes `log`; what `begin` opens stands in fields whose names
    begin with an underscore. All is called in one thread, beside the run. An exception ends the
    tracking with a warning, and never the run.
    """

    def begin(self, run: TrackedRun) -> None:
        """Open what is needed: a run was started or resumed."""

    def log(self, round_index: int, figures: Figures) -> None:
        """Record a round, once it is played: a replay after a client left comes again."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what `begin` opened: the run ended or stopped."""
