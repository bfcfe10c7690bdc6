"""Asking one run: what it owes first, then everybody that it knows, together."""

from collections.abc import Mapping
from pathlib import Path

from covey.ledger import Ledger
from covey.requests.facts import RunAsked
from covey.requests.noting import note_answer
from covey.requests.plans import grouped
from covey.requests.register import Register
from covey.runs import Run
from covey.runtime import Observer, RunFolder
from covey.runtime.receipts import Receipt

__all__ = ["ask_run", "finish_run", "leave_word", "owes_answers"]


def owes_answers(run: Run) -> bool:
    """Say whether requests wait in a run's ledger, or with who plays it."""
    folder = RunFolder(run.folder)
    with Ledger.read(folder.ledger) as ledger:
        waits = any(r.state in ("pending", "serving") for r in ledger.requests())
    return waits or any(folder.queued_requests())


def finish_run(run: Run, observe: Observer) -> None:
    """Answer what was asked of this run before: a kill may have left it half-done."""
    if owes_answers(run):
        run.finish_requests(observe)


def ask_run(
    register: Register,
    names: Mapping[str, str],
    run: Run,
    handle: str,
    observe: Observer,
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
        none = {each.client: each.reason for each in plans if each.chosen is None}
        refused |= none
        names_of_group = [each for each in group if each not in none]
        if not names_of_group:
            continue
        done = run.forget(
            names_of_group, answer, basis, observe, on_receipt=note_receipt
        )
        for each in done:
            request = each.answered.request
            note_answer(register, group[each.client], handle, run, request)
    return refused


def leave_word(
    register: Register, names: Mapping[str, str], path: Path, handle: str
) -> None:
    """Leave the requests with the process that plays the run."""
    folder = RunFolder(path)
    queued = {each.client for each in folder.queued_requests()}
    with Ledger.read(folder.ledger) as ledger:
        there, asked = set(ledger.names().values()), ledger.requests()
        open_handles = {r.handle for r in asked if r.state in ("pending", "serving")}
        waiting = {n for h, n in ledger.names().items() if h in open_handles}
    for number, name in names.items():
        case = register.case(number)
        if name in there - queued - waiting and handle not in case.answered:
            folder.queue_request(name, case.wanted, case.basis)
