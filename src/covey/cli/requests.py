"""`covey requests`: people who ask to leave, from the request to the letters."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.base.as_json import HIDDEN, INLINE
from covey.base.errors import ConfigError
from covey.cli.answer import Answer, Commands, short, tabled
from covey.cli.app import FAILED_CHECK
from covey.cli.commands import LEAVING, app
from covey.cli.progress import shown
from covey.cli.runs import DEFAULT_ROOT, RootsOption

if TYPE_CHECKING:
    from covey.desk.answering import RunOutcome
    from covey.desk.case import Case, CaseView, Register
    from covey.desk.intake import Plan, RunPlan
    from covey.desk.letters import Letter


def _due_in_words(case: CaseView) -> str:
    """Return the day on which an answer is due, and how many are left."""
    if case.state == "closed":
        return case.due
    left = case.days_left
    words = f"{left} days left" if left >= 0 else f"OVERDUE by {-left} days"
    return f"{case.due} ({words})"


@dataclass(frozen=True, slots=True)
class CaseShown(Answer):
    """One person's request, over all runs; texts as far as they are not erased."""

    view: CaseView = field(metadata=INLINE)

    def lines(self) -> Iterator[str]:
        """Yield all that is known of the case."""
        case = self.view
        yield (
            f"case {case.case}: {case.name}, {case.basis}, received {case.received}, due "
            f"{_due_in_words(case)}, {case.state}"
        )
        if case.owner:
            yield f"responsible: {case.owner}"
        if case.extended:
            yield f"extended: {case.extended}"
        for run in case.runs:
            yield f"run {run.run}: {run.answer or 'not answered'}"
        if not case.runs:
            yield "no run knows the name"
        for item in case.by_hand:
            signed = f"done {item.signed_on}, {item.signed_by}" if item.signed_by else "OPEN"
            note = f" ({item.note})" if item.note else ""
            kept = f", kept: {item.kept}" if item.kept else ""
            yield f"by hand {item.item} [{item.kind}] {signed}{note}{kept}: {item.text}"
        yield from (f"letter {name}: {digest}" for name, digest in case.letters.items())


@dataclass(frozen=True, slots=True)
class CasesListed(Answer):
    """Several cases."""

    cases: Sequence[CaseView]

    def lines(self) -> Iterator[str]:
        """Yield a row per case."""
        heads = ("case", "name", "basis", "received", "due", "state", "runs", "by hand")
        rows = [
            (
                each.case,
                each.name,
                each.basis,
                each.received,
                _due_in_words(each),
                each.state,
                f"{sum(bool(run.answer) for run in each.runs)}/{len(each.runs)} answered",
                f"{sum(bool(i.signed_by) for i in each.by_hand)}/{len(each.by_hand)} signed off",
            )
            for each in self.cases
        ]
        yield str(tabled(heads, rows)) if rows else "no case is open"


@dataclass(frozen=True, slots=True)
class CasesDue(CasesListed):
    """Open cases, by the day on which they are due."""

    @property
    def exit_code(self) -> int:
        """Return 1 if one is overdue."""
        return FAILED_CHECK if any(each.days_left < 0 for each in self.cases) else 0


@dataclass(frozen=True, slots=True)
class CasesPlanned(Answer):
    """What would be done about some cases in all runs."""

    plan: Plan = field(metadata=INLINE)

    def lines(self) -> Iterator[str]:
        """Yield the plan: each run, what is done by hand, how long it takes."""
        yield "\n\n".join(self._parts()) or "no case is open"

    def _parts(self) -> Iterator[str]:
        plan = self.plan
        yield from map(_run_text, plan.runs)
        for place, reason in plan.unreadable.items():
            yield f"{place} could not be looked at: {reason}"
        yield from (f"case {case}: no run knows the name" for case in plan.unknown)
        for case, items in plan.by_hand.items():
            if items:
                lines = (f"  {each.kind}: {each.text}" for each in items)
                yield "\n".join([f"case {case}, by hand:", *lines])
        if plan.runs:
            seconds = [[case.seconds for case in run.cases] for run in plan.runs]
            least = "at least " if any(None in each for each in seconds) else ""
            # those who leave a run together share its replay
            total = sum(max((s or 0.0 for s in each), default=0.0) for each in seconds)
            yield (
                f"{len(plan.runs)} runs, {least}{total:.1f} seconds in all. "
                f"Answer with covey requests answer."
            )


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
    table = [str(tabled(heads, rows))] if rows else []
    problem = [f"  {run.problem}"] if run.problem else []
    return "\n".join([f"run {run.run}", *table, *problem])


