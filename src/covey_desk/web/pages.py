"""What pages say: of runs, of their clients and documents, of requests."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from covey import CoveyError, History, __version__, verify
from covey.api.listing import seconds_since
from covey.base.files import read_bounded
from covey.base.names import ClientName, Handle
from covey.base.signature import Check
from covey.leaving.plan import sizes_left
from covey.leaving.planning import plan_alone
from covey.leaving.proof import Proof, read_proof, sentences
from covey.leaving.verification import OPERATOR, Verification
from covey.ledger.store import Ledger
from covey.report.clients import ClientSummary, client_summaries
from covey.report.page import drawn, embedded, pictures_of, run_view, templates
from covey.report.summary import age
from covey.runs.auditing import Audit
from covey.runs.ledger_record import RecentEvents
from covey_desk.register import FILE, read_register, register_of
from covey_desk.request import Request as PersonRequest
from covey_desk.web.runs import FollowedRun, Snapshot, WatchedRuns

MOST_LISTED = 50
LATEST = 24
"""How many of the newest events a page shows."""


PAGE = 100
"""Clients on one page of the list."""


def page(template: str, view: Mapping[str, Any]) -> str:
    """Return a page of `templates`."""
    return _pages.get_template(template).render(view)


_pages = templates("covey_desk.web")
_pages.globals |= {
    "since": lambda written_at: age(seconds_since(written_at, datetime.now(UTC))),
    "version": __version__,
}


def run_page(run: FollowedRun) -> dict[str, Any]:
    """Return everything that the page of a run says."""
    snapshot, shown = run.look(), run.shown()
    if shown.history.started is None:
        return {"has_begun": False}
    view = _view(run, shown)
    address = f"/runs/{run.key}/pictures/{{}}.svg?{shown.record.head[:16]}"
    names = pictures_of(view["reported"], view["summary"])
    return {
        **view,
        "has_begun": True,
        "pictures": {name: address.format(name) for name in names},
        "above": run.made("above", _above, snapshot),
        "listed": MOST_LISTED,
        "log": list(_log(snapshot)),
    }


def picture_of(run: FollowedRun, name: str) -> bytes:
    """Return one of the report's pictures as SVG, drawn once for each head.

    Raises:
        HTTPException: there is none.
    """
    shown = run.shown()
    view = _view(run, shown) if shown.history.started else {}
    if not view or name not in pictures_of(view["reported"], view["summary"]):
        raise HTTPException(404)
    return run.made(f"picture {name}", lambda _: drawn(view["reported"], name), shown)


def _view(run: FollowedRun, shown: Snapshot) -> dict[str, Any]:
    return run.made("view", lambda at: run_view(run.reported(at)), shown)


def _above(snapshot: Snapshot) -> list[ClientSummary]:
    """Return who accepts less than the figure of its cluster, the widest gap first."""
    history = snapshot.history
    clients = client_summaries(history, history.assignment).values()
    margins = [
        (client.margin, client.handle, client) for client in clients if client.margin is not None
    ]
    return [client for margin, _, client in sorted(margins) if margin < 0]


def _log(snapshot: Snapshot) -> Iterator[tuple[RecentEvents, str]]:
    """Yield the newest records of the ledger, each with when it was written."""
    ends = sorted(snapshot.times)
    for record in snapshot.record.latest(LATEST):
        place = bisect_left(ends, record.position)
        yield record, snapshot.times[ends[place]] if place < len(ends) else ""


def list_page(runs: WatchedRuns) -> dict[str, Any]:
    """Return every run's line, the newest event first."""
    lines = [(run, runs.line(run)) for run in runs.all()]
    lines.sort(key=lambda line: line[1].last_event_at, reverse=True)
    return {
        "lines": lines,
        "roots": [str(root) for root in runs.roots],
        "waiting": sum(line.open_requests or 0 for _, line in lines),
    }


def proofs_page(run: FollowedRun) -> dict[str, Any]:
    """Return the list of a run's proofs, with what they say of themselves."""
    proofs = [(path.stem, _proof(path)) for path in _proofs(run)]
    proofs.sort(key=lambda proof: proof[1].answered if proof[1] else "", reverse=True)
    return {"proofs": proofs}


def proof_page(run: FollowedRun, name: str) -> dict[str, Any]:
    """Return one proof with every check of it.

    Raises:
        HTTPException: there is no such proof.
    """
    path = next((page for page in _proofs(run) if page.stem == name), None)
    if path is None:
        raise HTTPException(404)

    def found(_: Snapshot) -> Verification:  # the ledger is read again, as an auditor would
        try:
            return verify(path, run.folder.path)
        except (CoveyError, OSError) as error:
            return Verification.of([Check.failed("file", str(error))])

    proof = _proof(path)
    return {
        "name": name,
        "proof": proof,
        "said": sentences(proof) if proof else {},
        "found": run.made(f"proof {name}", found, run.look()),
        "operator": OPERATOR,
    }


