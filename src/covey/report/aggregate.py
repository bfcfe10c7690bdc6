"""Settings side by side: means over seeds, and differences pair by pair."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from covey.components.built_ins import REFERENCES
from covey.report.attacks import LOSS
from covey.report.queries import OVERALL, Reported, accuracies, group_sizes
from covey.report.run_labels import labels, method_of, settings_of, twin, with_baselines
from covey.report.run_summary import violations

__all__ = ["means"]

METRICS = ("accuracy", "minority_accuracy", "violations")

Metrics = dict[str, float | None]


def means(runs: Sequence[Reported]) -> list[dict[str, Any]]:
    """Return one row per setting: mean and standard deviation over its seeds.

    `diverged` counts the runs in which a model diverged: what rests on it is unknown, and
    so is every mean over it.

    `minus_fedavg` and `minus_ifca` are differences to the runs of that method on the
    same data with the same seed, pair by pair; None where there are no such runs. A
    minority is the smallest group.
    """
    every = with_baselines(runs)
    settings: dict[str, list[Reported]] = {}
    for run, label in zip(every, labels(every), strict=True):
        settings.setdefault(label, []).append(run)
    return [
        {
            "setting": label,
            "runs": len(same),
            "diverged": sum(bool(run.history.diverged) for run in same),
            **_spreads([_metrics(run) for run in same]),
            **{
                f"minus_{method}": _against(method, same, every)
                for method in REFERENCES
            },
        }
        for label, same in settings.items()
    ]


def _against(
    method: str, same: Sequence[Reported], every: Sequence[Reported]
) -> dict[str, Any] | None:
    pairs = [(run, _reference(run, method, every)) for run in same]
    differences = [
        _difference(_metrics(run), _metrics(other)) for run, other in pairs if other
    ]
    return _spreads(differences) if differences else None


def _reference(
    run: Reported, method: str, every: Sequence[Reported]
) -> Reported | None:
    """Return the run of that method on the same data and seed, nearest in the rest."""
    if method_of(run) == method:
        return None
    twins = [o for o in every if method_of(o) == method and twin(o) == twin(run)]
    mine = settings_of(run).items()
    return max(twins, key=lambda o: len(mine & settings_of(o).items()), default=None)


def _metrics(run: Reported) -> Metrics:
    found, above = accuracies(run.history), violations(run.history, LOSS)
    smallest = next(iter(group_sizes(run.history)), None)
    count = None if above["unknown"] else above["count"]
    return {
        "accuracy": found[OVERALL],
        "minority_accuracy": found[smallest] if smallest else None,
        "violations": None if count is None else float(count),
    }


def _difference(mine: Metrics, theirs: Metrics) -> Metrics:
    def minus(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one - other

    return {key: minus(mine[key], theirs[key]) for key in METRICS}


def _spreads(rows: Sequence[Metrics]) -> dict[str, dict[str, Any]]:
    return {key: _spread([row[key] for row in rows]) for key in METRICS}


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean and deviation; one unknown makes both so, or the mean would mislead."""
    known = [float(value) for value in values if value is not None]
    number = len(values)
    if len(known) < number:
        reason = f"unknown in {number - len(known)} of {number} runs"
        return {"mean": None, "deviation": None, "runs": number, "reason": reason}
    return {
        "mean": mean(known),
        "deviation": stdev(known) if number > 1 else None,
        "runs": number,
        "reason": "" if number > 1 else "one run has no deviation",
    }