@dataclass(frozen=True, slots=True)
class CasesAnswered(Answer):
    """What came of cases in runs."""

    outcomes: Sequence[RunOutcome]

    @property
    def exit_code(self) -> int:
        """Return 1 if a run could not answer yet."""
        return 0 if all(each.answer for each in self.outcomes) else FAILED_CHECK

    def lines(self) -> Iterator[str]:
        """Yield a line per case and run."""
        for each in self.outcomes:
            if each.answer:
                changed = "changed" if each.model_changed else "unchanged"
                came = f"{each.answer}, the model is {changed}, proof {each.proof}"
            else:
                came = f"NOT ANSWERED: {each.reason}"
            yield f"case {each.case}, {each.run}: {came}"
        if not self.outcomes:
            yield "no run is left to be answered"


@dataclass(frozen=True, slots=True)
class LettersWritten(Answer):
    """The letters of a case."""

    letters: Sequence[Letter]

    def lines(self) -> Iterator[str]:
        """Yield a line per letter."""
        return (f"to {each.to}: {each.path}" for each in self.letters)


@dataclass(frozen=True, slots=True)
class TemplatesWritten(Answer):
    """Templates of letters that were written.

    Attributes:
        templates: names of files.
    """

    folder: Path = field(metadata=HIDDEN)
    templates: Sequence[str]

    def lines(self) -> Iterator[str]:
        """Yield where they are."""
        yield f"{self.folder}: {', '.join(self.templates)}"


cases = Commands(help="Answer people who ask to leave, over all runs that know them.")
app.add_typer(cases, name="requests", rich_help_panel=LEAVING)

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
) -> CaseShown:
    """Take a request in: say when it is due, and which runs know the name."""
    from covey.desk.case import day_of
    from covey.desk.intake import add_case

    day, below = day_of(received, "--received"), roots or [DEFAULT_ROOT]
    with _opened(register, roots) as held:
        return _shown(held, add_case(held, below, name, day, basis, case, owner))


