"""Several runs side by side: means over seeds, labels, tables, frames."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import isnan, nan
from statistics import mean, stdev
from typing import Any

import tomli_w

from covey.base.built_ins import BASELINE, LOSS, REFERENCES
from covey.base.errors import ConfigError
from covey.base.figure import Figure
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.dp.status import guarantee_status
from covey.report.clients import ClientSummary, client_summaries, diverged_sentences, strongest
from covey.report.queries import OVERALL, Reported, accuracies, group_sizes, home_of, utility
from covey.report.summary import NO_GROUPS, violations

INERT = ("engine.", "checkpoints.", "data.dir")
"""Settings that change no result."""
OF_THE_METHOD = ("method.", "risk.")
NAMED = ("method.name", "method.selection.name")


def _twin(run: Reported) -> dict[str, Any]:
    """Return what runs must share, seed included, to differ by their method alone."""
    return _without(run.settings, *INERT, *OF_THE_METHOD)


def labels(runs: Sequence[Reported]) -> list[str]:
    """Return per run its method and what distinguishes it; seeds of a setting agree."""
    matters = [_without(run.settings, "seed", *INERT) for run in runs]
    keys = dict.fromkeys(key for settings in matters for key in settings if key not in NAMED)
    differing = [
        key for key in keys if len({settings[key] for settings in matters if key in settings}) > 1
    ]
    names: list[str] = []
    for run, settings in zip(runs, matters, strict=True):
        apart = (f"{key}={settings[key]}" for key in differing if key in settings)
        names.append(" ".join(filter(None, [run.method, run.selection, *apart])))
    return names


def with_baselines(runs: Sequence[Reported]) -> list[Reported]:
    """Return the runs, and their FedAvg baselines as runs of their own, each once."""
    known = [_twin(run) for run in runs if run.method == BASELINE]
    every = list(runs)
    for run in runs:
        if run.baseline is not None and _twin(run) not in known:
            known.append(_twin(run))
            settings = {**tomllib.loads(run.config_toml), "method": {"name": BASELINE}}
            beside = {"name": f"{run.name} (its FedAvg)", "config_toml": tomli_w.dumps(settings)}
            every.append(replace(run, history=run.baseline, baseline=None, **beside))
    return every


def _without(settings: Mapping[str, Any], *prefixes: str) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if not k.startswith(prefixes)}


Metrics = dict[str, float]
"""What means are of, by name; NaN: it is not known."""
Spread = dict[str, Any]
"""A mean over runs with its deviation; None: unknown, and `reason` says why."""


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
            **{f"minus_{method}": _against(method, same, every) for method in REFERENCES},
        }
        for label, same in settings.items()
    ]


def _against(
    method: str, same: Sequence[Reported], every: Sequence[Reported]
) -> dict[str, Any] | None:
    """Return the spreads of differences to the method's runs on the same data and seed."""
    differences: list[Metrics] = []
    for run in same:
        others = [o for o in every if o.method == method != run.method]
        if twins := [o for o in others if _twin(o) == _twin(run)]:  # nearest in the rest
            settings = run.settings.items()
            nearest = max(twins, key=lambda o: len(settings & o.settings.items()))
            theirs = _metrics(nearest)
            differences.append({key: mine - theirs[key] for key, mine in _metrics(run).items()})
    return _spreads(differences) if differences else None


def _metrics(run: Reported) -> Metrics:
    by_group, above = accuracies(run.history), violations(run.history, LOSS)
    metrics = {
        "accuracy": by_group[OVERALL],
        "minority_accuracy": by_group.get(next(iter(group_sizes(run.history)), "")),
        "violations": None if above.unknown else above.count,
    }
    return {key: nan if value is None else float(value) for key, value in metrics.items()}


def _spreads(rows: Sequence[Metrics]) -> dict[str, Spread]:
    return {key: spread_over([row[key] for row in rows]) for key in rows[0]}


def spread_over(values: Sequence[float]) -> Spread:
    """Return mean and deviation; one unknown makes both so, or the mean would mislead."""
    known, runs = [value for value in values if not isnan(value)], len(values)
    missing = runs - len(known)
    alone = "" if runs > 1 else "one run has no deviation"
    return {
        "mean": None if missing else mean(known),
        "deviation": None if missing or runs < 2 else stdev(known),
        "runs": runs,
        "reason": f"unknown in {missing} of {runs} runs" if missing else alone,
    }


def comparison(runs: Sequence[Reported]) -> list[dict[str, Any]]:
    """Return one row per run, and one per FedAvg baseline that no run is.

    All rows have the same keys: name, method, selection, seed, accuracy, per group
    accuracy_GROUP, per metric of the settings metric_NAME, violations by point estimate and by
    95% lower bound, counted with the loss threshold, which is tried at the end of every run;
    the true risk (with its standard error) of the cluster that holds most of the smallest
    group and of the one that holds most of the largest, adjusted_rand_index; the clusters
    whose model diverged; the epsilon that holds and for whom (unit), None without one, and
    whose noise is behind it; and in `reason` why some figure is None.
    """
    every = with_baselines(runs)
    groups = dict.fromkeys(g for run in every for g in group_sizes(run.history))
    missing = {f"metric_{m.metric}": None for run in every for m in run.history.metrics}
    return [
        _row(run, list(groups))
        | missing
        | {f"metric_{metric.metric}": metric.value for metric in run.history.metrics}
        for run in every
    ]


