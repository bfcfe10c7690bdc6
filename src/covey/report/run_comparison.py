"""Several runs side by side, one row each."""

from collections.abc import Sequence
from typing import Any

from covey.history import History
from covey.membership import DIVERGED
from covey.report.attacks import LOSS
from covey.report.divergence import diverged_sentences
from covey.report.queries import OVERALL, Reported, accuracies, group_sizes, home_of
from covey.report.run_labels import (
    method_of,
    selection_of,
    settings_of,
    with_baselines,
)
from covey.report.run_summary import guarantee_of, violations

__all__ = ["comparison"]


def comparison(runs: Sequence[Reported]) -> list[dict[str, Any]]:
    """Return one row per run, and one per FedAvg baseline that no run is.

    All rows have the same keys: name, method, selection, seed, accuracy, per group
    accuracy_GROUP, violations by point estimate and by 95% lower bound, counted with
    the loss threshold, which is tried at the end of every run; the true risk
    (with its standard error) of the cluster that holds most of the smallest group and
    of the one that holds most of the largest, adjusted_rand_index; the clusters whose
    model diverged; the epsilon that
    holds and for whom (unit), None without one, and whose noise is behind it; and in
    `reason` why some figure is None.
    """
    every = with_baselines(runs)
    groups = dict.fromkeys(g for run in every for g in group_sizes(run.history))
    return [_row(run, list(groups)) for run in every]


def _row(run: Reported, groups: Sequence[str]) -> dict[str, Any]:
    found, above = accuracies(run.history), violations(run.history, LOSS)
    guarantee = guarantee_of(run.history)["guarantee"]
    sizes = list(group_sizes(run.history))
    finished = run.history.finished
    return {
        "name": run.name,
        "method": method_of(run),
        "selection": selection_of(run),
        "seed": settings_of(run).get("seed"),
        "accuracy": found[OVERALL],
        **{f"accuracy_{group}": found.get(group) for group in groups},
        "squared_error": finished.squared_error if finished else None,
        "violations": above["count"],
        "violations_lower": above["count_lower"],
        "violations_unknown": above["unknown"],
        **_risk(run.history, "minority", sizes[:1]),
        **_risk(run.history, "majority", sizes[-1:]),
        "adjusted_rand_index": finished.adjusted_rand_index if finished else None,
        "diverged": sorted(run.history.diverged),
        "epsilon": guarantee["epsilon"] if guarantee else None,
        "unit": guarantee["unit"] if guarantee else None,
        "noise": _noise(run),
        "reason": _reason(run.history, [*sizes[:1], *sizes[-1:]]),
    }


def _risk(history: History, key: str, group: Sequence[str]) -> dict[str, float | None]:
    home = home_of(history, group[0]) if group else None
    return {
        f"true_risk_{key}": home.true_risk if home else None,
        f"true_risk_{key}_standard_error": home.standard_error if home else None,
    }


def _noise(run: Reported) -> str:
    """Return whose noise a run's settings ask for; empty where there is none."""
    settings = settings_of(run)
    named = (
        ("on sets", settings.get("merge.noise") == "sound"),
        ("on sums", settings.get("privacy.client_noise", 0) > 0),
        ("on gradients", settings.get("privacy.record_noise", 0) > 0),
    )
    return " and ".join(name for name, there in named if there)


def _reason(history: History, groups: Sequence[str]) -> str:
    if history.finished is None:
        return "; ".join(["not finished", *diverged_sentences(history)])
    if not groups:
        nothing = "the clients have no known groups"
        return "; ".join([*diverged_sentences(history), nothing])
    homes = [home_of(history, group) for group in groups]
    refused = [home.reason for home in homes if home and home.true_risk is None]
    if not history.diverged:
        return "; ".join(dict.fromkeys(refused))
    others = [reason for reason in refused if not reason.startswith(DIVERGED)]
    return "; ".join(dict.fromkeys([*diverged_sentences(history), *others]))
