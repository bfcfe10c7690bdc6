"""`covey requests`: people who ask to leave, from the request to the letters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.base.errors import ConfigError
from covey.cli.answer import JsonOption, short, tabled
from covey.cli.app import FAILED_CHECK, app, stated
from covey.cli.inspect import DEFAULT_ROOT, RootsOption
from covey.cli.runs import shown

if TYPE_CHECKING:
    from covey.desk.answering import RunOutcome
    from covey.desk.case import Case, Register
    from covey.desk.intake import Plan, RunPlan


def case_json(case: Case, texts: Mapping[str, str], today: date) -> dict[str, Any]:
    """Return a case with its texts, as far as they are not erased."""
    from covey.desk.case import ERASED

    def text(handle: str) -> str:
        return texts.get(handle, ERASED) if handle else ""

    return {
        "case": case.number,
        "name": text(case.person),
        "state": case.state,
        "received": case.received.isoformat(),
        "due": case.due.isoformat(),
        "days_left": (case.due - today).days,
        "extended": text(case.extended.reason) if case.extended else "",
        "basis": case.basis,
        "owner": text(case.owner),
        "wanted": case.wanted,
        "runs": [
            {
                "run": text(each),
                "request": case.asked.get(each, ""),
                "answer": asdict(case.answered[each])["answer"] if each in case.answered else "",
            }
            for each in dict.fromkeys((*case.known, *case.asked))
        ],
        "by_hand": [
            {
                "item": each.number,
                "kind": each.kind,
                "text": text(each.text),
                "signed_by": text(each.signed_by),
                "signed_on": each.signed_on,
                "note": text(each.note),
                "kept": text(each.kept),
            }
            for each in case.items
        ],
        "letters": dict(case.letters),
        "closed_by": text(case.closing.by) if case.closing else "",
    }


def list_text(told: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of cases."""
    heads = ("case", "name", "basis", "received", "due", "state", "runs", "by hand")
    rows = [
        (
            each["case"],
            each["name"],
            each["basis"],
            each["received"],
            _due(each),
            each["state"],
            f"{sum(bool(r['answer']) for r in each['runs'])}/{len(each['runs'])} answered",
            f"{_signed(each)}/{len(each['by_hand'])} signed off",
        )
        for each in told
    ]
    return tabled(heads, rows) if rows else "no case is open"


def case_text(told: Mapping[str, Any]) -> str:
    """Return one case for a person."""
    lines = [
        f"case {told['case']}: {told['name']}, {told['basis']}, received "
        f"{told['received']}, due {_due(told)}, {told['state']}"
    ]
    if told["owner"]:
        lines.append(f"responsible: {told['owner']}")
    if told["extended"]:
        lines.append(f"extended: {told['extended']}")
    lines += [
        f"run {each['run']}: {each['answer'] or 'not answered'}" for each in told["runs"]
    ] or ["no run knows the name"]
    lines += map(_item, told["by_hand"])
    lines += [f"letter {name}: {digest}" for name, digest in told["letters"].items()]
    return "\n".join(lines)


def plan_text(found: Plan) -> str:
    """Return one plan over all runs for a person."""
    parts = [_run_text(each) for each in found.runs]
    parts += [
        f"{place} could not be looked at: {reason}" for place, reason in found.unreadable.items()
    ]
    parts += [f"case {each}: no run knows the name" for each in found.unknown]
    for case, items in found.by_hand.items():
        lines = (f"  {each.kind}: {each.text}" for each in items)
        if items:
            parts.append("\n".join([f"case {case}, by hand:", *lines]))
    seconds = [each.seconds for run in found.runs for each in run.cases]
    known = [each for each in seconds if each is not None]
    if found.runs:
        least = "" if len(known) == len(seconds) else "at least "
        parts.append(
            f"{len(found.runs)} runs, {least}{sum(_per_run(found)):.1f} seconds in all. "
            f"Answer with covey requests answer."
        )
    return "\n\n".join(parts) or "no case is open"


def outcomes_text(done: Sequence[RunOutcome]) -> str:
    """Return what came of cases in runs for a person."""
    lines = [
        f"case {each.case}, {each.run}: {each.answer}, the model is "
        f"{'changed' if each.model_changed else 'unchanged'}, proof {each.proof}"
        if each.answer
        else f"case {each.case}, {each.run}: NOT ANSWERED: {each.reason}"
        for each in done
    ]
    return "\n".join(lines) or "no run is left to be answered"


def _per_run(found: Plan) -> Iterator[float]:
    """Yield how long each run takes: those who leave it together share its replay."""
    for run in found.runs:
        yield max((each.seconds or 0.0 for each in run.cases), default=0.0)


def _run_text(run: RunPlan) -> str:
    heads = ("case", "answer", "rounds to replay", "seconds", "bytes deleted", "then")
    rows = [
        (
            each.case,
            each.answer or "none",
            str(each.rounds_replayed),
            short(each.seconds),
            f"{each.bytes_deleted:,}",
            each.afterwards or each.reason,
        )
        for each in run.cases
    ]
    lines = [f"run {run.run}"]
    if rows:
        lines.append(tabled(heads, rows))
    if run.problem:
        lines.append(f"  {run.problem}")
    return "\n".join(lines)


