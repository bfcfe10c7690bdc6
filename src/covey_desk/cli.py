"""`covey requests` and `covey serve`: people who ask, and runs in a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from covey import ConfigError
from covey.base.names import how_to_install
from covey.cli.answer import CommandResult, Line, fail_if, short, table_of, text_of
from covey.cli.commands import LEAVING, OPERATION, PATH, CommandGroup, CommandRow, argument, command
from covey.cli.console import errors, shown
from covey.cli.runs import DEFAULT_ROOT, root_option

if TYPE_CHECKING:
    from covey_desk.answering import AnswerPlan
    from covey_desk.pack import Pack
    from covey_desk.request import Request, RunOfRequest


PORT = 8765
NICENESS = 5
"""Reading must not slow down a process that plays."""
NEEDED = ("starlette", "uvicorn")


BASIS = "erasure, withdrawal, restriction, objection or access."

NAMES = "As the runs know the client; several times for several."


def _due_in_words(request: Request) -> str:
    left = request.days_left
    words = f"{left} days left" if left >= 0 else f"OVERDUE by {-left} days"
    return request.due if request.state == "closed" else f"{request.due} ({words})"


@text_of("covey_desk.request.Request")
def lines_of_request(view: Request) -> Iterator[Line]:
    """Yield all that is known of a request."""
    entry = view.entry
    reference = f" [{entry.reference}]" if entry.reference else ""
    yield (
        f"request {view.request}{reference}: {', '.join(entry.names)}, {entry.basis}, "
        f"received {entry.received}, due {_due_in_words(view)}, {view.state}"
    )
    if entry.extended:
        yield f"extended on {entry.extended}: {entry.reason}"
    if view.repeats and view.state != "closed":
        yield f"the same name is in request {', '.join(view.repeats)}: it is answered once"
    yield from (f"{run.person} in {run.run}: {view.outcome(run)}" for run in view.runs)
    for name in entry.names:
        if name not in {run.person for run in view.runs}:
            near = view.nearest.get(name, "")
            yield f"no run has {name}: check its spelling, and --root.{near}"
    for i, item in enumerate(view.by_hand, 1):
        what = "stays" if item.kind == "stays" else f"by hand {i}"
        yield f"{what}: {item.sentence}{f' (done on {item.done})' if item.done else ''}"
    yield from (f"to be handed over: {pack}.zip" for pack in view.packs)


@dataclass(frozen=True, slots=True)
class RequestsListed(CommandResult):
    """Several requests."""

    requests: Sequence[Request]

    def lines(self) -> Iterator[Line]:
        """Yield a row per request."""
        rows = [
            {
                "request": request.request,
                "names": ", ".join(request.entry.names),
                "basis": request.entry.basis,
                "received": request.entry.received,
                "due": _due_in_words(request),
                "state": request.state,
                "answered": f"{len(request.runs) - request.waiting - len(request.denied)}"
                f"/{len(request.runs)}",
                "reference": request.entry.reference,
            }
            for request in self.requests
        ]
        yield table_of(rows) if rows else "no request is open"


@text_of("covey_desk.answering.AnswerPlan")
def lines_of_plan(plan: AnswerPlan) -> Iterator[Line]:
    """Yield what every run would answer, and who is in none."""
    for run in plan.runs:
        rows = [
            {
                "request": name.request,
                "name": name.name,
                "answer": name.answer or "none",
                "rounds to replay": name.rounds_replayed,
                "seconds": short(name.seconds),
                "then": name.afterwards or name.reason,
            }
            for name in run.names
        ]
        yield f"run {run.run}"
        yield run.problem or table_of(rows)
        yield ""
    for place, reason in plan.unreadable.items():
        yield f"{place} could not be looked at: {reason}"
    for number, names in plan.unknown.items():
        yield f"request {number}: no run has {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class RequestsAnswered(CommandResult):
    """What came of requests in runs, and the packs to hand over."""

    outcomes: Sequence[RunOfRequest]
    packs: Sequence[Pack]

    def lines(self) -> Iterator[Line]:
        """Yield a line per name and run, and one per pack."""
        for outcome in self.outcomes:
            changed = "changed" if outcome.model_changed else "unchanged"
            end = outcome.outcome if outcome.ended else f"NOT ANSWERED: {outcome.reason}"
            if outcome.answer:
                end = f"{outcome.answer}, the model is {changed}, proof {outcome.proof}"
            yield f"request {outcome.request}, {outcome.run}: {end}"
        yield from (f"request {e.request}, to be handed over: {e.archive}" for e in self.packs)
        if not (self.outcomes or self.packs):
            yield "no run is left to be answered"


requests = CommandGroup(
    "requests", help="Answer people who ask about their data, over all runs that know them."
)


def _text(name: str, help: str, default: str = "", **settings: Any) -> Any:  # noqa: ANN401
    return click.option(name, default=default, help=help, **settings)


register_option = click.option(
    "--register", type=PATH, help="The folder of the register. Default: `requests` in the root."
)
number_argument = argument("number", metavar="REQUEST", help="Its number.")
numbers_argument = argument(
    "numbers", metavar="REQUEST", nargs=-1, help="Numbers. Default: all that are open."
)
answer_option = _text("--answer", "Of every run: auto, or as of `covey forget`.")
received_option = _text("--received", "When it came: YEAR-MONTH-DAY.")
salt_option = click.option(
    "--salt", "salts", multiple=True, help="Of a client that left, from the annex of its answer."
)
reference_option = _text("--reference", "Your own reference.")


@requests.command()
@argument("names", metavar="NAME", nargs=-1, required=True, help=NAMES)
@click.option("--basis", required=True, help=BASIS)
@received_option
@reference_option
@_text("--language", "Of the statement: en or de.", default="en")
@salt_option
@root_option
@register_option
def add(
    names: Sequence[str],
    basis: str,
    received: str,
    reference: str,
    language: str,
    salts: Sequence[str],
    roots: Sequence[str],
    register: Path | None,
) -> Request:
    """Take a request in: say when it is due, and which runs know the names."""
    from covey_desk.lifecycle import add_request

    where, day = _where(register, roots), _day(received)
    return add_request(*where, names, basis, day, reference, language, salts)


@requests.command()
@number_argument
@click.option("--name", "names", multiple=True, help=NAMES)
@_text("--basis", BASIS)
@received_option
@reference_option
@_text("--language", "Of the statement: en or de.")
@_text("--extended", "When the requester heard that the answer takes longer.")
@_text("--reason", "Why it takes longer.")
@salt_option
@root_option
@register_option
def correct(
    number: str,
    *,
    names: Sequence[str],
    basis: str,
    received: str,
    reference: str,
    language: str,
    extended: str,
    reason: str,
    salts: Sequence[str],
    roots: Sequence[str],
    register: Path | None,
) -> Request:
    """Correct what the register says of a request, or extend it by two months."""
    from covey_desk.lifecycle import correct_request

    texts = {"names": [*names], "basis": basis, "reference": reference, "language": language}
    texts["salts"] = tuple(salts)
    days = {"received": _day(received), "extended": _day(extended, "extended")}
    changed = {k: value for k, value in {**texts, **days, "reason": reason}.items() if value}
    return correct_request(*_where(register, roots), number, changed)


@requests.command("list")
@argument("number", metavar="REQUEST", default="", help="Show this one.")
@click.option("--due", is_flag=True, help="By due date; exit code 1 if one is overdue.")
@click.option("--closed", is_flag=True, help="Closed ones, too.")
@root_option
@register_option
def show_all(
    number: str, due: bool, closed: bool, roots: Sequence[str], register: Path | None
) -> Iterator[Request | RequestsListed]:
    """List the requests that are open, or show one."""
    from covey_desk.register import read_register

    with read_register(_where(register, roots)[0]) as held:
        if number:
            yield held.request(number)
            return
        listed = [
            request for request in held.requests().values() if closed or request.state != "closed"
        ]
    yield RequestsListed(sorted(listed, key=lambda request: request.due) if due else listed)
    late = any(request.days_left < 0 and request.state != "closed" for request in listed)
    fail_if(due and late)


@requests.command()
@numbers_argument
@answer_option
@root_option
@register_option
def plan(
    numbers: Sequence[str], answer: str, roots: Sequence[str], register: Path | None
) -> AnswerPlan:
    """Say what every run would answer, what that costs, and what is true then."""
    from covey_desk.answering import plan_answers

    return plan_answers(*_where(register, roots), numbers, answer)


@requests.command("answer")
@numbers_argument
@answer_option
@root_option
@register_option
def answer_all(
    numbers: Sequence[str], answer: str, roots: Sequence[str], register: Path | None
) -> Iterator[RequestsAnswered]:
    """Answer in every run that has the names, and write what is handed over.

    Say it again after a stop. Exit code 1 if a run could not answer yet.
    """
    from covey_desk.answering import answer_requests
    from covey_desk.pack import write_packs

    folder, below = _where(register, roots)
    with shown("requests") as observe:
        outcomes = answer_requests(folder, below, numbers, answer, observe=observe)
    yield RequestsAnswered(outcomes, write_packs(folder, numbers))
    fail_if(not all(outcome.answer or outcome.ended for outcome in outcomes))


@requests.command()
@number_argument
@argument("items", metavar="ITEM", nargs=-1, required=True, type=int, help="Of its work by hand.")
@_text("--date", "When it was done: YEAR-MONTH-DAY. Default: today.")
@root_option
@register_option
def done(
    number: str, items: Sequence[int], date: str, roots: Sequence[str], register: Path | None
) -> Request:
    """Note that a person did what no answer does, and when; the letter lists it."""
    from covey_desk.lifecycle import done_by_hand

    return done_by_hand(_where(register, roots)[0], number, items, _day(date, "date"))


@requests.command()
@number_argument
@_text("--reason", "Why, where not every run has answered.")
@click.option("--delete-salts", is_flag=True, help="Delete salts that were not handed over.")
@root_option
@register_option
def close(
    number: str, reason: str, delete_salts: bool, roots: Sequence[str], register: Path | None
) -> Request:
    """Close a request that was handed over: salts, packs and names are deleted."""
    from covey_desk.lifecycle import close_request

    where = _where(register, roots)
    return close_request(*where, number, reason, delete_salts=delete_salts)


@requests.command()
@click.option("--since", required=True, help="First day of receipt: YEAR-MONTH-DAY.")
@_text("--until", "Last day. Default: today.")
@click.option("--out", type=PATH, help="A JSON file; a page and CSV lie beside it.")
@root_option
@register_option
def export(
    since: str, until: str, out: Path | None, roots: Sequence[str], register: Path | None
) -> RequestsListed:
    """Write all requests of a period for a regulator; no requester is named."""
    from covey_desk.lifecycle import export_requests
    from covey_desk.pack import write_export
    from covey_desk.register import read_register

    first, last = _day(since, "since") or date.min, _day(until, "until") or date.today()
    with read_register(_where(register, roots)[0]) as held:
        exported = RequestsListed(export_requests(held, first, last))
    if out is not None:
        write_export(exported.requests, f"{first} to {last}", out)
    return exported


def _where(register: Path | None, roots: Sequence[str]) -> tuple[Path, list[str]]:
    """Return where the register and the runs lie.

    Raises:
        ConfigError: it is not named, and no folder is among the roots.
    """
    from covey_desk.register import register_of

    below = [*roots] or [DEFAULT_ROOT]
    folders = [Path(path) for path in below if Path(path).is_dir()]
    if register is None and not folders:
        raise ConfigError(
            f"--root must be a folder of runs, in whose `requests` the register is, found none of "
            f"{', '.join(below)}: give --root FOLDER, or --register FOLDER."
        )
    return register or register_of(folders[0]), below


def _day(text: str, option: str = "received") -> date | None:
    from covey_desk.request import day_of

    return day_of(text, f"--{option}") if text else None


@dataclass(frozen=True, slots=True)
class ServedPages:
    """Pages on this machine.

    Attributes:
        link: for one browser.
    """

    link: str


@command()
@argument("roots", type=PATH, nargs=-1, help="Folders that runs lie below. Default: runs")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="On this machine only; 0: any that is free.",
)
def serve(roots: Sequence[Path], port: int) -> Iterator[ServedPages]:
    """Show runs in a browser on this machine, live; nothing is written."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f"Pages need {' and '.join(missing)}, found none: {how_to_install('serve')}."
        )
    from covey_desk.web.app import serve as served

    def on_entry(link: str) -> None:
        errors.print(f"A browser was let in. For another one: {link}", soft_wrap=True)

    with suppress(OSError, AttributeError):  # Windows has no niceness
        os.nice(NICENESS)
    server = served([*roots] or [Path(DEFAULT_ROOT)], port, on_entry)
    yield ServedPages(server.link)
    sys.stdout.flush()
    errors.print("It opens one browser; Ctrl-C ends it.", soft_wrap=True)
    server.run()


REQUESTS = CommandRow("covey_desk.cli:requests", str(requests.help), LEAVING)
SERVE = CommandRow("covey_desk.cli:serve", str(serve.help), OPERATION)
