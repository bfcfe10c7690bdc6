"""Closing cases: what was only kept until the letters went out is deleted.

Salts, letters and the requester's name go, in this order; the facts stay, under handles.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from covey.atomic_io import delete_whole
from covey.errors import ConfigError, CoveyError
from covey.requests.case import ANSWER_LETTER, Case
from covey.requests.facts import CaseClosed, CaseClosing
from covey.requests.holdings import search_runs
from covey.requests.intake import line_of
from covey.requests.noting import handover_of
from covey.requests.plans import Load
from covey.requests.register import Register, handle_of, text_handle
from covey.runs import Run
from covey.runtime.mentions import Mention

__all__ = ["close_case"]

REQUESTER = "[requester]"


def close_case(  # noqa: PLR0913, PLR0917 - the last three have defaults
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
        _begin_closing(register, case, by, reason, day)
    for handle, given in case.answered.items():
        _acknowledge(load, Path(register.text(handle)), given.request)
    delete_whole(register.letters / number)
    register.replace_texts(_without_name(register, case), [CaseClosed(case=number)])
    register.overwrite_traces()
    return register.case(number)


def _begin_closing(
    register: Register, case: Case, by: str, reason: str, day: date | None
) -> None:
    officer = handle_of("o", line_of(by, "--by"), register.texts())
    text = text_handle() if reason else ""
    on = (day or date.today()).isoformat()
    closing = CaseClosing(case=case.number, by=officer, day=on, reason=text)
    texts = {officer: by, **({text: line_of(reason, "--reason")} if text else {})}
    register.record([closing], texts)


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
    left += [f"item {each.number} is not signed off" for each in case.open_items]
    if left:
        raise ConfigError(
            f"A case is closed when nothing is left to do, but of case {number}: "
            f"{'; '.join(dict.fromkeys(left))}. `covey requests show {number}` tells all."
        )


def _acknowledge(load: Load, place: Path, request: str) -> None:
    """Delete a salt, if it is still there; a run that is gone keeps none."""
    try:
        run = load(place)
    except CoveyError:
        return
    if handover_of(run, request) is not None:
        run.acknowledge(request)


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