def _due(told: Mapping[str, Any]) -> str:
    left = told["days_left"]
    if told["state"] == "closed":
        return told["due"]
    words = f"{left} days left" if left >= 0 else f"OVERDUE by {-left} days"
    return f"{told['due']} ({words})"


def _item(each: Mapping[str, Any]) -> str:
    signed = f"done {each['signed_on']}, {each['signed_by']}" if each["signed_by"] else "OPEN"
    note = f" ({each['note']})" if each["note"] else ""
    kept = f", kept: {each['kept']}" if each["kept"] else ""
    told = f"{signed}{note}{kept}"
    return f"by hand {each['item']} [{each['kind']}] {told}: {each['text']}"


def _signed(told: Mapping[str, Any]) -> int:
    return sum(bool(each["signed_by"]) for each in told["by_hand"])


__all__: list[str] = []

cases = typer.Typer(help="Answer people who ask to leave, over all runs that know them.")
app.add_typer(cases, name="requests")

RegisterOption = Annotated[
    Path | None,
    typer.Option("--register", help="The folder of the register. Default: `requests` in the root."),
]
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="The case's number.")]
CasesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="CASE", help="Numbers of cases. Default: all that are open."),
]
AnswerOption = Annotated[
    str, typer.Option(help="Of every run: auto, or one that `covey forget` takes.")
]
ByOption = Annotated[str, typer.Option("--by", help="Your name.")]


