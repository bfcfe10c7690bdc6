"""The forms of requests, where `--write` allows them: what each does once it is sent."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from covey.errors import CoveyError
from covey.requests import (
    ITEM_KINDS,
    Plan,
    RunOutcome,
    add_case,
    add_item,
    answer_cases,
    close_case,
    day_of,
    extend_case,
    plan_answers,
    read_register,
    register_at,
    sign_items,
    write_letters,
)
from covey.types import BASES
from covey.web.guard import has_token
from covey.web.layout import page
from covey.web.pages.request_register import FOLDER

__all__ = ["Forms"]

ANSWERS = ("", "deny", "subtract", "roll_back", "retrain", "calibrate")

Fields = Mapping[str, list[str]]
Act = Callable[[str, Fields], Response]


class Forms:
    """Does what the forms on pages of requests ask for, by `covey.requests`.

    Answers play rounds, so they are given in a thread of their own, one after another.
    """

    choices: ClassVar[Mapping[str, Sequence[str]]] = {
        "bases": BASES,
        "kinds": ITEM_KINDS,
        "answers": ANSWERS,
    }

    def __init__(self, roots: Sequence[Path]) -> None:
        """Take the register of the first of these folders, as the commands do."""
        self._roots = [str(each) for each in roots]
        self._register = Path(self._roots[0]) / FOLDER
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="covey-answers")
        self._told: dict[str, str] = {}

    def told(self, number: str) -> str:
        """Return how the last answering of a case goes, or went; "": there was none."""
        return self._told.get(number, "")

    def routes(self) -> list[Route]:
        """Return the addresses that forms are sent to."""
        acts: dict[str, Act] = {
            "items": self._item,
            "sign": self._sign,
            "extend": self._extend,
            "answer": self._answer,
            "letters": self._letters,
            "close": self._close,
        }
        return [
            Route("/requests", _posted(self._add), methods=["POST"]),
            *(
                Route(f"/requests/{{number}}/{name}", _posted(act), methods=["POST"])
                for name, act in acts.items()
            ),
        ]

    def _add(self, _: str, fields: Fields) -> Response:
        received = day_of(_one(fields, "received"), "Received")
        with register_at(self._register) as held:
            case = add_case(
                held,
                self._roots,
                _one(fields, "name"),
                received,
                _one(fields, "basis"),
                _one(fields, "number"),
                _one(fields, "owner"),
            )
        return _to_case(case.number)

    def _item(self, number: str, fields: Fields) -> Response:
        with register_at(self._register) as held:
            add_item(held, number, _one(fields, "kind"), _one(fields, "text"))
        return _to_case(number)

    def _sign(self, number: str, fields: Fields) -> Response:
        items = [int(each) for each in fields.get("item", []) if each.isdecimal()]
        if not items:
            return _refused("Mark the items that were done, and found none marked.")
        day = _one(fields, "day")
        with register_at(self._register) as held:
            on = day_of(day, "On") if day else None
            sign_items(
                held, number, items, _one(fields, "by"), on, _one(fields, "note")
            )
        return _to_case(number)

    def _extend(self, number: str, fields: Fields) -> Response:
        day = _one(fields, "told")
        with register_at(self._register) as held:
            told = day_of(day, "Told") if day else None
            extend_case(held, number, _one(fields, "reason"), told)
        return _to_case(number)

    def _letters(self, number: str, fields: Fields) -> Response:
        with register_at(self._register) as held:
            write_letters(held, number, _one(fields, "by"))
        return _to_case(number)

    def _answer(self, number: str, fields: Fields) -> Response:
        """Show what would become true; answer once that very plan was confirmed."""
        wanted = _one(fields, "answer")
        with read_register(self._register) as held:
            plan = plan_answers(held, self._roots, [number], wanted)
        shown = _digest(plan)
        confirmed = _one(fields, "confirmed")
        if confirmed != shown:
            told = {
                "number": number,
                "plan": plan,
                "answer": wanted,
                "shown": shown,
                "changed": bool(confirmed),
            }
            return _page("confirm_answer.html", fields, told)
        self._told[number] = "Runs are answering."
        self._worker.submit(self._give_answers, number, wanted)
        return _to_case(number)

    def _give_answers(self, number: str, wanted: str) -> None:
        try:
            with register_at(self._register) as held:
                done = answer_cases(held, self._roots, [number], wanted)
            self._told[number] = _summary(done)
        except (
            Exception
        ) as error:  # shown on the page: nobody else looks at this thread
            self._told[number] = f"It was stopped: {error}"

    def _close(self, number: str, fields: Fields) -> Response:
        """Say what closing erases; close once that was confirmed."""
        if _one(fields, "confirmed") != "close":
            told = {name: _one(fields, name) for name in ("by", "reason", "day")}
            return _page("confirm_close.html", fields, {"number": number, **told})
        day = _one(fields, "day")
        with register_at(self._register) as held:
            on = day_of(day, "On") if day else None
            by, reason = _one(fields, "by"), _one(fields, "reason")
            close_case(held, self._roots, number, by, reason, on)
        return _to_case(number)


def _posted(act: Act) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        body = await request.body()  # the guard has bounded it
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        if not has_token(request, _one(fields, "form_token")):
            reason = "This form is not of this page. Reload the page, and try again."
            return _refused(reason, 403)
        number = str(request.path_params.get("number", ""))
        return await run_in_threadpool(_done, act, number, fields)

    return answer


def _done(act: Act, number: str, fields: Fields) -> Response:
    try:
        return act(number, fields)
    except (CoveyError, ValueError, OSError) as error:
        return _refused(str(error))


def _one(fields: Fields, name: str) -> str:
    return fields.get(name, [""])[0].strip()


def _digest(plan: Plan) -> str:
    """Return what stands for what a plan says, but for how long it may take."""
    told = plan.answer()
    for run in told["runs"]:
        for case in run["cases"]:
            del case["seconds"], case["bytes_deleted"]
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _summary(done: Sequence[RunOutcome]) -> str:
    waits = [f"{each.run}: {each.reason}" for each in done if not each.answer]
    answered = f"{len(done) - len(waits)} of {len(done)} runs have answered."
    return " ".join([answered, *waits])


def _to_case(number: str) -> Response:
    return RedirectResponse(f"/requests/{quote(number, safe='')}", 303)


def _page(template: str, fields: Fields, told: Mapping[str, Any]) -> Response:
    token = _one(fields, "form_token")
    return HTMLResponse(page(template, {**told, "form_token": token}))


def _refused(reason: str, status: int = 400) -> Response:
    return HTMLResponse(page("refused.html", {"reason": reason}), status)