@cases.command("list")
def show_all(
    closed: Annotated[bool, typer.Option("--closed", help="Those that are closed, too.")] = False,
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> CasesListed:
    """List the cases that are open."""
    every = _all_cases(register, roots)
    return CasesListed([each for each in every if closed or each.state != "closed"])


@cases.command("due")
def due(
    days: Annotated[
        int, typer.Option("--days", help="Only those that are due within so many days.")
    ] = 3650,
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> CasesDue:
    """List open cases by the day on which they are due; exit code 1 if one is overdue."""
    alive = [each for each in _all_cases(register, roots) if each.state != "closed"]
    soon = [each for each in alive if each.days_left <= days]
    return CasesDue(sorted(soon, key=lambda each: each.due))


@cases.command("show")
def show(
    case: CaseArgument, roots: RootsOption = None, register: RegisterOption = None
) -> CaseShown:
    """Show a case: runs, answers, what is to be done by hand and who signed it off."""
    with _opened(register, roots, write=False) as held:
        return _shown(held, held.case(case))


@cases.command("plan")
def plan(
    numbers: CasesArgument = None,
    answer: AnswerOption = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> CasesPlanned:
    """Say what every run would answer, what that costs, and what is true then."""
    from covey.desk.intake import plan_answers

    with _opened(register, roots, write=False) as held:
        return CasesPlanned(plan_answers(held, roots or [DEFAULT_ROOT], numbers or [], answer))


@cases.command("answer")
def answer_all(
    numbers: CasesArgument = None,
    answer: AnswerOption = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> CasesAnswered:
    """Answer in every run that knows the names; say it again after a stop.

    Exit code 1 if a run could not answer yet.
    """
    from covey.desk.answering import answer_cases

    below = roots or [DEFAULT_ROOT]
    with _opened(register, roots) as held, shown("requests") as observe:
        return CasesAnswered(answer_cases(held, below, numbers or [], answer, observe=observe))


@cases.command("extend")
def extend(
    case: CaseArgument,
    reason: Annotated[str, typer.Option(help="Why it takes longer, as the letter says.")],
    told: Annotated[str, typer.Option(help="When the requester is told.")] = "",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> CaseShown:
    """Extend the time by two further months, of which the requester has to be told."""
    from covey.desk.intake import extend_case

    with _opened(register, roots) as held:
        return _shown(held, extend_case(held, case, reason, _day(told, "--told")))


@cases.command("item")
def item(
    case: CaseArgument,
    text: Annotated[str, typer.Argument(help="What is to be done, and where.")],
    kind: Annotated[
        str, typer.Option(help="source, backup, recipient, downstream or other.")
    ] = "other",
    roots: RootsOption = None,
    register: RegisterOption = None,
) -> CaseShown:
    """Add something that has to be done by hand."""
    from covey.desk.intake import add_item

    with _opened(register, roots) as held:
        return _shown(held, add_item(held, case, kind, text))


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
) -> CaseShown:
    """Sign off what was done by hand."""
    from covey.desk.intake import sign_items

    if bool(items) == everything:
        raise ConfigError(
            f"covey requests sign takes numbers of items, or --all, found "
            f"{'both' if items else 'neither'}. Give one of them."
        )
    on = _day(day, "--on")
    with _opened(register, roots) as held:
        return _shown(held, sign_items(held, case, items or [], by, on, note, kept))


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
) -> LettersWritten:
    """Write the letters to the requester and to recipients, as HTML pages to print."""
    from covey.desk.letters import write_letters

    with _opened(register, roots) as held:
        return LettersWritten(write_letters(held, case, by, out, templates, refused=refused))


@cases.command("templates")
def templates(
    folder: Annotated[Path, typer.Argument(help="A folder that is not there yet.")],
) -> TemplatesWritten:
    """Write covey's templates of letters into a folder, to be changed there."""
    if folder.exists():
        raise ConfigError(
            f"Templates are written into a new folder, found {folder}, which is there. "
            f"Give another one."
        )
    with as_file(files("covey.desk") / "templates") as own:
        shutil.copytree(own, folder)
    return TemplatesWritten(folder, sorted(each.name for each in folder.iterdir()))


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
) -> CaseShown:
    """Close a case whose letters went out: salts, letters and the name are deleted."""
    from covey.desk.answering import close_case

    on, below = _day(day, "--on"), roots or [DEFAULT_ROOT]
    with _opened(register, roots) as held:
        return _shown(held, close_case(held, below, case, by, reason, on))


def _folder(register: Path | None, roots: list[str] | None) -> Path:
    """Return where the register lies.

    Raises:
        ConfigError: it is not named, and no folder is among the roots.
    """
    if register is not None:
        return register
    below = roots or [DEFAULT_ROOT]
    folders = [Path(each) for each in below if Path(each).is_dir()]
    if not folders:
        raise ConfigError(
            f"The register lies in `requests` of the first folder of runs, found none "
            f"among {', '.join(below)}. Give --root FOLDER, or --register FOLDER."
        )
    return folders[0] / "requests"


@contextmanager
def _opened(
    register: Path | None, roots: list[str] | None, *, write: bool = True
) -> Generator[Register]:
    from covey.desk.case import read_register, register_at

    with (register_at if write else read_register)(_folder(register, roots)) as held:
        yield held


def _day(text: str, option: str) -> date | None:
    from covey.desk.case import day_of

    return day_of(text, option) if text else None


def _shown(held: Register, case: Case) -> CaseShown:
    from covey.desk.case import CaseView

    return CaseShown(CaseView.of(case, held.texts()))


def _all_cases(register: Path | None, roots: list[str] | None) -> list[CaseView]:
    with _opened(register, roots, write=False) as held:
        return held.views()
