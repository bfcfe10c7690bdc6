"""Checking a proof: its form, its signature, its facts, and a ledger that is at hand."""

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from covey.types import round_number
from covey.unlearning.proof import VERSION, Proof, proof_json, subject_mark
from covey.unlearning.proof_facts import check_facts, check_text
from covey.unlearning.sealing import unsealed
from covey.unlearning.signature import Check, KeyRecord, check_signature
from covey.version import another_format

__all__ = ["ChainView", "LedgerAnswer", "verify"]


FIELDS = {each.name for each in fields(Proof)} - {
    "subtracted",
    "own_sums_kept",
    "earlier_heads",
}
"""What every proof says; the others belong to subtractions."""


@dataclass(frozen=True, slots=True)
class LedgerAnswer:
    """What a ledger records of the answer that a proof speaks of.

    Attributes:
        expected: by field of the proof, the value that follows from the ledger's events.
        problems: what of the proof does not fit them otherwise, in sentences.
        not_compared: fields that the ledger knows nothing of: the operator's word.
        handle: whom the request was about.
        sealed: what the requester's name and salt open; None: nothing was kept.
        subject: the requester's mark in the event that says that it left; "": none.
        names: of the clients that the ledger knows.
    """

    expected: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    handle: str = ""
    sealed: str | None = None
    subject: str = ""
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChainView:
    """What a proof is compared with, of the ledger that it speaks of.

    Attributes:
        hashes: of every event; the first one is at position 1.
        verified: whether the ledger's own chain is whole.
        head_model_hash: the model hash that the ledger had recorded when the answer was
            given, at the proof's position; None if it records none.
        answer: what the events say of the answer; None: they were not looked at.
        problem: why it is not verified.
    """

    hashes: Sequence[str]
    verified: bool
    head_model_hash: str | None = None
    answer: LedgerAnswer | None = None
    problem: str = "the ledger's own chain is broken"


def verify(
    written: bytes,
    trusted: Sequence[KeyRecord] | None = None,
    chain: ChainView | None = None,
    name_and_salt: tuple[str, bytes] | None = None,
) -> list[Check]:
    """Check a proof's file; whatever the bytes are, this returns what failed.

    Args:
        written: the file as it is: any byte that differs from its one form fails.
        trusted: the signer's keys, from elsewhere than the proof.
        chain: of the ledger that the proof speaks of, if it is at hand.
        name_and_salt: of the requester, if it is the one who checks.
    """
    try:
        document = json.loads(written.decode("ascii"))
        _check_version(document)
        parsed = _reader()(written)
        one_form = proof_json(document).encode() == written
        _require_all_fields(document)
    except (ValueError, RecursionError) as error:
        return [Check.failed("format", f"not a covey proof: {_reason(error)}")]
    checks = [
        _check_form(parsed, one_form=one_form),
        *check_signature(document, trusted, "answered"),
        check_text(parsed, document),
        check_facts(parsed),
        _check_set_sizes(parsed),
        _check_model(parsed),
    ]
    answer = chain.answer if chain is not None else None
    if chain is not None:
        checks.append(_check_ledger(parsed, chain))
    if answer is not None:
        checks.append(_check_record(document, answer))
    if name_and_salt is not None:
        checks.append(_check_subject(parsed, *name_and_salt, answer))
    return [*checks, _operators_word(answer)]


@cache
def _reader() -> Callable[[bytes], Proof]:
    return TypeAdapter(Proof).validate_json


def _reason(error: Exception) -> str:
    """Return what is wrong and where, fit for a terminal whatever the bytes were."""
    if not isinstance(error, ValidationError):
        return ascii(str(error))
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(ascii, first['loc'])) or 'document'}: {first['msg']}"


def _require_all_fields(document: Mapping[str, Any]) -> None:
    if lacking := FIELDS - document.keys():
        raise ValueError(f"{min(lacking)}: it lacks this field")


