"""What is measured in a finished run, by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from covey.api import load
from covey.history import History
from covey.metrics import GAPS
from covey.report import (
    LOSS,
    OVERALL,
    accuracies,
    group_sizes,
    home_of,
    summary,
    violations,
)
from covey_papers.reproduce.nonmember_mismatch import KINDS, Attacked, attacked
from covey_papers.reproduce.reasons import non_members_reason

__all__ = ["MEASURES", "Measure", "Seen"]

Value = float | None


@dataclass(frozen=True)  # no slots: what several measures ask for is found once
class Seen:
    """A finished run, as a measure looks at it."""

    path: Path
    history: History

    @classmethod
    def of(cls, path: Path) -> "Seen":
        """Read a run."""
        return cls(path, load(path).history)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What `covey run --json` prints of it."""
        return summary(self.history)

    @cached_property
    def attacked(self) -> tuple[Attacked, ...]:
        """Its models, attacked with each kind of non-members."""
        return attacked(self.path)

    def group(self, which: int) -> str:
        """Return the smallest group's name (0), or the largest one's (-1)."""
        named = [g for g in ("minority", "majority") if g in group_sizes(self.history)]
        return (named or list(group_sizes(self.history)))[which]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a run.

    Attributes:
        title: how it is called in a table.
        of: finds it; None where it is unknown.
        why: what runs themselves show of why a paper's number may lie elsewhere.
    """

    title: str
    of: Callable[[Seen], Value]
    why: Callable[[Sequence[Seen]], str] = lambda _: ""


def _accuracy(which: int) -> Callable[[Seen], Value]:
    return lambda seen: accuracies(seen.history)[seen.group(which)]


def _true_risk(which: int) -> Callable[[Seen], Value]:
    def of(seen: Seen) -> Value:
        home = home_of(seen.history, seen.group(which))
        return home.true_risk if home else None

    return of


def _told_risk(which: int) -> Callable[[Seen], Value]:
    def of(seen: Seen) -> Value:
        home = home_of(seen.history, seen.group(which))
        figure = seen.history.figures.get(home.cluster) if home else None
        return figure.risk if figure else None

    return of


def _attacked(which: int, kind: str, what: str) -> Callable[[Seen], Value]:
    def of(seen: Seen) -> Value:
        group = seen.group(which)
        (found,) = (
            each
            for each in seen.attacked
            if (each.non_members, each.group) == (kind, group)
        )
        return getattr(found, what)

    return of


def _non_members(which: int) -> Callable[[Sequence[Seen]], str]:
    measured = _true_risk(which)
    pooled, blind = (_attacked(which, "pooled", what) for what in ("risk", "blind"))

    def why(seen: Sequence[Seen]) -> str:
        values = ([of(each) for each in seen] for of in (measured, pooled, blind))
        return non_members_reason(*values)

    return why


def _violations(key: str) -> Callable[[Seen], Value]:
    """Count with the papers' attack, whatever others were run."""

    def of(seen: Seen) -> Value:
        count = violations(seen.history, LOSS)[key]
        return None if count is None else float(count)

    return of


def _summarised(*keys: str) -> Callable[[Seen], Value]:
    def of(seen: Seen) -> Value:
        found: Any = seen.summary
        for key in keys:
            found = None if found is None else found[key]
        return None if found is None else float(found)

    return of


GROUPS = {"majority": -1, "minority": 0}

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "accuracy": Measure("accuracy", lambda s: accuracies(s.history)[OVERALL]),
        **{
            f"accuracy_{name}": Measure(f"accuracy, {name}", _accuracy(which))
            for name, which in GROUPS.items()
        },
        **{
            f"mia_{name}": Measure(
                f"MIA accuracy, {name}", _true_risk(which), _non_members(which)
            )
            for name, which in GROUPS.items()
        },
        **{
            f"told_{name}": Measure(f"risk as told, {name}", _told_risk(which))
            for name, which in GROUPS.items()
        },
        **{
            f"mia_{name}_{kind}": Measure(
                f"MIA accuracy, {name}, {kind} non-members",
                _attacked(which, kind, "risk"),
            )
            for name, which in GROUPS.items()
            for kind in KINDS
        },
        **{
            f"blind_{name}_{kind}": Measure(
                f"without the model, {name}, {kind} non-members",
                _attacked(which, kind, "blind"),
            )
            for name, which in GROUPS.items()
            for kind in KINDS
        },
        "violations": Measure("violations", _violations("count")),
        "violations_lower": Measure(
            "violations, 95% lower bound", _violations("count_lower")
        ),
        "violations_exposed": Measure(
            "clients ever exposed above their threshold",
            _violations("count_exposed"),
        ),
        "exposure": Measure("mean exposure", _summarised("exposure", "mean")),
        **{
            gap: Measure(gap.replace("_", " "), _summarised("fairness", gap, "mean"))
            for gap in GAPS
        },
        "adjusted_rand_index": Measure(
            "adjusted Rand index", _summarised("adjusted_rand_index")
        ),
    }
)
