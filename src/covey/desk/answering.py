"""Answering cases in every run that knows them; after a kill it is done again from there.

    begin     what is to be done by hand is listed, while the names still find it
    ask       each run puts the requests in its ledger, and their receipts are noted here
    answer    each run signs its proofs, and what they say is noted here

Whatever kills it between two steps: a run that was asked finishes its own requests, and its
answer is found by the receipt's mark, which only the requester's name and salt give.

Closing cases: what was only kept until the letters went out is deleted.

Salts, letters and the requester's name go, in this order; the facts stay, under handles.
"""

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from covey.base.errors import ConfigError, CoveyError, LedgerLocked, RunError
from covey.base.files import delete_whole, read_bounded
from covey.desk.case import (
    ANSWER_LETTER,
    Case,
    CaseClosed,
    CaseClosing,
    ItemAdded,
    Register,
    RunAnswered,
    RunAsked,
    RunLost,
    handle_of,
    text_handle,
)
from covey.desk.intake import PLAYED, Load, begin_case, grouped, line_of, search_runs, still_open
from covey.desk.runs import OPEN
from covey.ledger.store import Ledger
from covey.runs.parts import wanted_answer
from covey.runs.run import Run
from covey.runtime.copies import Mention
from covey.runtime.folder import RunFolder
from covey.runtime.loop import Observer
from covey.runtime.receipts import Receipt
from covey.runtime.secrets import Handover
from covey.unlearning.proof import subject_mark

LOST = (
    "{} knew the name when the request came in, and does not any more, or is not there. "
    "Find out who answered there, and keep the proof with this case."
)


def handover_of(run: Run, request: str) -> Handover | None:
    """Return what is to be handed to a requester; None: it was acknowledged."""
    return next((each for each in run.unacknowledged if each.request == request), None)


def note_answers(register: Register, names: Mapping[str, str], run: Run, handle: str) -> None:
    """Note the answers that a run signed, and that a kill kept from being noted."""
    for number, name in names.items():
        case = register.case(number)
        if handle in case.answered or name in run.names:
            continue
        asked = case.asked.get(handle, "")
        signed = asked and _proof(run.folder, asked).is_file()
        request = asked if signed else _own_request(run, name)
        if request is not None:
            note_answer(register, case, handle, run, request)


def note_lost(
    register: Register, names: Mapping[str, str], handle: str, known: Collection[str]
) -> None:
    """Give up a run that somebody else answered, who has the proof's salt, or deleted."""
    for number, name in names.items():
        case = register.case(number)
        held = (*case.known, *case.asked)
        if handle not in held or handle in case.answered or name in known:
            continue
        text, count = text_handle(), len(case.items) + 1
        added = ItemAdded(case=number, item=count, kind="other", text=text)
        said = LOST.format(register.text(handle))
        register.record([RunLost(case=number, run=handle), added], {text: said})


def _own_request(run: Run, name: str) -> str | None:
    """Return the request whose proof is about this name, of those nobody acknowledged."""
    for each in run.unacknowledged:
        path = _proof(run.folder, each.request)
        if path.is_file():
            mark = str(_document(path).get("subject"))
            if hmac.compare_digest(mark, subject_mark(name, bytes.fromhex(each.salt))):
                return each.request
    return None


def note_answer(register: Register, case: Case, handle: str, run: Run, request: str) -> None:
    """Note what a proof says that was signed."""
    path = _proof(run.folder, request)
    told = _document(path)
    fact = RunAnswered(
        case=case.number,
        run=handle,
        request=request,
        answer=told["answer"],
        answered=told["answered"],
        model_changed=told["model_before"] != told["model_after"],
        proof_sha256=hashlib.sha256(read_bounded(path)).hexdigest(),
    )
    register.record([fact], {handle: str(Path(run.folder).resolve())})


def _proof(run: Path, request: str) -> Path:
    return RunFolder(run).proofs / f"{request}.json"


def _document(path: Path) -> dict[str, Any]:
    try:
        return json.loads(read_bounded(path))
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} must be a proof that covey signed, but it cannot be read: "
            f"{type(error).__name__}. Restore it from the requester's copy."
        ) from error


def owes_answers(run: Run) -> bool:
    """Say whether requests wait in a run's ledger, or with who plays it."""
    folder = RunFolder(run.folder)
    with Ledger.read(folder.ledger) as ledger:
        waits = any(r.state in OPEN for r in ledger.requests())
    return waits or any(folder.queued_requests())