def _check_version(document: object) -> None:
    match document:
        case {"format": "covey-proof", "version": found} if found != VERSION:
            raise ValueError(another_format("it", _brief(found), VERSION))
        case _:
            pass


def _check_form(told: Proof, *, one_form: bool) -> Check:
    if not one_form:
        return Check.failed("format", "the file is not in the one form of a proof")
    if not all((told.limits, told.done, told.summary)):
        return Check.failed("format", "what was done, or its limits, are not said")
    return Check.passed("format", f"{told.format} of format {told.version}")


def _check_set_sizes(told: Proof) -> Check:
    if told.answer != "deny":
        return Check.passed("set sizes", f"{told.answer} does not rest on them")
    x = told.deniability_threshold
    if x is None:
        return Check.failed("set sizes", "a denial needs a deniability_threshold")
    small = [held for held in told.rounds if held.size_left < x]
    if small:
        return Check.failed(
            "set sizes",
            f"in round {round_number(small[0].round_index)} {small[0].size_left} members "
            f"remain, fewer than {x}",
        )
    return Check.passed("set sizes", f"at least {x} members remain in every set")


def _check_model(told: Proof) -> Check:
    changed = told.model_before != told.model_after
    if told.model_changed != changed:
        return Check.failed("model", "model_changed contradicts the two hashes")
    if changed and told.answer == "deny":
        return Check.failed("model", "a denial must not change the model")
    return Check.passed("model", "changed" if changed else "not changed")


def _check_ledger(told: Proof, chain: ChainView) -> Check:
    at, count = told.ledger_events, len(chain.hashes)
    recorded = chain.head_model_hash
    if not chain.verified:
        found = chain.problem
    elif not 1 <= at <= count:
        found = f"the proof was made at event {at}, but the ledger has {count}"
    elif chain.hashes[at - 1] != told.ledger_head:
        found = f"event {at} of the ledger is not the one that the proof was made at"
    elif recorded is not None and recorded != told.model_after:
        found = "the ledger recorded another model when the answer was given"
    else:
        return Check.passed("ledger", f"the proof was made at event {at} of {count}")
    return Check.failed("ledger", found)


def _check_record(document: Mapping[str, Any], answer: LedgerAnswer) -> Check:
    """Compare a proof's facts with what follows from the ledger's events."""
    wrong = [
        f"{field}: the ledger gives {_brief(value)}, the proof says "
        f"{_brief(document.get(field, 'nothing'))}"
        for field, value in answer.expected.items()
        if field not in document or document[field] != value
    ]
    if problems := [*answer.problems, *wrong]:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Check.failed("record", f"{problems[0]}{more}")
    return Check.passed(
        "record", f"{len(answer.expected)} facts follow from the ledger's events"
    )


def _brief(value: object) -> str:
    """Return a value fit for a terminal."""
    written = ascii(value)
    return written if len(written) <= 80 else f"{written[:77]}..."


def _operators_word(answer: LedgerAnswer | None) -> Check:
    """Say what rests on nothing but the word of who signed."""
    fields = ", ".join(answer.not_compared) if answer else "all facts"
    return Check("operator", None, f"on the signer's word alone: {fields}.")


def _check_subject(
    told: Proof, name: str, salt: bytes, answer: LedgerAnswer | None
) -> Check:
    mark = subject_mark(name, salt)
    if not hmac.compare_digest(mark.encode(), told.subject.encode()):
        return Check.failed(
            "subject", "the proof is about somebody else, or another salt"
        )
    if answer is None:
        return Check.passed("subject", "the proof is about this client")
    problem = ""
    if not hmac.compare_digest(mark.encode(), answer.subject.encode()):
        problem = "the ledger's event of this answer holds another mark, or none"
    elif name in answer.names:
        problem = "the ledger still names this client"
    elif answer.sealed and unsealed(answer.sealed, name, salt) != answer.handle:
        problem = "the ledger's request of the same number is of another client"
    if problem:
        return Check.failed("subject", problem)
    return Check.passed(
        "subject", "the proof, and the ledger's answer, are this client's"
    )
