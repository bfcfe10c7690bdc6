"""What a tracker is, and what it is told of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from covey.components.component import Component
from covey.components.registry import create
from covey.errors import ConfigError

__all__ = ["Figures", "TrackedRun", "Tracker", "needed", "tracker_of"]

Figures = Mapping[str, float]
"""Figures by name, such as `accuracy`, `accuracy/GROUP`, `risk/cluster_0`.

What is not known is not among them.
"""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run, as a tracker is told of it. No client's name is in it, nor in any figure.

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
        returns is not told again. Return 0 to be told of all rounds from the first one.
        """
        raise NotImplementedError

    def log(self, round_index: int, figures: Figures) -> None:
        """Keep the figures of a round; each is told once, in order."""
        raise NotImplementedError

    def end(self, figures: Figures) -> None:
        """Keep the final figures, if the run came to its end; again if it is resumed."""

    def close(self) -> None:
        """Close what `begin` opened: nothing more is told for now."""


def tracker_of(name: str, options: Mapping[str, object]) -> Tracker:
    """Return the tracker of this name with these options.

    Raises:
        ConfigError: there is none, or it has no such options.
    """
    key = "tracking"
    made = create("tracker", name, options, key, Tracker)
    if isinstance(made, Tracker):
        return made
    raise ConfigError(
        f"{key} must name classes derived from covey.Tracker, found the function "
        f"{name!r}. Derive a class."
    )


def needed(module: str, extra: str) -> Any:  # noqa: ANN401 - a module
    """Import a library that covey does not bring by itself.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} must be installed, but: {error}. Install it: pip install "
            f"'covey[{extra}]'."
        ) from error
