"""Taking requests in: which runs know the name, what could be answered, what is noted."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count
from pathlib import Path

from covey.base.errors import ConfigError, CoveyError, LedgerLocked, RunError
from covey.base.names import BASES, Basis, ClientName
from covey.components.own_code import no_foreign_code
from covey.desk.case import (
    ITEM_KINDS,
    AnswerBegun,
    Case,
    DeadlineExtended,
    Fact,
    ItemAdded,
    ItemSigned,
    Register,
    RequestReceived,
    RunsSearched,
    due_date,
    handle_of,
    read_register,
    text_handle,
)
from covey.desk.pruning import prune, retention
from covey.desk.runs import RunEntry, found_runs, reader_url
from covey.ledger.store import Ledger
from covey.runs.parts import wanted_answer
from covey.runs.run import Run
from covey.runtime.copies import BASELINE, copies_of, unrecorded
from covey.runtime.folder import RunFolder
from covey.runtime.leaving import Explanation, explain_client
from covey.runtime.places import YOU
from covey.runtime.planning import ClientPlan, recorded_run
from covey.unlearning.plan import AFTERWARDS

KINDS = {"data": "source", "preferences": "source", "copy": "downstream"}
"""The kind of an item, by the kind of the place where something was found."""

NOT_TO_DO = "What a model has learnt"
"""How the sentence begins that asks nobody to do anything."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """The runs below some folders, by what they know of some names.

    Attributes:
        known: the names that each run knows, of those that were asked for.
        unreadable: runs of which nobody can say.
    """

    known: Mapping[str, tuple[RunEntry, frozenset[ClientName]]]
    unreadable: tuple[RunEntry, ...]

    def runs_of(self, name: ClientName) -> tuple[str, ...]:
        """Return the places of the runs that know one name."""
        return tuple(place for place, (_, names) in self.known.items() if name in names)


@dataclass(frozen=True, slots=True)
class ByHand:
    """Something that no answer does.

    Attributes:
        kind: one of `ITEM_KINDS`.
        text: what, where and how.
    """

    kind: str
    text: str


def search_runs(roots: Sequence[str | Path], names: Sequence[ClientName]) -> Holdings:
    """Return what the runs below these folders know of these names.

    A baseline inside a run is not one of them: it goes with the run's answer.
    """
    known: dict[str, tuple[RunEntry, frozenset[ClientName]]] = {}
    unreadable: list[RunEntry] = []
    entries = found_runs(roots)
    folders = {path_of(each) for each in entries}
    for entry in entries:
        path = path_of(entry)
        if Path(path).name == BASELINE and str(Path(path).parent) in folders:
            continue
        try:
            there = frozenset(names) & _names_in(entry)
        except CoveyError:
            unreadable.append(entry)
            continue
        if there:
            known[path] = (entry, there)
    return Holdings(known, tuple(unreadable))


def path_of(entry: RunEntry) -> str:
    """Return where a run is, wherever it was looked for from."""
    return entry.place if entry.folder is None else str(entry.folder.resolve())


def _names_in(entry: RunEntry) -> frozenset[ClientName]:
    """Return the names that a run knows; a damaged one may still tell.

    Raises:
        CoveyError: it does not.
    """
    if entry.folder is None or entry.state == "unreadable":
        raise RunError(entry.reason)
    folder = RunFolder(entry.folder)
    place = reader_url(folder.ledger)
    if not Ledger.exists(place):
        return frozenset()
    with Ledger.read(place) as ledger:
        return frozenset(ledger.names().values())


def _by_hand(explained: Explanation, folder: RunFolder, among: Sequence[str]) -> Iterator[ByHand]:
    for each in explained.places:
        if each.who_must_act == YOU and each.path not in among:
            kind = KINDS.get(each.kind, "other")
            yield ByHand(kind, f"{each.path}: {each.what}. {each.how}")
    for copy in (*copies_of(folder), *unrecorded(folder)):
        if copy.recipient and copy.what == "model":
            yield ByHand(
                "recipient",
                f"{copy.recipient} was given a model on {copy.written[:10]} (SHA-256 "
                f"{copy.sha256[:16]}). If the answer changes the model, send the notice.",
            )
    for sentence in explained.not_searched:
        if not sentence.startswith(NOT_TO_DO):
            backup = "backup" in sentence.lower() or "log" in sentence.lower()
            yield ByHand("backup" if backup else "other", f"Not searched: {sentence}")


def needed_runs(
    folder: Path, roots: Sequence[str | Path], entries: Sequence[RunEntry]
) -> dict[str, str]:
    """Return why runs are needed, by their place; folder: the register's, if it is there.

    Raises:
        LedgerError: the register cannot be read: then nobody can say.
    """
    if not (folder / "register.sqlite").is_file():
        return {}
    needed: dict[str, str] = {}
    with read_register(folder) as register:
        texts = register.texts()
        alive = [each for each in register.cases().values() if not each.is_closed]
    names = {each.number: texts[each.person] for each in alive if each.person in texts}
    found = search_runs(roots, list(names.values()))
    for case in alive:
        runs = {texts[each] for each in (*case.known, *case.asked) if each in texts}
        for path in (*runs, *found.runs_of(names.get(case.number, ""))):
            needed.setdefault(path, f"case {case.number} of the register is open")
    return {e.place: needed[path_of(e)] for e in entries if path_of(e) in needed}


def delete_run(path: Path) -> None:
    """Delete the run in this folder, whole; nothing, if there is none.

    Raises:
        RunError: somebody still needs it, or it cannot go with its folder.
        LedgerError: the register of requests beside it cannot be read.
    """
    if not RunFolder(path).config_path.is_file():
        return
    entries = found_runs([path])
    needed: dict[str, str] = {}  # by open cases: of the registers of the folders around it
    for root in path.resolve().parents:
        needed |= needed_runs(root / "requests", [path], entries)
    (found,) = (
        each
        for each in retention(entries, timedelta.min, "whole", needed=needed)
        if each.folder and each.folder.resolve() == path.resolve()
    )
    kept = found.kept
    if not kept and not RunFolder(path).ledger_path.is_file():
        kept = "its ledger is not in the folder, and would stay"
    if kept or not prune([found]):
        raise RunError(
            f"{path} was to be overwritten and must stay: {kept or 'it is being written'}. "
            f"Give another folder, or settle that first."
        )


Load = Callable[[Path], Run]
"""How a run is loaded: a program passes the model and the clients that it began with."""

PLAYED = (
    "a process is playing it: the request is left with that process, and answered between "
    "two rounds"
)


@dataclass(frozen=True, slots=True)
class CasePlan:
    """What one run would answer to one requester.

    Attributes:
        answer: "": none would be true; `reason` says why.
        afterwards: what is then true of the run's models.
        seconds: predicted, for all that leave together; None: not known.
    """

    case: str
    answer: str
    reason: str
    afterwards: str
    rounds_replayed: int
    seconds: float | None
    bytes_deleted: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What one run would answer to all who leave it now.

    Attributes:
        problem: why that cannot be said; "": it can.
    """

    run: str
    name: str
    cases: tuple[CasePlan, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done about some cases in all runs.

    Attributes:
        by_hand: what no run does, by the case's number.
        unreadable: runs of which nobody can say whether they know the names, and why.
        unknown: cases whose name no run knows.
    """

    runs: tuple[RunPlan, ...]
    by_hand: Mapping[str, tuple[ByHand, ...]]
    unreadable: Mapping[str, str]
    unknown: tuple[str, ...]


def still_open(register: Register, numbers: Sequence[str]) -> tuple[Case, ...]:
    """Return these cases, or all of them, that are not being closed, by date of receipt.

    Raises:
        ConfigError: there is no such case.
    """
    found = [register.case(each) for each in dict.fromkeys(numbers)]
    cases = found or list(register.cases().values())
    alive = [each for each in cases if each.closing is None and not each.is_closed]
    return tuple(sorted(alive, key=lambda case: (case.received, case.number)))


def plan_answers(
    register: Register,
    roots: Sequence[str | Path],
    numbers: Sequence[str] = (),
    wanted: str = "",
    load: Load = Run,
) -> Plan:
    """Return what would be answered; nothing is done.

    Args:
        register: where the cases are.
        roots: folders that runs lie below, and URLs of ledgers.
        numbers: of cases; none: all that are open.
        wanted: the answer that is asked for; "": what each case has been begun with.
        load: how a run is loaded.

    Raises:
        ConfigError: there is no such answer.
    """
    cases, texts = still_open(register, numbers), register.texts()
    wanted_answer(wanted or "auto", None)
    names = {each.number: texts[each.person] for each in cases}
    first: dict[str, Case] = {}  # who asks twice is answered once
    for each in cases:
        first.setdefault(names[each.number], each)
    found = search_runs(roots, list(names.values()))
    runs = tuple(
        _run_plan(place, entry.name, {n: c for n, c in first.items() if n in known}, wanted, load)
        for place, (entry, known) in found.known.items()
    )
    return Plan(
        runs=runs,
        by_hand={
            number: tuple(hand_list(name, found.runs_of(name), found.runs_of(name)))
            for number, name in names.items()
        },
        unreadable={each.place: each.reason for each in found.unreadable},
        unknown=tuple(
            each.number
            for each in cases
            if not found.runs_of(names[each.number]) and not each.answered
        ),
    )


def grouped(cases: Mapping[str, Case], wanted: str) -> Iterator[tuple[str, Basis, dict[str, Case]]]:
    """Yield cases, by name, that can be answered at once: of one basis and one answer."""
    groups: dict[tuple[str, Basis], dict[str, Case]] = {}
    for name, case in cases.items():
        key = wanted or case.wanted or "auto", case.basis
        groups.setdefault(key, {})[name] = case
    for (answer, basis), group in groups.items():
        yield answer, basis, group


def _run_plan(place: str, name: str, cases: Mapping[str, Case], wanted: str, load: Load) -> RunPlan:
    planned: list[CasePlan] = []
    problem = ""
    try:
        run = load(Path(place))
        for answer, basis, group in grouped(cases, wanted):
            plans = run.plan([*group], answer, basis)
            planned += map(_case_plan, group.values(), plans)
    except CoveyError as error:
        problem = PLAYED if isinstance(error, LedgerLocked) else str(error)
    return RunPlan(place, name, tuple(planned), problem)


def _case_plan(case: Case, plan: ClientPlan) -> CasePlan:
    chosen = plan.chosen
    if chosen is None:
        return CasePlan(case.number, "", plan.reason, "", 0, None, 0)
    own = [each.bytes_deleted or 0 for each in plan.options if each.answer == chosen.answer]
    per_round = [
        each.seconds / each.rounds_replayed
        for each in plan.options
        if each.seconds and each.rounds_replayed
    ]
    replayed = chosen.rounds_replayed
    seconds = replayed * per_round[0] if replayed and per_round else None
    return CasePlan(
        case=case.number,
        answer=chosen.answer,
        reason=plan.reason,
        afterwards=AFTERWARDS[chosen.answer],
        rounds_replayed=replayed,
        seconds=0.0 if not replayed else seconds,
        bytes_deleted=max(own, default=0),
    )


def hand_list(name: str, places: Sequence[str], among: Sequence[str]) -> dict[ByHand, None]:
    """Return what a person has to do about one client in these runs, before it is answered.

    That one cannot be searched is one thing to do.

    Args:
        name: the client's.
        places: the runs.
        among: all runs that are answered, which nobody has to be told of.
    """
    items: dict[ByHand, None] = {}
    for place in places:
        folder = RunFolder(Path(place))
        try:
            with no_foreign_code():
                explained = explain_client(recorded_run(folder, reason=""), folder, name)
            found = tuple(_by_hand(explained, folder, among))
        except CoveyError as error:
            said = (
                f"{place} could not be searched for what is to be done by hand: {error} "
                f"Look with `covey explain` before it is answered, or in its folder."
            )
            found = (ByHand("other", said),)
        items |= dict.fromkeys(found)
    return items


def with_runs(
    register: Register, number: str, places: Sequence[str]
) -> tuple[RunsSearched, dict[str, str]]:
    """Return the fact that these runs know a case's name, and the runs' paths."""
    texts = register.texts()
    handles = {handle_of("r", each, texts): each for each in places}
    return RunsSearched(case=number, known=tuple(handles)), handles


def begin_case(register: Register, case: Case, name: str, found: Holdings, wanted: str) -> None:
    """List what is to be done by hand, and say that answering begins, at once.

    Later, the same for runs that were not known yet, and for another answer.
    """
    places, texts = found.runs_of(name), register.texts()
    before = [texts[each] for each in case.known] if case.wanted else []
    new = [each for each in places if each not in before]
    every = hand_list(name, new, places)
    for each in found.unreadable:
        said = (
            f"{each.place} could not be read from its folder, so that nobody can say whether it "
            f"knows the name: {each.reason or 'only its ledger is here'}. Find out, or repair it."
        )
        every[ByHand("other", said)] = None
    listed = {texts[each.text] for each in case.items}
    items = [each for each in every if each.text not in listed]
    if case.wanted and not (new or items) and wanted in ("", case.wanted):
        return
    known = dict.fromkeys((*(texts[each] for each in case.known), *places))
    searched, handles = with_runs(register, case.number, [*known])
    facts: list[Fact] = [searched]
    for number, item in enumerate(items, start=len(case.items) + 1):
        handle = text_handle()
        handles[handle] = item.text
        facts.append(ItemAdded(case=case.number, item=number, kind=item.kind, text=handle))
    begun = AnswerBegun(case=case.number, wanted=wanted or case.wanted or "auto")
    register.record([*facts, begun], handles)


NUMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
MOST_LETTERS = 500
"""Characters of a name or a text."""


def add_case(
    register: Register,
    roots: Sequence[str | Path],
    name: str,
    received: date,
    basis: str,
    number: str = "",
    owner: str = "",
    today: date | None = None,
) -> Case:
    """Take a request in, and search the runs for the name.

    Args:
        register: open to be written.
        roots: folders that runs lie below, and URLs of ledgers.
        name: as the runs know the client.
        received: when the request came.
        basis: what it rests on, one of `BASES`.
        number: of the case; "": the next one.
        owner: who is responsible; "": nobody is named.
        today: which day it is; None: today.

    Raises:
        ConfigError: something given cannot be; nothing was written.
    """
    now = today or date.today()
    if basis not in BASES:
        raise ConfigError(f"--basis takes {', '.join(BASES)}, found {basis!r}. Choose one.")
    if received > now:
        raise ConfigError(
            f"--received takes the day on which the request came, today at the latest, "
            f"found {received.isoformat()}. Correct it."
        )
    cases, texts = register.cases(), register.texts()
    number = _number(number, cases)
    person = handle_of("p", line_of(name, "NAME"), texts)
    officer = handle_of("o", line_of(owner, "--owner"), texts) if owner else ""
    begun = RequestReceived(
        case=number, person=person, received=received.isoformat(), basis=basis, owner=officer
    )
    searched, new = with_runs(register, number, search_runs(roots, [name]).runs_of(name))
    new |= {person: name, **({officer: owner} if officer else {})}
    register.record([begun, searched], new)
    return register.case(number)


def extend_case(register: Register, number: str, reason: str, told: date | None = None) -> Case:
    """Note that the requester was told that the answer takes two further months.

    Raises:
        ConfigError: that was too late, or done before.
    """
    case = _alive(register, number)
    told = told or date.today()
    last = due_date(case.received)
    if case.extended is not None or not case.received <= told <= last:
        found = "it was done before" if case.extended else f"found {told.isoformat()}"
        raise ConfigError(
            f"The requester is told once, with the reasons, that it takes longer, between "
            f"receipt ({case.received.isoformat()}) and one month later "
            f"({last.isoformat()}), {found}. Answer as soon as you can, and ask a lawyer."
        )
    text = text_handle()
    fact = DeadlineExtended(case=number, told=told.isoformat(), reason=text)
    register.record([fact], {text: line_of(reason, "--reason")})
    return register.case(number)


def add_item(register: Register, number: str, kind: str, text: str) -> Case:
    """Add something that has to be done by hand.

    Raises:
        ConfigError: there is no such kind.
    """
    case = _alive(register, number)
    if kind not in ITEM_KINDS:
        raise ConfigError(f"--kind takes {', '.join(ITEM_KINDS)}, found {kind!r}. Choose one.")
    handle = text_handle()
    item = ItemAdded(case=number, item=len(case.items) + 1, kind=kind, text=handle)
    register.record([item], {handle: line_of(text, "TEXT")})
    return register.case(number)


def sign_items(
    register: Register,
    number: str,
    items: Sequence[int],
    by: str,
    day: date | None = None,
    note: str = "",
    kept: str = "",
) -> Case:
    """Note who says that things were done, and when; all that are open if none is named.

    Args:
        register: open to be written.
        number: the case's.
        items: their numbers.
        by: who says so.
        day: when they were done; None: today.
        note: what was done; it stays in the register.
        kept: why something of them is kept, as the letter tells it; "": nothing is.

    Raises:
        ConfigError: there is no such item, or it was signed off.
    """
    case = _alive(register, number)
    there = {each.item for each in case.open_items}
    wanted = set(items) or there
    if not wanted <= there:
        raise ConfigError(
            f"Items are signed off once, by their numbers, found "
            f"{sorted(wanted - there)}, and those of case {number} that are open are "
            f"{sorted(there) or 'none'}. `covey requests show {number}` lists them."
        )
    if not wanted:
        return case
    officer = handle_of("o", line_of(by, "--by"), register.texts())
    on = (day or date.today()).isoformat()
    told, why = (text_handle() if text else "" for text in (note, kept))
    texts = {officer: by}
    texts |= {told: line_of(note, "--note")} if note else {}
    texts |= {why: line_of(kept, "--kept")} if kept else {}
    signed = [
        ItemSigned(case=number, item=each, by=officer, day=on, note=told, kept=why)
        for each in sorted(wanted)
    ]
    register.record(signed, texts)
    return register.case(number)


def _alive(register: Register, number: str) -> Case:
    case = register.case(number)
    if case.closing is not None:
        raise ConfigError(
            f"Something can be done about a case until it is closed, found case {number} "
            f"{case.state}. Add a new one."
        )
    return case


def _number(number: str, cases: Mapping[str, Case]) -> str:
    if not number:
        return next(each for each in map(str, count(len(cases) + 1)) if each not in cases)
    if number in cases or not NUMBER.fullmatch(number):
        found = "which is there already" if number in cases else "which cannot be one"
        raise ConfigError(
            f"--case takes a number that no case has, of up to 40 letters, digits, '.', "
            f"'_' and '-', found {number!r}, {found}. Leave it out to get the next one."
        )
    return number


def line_of(text: str, what: str) -> str:
    """Return a text as it is kept.

    Raises:
        ConfigError: it is no line of text.
    """
    if not text.strip() or len(text) > MOST_LETTERS or not text.isprintable():
        raise ConfigError(
            f"{what} takes one line of 1 to {MOST_LETTERS} characters that can be "
            f"printed, found {len(text)} characters. Correct it."
        )
    return text