def ask_run(
    register: Register, names: Mapping[str, str], run: Run, handle: str, observe: Observer
) -> dict[str, str]:
    """Ask a run for all that it still knows, those of one basis together.

    Returns:
        Why there is no true answer, by name, for those for whom there is none.
    """
    by_name = {names[number]: register.case(number) for number in names}
    there = {
        name: case
        for name, case in by_name.items()
        if name in run.names and handle not in case.answered
    }

    def note_receipt(name: str, receipt: Receipt) -> None:
        asked = RunAsked(case=there[name].number, run=handle, request=receipt.request)
        register.record([asked], {handle: str(Path(run.folder).resolve())})

    refused: dict[str, str] = {}
    for answer, basis, group in grouped(there, ""):
        plans = run.plan([*group], answer, basis)
        refused |= {each.client: each.reason for each in plans if each.chosen is None}
        names_of_group = [each for each in group if each not in refused]
        if not names_of_group:
            continue
        for each in run.forget(names_of_group, answer, basis, observe, on_receipt=note_receipt):
            note_answer(register, group[each.client], handle, run, each.answered.request)
    return refused


def leave_word(register: Register, names: Mapping[str, str], path: Path, handle: str) -> None:
    """Leave the requests with the process that plays the run."""
    folder = RunFolder(path)
    queued = {each.client for each in folder.queued_requests()}
    with Ledger.read(folder.ledger) as ledger:
        waiting = {r.handle for r in ledger.requests() if r.state in OPEN}
        there = {name for handle, name in ledger.names().items() if handle not in waiting}
    for number, name in names.items():
        case = register.case(number)
        if name in there - queued and handle not in case.answered:
            folder.queue_request(name, case.wanted, case.basis)


REQUESTER = "[requester]"


def close_case(
    register: Register,
    roots: Sequence[str | Path],
    number: str,
    by: str,
    reason: str = "",
    day: date | None = None,
    load: Load = Run,
) -> Case:
    """Close a case whose letters were handed out; again after a kill, from where it was.

    Salts are acknowledged, letters deleted and the name erased, in this order, unless the
    same person has another case that is open.

    Args:
        register: open to be written.
        roots: folders that runs lie below, and URLs of ledgers.
        number: the case's.
        by: who handed the letters out.
        reason: why it is closed, where no run was answered.
        day: when they were handed out; None: today.
        load: how a run is loaded.

    Raises:
        ConfigError: something is left to do; nothing was done.
    """
    case = register.case(number)
    if case.is_closed:
        return case
    if case.closing is None:
        _check_closable(register, roots, case, reason)
        officer = handle_of("o", line_of(by, "--by"), register.texts())
        text = text_handle() if reason else ""
        on = (day or date.today()).isoformat()
        texts = {officer: by, **({text: line_of(reason, "--reason")} if text else {})}
        register.record([CaseClosing(case=number, by=officer, day=on, reason=text)], texts)
    for handle, given in case.answered.items():
        try:
            run = load(Path(register.text(handle)))
        except CoveyError:  # a run that is gone keeps no salt
            continue
        if handover_of(run, given.request) is not None:
            run.acknowledge(given.request)
    delete_whole(register.letters / number)
    register.replace_texts(_without_name(register, case), [CaseClosed(case=number)])
    register.overwrite_traces()
    return register.case(number)


def _check_closable(
    register: Register, roots: Sequence[str | Path], case: Case, reason: str
) -> None:
    name, number = register.text(case.person), case.number
    left: list[str] = []
    if not reason:
        found = search_runs(roots, [name])
        left += [f"{place} still knows the name" for place in found.runs_of(name)]
        if not case.answered:
            left.append("no run was answered, and no --reason says why")
        elif ANSWER_LETTER not in case.letters:
            left.append(f"its letters are not written: covey requests letters {number}")
        elif case.letters_are_old:
            left.append(
                f"its letters are older than what was added or signed off since: covey "
                f"requests letters {number} writes them again"
            )
    left += [f"{register.text(each)} has not answered" for each in case.unanswered]
    left += [f"item {each.item} is not signed off" for each in case.open_items]
    if left:
        raise ConfigError(
            f"A case is closed when nothing is left to do, but of case {number}: "
            f"{'; '.join(dict.fromkeys(left))}. `covey requests show {number}` tells all."
        )


