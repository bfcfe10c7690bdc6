"""Pages of clients and of requests, and the forms where `--write` allows them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from covey.base.errors import CoveyError
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.desk.answering import Plan, answer_requests, plan_answers
from covey.desk.pack import write_packs
from covey.desk.register import FILE, LANGUAGES, REQUEST_BASES, RequestView, day_of, read_register
from covey.desk.requests import add_request, close_request, correct_request
from covey.ledger.store import Ledger
from covey.report.attacks import final_exposure, final_risk
from covey.report.summary import client_groups
from covey.runtime.planning import read_client
from covey.unlearning.plan import AFTERWARDS, ANSWERS
from covey.web.guard import has_token
from covey.web.pages import page
from covey.web.runs import FollowedRun, Snapshot

PAGE = 100
"""Clients on one page of the list."""


def names_of(run: FollowedRun) -> Mapping[Handle, ClientName]:
    """Return the names that are still known."""
    try:
        with Ledger.read(run.folder.ledger) as ledger:
            return ledger.names()
    except CoveyError:
        return {}


def handle_of(run: FollowedRun, name: ClientName) -> Handle | None:
    """Return the handle of a client's name, or of itself; None: no client has it."""
    names = names_of(run)
    by_name = {each: handle for handle, each in names.items()}
    return by_name.get(name) or (name if name in _known(run.look().history, names) else None)


