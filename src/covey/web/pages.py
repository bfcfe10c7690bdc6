"""Pages of runs: one, two side by side, all of them, and their documents."""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from covey.base.errors import CoveyError
from covey.base.files import read_bounded
from covey.base.history import History
from covey.base.names import Handle, __version__, round_number
from covey.dp.current_guarantee import epsilon_over_rounds
from covey.report.attacks import LOSS, diverged_sentences
from covey.report.comparison import comparison
from covey.report.page import audit_rows, run_view
from covey.report.queries import OVERALL, group_sizes, utility
from covey.report.summary import (
    PROMISE,
    budget_of,
    client_groups,
    early_end_told,
    estimate,
    guarantee_of,
    happenings,
    number,
    violations,
)
from covey.runtime.verification import verify
from covey.unlearning.proof import read_proof
from covey.unlearning.proof_text import sentences
from covey.unlearning.signature import Check
from covey.web.charts import (
    Plot,
    accuracy_plot,
    compared_accuracy,
    drawn,
    epsilon_plot,
    moves_plot,
    risk_plot,
    sizes_plot,
    table_of,
)
from covey.web.runs import FollowedRun, Snapshot, WatchedRuns

STATIC = {"page.css": "text/css", "live.js": "text/javascript"}

UNITS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("covey.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["round_number"] = round_number
    environment.globals |= {
        "age": age,
        "drawn": drawn,
        "estimate": estimate,
        "form_token": "",  # forms are on no page, unless it says so
        "number": number,
        "promise": PROMISE,
        "since": since,
        "size": size,
        "table_of": table_of,
        "version": __version__,
    }
    return environment


def page(template: str, told: Mapping[str, Any]) -> str:
    """Return a page of `templates`."""
    return _pages.get_template(template).render(told)


def static(name: str) -> bytes:
    """Return a file that pages load."""
    return files("covey.web").joinpath("static", name).read_bytes()


def age(seconds: float | None) -> str:
    """Return how long ago something was, in its largest unit."""
    if seconds is None:
        return "unknown"
    for length, unit in UNITS:
        if (count := int(seconds // length)) >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def since(written_at: str | None) -> str:
    """Return how long ago a time of the ledger was."""
    if not written_at:
        return "unknown"
    try:
        then = datetime.fromisoformat(written_at)
    except ValueError:
        return "unknown"
    return age((datetime.now(UTC) - then).total_seconds())


def size(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    value, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 1000 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


_pages = _environment()


MOST_LISTED = 50
POINTS = 10
"""Places at which the account of epsilon is drawn; each takes a moment to add up."""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """One cluster's figure beside what its clients accept.

    Attributes:
        above: clients that accept less than the figure; `above_lower`, than its 95%
            lower bound. None: the figure, or what clients accept, is unknown.
        why: what the figure rests on, or why there is none.
    """

    cluster: int
    clients: int
    risk: float | None
    standard_error: float | None
    round_index: int | None
    lowest: float | None
    middle: float | None
    above: int | None
    above_lower: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Above:
    """A client that accepts less than its cluster's figure."""

    handle: Handle
    cluster: int
    accepts: float
    risk: float
    group: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record of the ledger, newest first."""

    position: int
    round_index: int | None
    kind: str
    written_at: str
    counts: bool
    number: int


def run_page(run: FollowedRun) -> dict[str, Any]:
    """Return everything that the page of a run says."""
    snapshot = run.look()
    told = {"run": run, "snapshot": snapshot, "state": state_of(snapshot)}
    if snapshot.history.started is None:
        return {**told, "view": None}
    view: Mapping[str, Any] = run.made("run page", lambda now: _view(run, now))
    return {**told, **view, "privacy": run.made_later("privacy", _privacy_of(run))}


def state_of(snapshot: Snapshot) -> str:
    """Say in a few words how far a run is."""
    history = snapshot.history
    if history.started is None:
        return "not begun"
    if history.finished is not None:
        return early_end_told(history.ended_early) or "finished"
    return f"round {len(history.rounds)} of {history.started.rounds}"


def _view(run: FollowedRun, snapshot: Snapshot) -> dict[str, Any]:
    history = snapshot.history
    # what noise guarantees takes longer to add up, and is made apart
    quick = replace(history, told=(), hidden=())
    plots = [risk_plot(history), accuracy_plot(history), sizes_plot(history)]
    if snapshot.is_whole:
        plots.append(moves_plot(history))
    above = list(_above(history))
    return {
        "view": run_view(run.reported(replace(snapshot, history=quick))),
        "plots": {plot.key: plot for plot in plots},
        "now": [_now(snapshot, j) for j in range(_clusters(history))],
        "over": history.over(),
        "above": above[:MOST_LISTED],
        "above_rest": max(0, len(above) - MOST_LISTED),
        "why_not_over": _why_not_over(history),
        "diverged": diverged_sentences(history),
        "happenings": happenings(history)[::-1][:MOST_LISTED],
        "log": list(_log(snapshot)),
        "overall": OVERALL,
    }


def _privacy_of(run: FollowedRun) -> Any:  # noqa: ANN401 - called once for each head
    def privacy(snapshot: Snapshot) -> dict[str, Any]:
        history = snapshot.history
        merge = run.config.merge
        planned = merge.epsilon or None
        told = guarantee_of(history)
        spent = epsilon_over_rounds(history, POINTS) if told["guarantees"] else {}
        holds = told["guarantee"]
        left = planned - holds["epsilon"] if planned and holds else None
        plot: Plot | None = epsilon_plot(spent, planned) if spent else None
        return {
            **told,
            **budget_of(history),
            "planned": planned,
            "left": left,
            "plot": plot,
            "head": snapshot.head,
            "rounds": len(history.rounds),
        }

    return privacy


def _now(snapshot: Snapshot, cluster: int) -> ClusterNow:
    history = snapshot.history
    figure = history.figures.get(cluster)
    taus = history.started.risk_thresholds if history.started else {}
    inside = [h for h, j in history.assignment.items() if j == cluster]
    accepted = sorted(taus[h] for h in inside if h in taus)
    latest = [m.reason for m in history.measured if m.cluster == cluster][-1:]
    known = snapshot.is_whole and len(accepted) == len(inside)
    lower = figure.risk - 1.96 * figure.standard_error if figure else 0.0
    return ClusterNow(
        cluster=cluster,
        clients=history.clusters_of_clients()[cluster],
        risk=figure.risk if figure else None,
        standard_error=figure.standard_error if figure else None,
        round_index=figure.round_index if figure else None,
        lowest=accepted[0] if accepted else None,
        middle=median(accepted) if accepted else None,
        above=bisect_left(accepted, figure.risk) if figure and known else None,
        above_lower=bisect_left(accepted, lower) if figure and known else None,
        why=latest[0] if latest else "no red team looked at it",
    )


def _above(history: History) -> Iterator[Above]:
    """Yield who accepts less than the figure of its cluster, the widest gap first."""
    taus = history.started.risk_thresholds if history.started else {}
    groups = client_groups(history)
    found = [
        Above(handle, j, taus[handle], figure.risk, groups.get(handle, ""))
        for handle, j in history.assignment.items()
        if (figure := history.figures.get(j)) is not None
        and handle in taus
        and figure.risk > taus[handle]
    ]
    yield from sorted(found, key=lambda each: (each.accepts - each.risk, each.handle))


def _why_not_over(history: History) -> str:
    if not history.figures:
        return "no cluster has a risk figure that counts now"
    taus = history.started.risk_thresholds if history.started else {}
    if not taus.keys() >= history.assignment.keys():
        return "clients keep what they accept to themselves"
    return "some cluster that clients use has no risk figure that counts now"


def _clusters(history: History) -> int:
    return history.started.num_clusters if history.started else 0


def _log(snapshot: Snapshot) -> Iterator[LogLine]:
    ends = sorted(snapshot.times)
    for each in reversed(snapshot.latest):
        place = bisect_left(ends, each.position)
        written_at = snapshot.times[ends[place]] if place < len(ends) else ""
        yield LogLine(
            each.position, each.round_index, each.kind, written_at, each.counts, each.number
        )


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


def _rows(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any], str]]:
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


SAID = {
    "claim": "What is claimed",
    "done": "What was done",
    "left_to_do": "What is left to do",
    "limits": "What it does not say",
}


def proofs_page(run: FollowedRun) -> dict[str, Any]:
    """Return the list of a run's proofs, as they tell of themselves."""
    proofs = [_told(path) for path in _proofs(run)]
    proofs.sort(key=lambda each: str(each["answered"]), reverse=True)
    return {"run": run, "snapshot": run.look(), "proofs": proofs}


def proof_page(run: FollowedRun, name: str) -> dict[str, Any] | None:
    """Return one proof with every check of it; None: there is no such proof."""
    path = next((each for each in _proofs(run) if each.stem == name), None)
    if path is None:
        return None
    checks = run.made_later(f"proof {name}", lambda now: _checks(run, now, path))
    return {
        "run": run,
        "snapshot": run.look(),
        "proof": _told(path),
        "checks": checks,
        "sentences": _sentences(path),
    }


def audit_page(run: FollowedRun) -> dict[str, Any]:
    """Return what the last audit found, or that there was none."""
    told: dict[str, Any] = {"run": run, "snapshot": run.look(), "audit": None}
    path = run.folder.path / "audit" / "audit.json"
    if not path.is_file():
        return {**told, "problem": ""}
    try:
        audit = json.loads(read_bounded(path))
        rows = audit_rows(audit)
        pictures = {
            str(each["cluster"])
            for each in audit["clusters"]
            if audit_picture(run, str(each["cluster"])) is not None
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {**told, "problem": f"{path.name} cannot be read: {error}"}
    return {**told, "audit": audit, "rows": rows, "pictures": pictures, "problem": ""}


def audit_picture(run: FollowedRun, cluster: str) -> Path | None:
    """Return the ROC figure of a cluster, as the audit drew it; None: there is none."""
    if not (cluster.isascii() and cluster.isdigit()):
        return None
    path = run.folder.path / "audit" / f"roc-cluster-{int(cluster)}.png"
    return path if path.is_file() and not path.is_symlink() else None


def _proofs(run: FollowedRun) -> Sequence[Path]:
    return sorted(path for path in run.folder.proofs.glob("*.json") if path.is_file())


def _told(path: Path) -> dict[str, Any]:
    """Return what a proof says of itself; each a text, "" where it says nothing."""
    keys = ("answer", "answered", "asked", "basis", "request", "ledger_events")
    found = _document(path)
    return {"name": path.stem, **{key: str(found.get(key, "")) for key in keys}}


def _sentences(path: Path) -> Mapping[str, Sequence[str]]:
    """Return what a proof says in plain words, by title; nothing of what is none."""
    try:
        found = sentences(read_proof(read_bounded(path)))
    except (OSError, ValueError):
        return {}
    return {title: found[key] for key, title in SAID.items()}


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _checks(run: FollowedRun, snapshot: Snapshot, path: Path) -> list[Check]:
    del snapshot  # the ledger is read again, as an auditor would
    try:
        return verify(path, run.folder.path)
    except (CoveyError, OSError) as error:
        return [Check.failed("file", str(error))]