def _without_name(register: Register, case: Case) -> Mapping[str, str | None]:
    """Return the texts that change: the name goes, and stands in no other one."""
    texts, cases = register.texts(), register.cases()
    name = texts.get(case.person)
    others = (each for each in cases.values() if each.number != case.number)
    if name is None or any(o.person == case.person and not o.is_closed for o in others):
        return {}
    mention = Mention.of(name, [t for h, t in texts.items() if h.startswith("p-")])
    changed: dict[str, str | None] = {
        handle: mention.masked(text, REQUESTER)
        for handle, text in texts.items()
        if handle != case.person and mention.in_text(text)
    }
    return {**changed, case.person: None}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of one case in one run.

    Attributes:
        answer: "": none yet; `reason` says why.
        proof: its path; "": there is none yet.
    """

    case: str
    run: str
    answer: str = ""
    proof: str = ""
    model_changed: bool = False
    reason: str = ""


def answer_cases(
    register: Register,
    roots: Sequence[str | Path],
    numbers: Sequence[str] = (),
    wanted: str = "",
    load: Load = Run,
    observe: Observer = lambda _: None,
    *,
    pages: bool = True,
) -> tuple[RunOutcome, ...]:
    """Answer these cases in every run that knows their names; who leaves together shares.

    A run that cannot answer now keeps nobody else waiting: its outcome says why. Called
    again, it goes on with what is left.

    Args:
        register: open to be written.
        roots: folders that runs lie below, and URLs of ledgers.
        numbers: of cases; none: all that are open.
        wanted: the answer that is asked for from now on; "": "auto", or what was begun.
        load: how a run is loaded.
        observe: called after every round that is played again.
        pages: write the report of each run that answered anew, as answers delete it.

    Raises:
        ConfigError: there is no such answer; nothing was done.
    """
    names: dict[str, str] = {}  # who asks twice is answered once, by the first case
    for case in still_open(register, numbers):
        name = register.text(case.person)
        if name not in names.values():
            names[case.number] = name
    found = search_runs(roots, list(names.values()))
    for number in names:
        wanted_answer(wanted or "auto", register.case(number).basis)
    for number, name in names.items():
        begin_case(register, register.case(number), name, found, wanted)
    known = [place for name in names.values() for place in found.runs_of(name)]
    cases, texts = register.cases(), register.texts()
    begun = [
        texts[handle]
        for number in names
        for handle in dict.fromkeys((*cases[number].known, *cases[number].asked))
        if handle not in cases[number].answered
    ]
    outcomes: list[RunOutcome] = []
    for place in dict.fromkeys((*known, *begun)):
        found_here = _in_run(register, names, place, load, observe)
        if pages and any(each.answer for each in found_here):
            load(Path(place)).report()
        outcomes += found_here
    return tuple(outcomes)


def _in_run(
    register: Register, names: Mapping[str, str], place: str, load: Load, observe: Observer
) -> list[RunOutcome]:
    handle = handle_of("r", place, register.texts())
    waiting = [n for n in names if handle not in register.case(n).answered]
    reason, refused = "", dict[str, str]()
    if not RunFolder(Path(place)).config_path.is_file():
        note_lost(register, names, handle, ())
        return []
    try:
        run = load(Path(place))
        if owes_answers(run):  # asked before: a kill may have left it half-done
            run.finish_requests(observe)
        note_answers(register, names, run, handle)
        refused = ask_run(register, names, run, handle, observe)
        note_answers(register, names, run, handle)
        if not owes_answers(run):
            note_lost(register, names, handle, run.names)
    except LedgerLocked:
        reason = PLAYED
        leave_word(register, names, Path(place), handle)
    except CoveyError as error:
        reason = str(error)
    return [
        _outcome(register.case(n), handle, place, refused.get(names[n]) or reason)
        for n in waiting
        if handle in (*register.case(n).known, *register.case(n).asked)
    ]


def _outcome(case: Case, handle: str, place: str, reason: str) -> RunOutcome:
    given = case.answered.get(handle)
    if given is None:
        return RunOutcome(case.number, place, reason=reason)
    proof = str(_proof(Path(place), given.request))
    return RunOutcome(case.number, place, given.answer, proof, given.model_changed)
