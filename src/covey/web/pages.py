"""Pages of runs: one, two side by side, all of them, and their documents."""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from covey.base.errors import CoveyError
from covey.base.files import read_bounded
from covey.base.names import Handle, __version__, round_number
from covey.desk.runs import seconds_since
from covey.report.page import Sources, audit_rows, comparison_view, drawn, embedded, templates
from covey.report.summary import age, early_end_told, size
from covey.report.view import Privacy, RunView, pictures_of, privacy_of, run_view
from covey.runtime.ledger_record import Noted
from covey.runtime.verification import OPERATOR, Verification, verify
from covey.unlearning.proof import read_proof
from covey.unlearning.proof_text import sentences
from covey.unlearning.signature import Check
from covey.web.runs import FollowedRun, Snapshot, WatchedRuns

STATIC = {
    "page.css": ("covey.report", "templates", "text/css"),
    "live.js": ("covey.web", "static", "text/javascript"),
}
"""What pages load beside themselves: its package, its folder there, and its kind."""
MOST_LISTED = 50
MOST_COMPARED = 8


def page(template: str, view: Mapping[str, Any]) -> str:
    """Return a page of `templates`."""
    return _pages.get_template(template).render(view)


def static(name: str) -> tuple[bytes, str] | None:
    """Return a file that pages load, and its kind; None: there is no such file."""
    if name not in STATIC:
        return None
    package, folder, kind = STATIC[name]
    return files(package).joinpath(folder, name).read_bytes(), kind


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


def run_page(run: FollowedRun) -> dict[str, Any]:
    """Return everything that the page of a run says."""
    snapshot = run.look()
    page = {"run": run, "snapshot": snapshot, "state": state_of(snapshot), "view": None}
    if snapshot.history.started is None:
        return page
    view: RunView = run.made("view", partial(_view, run))
    privacy, mark = run.made_later("privacy", partial(_privacy, run)), run.pictured().mark
    names = [
        *pictures_of(view.run, is_whole=view.is_whole),
        *(["spent"] if privacy and privacy[0].status.guarantee else []),
    ]
    return {
        **page,
        "view": view,
        "privacy": privacy and privacy[0],
        "pictures": Sources({n: f"/runs/{run.key}/pictures/{n}.svg?{mark}" for n in names}),
        "above": run.made("above", _above),
        "listed": MOST_LISTED,
        "log": list(_log(snapshot)),
    }


def state_of(snapshot: Snapshot) -> str:
    """Say in a few words how far a run is."""
    history = snapshot.history
    if history.started is None:
        return "not begun"
    if history.finished is not None:
        return early_end_told(history.ended_early) or "finished"
    return f"round {len(history.rounds)} of {history.started.rounds}"


def _view(run: FollowedRun, snapshot: Snapshot) -> RunView:
    return run_view(run.reported(snapshot), is_whole=snapshot.is_whole)


def _privacy(run: FollowedRun, snapshot: Snapshot) -> tuple[Privacy, bytes | None]:
    """Return what noise guarantees, and its picture, which takes as long to add up."""
    privacy = privacy_of(run.reported(snapshot))
    return privacy, drawn(run.reported(snapshot), "spent") if privacy.status.guarantee else None


def picture_of(run: FollowedRun, name: str) -> bytes | None:
    """Return one of the report's pictures as SVG, drawn once for each head; None: there is none."""
    if name == "spent":
        privacy = run.made_later("privacy", partial(_privacy, run))
        return privacy[1] if privacy else None
    run.look()
    snapshot = run.pictured()

    def draw(_: Snapshot) -> bytes | None:
        reported = run.reported(snapshot)
        names = pictures_of(reported, is_whole=snapshot.is_whole)
        return drawn(reported, name) if name in names else None

    return None if snapshot.history.started is None else run.made(f"picture {name}", draw, snapshot)


def _above(snapshot: Snapshot) -> list[tuple[float, float, int, Handle]]:
    """Return who accepts less than the figure of its cluster, the widest gap first."""
    history = snapshot.history
    taus = history.started.risk_thresholds if history.started else {}
    clients = [
        (taus[handle], figure.risk, j, handle)
        for handle, j in history.assignment.items()
        if (figure := history.figures.get(j)) and figure.risk > taus.get(handle, 1.0)
    ]
    return sorted(clients, key=lambda each: (each[0] - each[1], each[3]))


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


def compared_page(runs: WatchedRuns, keys: Sequence[str]) -> dict[str, Any]:
    """Return what `covey report` says of several runs; without two keys, a choice."""
    chosen = [run for key in keys[:MOST_COMPARED] if (run := runs.get(key)) is not None]
    looks = [run.look() for run in chosen]
    page = {"runs": runs.all(), "chosen": chosen, "rows": []}
    if len(chosen) < 2 or any(look.history.started is None for look in looks):
        return page
    shown = [run.reported(look) for run, look in zip(chosen, looks, strict=True)]
    if len({run.name for run in chosen}) < len(chosen):
        paths = [str(run.folder.path) for run in chosen]
        shown = [replace(each, name=path) for each, path in zip(shown, paths, strict=True)]
    view, pictures = comparison_view(shown)
    is_whole = all(look.is_whole for look in looks)
    return {**page, **view, "pictures": embedded(pictures), "waits": not is_whole}


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

    def found(_: Snapshot) -> Verification:  # the ledger is read again, as an auditor would
        try:
            return verify(path, run.folder.path)
        except (CoveyError, OSError) as error:
            return Verification.of([Check.failed("file", str(error))])

    return {
        "run": run,
        "snapshot": run.look(),
        "proof": _proof(path),
        "found": run.made_later(f"proof {name}", found),
        "operator": OPERATOR,
    }


def audit_page(run: FollowedRun) -> dict[str, Any]:
    """Return the last audit, or that there was none."""
    view: dict[str, Any] = {"run": run, "snapshot": run.look(), "audit": None, "problem": ""}
    path = run.folder.path / "audit" / "audit.json"
    if not path.is_file():
        return view
    try:
        audit = json.loads(read_bounded(path))
        shown = {"audit": audit, "rows": audit_rows(audit), "pictures": Sources()}
        for each in audit["clusters"]:
            picture = path.with_name(f"roc-cluster-{int(each['cluster'])}.svg")
            if picture.is_file() and not picture.is_symlink():
                shown["pictures"] |= embedded({str(each["cluster"]): read_bounded(picture)})
        _pages.get_template("audit_body.html").render(shown)  # it has all that the page needs
    except (OSError, ValueError, LookupError, TypeError, AttributeError, UndefinedError) as error:
        return {**view, "problem": f"{path.name} cannot be read: {error}"}
    return {**view, **shown}


def _proofs(run: FollowedRun) -> Sequence[Path]:
    return sorted(path for path in run.folder.proofs.glob("*.json") if path.is_file())


def _proof(path: Path) -> dict[str, Any]:
    """Return what a proof says of itself, each a text, and its sentences by their title.

    Where it says nothing, or is no proof, there is "" or no sentence.
    """
    document: Any = None
    said: Mapping[str, Sequence[str]] = {}
    with suppress(OSError, ValueError, RecursionError):
        content = read_bounded(path)
        document = json.loads(content)
        said = sentences(read_proof(content))
    keys = ("answer", "answered", "asked", "basis", "request", "ledger_events")
    named: Mapping[str, Any] = document if isinstance(document, dict) else {}
    return {
        "name": path.stem,
        **{key: str(named.get(key, "")) for key in keys},
        "sentences": {title: said[key] for key, title in SAID.items() if key in said},
    }
