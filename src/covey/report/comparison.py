"""Several runs side by side: means over seeds, labels, tables, frames."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from statistics import mean, stdev
from typing import Any

import tomli_w

from covey.base.errors import ConfigError
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.components.built_ins import BASELINE, LOSS, REFERENCES
from covey.config.settings import flat
from covey.dp.status import guarantee_status
from covey.report.attacks import diverged_sentences, final_exposure, final_risk
from covey.report.queries import OVERALL, Reported, accuracies, group_sizes, home_of
from covey.report.summary import NO_GROUPS, client_groups, violations

INERT = ("engine.", "checkpoints.", "data.dir")
"""Settings that change no result."""
OF_THE_METHOD = ("method.", "risk.")
NAMED = ("method.name", "method.selection.name")


def settings_of(run: Reported) -> dict[str, Any]:
    """Return the run's settings as `section.key` to value, lists as texts."""
    return dict(_settings(run.config_toml))


@lru_cache(maxsize=64)
def _settings(config_toml: str) -> Mapping[str, Any]:
    """Return the settings, parsed once: pages ask for them at every round."""
    return {
        key: value if isinstance(value, (str, int, float)) else str(value)
        for key, value in flat(tomllib.loads(config_toml)).items()
    }


def method_of(run: Reported) -> str:
    """Return the method's name, as it was set or else as it was recorded."""
    recorded = run.history.started.method if run.history.started else "unknown"
    return settings_of(run).get("method.name", recorded)


def selection_of(run: Reported) -> str:
    """Return how clients choose, where the method lets them."""
    return settings_of(run).get("method.selection.name", "")


def _twin(run: Reported) -> dict[str, Any]:
    """Return what runs must share, seed included, to differ by their method alone."""
    return _without(settings_of(run), *INERT, *OF_THE_METHOD)


def labels(runs: Sequence[Reported]) -> list[str]:
    """Return per run its method and what distinguishes it; seeds of a setting agree."""
    matters = [_without(settings_of(run), "seed", *INERT) for run in runs]
    keys = dict.fromkeys(key for each in matters for key in each if key not in NAMED)
    differing = [key for key in keys if len({each[key] for each in matters if key in each}) > 1]
    found: list[str] = []
    for run, each in zip(runs, matters, strict=True):
        apart = (f"{key}={each[key]}" for key in differing if key in each)
        found.append(" ".join(filter(None, [method_of(run), selection_of(run), *apart])))
    return found


def with_baselines(runs: Sequence[Reported]) -> list[Reported]:
    """Return the runs, and their FedAvg baselines as runs of their own, each once."""
    known = [_twin(run) for run in runs if method_of(run) == BASELINE]
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
        twins = [o for o in every if method_of(o) == method != method_of(run)]
        twins = [other for other in twins if _twin(other) == _twin(run)]
        if twins:  # nearest in the rest
            settings = settings_of(run).items()
            nearest = max(twins, key=lambda o: len(settings & settings_of(o).items()))
            mine, theirs = _metrics(run), _metrics(nearest)
            pairs = {key: (mine[key], theirs[key]) for key in METRICS}
            differences.append(
                {k: None if a is None or b is None else a - b for k, (a, b) in pairs.items()}
            )
    return _spreads(differences) if differences else None


def _metrics(run: Reported) -> Metrics:
    by_group, above = accuracies(run.history), violations(run.history, LOSS)
    smallest = next(iter(group_sizes(run.history)), None)
    count = None if above.unknown else above.count
    return {
        "accuracy": by_group[OVERALL],
        "minority_accuracy": by_group[smallest] if smallest else None,
        "violations": None if count is None else float(count),
    }


