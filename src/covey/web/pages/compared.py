"""Two runs side by side, and the list of all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from covey.report import comparison, group_sizes, utility
from covey.report.attacks import LOSS
from covey.report.run_summary import violations
from covey.web.charts import Plot
from covey.web.followed_run import FollowedRun, Snapshot
from covey.web.pages.one_run import state_of
from covey.web.plots import compared_accuracy, risk_plot
from covey.web.watched_runs import WatchedRuns

__all__ = ["compared_page", "list_page"]


def list_page(runs: WatchedRuns) -> dict[str, Any]:
    """Return every run's line, the ones that wait for somebody first."""
    lines = [(run, runs.line(run)) for run in runs.all()]
    lines.sort(key=lambda each: each[1].last_event_at, reverse=True)
    return {
        "lines": lines,
        "roots": [str(each) for each in runs.roots],
        "waiting": sum(line.open_requests or 0 for _, line in lines),
    }


def compared_page(runs: WatchedRuns, keys: Sequence[str]) -> dict[str, Any]:
    """Return two runs with the same figures of both; without two keys, a choice."""
    chosen = [run for key in keys[:2] if (run := runs.get(key)) is not None]
    told = {"runs": runs.all(), "chosen": chosen, "columns": []}
    if len(chosen) < 2 or any(run.look().history.started is None for run in chosen):
        return {**told, "plots": [], "rows": []}
    names = _names(chosen)
    columns = [run.made("compared", partial(_figures, run)) for run in chosen]
    histories = [(n, r.look().history) for n, r in zip(names, chosen, strict=True)]
    groups = dict.fromkeys(g for _, h in histories for g in group_sizes(h))
    plots = [compared_accuracy(histories)]
    if smallest := next(iter(groups), ""):
        plots.append(compared_accuracy(histories, smallest))
    risks = [(name, risk_plot(history)) for name, history in histories]
    return {
        **told,
        "columns": names,
        "plots": plots,
        "risks": [_renamed(plot, name, i) for i, (name, plot) in enumerate(risks)],
        "rows": _rows(columns),
        "waits": not all(run.look().is_whole for run in chosen),
    }


def _names(chosen: Sequence[FollowedRun]) -> list[str]:
    first, second = chosen
    if first.name != second.name:
        return [first.name, second.name]
    return [str(first.folder.path), str(second.folder.path)]


def _renamed(plot: Plot, name: str, place: int) -> Plot:
    return replace(plot, key=f"risk-{place}", title=f"{plot.title}, {name}")


def _figures(run: FollowedRun, snapshot: Snapshot) -> Mapping[str, Any]:
    """Return a run's figures, as `covey report` compares them, by what they are called."""
    reported = run.reported(snapshot)
    history = snapshot.history
    (row,) = comparison([reported])
    good = utility(history)
    name = good.name.capitalize()
    groups = group_sizes(history)
    over = history.over()
    above = violations(history, LOSS)
    return {
        "Method": f"{row['method']} {row['selection']}".strip(),
        "State": state_of(snapshot),
        "Seed": row["seed"],
        name: (good.overall, "no round was measured"),
        **{f"{name}, {g}": (good.by_group.get(g), "not measured") for g in groups},
        "Clients above what they accept, by the figures now": over,
        "Violations, by the loss threshold at the end": above["count"],
        "of these, by the 95% lower bound": above["count_lower"],
        "True risk, smallest group": (row["true_risk_minority"], row["reason"]),
        "True risk, largest group": (row["true_risk_majority"], row["reason"]),
        "Adjusted Rand index": (row["adjusted_rand_index"], row["reason"]),
        "Epsilon": _epsilon(row) if snapshot.is_whole else "being read",
        "Ledger head": snapshot.head[:12],
    }


def _epsilon(row: Mapping[str, Any]) -> str:
    if row["epsilon"] is None:
        return "none"
    return f"{row['epsilon']:.3f} ({row['unit']})"


def _rows(
    columns: Sequence[Mapping[str, Any]],
) -> list[tuple[str, list[Any], str]]:
    """Return per figure its value in each run and, of two numbers, the difference."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows: list[tuple[str, list[Any], str]] = []
    for name in names:
        values = [column.get(name, "not in this run") for column in columns]
        plain = [v[0] if isinstance(v, tuple) else v for v in values]
        both = [float(v) for v in plain if isinstance(v, int | float)]
        gap = both[1] - both[0] if len(both) == 2 and name != "Seed" else None
        counts = all(isinstance(v, int) for v in plain)
        rows.append((name, values, _signed(gap, counts=counts)))
    return rows


def _signed(gap: float | None, *, counts: bool) -> str:
    """Return a difference with its sign; "" where there is none."""
    if gap is None:
        return ""
    return f"{gap:+.0f}" if counts else f"{gap:+.3f}"
