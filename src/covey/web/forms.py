"""The forms on pages of requests, where `--write` allows them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from covey.base.errors import CoveyError
from covey.desk.answering import Plan, answer_requests, plan_answers
from covey.desk.pack import write_packs
from covey.desk.register import LANGUAGES, REQUEST_BASES, day_of, register_of
from covey.desk.requests import add_request, close_request, correct_request
from covey.unlearning.plan import ANSWERS
from covey.web.guard import has_token
from covey.web.pages import page


class Forms:
    """Does what the forms on pages of requests ask for, by `covey.desk`.

    Answers play rounds, so they run in a thread of their own, one after another.
    """

    choices: ClassVar[Mapping[str, Sequence[str]]] = {
        "bases": REQUEST_BASES,
        "languages": LANGUAGES,
        "answers": ("", *ANSWERS),
    }

    def __init__(self, roots: Sequence[Path]) -> None:
        """Take the register of the first of these folders, as the commands do."""
        self._roots = [str(each) for each in roots]
        self._register = register_of(Path(self._roots[0]))
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
    content = asdict(plan)
    for run in content["runs"]:
        for each in run["names"]:
            del each["seconds"]
    text = json.dumps(content, sort_keys=True, default=str)
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
