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
from covey.base.names import BASES, ClientName, Handle
from covey.desk.answering import answer_cases, close_case
from covey.desk.case import FILE, ITEM_KINDS, CaseView, Register, day_of, read_register, register_at
from covey.desk.intake import Plan, add_case, add_item, extend_case, plan_answers, sign_items
from covey.desk.letters import write_letters
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
"""Where a root has its register, unless `covey requests` was told another place."""


def requests_page(roots: Iterable[Path]) -> dict[str, Any]:
    """Return every case: those that are open by their day, then those that are closed."""
    cases, problems = _cases(roots)
    cases.sort(key=lambda each: (each.state == "closed", each.due, each.case))
    return {
        "cases": cases,
        "problems": problems,
        "waiting": [each for each in cases if each.state != "closed"],
    }


def request_page(roots: Iterable[Path], number: str) -> dict[str, Any] | None:
    """Return one case; None: there is none."""
    return next(({"case": each} for each in _cases(roots)[0] if each.case == number), None)


def _cases(roots: Iterable[Path]) -> tuple[list[CaseView], list[str]]:
    """Return all cases, and why those of some register cannot be read."""
    cases: list[CaseView] = []
    problems: list[str] = []
    for root in roots:
        if not (root / FOLDER / FILE).is_file():
            continue
        try:
            with read_register(root / FOLDER) as register:
                cases += register.views()
        except (CoveyError, OSError, ValueError) as error:
            problems.append(str(error))
    return cases, problems


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

    def marked(self) -> list[int]:
        """Return the numbers of the items that were marked."""
        items = [int(each) for each in self.fields.get("item", []) if each.isdecimal()]
        if not items:
            raise ValueError("Mark the items that were done, and found none marked.")
        return items


Act = Callable[[str, Form], Response]


class Forms:
    """Does what the forms on pages of requests ask for, by `covey.desk`.

    Answers play rounds, so they are given in a thread of their own, one after another.
    """

    choices: ClassVar[Mapping[str, Sequence[str]]] = {
        "bases": BASES,
        "kinds": ITEM_KINDS,
        "answers": ("", *ANSWERS),
    }

    def __init__(self, roots: Sequence[Path]) -> None:
        """Take the register of the first of these folders, as the commands do."""
        self._roots = [str(each) for each in roots]
        self._register = Path(self._roots[0]) / FOLDER
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="covey-answers")
        self._answering: dict[str, str] = {}

    def told(self, number: str) -> str:
        """Return how the last answering of a case goes, or went; "": there was none."""
        return self._answering.get(number, "")

    def routes(self) -> list[Route]:
        """Return the addresses that forms are sent to."""
        acts: dict[str, Act] = {
            "items": self._written(
                lambda held, number, form: add_item(
                    held, number, form.text("kind"), form.text("text")
                )
            ),
            "sign": self._written(
                lambda held, number, form: sign_items(
                    held, number, form.marked(), form.text("by"), form.day("day"), form.text("note")
                )
            ),
            "extend": self._written(
                lambda held, number, form: extend_case(
                    held, number, form.text("reason"), form.day("told")
                )
            ),
            "answer": self._answer,
            "letters": self._written(
                lambda held, number, form: write_letters(held, number, form.text("by"))
            ),
            "close": self._close,
        }
        case = "/requests/{number}"
        return [
            Route("/requests", _posted(self._add), methods=["POST"]),
            *(Route(f"{case}/{name}", _posted(a), methods=["POST"]) for name, a in acts.items()),
        ]

    def _written(self, write: Callable[[Register, str, Form], object]) -> Act:
        """Return what opens the register, does that, and goes back to the case."""

        def act(number: str, form: Form) -> Response:
            with register_at(self._register) as held:
                write(held, number, form)
            return _to_case(number)

        return act

    def _add(self, _: str, form: Form) -> Response:
        received = day_of(form.text("received"), "Received")
        name, basis, number, owner = map(form.text, ("name", "basis", "number", "owner"))
        with register_at(self._register) as held:
            case = add_case(held, self._roots, name, received, basis, number, owner)
        return _to_case(case.number)

    def _answer(self, number: str, form: Form) -> Response:
        """Show what would become true; answer once that very plan was confirmed."""
        wanted, confirmed = form.text("answer"), form.text("confirmed")
        with read_register(self._register) as held:
            plan = plan_answers(held, self._roots, [number], wanted)
        shown = _digest(plan)
        if confirmed != shown:
            view = {"plan": plan, "answer": wanted, "shown": shown, "changed": bool(confirmed)}
            return _confirmation("answer", number, form, view)
        self._answering[number] = "Runs are answering."
        self._worker.submit(self._give_answers, number, wanted)
        return _to_case(number)

    def _give_answers(self, number: str, wanted: str) -> None:
        try:
            with register_at(self._register) as held:
                done = answer_cases(held, self._roots, [number], wanted)
        except Exception as error:  # shown on the page: this thread has no other reader
            self._answering[number] = f"It was stopped: {error}"
            return
        waits = [f"{each.run}: {each.reason}" for each in done if not each.answer]
        answered = f"{len(done) - len(waits)} of {len(done)} runs have answered."
        self._answering[number] = " ".join([answered, *waits])

    def _close(self, number: str, form: Form) -> Response:
        """Say what closing erases; close once that was confirmed."""
        if form.text("confirmed") != "close":
            view = {name: form.text(name) for name in ("by", "reason", "day")}
            return _confirmation("close", number, form, view)
        day, by, reason = form.day("day"), form.text("by"), form.text("reason")
        with register_at(self._register) as held:
            close_case(held, self._roots, number, by, reason, day)
        return _to_case(number)


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
        for case in run["cases"]:
            del case["seconds"], case["bytes_deleted"]
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _to_case(number: str) -> Response:
    return RedirectResponse(f"/requests/{quote(number, safe='')}", 303)


def _confirmation(what: str, number: str, form: Form, view: Mapping[str, Any]) -> Response:
    more = {"number": number, "form_token": form.text("form_token")}
    return HTMLResponse(page(f"confirm_{what}.html", {**view, **more}))


def _refused(reason: str, status: int = 400) -> Response:
    return HTMLResponse(page("refused.html", {"reason": reason}), status)
