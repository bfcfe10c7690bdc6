"""Pages of runs: one, two side by side, all of them, and their documents."""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

from covey.base.errors import CoveyError
from covey.base.files import read_bounded
from covey.base.history import History
from covey.base.names import __version__, round_number
from covey.desk.runs import seconds_since
from covey.dp.status import guarantee_status
from covey.report.attacks import LOSS
from covey.report.comparison import comparison
from covey.report.page import audit_rows, run_view, templates
from covey.report.queries import group_sizes, utility
from covey.report.summary import age, client_groups, deniability, early_end_told, size, violations
from covey.runtime.ledger_record import Noted
from covey.runtime.verification import verify
from covey.unlearning.proof import read_proof
from covey.unlearning.proof_text import sentences
from covey.unlearning.signature import Check
from covey.web.runs import FollowedRun, Snapshot, WatchedRuns

STATIC = {"page.css": "text/css", "live.js": "text/javascript"}


def page(template: str, view: Mapping[str, Any]) -> str:
    """Return a page of `templates`."""
    return _pages.get_template(template).render(view)


def static(name: str) -> bytes:
    """Return a file that pages load."""
    return files("covey.web").joinpath("static", name).read_bytes()


def since(written_at: str | None) -> str:
    """Return how long ago a time of the ledger was."""
    return age(seconds_since(written_at or "", datetime.now(UTC)))


_pages = templates("covey.web")
_pages.filters["round_number"] = round_number
_pages.globals |= {
    "age": age,
    "form_token": "",  # forms are on no page, unless it says so
    "since": since,
    "size": size,
    "version": __version__,
}

MOST_LISTED = 50


def run_page(run: FollowedRun) -> dict[str, Any]:
    """Return everything that the page of a run says."""
    snapshot = run.look()
    view = {"run": run, "snapshot": snapshot, "state": state_of(snapshot)}
    if snapshot.history.started is None:
        return {**view, "view": None}
    shown: Mapping[str, Any] = run.made("run page", partial(_view, run))
    privacy = run.made_later("privacy", partial(_privacy, run))
    return {**view, **shown, "picture_mark": run.pictured().mark, "privacy": privacy}


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
    view = run_view(run.reported(replace(snapshot, history=quick)))
    above = _above(history)
    clusters = range(history.started.num_clusters if history.started else 0)
    return {
        "view": view,
        "now": [_now(snapshot, j) for j in clusters],
        "over": history.over(),
        "above": above[:MOST_LISTED],
        "above_rest": max(0, len(above) - MOST_LISTED),
        "why_not_over": _why_not_over(history),
        "happenings": view["happenings"][::-1][:MOST_LISTED],
        "log": list(_log(snapshot)),
    }


def _privacy(run: FollowedRun, snapshot: Snapshot) -> dict[str, Any]:
    history = snapshot.history
    planned = getattr(run.config.aggregation, "epsilon", 0.0) or None
    status = guarantee_status(history)
    holds = status.guarantee
    return {
        "status": status,
        "deniability": deniability(history),
        "planned": planned,
        "left": planned - (holds.epsilon or 0.0) if planned and holds else None,
        "picture": _drawn("spent", snapshot) if status.guarantees else None,
        "head": snapshot.head,
        "rounds": len(history.rounds),
    }


AT_A_GLANCE = ("accuracy", "risk")
"""Pictures that need no knowledge of who is in which cluster."""
PICTURES = (*AT_A_GLANCE, "clusters", "violations", "fairness", "prices")

_drawing = Lock()
"""matplotlib has one set of parameters for all threads."""


def picture_of(run: FollowedRun, name: str) -> bytes | None:
    """Return one of the report's pictures as SVG, drawn once for each head; None: there is none."""
    if name == "spent":
        privacy = run.made_later("privacy", partial(_privacy, run))
        return privacy["picture"] if privacy else None
    run.look()
    snapshot = run.pictured()
    drawable = PICTURES if snapshot.is_whole else AT_A_GLANCE
    if name not in drawable or snapshot.history.started is None:
        return None
    return run.made(f"picture {name}", partial(_drawn, name), snapshot)


def _drawn(name: str, snapshot: Snapshot) -> bytes:
    with _drawing:
        from covey.report.figures import FIGURES, svg

        return svg(FIGURES[name](snapshot.history))


def compared_picture(runs: WatchedRuns, keys: Sequence[str]) -> bytes | None:
    """Return the accuracies of two runs as SVG; None: they are not there, or have not begun."""
    chosen = _chosen(runs, keys)
    if len(chosen) < 2 or any(run.look().history.started is None for run in chosen):
        return None
    with _drawing:
        from covey.report.comparison_figures import overlaid_accuracy
        from covey.report.figures import svg

        histories = [run.look().history for run in chosen]
        return svg(overlaid_accuracy(list(zip(_names(chosen), histories, strict=True))))


