"""Pages of clients and of requests, and the forms where `--write` allows them."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
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
from covey.report.clients import client_summaries
from covey.runtime.planning import read_client
from covey.unlearning.plan import AFTERWARDS, ANSWERS
from covey.web.guard import has_token
from covey.web.pages import page
from covey.web.runs import FollowedRun, Snapshot

PAGE = 100
"""Clients on one page of the list."""


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
        handle = {each: handle for handle, each in names.items()}.get(name, name)
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
        "asked": name,
    }
    return HTMLResponse(page("clients.html", view))


def client_page(run: FollowedRun, handle: Handle) -> dict[str, Any] | None:
    """Return a client's card; None: there is no such client."""
    history, names = run.look().history, _names_of(run)
    if handle not in _known(history, names):
        return None
    return {
        "client": client_summaries(history, [handle])[handle],
        "name": names.get(handle, ""),
        "played": len(history.rounds),
        "moves": history.moves.get(handle, ()),
        "record": run.made_later(f"client {handle}", partial(_record, run, handle)),
        "answer": next((e.answer for e in history.left if e.handle == handle), ""),
        "afterwards": AFTERWARDS,
    }


def _record(run: FollowedRun, handle: Handle, _: Snapshot) -> dict[str, Any]:
    """Return what the ledger, which is read again, says of this client alone."""
    try:
        held, plan = read_client(run.folder, handle)
    except (CoveyError, OSError) as error:
        return {"problem": str(error)}
    left, trained = frozenset(held.left), held.trained.get(handle, {})
    sets = [(each, each.plausible_members(handle, left)) for each in held.sets_of(handle)]
    return {"problem": "", "trained": trained, "sets": sets, "plan": plan}


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

    def view(self, request: Request) -> dict[str, Any]:
        """Return what forms on a page need, and how the last answering goes, or went."""
        return {
            "form_token": request.scope["form_token"],
            "forms": self.choices,
            "answering": self._answering.get(request.path_params.get("number", ""), ""),
        }

    def routes(self) -> list[Route]:
        """Return the addresses that forms are sent to."""
        paths = ("/requests", "/requests/{number}/{act}")
        return [Route(path, self._posted, methods=["POST"]) for path in paths]

    async def _posted(self, request: Request) -> Response:
        body = (await request.body()).decode("utf-8", "replace")  # the guard has bounded it
        form = {key: text.strip() for key, text in parse_qsl(body)}
        if not has_token(request, form.get("form_token", "")):
            return _refused("This form is not of this page. Reload the page, and try again.", 403)
        number, act = (request.path_params.get(each, "") for each in ("number", "act"))
        acts = {
            "": self._add,
            "correct": self._correct,
            "answer": self._answer,
            "close": self._close,
        }
        if act not in acts:
            raise HTTPException(404)
        try:
            return await run_in_threadpool(acts[act], number, form)
        except (CoveyError, ValueError, OSError) as error:
            return _refused(str(error))

    def _add(self, _: str, form: Mapping[str, str]) -> Response:
        entry = {"names": (), "basis": "", **_entry(form)}
        return _to_request(add_request(self._register, self._roots, **entry).request)

    def _correct(self, number: str, form: Mapping[str, str]) -> Response:
        correct_request(self._register, self._roots, number, _entry(form))
        return _to_request(number)

    def _answer(self, number: str, form: Mapping[str, str]) -> Response:
        """Show what would become true; answer once that very plan was confirmed."""
        wanted, confirmed = form.get("answer", ""), form.get("confirmed", "")
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

    def _close(self, number: str, form: Mapping[str, str]) -> Response:
        """Say what closing erases; close once that was confirmed."""
        reason, salts = form.get("reason", ""), form.get("delete_salts", "")
        if form.get("confirmed") != "close":
            view = {"reason": reason, "delete_salts": salts}
            return _confirmation("close", number, form, view)
        close_request(self._register, self._roots, number, reason, delete_salts=bool(salts))
        return _to_request(number)


def _entry(form: Mapping[str, str]) -> dict[str, Any]:
    """Return what was filled in of a request: names stand one in a line."""
    names = [each.strip() for each in form.get("names", "").splitlines()]
    texts = {each: form.get(each) for each in ("basis", "reference", "language", "reason")}
    days = {
        each: day_of(form[each], each.capitalize())
        for each in ("received", "extended")
        if form.get(each)
    }
    entry = {"names": list(filter(None, names)), **texts, **days}
    return {key: value for key, value in entry.items() if value}


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


def _confirmation(
    what: str, number: str, form: Mapping[str, str], view: Mapping[str, Any]
) -> Response:
    more = {"number": number, "form_token": form["form_token"]}
    return HTMLResponse(page(f"confirm_{what}.html", {**view, **more}))


def _refused(reason: str, status: int = 400) -> Response:
    return HTMLResponse(page("refused.html", {"reason": reason}), status)