def audit_page(run: FollowedRun) -> dict[str, Any]:
    """Return the last audit, or that there was none."""
    path = run.folder.path / "audit" / "audit.json"
    if not path.is_file():
        return {"audit": None, "problem": ""}
    try:
        audit = TypeAdapter(Audit).validate_json(read_bounded(path))
        places = {
            cluster.cluster: f"roc-cluster-{cluster.cluster}.svg" for cluster in audit.clusters
        }
        pictures = {
            str(j): read_bounded(place)
            for j, name in places.items()
            if (place := path.with_name(name)).is_file() and not place.is_symlink()
        }
    except (OSError, ValueError) as error:
        is_none = isinstance(error, ValidationError)
        why = "it is no audit of a run" if is_none else str(error)
        return {"audit": None, "problem": f"{path.name} cannot be read: {why}"}
    return {"audit": audit, "pictures": embedded(pictures), "problem": ""}


def _proofs(run: FollowedRun) -> list[Path]:
    return sorted(path for path in run.folder.proofs.glob("*.json") if path.is_file())


def _proof(path: Path) -> Proof | None:
    """Return what a proof says of itself; None: the file is none."""
    with suppress(OSError, ValueError):
        return read_proof(read_bounded(path))
    return None


def _names_of(run: FollowedRun) -> Mapping[Handle, ClientName]:
    """Return the names that are still known."""
    try:
        with Ledger.read(run.folder.ledger) as ledger:
            return ledger.names()
    except CoveyError:
        return {}


def _known(history: History, names: Mapping[Handle, ClientName]) -> set[Handle]:
    began = history.started.groups if history.started else {}
    return {*began, *names, *history.assignment, *(e.handle for e in history.left)}


def clients(run: FollowedRun, request: Request) -> Response:
    """Return a page of the list of clients, or the way to the card of the one that is named."""
    snapshot, names = run.look(), _names_of(run)
    known = _known(snapshot.history, names)
    if name := request.query_params.get("name", "").strip():
        handle = {known: handle for handle, known in names.items()}.get(name, name)
        if handle in known:
            return RedirectResponse(f"/runs/{run.key}/clients/{quote(handle)}", 303)
    # by name; those that left come last
    handles = sorted(known, key=lambda h: (h not in names, names.get(h, h)))
    text, last = request.query_params.get("page", "0"), max(0, (len(handles) - 1) // PAGE)
    number = min(int(text) if text.isascii() and text.isdigit() else 0, last)
    shown = handles[number * PAGE : (number + 1) * PAGE]
    view = {
        "run": run,
        "snapshot": snapshot,
        "clients": client_summaries(snapshot.history, shown).values(),
        "names": names,
        "page": number,
        "last": last,
        "count": len(handles),
        "searched": name,
    }
    return HTMLResponse(page("clients.html", view))


def client_page(run: FollowedRun, handle: Handle) -> dict[str, Any]:
    """Return a client's card.

    Raises:
        HTTPException: there is no such client.
    """
    snapshot, names = run.look(), _names_of(run)
    history = snapshot.history
    if handle not in _known(history, names):
        raise HTTPException(404)
    return {
        "client": client_summaries(history, [handle])[handle],
        "name": names.get(handle, ""),
        "played": len(history.rounds),
        "moves": history.moves.get(handle, ()),
        "record": run.made(f"client {handle}", partial(_record, run, handle), snapshot),
        "answer": next((e.answer for e in history.left if e.handle == handle), ""),
    }


def _record(run: FollowedRun, handle: Handle, snapshot: Snapshot) -> dict[str, Any]:
    """Return what the ledger says of this client alone, and what it could be answered now."""
    held = snapshot.record.participation
    try:
        plan = plan_alone(run.folder, snapshot.record, handle)
    except (CoveyError, OSError) as error:
        return {"problem": str(error)}
    trained, sets = held.trained.get(handle, {}), sizes_left(held, handle)
    return {"problem": "", "trained": trained, "sets": sets, "plan": plan}


def requests_page(roots: Iterable[Path]) -> dict[str, Any]:
    """Return every request: those that are open by their day, then those that are closed."""
    requests, problems = _requests(roots)
    requests.sort(key=lambda request: (request.state == "closed", request.due, request.request))
    waiting = [request for request in requests if request.state != "closed"]
    return {"requests": requests, "problems": problems, "waiting": waiting}


def request_page(roots: Iterable[Path], number: str) -> dict[str, Any]:
    """Return one request.

    Raises:
        HTTPException: there is none.
    """
    for request in _requests(roots)[0]:
        if request.request == number:
            return {"view": request}
    raise HTTPException(404)


def _requests(roots: Iterable[Path]) -> tuple[list[PersonRequest], list[str]]:
    """Return all requests, and why those of some register cannot be read."""
    requests: list[PersonRequest] = []
    problems: list[str] = []
    for root in roots:
        if not (register_of(root) / FILE).is_file():
            continue
        try:
            with read_register(register_of(root)) as register:
                requests += register.requests().values()
        except (CoveyError, OSError, ValueError) as error:
            problems.append(str(error))
    return requests, problems