def _now(snapshot: Snapshot, cluster: int) -> dict[str, Any]:
    """Return a cluster's figure beside what its clients accept.

    `above`: clients that accept less than the figure; `above_lower`, than its 95% lower
    bound. None: the figure, or what clients accept, is unknown. `why`: what the figure
    rests on, or why there is none.
    """
    history = snapshot.history
    figure = history.figures.get(cluster)
    taus = history.started.risk_thresholds if history.started else {}
    inside = [h for h, j in history.assignment.items() if j == cluster]
    accepted = sorted(taus[h] for h in inside if h in taus)
    latest = [m.estimate.reason for m in history.measured if m.cluster == cluster][-1:]
    lower = figure.figure.lower_bound if figure else 0.0
    is_known = figure and snapshot.is_whole and len(accepted) == len(inside)
    return {
        "cluster": cluster,
        "clients": history.clusters_of_clients()[cluster],
        "figure": figure,
        "lowest": accepted[0] if accepted else None,
        "middle": median(accepted) if accepted else None,
        "above": bisect_left(accepted, figure.risk) if figure and is_known else None,
        "above_lower": bisect_left(accepted, lower) if is_known else None,
        "why": latest[0] if latest else "no red team looked at it",
    }


def _above(history: History) -> list[dict[str, Any]]:
    """Return who accepts less than the figure of its cluster, the widest gap first."""
    taus = history.started.risk_thresholds if history.started else {}
    groups = client_groups(history)
    clients = [
        {
            "handle": handle,
            "cluster": j,
            "accepts": taus[handle],
            "risk": figure.risk,
            "group": groups.get(handle, ""),
        }
        for handle, j in history.assignment.items()
        if (figure := history.figures.get(j)) and figure.risk > taus.get(handle, 1.0)
    ]
    return sorted(clients, key=lambda each: (each["accepts"] - each["risk"], each["handle"]))


def _why_not_over(history: History) -> str:
    if not history.figures:
        return "no cluster has a risk figure that counts now"
    taus = history.started.risk_thresholds if history.started else {}
    if not taus.keys() >= history.assignment.keys():
        return "clients keep what they accept to themselves"
    return "some cluster that clients use has no risk figure that counts now"


def _log(snapshot: Snapshot) -> Iterator[tuple[Noted, str]]:
    """Yield the newest records of the ledger, each with when it was written."""
    ends = sorted(snapshot.times)
    for record in reversed(snapshot.latest):
        place = bisect_left(ends, record.position)
        yield record, snapshot.times[ends[place]] if place < len(ends) else ""


def list_page(runs: WatchedRuns) -> dict[str, Any]:
    """Return every run's line, the newest event first."""
    lines = [(run, runs.line(run)) for run in runs.all()]
    lines.sort(key=lambda each: each[1].last_event_at, reverse=True)
    return {
        "lines": lines,
        "roots": [str(each) for each in runs.roots],
        "waiting": sum(line.open_requests or 0 for _, line in lines),
    }


def _chosen(runs: WatchedRuns, keys: Sequence[str]) -> list[FollowedRun]:
    return [run for key in keys[:2] if (run := runs.get(key)) is not None]


def compared_page(runs: WatchedRuns, keys: Sequence[str]) -> dict[str, Any]:
    """Return two runs with the same figures of both; without two keys, a choice."""
    chosen = _chosen(runs, keys)
    view = {"runs": runs.all(), "chosen": chosen, "columns": [], "rows": []}
    if len(chosen) < 2 or any(run.look().history.started is None for run in chosen):
        return view
    columns: list[Mapping[str, Any]] = [
        run.made("compared", partial(_compared, run)) for run in chosen
    ]
    return {
        **view,
        "columns": _names(chosen),
        "rows": [_row(name, columns) for name in dict.fromkeys(n for c in columns for n in c)],
        "waits": not all(run.look().is_whole for run in chosen),
    }


def _names(chosen: Sequence[FollowedRun]) -> list[str]:
    names = [run.name for run in chosen]
    return names if len(set(names)) > 1 else [str(run.folder.path) for run in chosen]