def clients_page(run: FollowedRun, page: int, asked: str) -> dict[str, Any]:
    """Return one page of the list of clients, by name; those that left come last."""
    snapshot, names = run.look(), names_of(run)
    known = _known(snapshot.history, names)
    handles = sorted(known, key=lambda h: (h not in names, names.get(h, h)))
    last = max(0, (len(handles) - 1) // PAGE)
    page = min(max(0, page), last)
    groups = client_groups(snapshot.history)
    return {
        "run": run,
        "snapshot": snapshot,
        "rows": [
            _row(snapshot.history, names, groups, handle)
            for handle in handles[page * PAGE : (page + 1) * PAGE]
        ],
        "page": page,
        "last": last,
        "count": len(handles),
        "asked": asked,
    }


def client_page(run: FollowedRun, handle: Handle) -> dict[str, Any] | None:
    """Return a client's card; None: there is no such client."""
    snapshot, names = run.look(), names_of(run)
    history = snapshot.history
    if handle not in _known(history, names):
        return None
    end = next((e for e in history.exposures if e.handle == handle), None)
    attack = final_risk(history, end) if end else None
    return {
        "run": run,
        "snapshot": snapshot,
        **_row(history, names, client_groups(history), handle),
        "played": len(history.rounds),
        "is_measured": end is not None,
        "attack": attack,
        "exposure": final_exposure(history, end).value if end else None,
        "moves": history.moves.get(handle, ()),
        "record": run.made_later(f"client {handle}", partial(_record, run, handle)),
        "answer": next((e.answer for e in history.left if e.handle == handle), ""),
    }


def _record(run: FollowedRun, handle: Handle, _: Snapshot) -> dict[str, Any]:
    """Return what the ledger, which is read again, says of this client alone."""
    try:
        held, plan = read_client(run.folder, handle)
    except (CoveyError, OSError) as error:
        return {"problem": str(error)}
    left, sets = frozenset(held.left), held.sets_of(handle)
    trained = held.trained.get(handle, {})
    return {
        "problem": "",
        "rounds": sorted(trained),
        "clusters": sorted(set(trained.values())),
        "sets": [(each, each.plausible_members(handle, left)) for each in sets],
        "plan": plan,
        "afterwards": AFTERWARDS,
    }


def _row(
    history: History,
    names: Mapping[Handle, ClientName],
    groups: Mapping[Handle, str],
    handle: Handle,
) -> dict[str, Any]:
    accepts = history.started.risk_thresholds.get(handle) if history.started else None
    cluster = history.assignment.get(handle)
    figure = None if cluster is None else history.figures.get(cluster)
    return {
        "handle": handle,
        "name": names.get(handle, ""),
        "group": groups.get(handle, ""),
        "cluster": cluster,
        "accepts": accepts,
        "figure": figure,
        "risk": figure.risk if figure else None,
        "above": None if figure is None or accepts is None else figure.risk > accepts,
        "left": handle not in names,
    }


def _known(history: History, names: Mapping[Handle, ClientName]) -> set[Handle]:
    began = history.started.groups if history.started else {}
    return {*began, *names, *history.assignment, *(e.handle for e in history.left)}


FOLDER = "requests"
"""Where a root has its register, unless `covey requests` used another place."""


def requests_page(roots: Iterable[Path]) -> dict[str, Any]:
    """Return every request: those that are open by their day, then those that are closed."""
    found, problems = _requests(roots)
    found.sort(key=lambda each: (each.state == "closed", each.due, each.request))
    waiting = [each for each in found if each.state != "closed"]
    return {"requests": found, "problems": problems, "waiting": waiting}


def request_page(roots: Iterable[Path], number: str) -> dict[str, Any] | None:
    """Return one request; None: there is none."""
    found = (each for each in _requests(roots)[0] if each.request == number)
    return next(({"view": each} for each in found), None)


def _requests(roots: Iterable[Path]) -> tuple[list[RequestView], list[str]]:
    """Return all requests, and why those of some register cannot be read."""
    found: list[RequestView] = []
    problems: list[str] = []
    for root in roots:
        if not (root / FOLDER / FILE).is_file():
            continue
        try:
            with read_register(root / FOLDER) as register:
                found += register.views()
        except (CoveyError, OSError, ValueError) as error:
            problems.append(str(error))
    return found, problems


@dataclass(frozen=True, slots=True)
class Form:
    """What a browser sent in a form."""

    fields: Mapping[str, list[str]]

    def text(self, name: str) -> str:
        """Return a field's text; "" where it was not filled in."""
        return self.fields.get(name, [""])[0].strip()

    def day(self, name: str) -> date | None:
        """Return a field's day; None where it was not filled in."""
        return day_of(self.text(name), name.capitalize()) if self.text(name) else None

    def entry(self) -> dict[str, Any]:
        """Return what was filled in of a request: names stand one in a line."""
        names = [each.strip() for each in self.text("names").splitlines() if each.strip()]
        words = ("basis", "reference", "language", "reason")
        found = {"names": names, **{each: self.text(each) for each in words}}
        found |= {each: self.day(each) for each in ("received", "extended")}
        return {key: value for key, value in found.items() if value}


Act = Callable[[str, Form], Response]


class Forms:
    """Does what the forms on pages of requests ask for, by `covey.desk`.

    Answers play rounds, so they are given in a thread of their own, one after another.
    """

    choices: ClassVar[Mapping[str, Sequence[str]]] = {
        "bases": REQUEST_BASES,
        "languages": LANGUAGES,
        "answers": ("", *ANSWERS),
    }

    def __init__(self, roots: Sequence[Path]) -> None:
        """Take the register of the first of these folders, as the commands do."""
        self._roots = [str(each) for each in roots]
        self._register = Path(self._roots[0]) / FOLDER
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="covey-answers")
        self._answering: dict[str, str] = {}

    def told(self, number: str) -> str:
        """Return how the last answering of a request goes, or went; "": there was none."""
        return self._answering.get(number, "")

    def routes(self) -> list[Route]:
        """Return the addresses that forms are sent to."""
        acts = {"correct": self._correct, "answer": self._answer, "close": self._close}
        one = "/requests/{number}"
        return [
            Route("/requests", _posted(self._add), methods=["POST"]),
            *(Route(f"{one}/{name}", _posted(a), methods=["POST"]) for name, a in acts.items()),
        ]

    def _add(self, _: str, form: Form) -> Response:
        given = {"names": (), "basis": "", **form.entry()}
        return _to_request(add_request(self._register, self._roots, **given).request)

    def _correct(self, number: str, form: Form) -> Response:
        correct_request(self._register, self._roots, number, form.entry())
        return _to_request(number)

    def _answer(self, number: str, form: Form) -> Response:
        """Show what would become true; answer once that very plan was confirmed."""
        wanted, confirmed = form.text("answer"), form.text("confirmed")
        plan = plan_answers(self._register, self._roots, [number], wanted)
        shown = _digest(plan)
        if confirmed != shown:
            view = {"plan": plan, "answer": wanted, "shown": shown, "changed": bool(confirmed)}
            return _confirmation("answer", number, form, view)
        self._answering[number] = "Runs are answering."
        self._worker.submit(self._give_answers, number, wanted)
        return _to_request(number)

    def _give_answers(self, number: str, wanted: str) -> None:
        try:
            done = answer_requests(self._register, self._roots, [number], wanted)
            write_packs(self._register, [number])
        except Exception as error:  # shown on the page: this thread has no other reader
            self._answering[number] = f"It was stopped: {error}"
            return
        waits = [f"{e.run}: {e.reason}" for e in done if not (e.answer or e.ended)]
        answered = f"{len(done) - len(waits)} of {len(done)} runs have answered."
        self._answering[number] = " ".join([answered, *waits])

    def _close(self, number: str, form: Form) -> Response:
        """Say what closing erases; close once that was confirmed."""
        reason, salts = form.text("reason"), form.text("delete_salts")
        if form.text("confirmed") != "close":
            view = {"reason": reason, "delete_salts": salts}
            return _confirmation("close", number, form, view)
        close_request(self._register, self._roots, number, reason, delete_salts=bool(salts))
        return _to_request(number)


def _posted(act: Act) -> Callable[[Request], Any]:
    def done(number: str, form: Form) -> Response:
        try:
            return act(number, form)
        except (CoveyError, ValueError, OSError) as error:
            return _refused(str(error))

    async def answer(request: Request) -> Response:
        body = await request.body()  # the guard has bounded it
        form = Form(parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not has_token(request, form.text("form_token")):
            reason = "This form is not of this page. Reload the page, and try again."
            return _refused(reason, 403)
        number = str(request.path_params.get("number", ""))
        return await run_in_threadpool(done, number, form)

    return answer


def _digest(plan: Plan) -> str:
    """Return what stands for what a plan says, but for how long it may take."""
    told = asdict(plan)
    for run in told["runs"]:
        for each in run["names"]:
            del each["seconds"]
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _to_request(number: str) -> Response:
    return RedirectResponse(f"/requests/{quote(number, safe='')}", 303)


def _confirmation(what: str, number: str, form: Form, view: Mapping[str, Any]) -> Response:
    more = {"number": number, "form_token": form.text("form_token")}
    return HTMLResponse(page(f"confirm_{what}.html", {**view, **more}))


def _refused(reason: str, status: int = 400) -> Response:
    return HTMLResponse(page("refused.html", {"reason": reason}), status)
