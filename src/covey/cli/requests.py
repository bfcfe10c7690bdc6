"""`covey requests`: people who ask, from the request to what is handed over to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.base.as_json import HIDDEN, INLINE, json_of
from covey.base.errors import ConfigError
from covey.base.files import replace_whole
from covey.cli.answer import Answer, Commands, short, tabled
from covey.cli.app import FAILED_CHECK
from covey.cli.commands import LEAVING, app
from covey.cli.progress import shown
from covey.cli.runs import DEFAULT_ROOT, RootsOption

if TYPE_CHECKING:
    from covey.desk.answering import Plan
    from covey.desk.pack import Pack
    from covey.desk.register import RequestView, RunOfRequest


def _due_in_words(request: RequestView) -> str:
    left = request.days_left
    words = f"{left} days left" if left >= 0 else f"OVERDUE by {-left} days"
    return request.due if request.state == "closed" else f"{request.due} ({words})"


@dataclass(frozen=True, slots=True)
class RequestShown(Answer):
    """One request, over all runs; texts as far as they are not erased."""

    view: RequestView = field(metadata=INLINE)

    def lines(self) -> Iterator[str]:
        """Yield all that is known of the request."""
        view, entry = self.view, self.view.entry
        reference = f" [{entry.reference}]" if entry.reference else ""
        yield (
            f"request {view.request}{reference}: {', '.join(entry.names)}, {entry.basis}, "
            f"received {entry.received}, due {_due_in_words(view)}, {view.state}"
        )
        if entry.extended:
            yield f"extended on {entry.extended}: {entry.reason}"
        for said, day in view.before:
            extended = f", extended on {said.extended}" if said.extended else ""
            yield (
                f"until {day} it said: {', '.join(said.names)}, {said.basis}, received "
                f"{said.received}{extended}"
            )
        if view.repeats and view.state != "closed":
            yield f"the same name is in request {', '.join(view.repeats)}: it is answered once"
        looked_up = entry.basis == "access" and not view.waiting
        for run in view.runs:
            said = "it is in the statement" if looked_up and not run.ended else run.outcome
            yield f"{run.person} in {run.run}: {said}"
        if not view.runs:
            yield "no run has the name"
        yield from (f"by hand: {each.sentence}" for each in view.by_hand)
        yield from (f"to be handed over: {each}.zip" for each in view.packs)


@dataclass(frozen=True, slots=True)
class RequestsListed(Answer):
    """Several requests; with `is_due`, exit code 1 if one is overdue."""

    requests: Sequence[RequestView]
    is_due: bool = field(default=False, metadata=HIDDEN)

    @property
    def exit_code(self) -> int:
        """Return 1 if one is overdue."""
        late = any(each.days_left < 0 and each.state != "closed" for each in self.requests)
        return FAILED_CHECK if self.is_due and late else 0

    def lines(self) -> Iterator[str]:
        """Yield a row per request."""
        heads = ("request", "names", "basis", "received", "due", "state", "answered", "reference")
        rows = [
            (
                each.request,
                ", ".join(each.entry.names),
                each.entry.basis,
                each.entry.received,
                _due_in_words(each),
                each.state,
                f"{len(each.runs) - each.waiting}/{len(each.runs)}",
                each.entry.reference,
            )
            for each in self.requests
        ]
        yield str(tabled(heads, rows)) if rows else "no request is open"


@dataclass(frozen=True, slots=True)
class AnswersPlanned(Answer):
    """What would be answered in all runs."""

    plan: Plan = field(metadata=INLINE)

    def lines(self) -> Iterator[str]:
        """Yield the plan: each run, what is done by hand, how long it takes."""
        heads = ("request", "name", "answer", "rounds to replay", "seconds", "then")
        for run in self.plan.runs:
            rows = [
                (
                    each.request,
                    each.name,
                    each.answer or "none",
                    str(each.rounds_replayed),
                    short(each.seconds),
                    each.afterwards or each.reason,
                )
                for each in run.names
            ]
            yield "\n".join([f"run {run.run}", run.problem or str(tabled(heads, rows)), ""])
        for place, reason in self.plan.unreadable.items():
            yield f"{place} could not be looked at: {reason}"
        for number, names in self.plan.unknown.items():
            yield f"request {number}: no run has {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class RequestsAnswered(Answer):
    """What came of requests in runs, and the packs to hand over."""

    outcomes: Sequence[RunOfRequest]
    packs: Sequence[Pack]

    @property
    def exit_code(self) -> int:
        """Return 1 if a run could not answer yet."""
        return 0 if all(e.answer or e.ended for e in self.outcomes) else FAILED_CHECK

    def lines(self) -> Iterator[str]:
        """Yield a line per name and run, and one per pack."""
        for each in self.outcomes:
            changed = "changed" if each.model_changed else "unchanged"
            came = f"{each.answer}, the model is {changed}, proof {each.proof}"
            waits = each.outcome if each.ended else f"NOT ANSWERED: {each.reason}"
            yield f"request {each.request}, {each.run}: {came if each.answer else waits}"
        yield from (f"request {e.request}, to be handed over: {e.archive}" for e in self.packs)
        if not (self.outcomes or self.packs):
            yield "no run is left to be answered"


commands = Commands(help="Answer people who ask about their data, over all runs that know them.")
app.add_typer(commands, name="requests", rich_help_panel=LEAVING)

RegisterOption = Annotated[
    Path | None,
    typer.Option("--register", help="The folder of the register. Default: `requests` in the root."),
]
NumberArgument = Annotated[str, typer.Argument(metavar="REQUEST", help="Its number.")]
NumbersArgument = Annotated[
    list[str] | None, typer.Argument(metavar="REQUEST", help="Numbers. Default: all that are open.")
]
AnswerOption = Annotated[str, typer.Option(help="Of every run: auto, or as of `covey forget`.")]
NamesHelp = "As the runs know the client; several times for several."
ReceivedOption = Annotated[str, typer.Option(help="When it came: YEAR-MONTH-DAY.")]
BasisOption = Annotated[
    str, typer.Option(help="erasure, withdrawal, restriction, objection or access.")
]
ReferenceOption = Annotated[str, typer.Option(help="Your own reference.")]
LanguageOption = Annotated[str, typer.Option(help="Of the statement: en or de.")]


@commands.command("add")
def add(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help=NamesHelp)],
    basis: BasisOption,
    received: ReceivedOption = "",
    reference: ReferenceOption = "",
    language: LanguageOption = "en",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> RequestShown:
    """Take a request in: say when it is due, and which runs know the names."""
    from covey.desk.requests import add_request

    where, day = _where(register, roots), _day(received)
    return RequestShown(add_request(*where, names, basis, day, reference, language))


@commands.command("correct")
def correct(
    number: NumberArgument,
    names: Annotated[list[str] | None, typer.Option("--name", help=NamesHelp)] = None,
    basis: BasisOption = "",
    received: ReceivedOption = "",
    reference: ReferenceOption = "",
    language: LanguageOption = "",
    extended: Annotated[
        str, typer.Option(help="When the requester heard that the answer takes longer.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Why it takes longer.")] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> RequestShown:
    """Correct what the register says of a request, or extend it by two months."""
    from covey.desk.requests import correct_request

    options = {"names": names, "basis": basis, "reference": reference, "language": language}
    options |= {
        "received": _day(received),
        "reason": reason,
        "extended": _day(extended, "extended"),
    }
    changed = {key: value for key, value in options.items() if value}
    return RequestShown(correct_request(*_where(register, roots), number, changed))


@commands.command("list")
def show_all(
    number: Annotated[str, typer.Argument(metavar="REQUEST", help="Show this one.")] = "",
    due: Annotated[
        bool, typer.Option("--due", help="By due date; exit code 1 if one is overdue.")
    ] = False,
    closed: Annotated[bool, typer.Option("--closed", help="Closed ones, too.")] = False,
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> RequestShown | RequestsListed:
    """List the requests that are open, or show one."""
    from covey.desk.register import read_register

    with read_register(_where(register, roots)[0]) as held:
        if number:
            return RequestShown(held.view(number))
        shown = [each for each in held.views() if closed or each.state != "closed"]
    return RequestsListed(sorted(shown, key=lambda e: e.due) if due else shown, is_due=due)


@commands.command("plan")
def plan(
    numbers: NumbersArgument = None,
    answer: AnswerOption = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> AnswersPlanned:
    """Say what every run would answer, what that costs, and what is true then."""
    from covey.desk.answering import plan_answers

    return AnswersPlanned(plan_answers(*_where(register, roots), numbers or [], answer))


@commands.command("answer")
def answer_all(
    numbers: NumbersArgument = None,
    answer: AnswerOption = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> RequestsAnswered:
    """Answer in every run that has the names, and write what is handed over.

    Say it again after a stop. Exit code 1 if a run could not answer yet.
    """
    from covey.desk.answering import answer_requests
    from covey.desk.pack import write_packs

    folder, below = _where(register, roots)
    with shown("requests") as observe:
        outcomes = answer_requests(folder, below, numbers or [], answer, observe=observe)
    return RequestsAnswered(outcomes, write_packs(folder, numbers or []))


@commands.command("close")
def close(
    number: NumberArgument,
    reason: Annotated[str, typer.Option(help="Why, where not every run has answered.")] = "",
    delete_salts: Annotated[
        bool, typer.Option("--delete-salts", help="Delete salts that were not handed over.")
    ] = False,
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> RequestShown:
    """Close a request that was handed over: salts, packs and names are deleted."""
    from covey.desk.requests import close_request

    where = _where(register, roots)
    return RequestShown(close_request(*where, number, reason, delete_salts=delete_salts))


@commands.command("export")
def export(
    since: Annotated[str, typer.Option(help="First day of receipt: YEAR-MONTH-DAY.")],
    until: Annotated[str, typer.Option(help="Last day. Default: today.")] = "",
    out: Annotated[Path | None, typer.Option(help="A JSON file.")] = None,
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> RequestsListed:
    """Write all requests of a period for a regulator; no requester is named."""
    from covey.desk.register import read_register
    from covey.desk.requests import export_requests

    first, last = _day(since, "since") or date.min, _day(until, "until") or date.today()
    with read_register(_where(register, roots)[0]) as held:
        exported = export_requests(held, first, last)
    answer = RequestsListed(exported)
    if out is not None:
        replace_whole(out, json.dumps(json_of(answer), indent=1).encode("ascii"), mode=0o600)
    return answer


def _where(register: Path | None, roots: list[str] | None) -> tuple[Path, list[str]]:
    """Return where the register and the runs lie.

    Raises:
        ConfigError: it is not named, and no folder is among the roots.
    """
    below = roots or [DEFAULT_ROOT]
    folders = [Path(each) for each in below if Path(each).is_dir()]
    if register is None and not folders:
        raise ConfigError(
            f"The register lies in `requests` of the first folder of runs, found none "
            f"among {', '.join(below)}. Give --root FOLDER, or --register FOLDER."
        )
    return register or folders[0] / "requests", below


def _day(text: str, option: str = "received") -> date | None:
    from covey.desk.register import day_of

    return day_of(text, f"--{option}") if text else None