def _compared(run: FollowedRun, snapshot: Snapshot) -> Mapping[str, Any]:
    """Return a run's figures, as `covey report` compares them, by what they are called.

    A figure that may be unknown comes with the reason.
    """
    history = snapshot.history
    (row,) = comparison([run.reported(snapshot)])
    quality = utility(history)
    name = quality.name.capitalize()
    above = violations(history, LOSS)
    epsilon = "none" if row["epsilon"] is None else f"{row['epsilon']:.3f} ({row['unit']})"
    return {
        "Method": f"{row['method']} {row['selection']}".strip(),
        "State": state_of(snapshot),
        "Seed": row["seed"],
        name: (quality.overall, "no round was measured"),
        **{
            f"{name}, {group}": (quality.by_group.get(group), "not measured")
            for group in group_sizes(history)
        },
        "Clients above what they accept, by the figures now": history.over(),
        "Violations, by the loss threshold at the end": above.count,
        "of these, by the 95% lower bound": above.count_lower,
        "True risk, smallest group": (row["true_risk_minority"], row["reason"]),
        "True risk, largest group": (row["true_risk_majority"], row["reason"]),
        "Adjusted Rand index": (row["adjusted_rand_index"], row["reason"]),
        "Epsilon": epsilon if snapshot.is_whole else "being read",
        "Ledger head": snapshot.head[:12],
    }


def _row(name: str, columns: Sequence[Mapping[str, Any]]) -> tuple[str, list[Any], str]:
    """Return a figure, its value in each run and, of two numbers, the difference."""
    values = [column.get(name, "not in this run") for column in columns]
    plain = [value[0] if isinstance(value, tuple) else value for value in values]
    numbers = [value for value in plain if isinstance(value, int | float)]
    if len(numbers) < 2 or name == "Seed":
        return name, values, ""
    digits = 0 if all(isinstance(value, int) for value in numbers) else 3
    return name, values, f"{numbers[1] - numbers[0]:+.{digits}f}"


SAID = {
    "claim": "What is claimed",
    "done": "What was done",
    "left_to_do": "What is left to do",
    "limits": "What it does not say",
}


def proofs_page(run: FollowedRun) -> dict[str, Any]:
    """Return the list of a run's proofs, with what they say of themselves."""
    proofs = [_proof(path) for path in _proofs(run)]
    proofs.sort(key=lambda each: str(each["answered"]), reverse=True)
    return {"run": run, "snapshot": run.look(), "proofs": proofs}


def proof_page(run: FollowedRun, name: str) -> dict[str, Any] | None:
    """Return one proof with every check of it; None: there is no such proof."""
    path = next((each for each in _proofs(run) if each.stem == name), None)
    if path is None:
        return None

    def checks(_: Snapshot) -> list[Check]:  # the ledger is read again, as an auditor would
        try:
            return verify(path, run.folder.path)
        except (CoveyError, OSError) as error:
            return [Check.failed("file", str(error))]

    return {
        "run": run,
        "snapshot": run.look(),
        "proof": _proof(path),
        "checks": run.made_later(f"proof {name}", checks),
        "sentences": _sentences(path),
    }


def audit_page(run: FollowedRun) -> dict[str, Any]:
    """Return what the last audit found, or that there was none."""
    view: dict[str, Any] = {"run": run, "snapshot": run.look(), "audit": None, "problem": ""}
    path = run.folder.path / "audit" / "audit.json"
    if not path.is_file():
        return view
    try:
        audit = json.loads(read_bounded(path))
        rows = audit_rows(audit)
        clusters = [str(each["cluster"]) for each in audit["clusters"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {**view, "problem": f"{path.name} cannot be read: {error}"}
    pictures = {each for each in clusters if audit_picture(run, each) is not None}
    return {**view, "audit": audit, "rows": rows, "pictures": pictures}


def audit_picture(run: FollowedRun, cluster: str) -> Path | None:
    """Return the ROC figure of a cluster, as the audit drew it; None: there is none."""
    if not (cluster.isascii() and cluster.isdigit()):
        return None
    path = run.folder.path / "audit" / f"roc-cluster-{int(cluster)}.svg"
    return path if path.is_file() and not path.is_symlink() else None


def _proofs(run: FollowedRun) -> Sequence[Path]:
    return sorted(path for path in run.folder.proofs.glob("*.json") if path.is_file())


def _proof(path: Path) -> dict[str, str]:
    """Return what a proof says of itself; each a text, "" where it says nothing."""
    keys = ("answer", "answered", "asked", "basis", "request", "ledger_events")
    document = _document(path)
    return {"name": path.stem, **{key: str(document.get(key, "")) for key in keys}}


def _sentences(path: Path) -> Mapping[str, Sequence[str]]:
    """Return what a proof says in plain words, by title; nothing of what is none."""
    try:
        found = sentences(read_proof(read_bounded(path)))
    except (OSError, ValueError):
        return {}
    return {title: found[key] for key, title in SAID.items()}


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