@cases.command("add")
def add(
    name: Annotated[str, typer.Argument(help="As the runs know the client.")],
    received: Annotated[str, typer.Option(help="When it came: YEAR-MONTH-DAY.")],
    basis: Annotated[
        str, typer.Option(help="erasure, withdrawal, objection, restriction or none.")
    ],
    case: Annotated[str, typer.Option(help="The case's number. Default: the next.")] = "",
    owner: Annotated[str, typer.Option(help="Who is responsible for it.")] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a request in: say when it is due, and which runs know the name."""
    from covey.desk.case import day_of, register_at
    from covey.desk.intake import add_case

    day, below = day_of(received, "--received"), _roots(roots)
    with register_at(_register(register, below)) as held:
        made = add_case(held, below, name, day, basis, case, owner)
        _tell_case(held, made.number, as_json=as_json)


@cases.command("list")
def show_all(
    closed: Annotated[bool, typer.Option("--closed", help="Those that are closed, too.")] = False,
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the cases that are open."""
    _list(roots, register, closed=closed, as_json=as_json)


@cases.command("due")
def due(
    days: Annotated[
        int, typer.Option("--days", help="Only those that are due within so many days.")
    ] = 3650,
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """List open cases by the day on which they are due; exit code 1 if one is overdue."""
    told = _list(roots, register, closed=False, as_json=as_json, days=days)
    if any(each["days_left"] < 0 for each in told):
        raise typer.Exit(FAILED_CHECK)


@cases.command("show")
def show(
    case: CaseArgument,
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a case: runs, answers, what is to be done by hand and who signed it off."""
    from covey.desk.case import read_register

    with read_register(_register(register, _roots(roots))) as held:
        _tell_case(held, case, as_json=as_json)


@cases.command("plan")
def plan(
    numbers: CasesArgument = None,
    answer: AnswerOption = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what every run would answer, what that costs, and what is true then."""
    from covey.desk.case import read_register
    from covey.desk.intake import plan_answers

    below = _roots(roots)
    with read_register(_register(register, below)) as held:
        found = plan_answers(held, below, numbers or [], answer)
    stated(found.answer(), plan_text(found), as_json=as_json)


@cases.command("answer")
def answer_all(
    numbers: CasesArgument = None,
    answer: AnswerOption = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer in every run that knows the names; say it again after a stop.

    Exit code 1 if a run could not answer yet.
    """
    from covey.desk.answering import answer_cases
    from covey.desk.case import register_at

    below = _roots(roots)
    with register_at(_register(register, below)) as held, shown("requests") as observe:
        done = answer_cases(held, below, numbers or [], answer, observe=observe)
    stated({"outcomes": [each.told() for each in done]}, outcomes_text(done), as_json=as_json)
    if any(not each.answer for each in done):
        raise typer.Exit(FAILED_CHECK)


@cases.command("extend")
def extend(
    case: CaseArgument,
    reason: Annotated[str, typer.Option(help="Why it takes longer, as the letter says.")],
    told: Annotated[str, typer.Option(help="When the requester is told.")] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Extend the time by two further months, of which the requester has to be told."""
    from covey.desk.case import day_of, register_at
    from covey.desk.intake import extend_case

    day = day_of(told, "--told") if told else None
    with register_at(_register(register, _roots(roots))) as held:
        extend_case(held, case, reason, day)
        _tell_case(held, case, as_json=as_json)


@cases.command("item")
def item(
    case: CaseArgument,
    text: Annotated[str, typer.Argument(help="What is to be done, and where.")],
    kind: Annotated[
        str, typer.Option(help="source, backup, recipient, downstream or other.")
    ] = "other",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add something that has to be done by hand."""
    from covey.desk.case import register_at
    from covey.desk.intake import add_item

    with register_at(_register(register, _roots(roots))) as held:
        add_item(held, case, kind, text)
        _tell_case(held, case, as_json=as_json)


@cases.command("sign")
def sign(
    case: CaseArgument,
    by: ByOption,
    items: Annotated[list[int] | None, typer.Argument(help="Numbers of items.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All items that are open.")] = False,
    day: Annotated[str, typer.Option("--on", help="When it was done.")] = "",
    note: Annotated[str, typer.Option(help="What was done.")] = "",
    kept: Annotated[
        str, typer.Option(help="Why something of them is kept: the letter tells it.")
    ] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign off what was done by hand."""
    from covey.desk.case import day_of, register_at
    from covey.desk.intake import sign_items

    if bool(items) == everything:
        raise ConfigError(
            f"covey requests sign takes numbers of items, or --all, found "
            f"{'both' if items else 'neither'}. Give one of them."
        )
    on = day_of(day, "--on") if day else None
    with register_at(_register(register, _roots(roots))) as held:
        sign_items(held, case, items or [], by, on, note, kept)
        _tell_case(held, case, as_json=as_json)


@cases.command("letters")
def letters(
    case: CaseArgument,
    by: ByOption,
    out: Annotated[
        Path | None,
        typer.Option(help="Their folder. What is written elsewhere, you delete yourself."),
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="A folder of templates of your own.")
    ] = None,
    refused: Annotated[str, typer.Option(help="Why nothing is done, where no run was asked.")] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the letters to the requester and to recipients, as HTML pages to print."""
    from covey.desk.case import register_at
    from covey.desk.letters import write_letters

    with register_at(_register(register, _roots(roots))) as held:
        made = write_letters(held, case, by, out, templates, refused=refused)
    told = [{"path": str(each.path), "to": each.to, "sha256": each.sha256} for each in made]
    text = "\n".join(f"to {each.to}: {each.path}" for each in made)
    stated({"letters": told}, text, as_json=as_json)


@cases.command("templates")
def templates(
    folder: Annotated[Path, typer.Argument(help="A folder that is not there yet.")],
    as_json: JsonOption = False,
) -> None:
    """Write covey's templates of letters into a folder, to be changed there."""
    if folder.exists():
        raise ConfigError(
            f"Templates are written into a new folder, found {folder}, which is there. "
            f"Give another one."
        )
    with as_file(files("covey.desk") / "templates") as own:
        shutil.copytree(own, folder)
    names = sorted(each.name for each in folder.iterdir())
    stated({"templates": names}, f"{folder}: {', '.join(names)}", as_json=as_json)


@cases.command("close")
def close(
    case: CaseArgument,
    by: ByOption,
    reason: Annotated[
        str, typer.Option(help="Why it is closed without an answer of every run.")
    ] = "",
    day: Annotated[str, typer.Option("--on", help="When the letters went out.")] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close a case whose letters went out: salts, letters and the name are deleted."""
    from covey.desk.answering import close_case
    from covey.desk.case import day_of, register_at

    below = _roots(roots)
    on = day_of(day, "--on") if day else None
    with register_at(_register(register, below)) as held:
        close_case(held, below, case, by, reason, on)
        _tell_case(held, case, as_json=as_json)


def register_folder(roots: list[str]) -> Path:
    """Return where the register of some folders lies, unless it is said.

    Raises:
        ConfigError: no folder is among them.
    """
    folders = [Path(each) for each in roots if Path(each).is_dir()]
    if not folders:
        raise ConfigError(
            f"The register lies in `requests` of the first folder of runs, found none "
            f"among {', '.join(roots)}. Give --root FOLDER, or --register FOLDER."
        )
    return folders[0] / "requests"


def _roots(roots: list[str] | None) -> list[str]:
    return roots or [DEFAULT_ROOT]


def _register(register: Path | None, roots: list[str]) -> Path:
    return register or register_folder(roots)


def _tell_case(held: Register, number: str, *, as_json: bool) -> None:
    told = case_json(held.case(number), held.texts(), date.today())
    stated(told, case_text(told), as_json=as_json)


def _list(
    roots: list[str] | None,
    register: Path | None,
    *,
    closed: bool,
    as_json: bool,
    days: int | None = None,
) -> list[dict[str, Any]]:
    from covey.desk.case import read_register

    with read_register(_register(register, _roots(roots))) as held:
        texts, found = held.texts(), held.cases().values()
    today = date.today()
    told = [case_json(each, texts, today) for each in found if closed or not each.is_closed]
    if days is not None:
        told = [each for each in told if each["days_left"] <= days]
        told.sort(key=lambda each: each["due"])
    stated({"cases": told}, list_text(told), as_json=as_json)
    return told
