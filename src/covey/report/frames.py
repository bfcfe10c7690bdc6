"""A run's clients as a table, and tables as frames, for notebooks and statistics."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from covey.errors import ConfigError
from covey.history import History
from covey.report.attacks import final_exposure, final_risk
from covey.report.run_summary import client_groups
from covey.types import ClientName, Handle

__all__ = ["client_rows", "frame_of"]


def client_rows(
    history: History, names: Mapping[ClientName, Handle]
) -> list[dict[str, Any]]:
    """Return one row per client that has not left, by name.

    threshold: the highest risk that it accepts. risk: the newest estimate of its
    cluster's that is still valid; true_risk: what a simulation knows of it at the end,
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
                "attack": true.attack if true else None,
                "exposure": final_exposure(history, end) if end else None,
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