def _row(run: Reported, groups: Sequence[str]) -> dict[str, Any]:
    history, settings = run.history, run.settings
    by_group, above = accuracies(history), violations(history, LOSS)
    guarantee, finished = guarantee_status(history).guarantee, history.finished
    sizes = list(group_sizes(history))
    homes = {"minority": sizes[:1], "majority": sizes[-1:]}
    truths = {
        side: home.truth if named and (home := home_of(history, *named)) else None
        for side, named in homes.items()
    }
    noise = (
        ("on sets", settings.get("aggregation.noise") == "sound"),
        ("on sums", settings.get("privacy.client_noise", 0) > 0),
        ("on gradients", settings.get("privacy.record_noise", 0) > 0),
    )
    reasons = diverged_sentences(history)
    if finished is None:
        reasons.insert(0, "not finished")
    elif not sizes:
        reasons.append(NO_GROUPS)
    else:
        refused = (truth for truth in truths.values() if truth and not truth.is_known)
        reasons += [estimate.reason for estimate in refused if not estimate.diverged]
    return {
        "name": run.name,
        "method": run.method,
        "selection": run.selection,
        "seed": settings.get("seed"),
        "accuracy": by_group[OVERALL],
        **{f"accuracy_{group}": by_group.get(group) for group in groups},
        "squared_error": finished.squared_error if finished else None,
        "violations": above.count,
        "violations_lower": above.count_lower,
        "violations_unknown": above.unknown,
        **{
            f"true_risk_{side}{part}": getattr(truth.figure, kind) if truth else None
            for side, truth in truths.items()
            for part, kind in (("", "value"), ("_standard_error", "error"))
        },
        "adjusted_rand_index": finished.adjusted_rand_index if finished else None,
        "diverged": sorted(history.diverged),
        "epsilon": guarantee.epsilon if guarantee else None,
        "unit": guarantee.unit if guarantee else None,
        "noise": " and ".join(name for name, is_used in noise if is_used),
        "reason": "; ".join(dict.fromkeys(reasons)),
    }


@dataclass(frozen=True, slots=True)
class Compared:
    """The figures of one of several runs on the same data, as a terminal shows them.

    Attributes:
        measure: what `overall` and `minority` are: "accuracy", or "mean squared error".
        overall: on unseen data, the mean over clients.
        minority: the same of the smallest group.
        risk: the highest of a client's final model, by the strongest attack on it.
        attack: that attack; None: no risk is known.
        violations: clients above the accepted risk, by the strongest attacks.
        unknown: of how many clients each is unknown: by `overall`, `minority`, `risk`,
            `violations`.
    """

    method: str
    measure: str
    overall: float | None
    minority: float | None
    risk: Figure
    attack: str | None
    violations: int | None
    unknown: Mapping[str, int]


def compared(history: History) -> Compared:
    """Return a finished run's figures, each with how many clients it is unknown of."""
    quality, above = utility(history), violations(history)
    ends = client_summaries(history).values()
    smallest = next(iter(group_sizes(history)), "")
    unjudged = [end for end in ends if not _is_judged(end)]
    risks = [end.risk for end in ends if end.risk is not None]
    highest = strongest(risks)
    return Compared(
        method=history.started.method if history.started else "unknown",
        measure=quality.name,
        overall=quality.overall,
        minority=quality.by_group.get(smallest),
        risk=highest.figure if highest else Figure.unknown(above.reason),
        attack=highest.source if highest else None,
        violations=above.count,
        unknown={
            "overall": len(unjudged),
            "minority": sum(client.group == smallest for client in unjudged),
            "risk": len(ends) - len(risks),
            "violations": above.unknown,
        },
    )


def _is_judged(client: ClientSummary) -> bool:
    end = client.end
    return end is not None and not (end.accuracy is None and end.squared_error is None)


def client_rows(history: History, names: Mapping[ClientName, Handle]) -> list[dict[str, Any]]:
    """Return one row per client that has not left, by name.

    threshold: the highest risk that it accepts. risk: the newest estimate of its
    cluster's that is still valid; true_risk: what only a simulation can measure at the end,
    by the strongest attack that was run, which `attack` names; exposure: the highest true
    risk of all models that its examples ever reached. A figure that is not known is None.
    """
    known = client_summaries(history, names.values())
    return [
        {
            "name": name,
            "group": value.group,
            "cluster": value.cluster,
            "threshold": value.threshold,
            "risk": value.measured.risk if value.measured else None,
            "risk_standard_error": value.measured.standard_error if value.measured else None,
            "accuracy": value.end.accuracy if value.end else None,
            "squared_error": value.end.squared_error if value.end else None,
            "true_risk": value.risk.risk if value.risk else None,
            "true_risk_standard_error": value.risk.standard_error if value.risk else None,
            "attack": value.risk.source if value.risk else None,
            "exposure": value.exposure.value,
            **{metric.metric: metric.clients.get(value.handle) for metric in history.metrics},
        }
        for name in sorted(names)
        for value in [known[names[name]]]
    ]


def frame_of(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - pandas has no types
    """Return rows as a pandas DataFrame; what is not known is missing in it.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise ConfigError(
            "A frame needs pandas, found none: pip install pandas, or take figures of groups and "
            "clusters from run.summary, and of rounds from metrics.csv, which run.report() writes."
        ) from error
    return pandas.DataFrame(rows)
