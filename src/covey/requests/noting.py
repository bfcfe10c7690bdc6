"""Noting what a run answered, from its proof: found by its request or by its mark."""

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from covey.bounded_io import read_bounded
from covey.errors import RunError
from covey.requests.case import Case
from covey.requests.facts import ItemAdded, RunAnswered, RunLost
from covey.requests.register import Register, text_handle
from covey.runs import Run
from covey.runtime import RunFolder
from covey.runtime.unacknowledged import Handover
from covey.unlearning.proof import subject_mark

__all__ = ["handover_of", "note_answer", "note_answers", "note_lost"]

LOST = (
    "{} knew the name when the request came in, and does not any more, or is not there. "
    "Find out who answered there, and keep the proof with this case."
)


def handover_of(run: Run, request: str) -> Handover | None:
    """Return what is to be handed to a requester; None: it was acknowledged."""
    return next((each for each in run.unacknowledged if each.request == request), None)


def note_answers(
    register: Register, names: Mapping[str, str], run: Run, handle: str
) -> None:
    """Note the answers that a run signed, and that a kill kept from being noted."""
    for number, name in names.items():
        case = register.case(number)
        if handle in case.answered or name in run.names:
            continue
        asked = case.asked.get(handle, "")
        signed = asked and _proof(run, asked).is_file()
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
        path = _proof(run, each.request)
        if not path.is_file():
            continue
        mark = str(_document(path).get("subject"))
        if hmac.compare_digest(mark, subject_mark(name, bytes.fromhex(each.salt))):
            return each.request
    return None


def note_answer(
    register: Register, case: Case, handle: str, run: Run, request: str
) -> None:
    """Note what a proof says that was signed."""
    path = _proof(run, request)
    told = _document(path)
    fact = RunAnswered(
        case=case.number,
        run=handle,
        request=request,
        answer=told["answer"],
        answered=told["answered"],
        model_changed=told["model_changed"],
        proof_sha256=hashlib.sha256(read_bounded(path)).hexdigest(),
    )
    register.record([fact], {handle: str(Path(run.folder).resolve())})


def _proof(run: Run, request: str) -> Path:
    return RunFolder(run.folder).proofs / f"{request}.json"


def _document(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bounded(path))
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} must be a proof that covey signed, but it cannot be read: "
            f"{type(error).__name__}. Restore it from the requester's copy."
        ) from error
    return found