def _spreads(rows: Sequence[Metrics]) -> dict[str, dict[str, Any]]:
    return {key: _spread([row[key] for row in rows]) for key in METRICS}


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean and deviation; one unknown makes both so, or the mean would mislead."""
    known, runs = [value for value in values if value is not None], len(values)
    if len(known) < runs:
        reason = f"unknown in {runs - len(known)} of {runs} runs"
        return {"mean": None, "deviation": None, "runs": runs, "reason": reason}
    return {
        "mean": mean(known),
        "deviation": stdev(known) if runs > 1 else None,
        "runs": runs,
        "reason": "" if runs > 1 else "one run has no deviation",
    }


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
    history, settings = run.history, settings_of(run)
    by_group, above = accuracies(history), violations(history, LOSS)
    guarantee, finished = guarantee_status(history).guarantee, history.finished
    sizes = list(group_sizes(history))
    ends = {"minority": sizes[:1], "majority": sizes[-1:]}
    homes = {side: home_of(history, *named) if named else None for side, named in ends.items()}
    noise = (
        ("on sets", settings.get("aggregation.noise") == "sound"),
        ("on sums", settings.get("privacy.client_noise", 0) > 0),
        ("on gradients", settings.get("privacy.record_noise", 0) > 0),
    )
    row = {
        "name": run.name,
        "method": method_of(run),
        "selection": selection_of(run),
        "seed": settings.get("seed"),
        "accuracy": by_group[OVERALL],
        **{f"accuracy_{group}": by_group.get(group) for group in groups},
        "squared_error": finished.squared_error if finished else None,
        "violations": above.count,
        "violations_lower": above.count_lower,
        "violations_unknown": above.unknown,
    }
    for side, home in homes.items():
        figure = home.truth.figure if home else Figure.unknown("")
        row[f"true_risk_{side}"] = figure.value
        row[f"true_risk_{side}_standard_error"] = figure.error
    refused = [each.truth for each in homes.values() if each and not each.truth.is_known]
    return row | {
        "adjusted_rand_index": finished.adjusted_rand_index if finished else None,
        "diverged": sorted(history.diverged),
        "epsilon": guarantee.epsilon if guarantee else None,
        "unit": guarantee.unit if guarantee else None,
        "noise": " and ".join(name for name, there in noise if there),
        "reason": _reason(history, refused),
    }


def _reason(history: History, refused: Sequence[RiskEstimate]) -> str:
    """Say why figures are None; `refused`: why the risks of groups are."""
    diverged = diverged_sentences(history)
    if history.finished is None:
        return "; ".join(["not finished", *diverged])
    if not group_sizes(history):
        return "; ".join([*diverged, NO_GROUPS])
    others = [each.reason for each in refused if not each.diverged]
    return "; ".join(dict.fromkeys([*diverged, *others]))


def client_rows(history: History, names: Mapping[ClientName, Handle]) -> list[dict[str, Any]]:
    """Return one row per client that has not left, by name.

    threshold: the highest risk that it accepts. risk: the newest estimate of its
    cluster's that is still valid; true_risk: what only a simulation can measure at the end,
    by the strongest attack that was run, which `attack` names; exposure: the highest true
    risk of all models that its examples ever reached. A figure that is not known is None.
    """
    began, groups = history.started, client_groups(history)
    thresholds = began.risk_thresholds if began else {}
    ends = {each.handle: each for each in history.exposures}
    rows: list[dict[str, Any]] = []
    for name, handle in sorted(names.items()):
        cluster, end = history.assignment.get(handle), ends.get(handle)
        risk = history.figures.get(cluster) if cluster is not None else None
        true = final_risk(history, end) if end else None
        rows.append(
            {
                "name": name,
                "group": groups.get(handle),
                "cluster": cluster,
                "threshold": thresholds.get(handle),
                "risk": risk.risk if risk else None,
                "risk_standard_error": risk.standard_error if risk else None,
                "accuracy": end.accuracy if end else None,
                "squared_error": end.squared_error if end else None,
                "true_risk": true.risk if true else None,
                "true_risk_standard_error": true.standard_error if true else None,
                "attack": true.source if true else None,
                "exposure": final_exposure(history, end).value if end else None,
                **{each.metric: each.clients.get(handle) for each in history.metrics},
            }
        )
    return rows


def frame_of(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - pandas has no types
    """Return rows as a pandas DataFrame; what is not known is missing in it.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise ConfigError(
            "A frame is one of pandas, and that is not installed. Install it: pip install "
            "pandas. Without it, run.summary holds the figures of groups and clusters, and "
            "metrics.csv, which run.report() writes, those of rounds."
        ) from error
    return pandas.DataFrame(rows)
