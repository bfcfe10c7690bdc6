"""Checking a proof: offline, or against the ledger of the run that it speaks of."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from covey.base.errors import LedgerError, RunError
from covey.base.files import read_bounded
from covey.base.names import ClientName
from covey.base.own_code import no_foreign_code
from covey.ledger.tree import entries_of, is_included
from covey.unlearning.facts import WORD, Facts
from covey.unlearning.proof import Proof, brief, check_proof
from covey.unlearning.requests import subject_mark, unsealed
from covey.unlearning.signature import Anchor, Check, instant, key_records

if TYPE_CHECKING:
    from covey.ledger.store import Ledger
    from covey.runtime.facts import Answer
    from covey.runtime.folder import RunFolder

OPERATOR = {
    "facts": "all facts of the proof",
    "training": "that rounds were trained as they are recorded",
    "models": "that the hashes are those of the models in use",
    "handle": "whose handle it was",
    "history": "that the history was not rewritten after the last event that is anchored",
    "dates": "all dates after that event",
}
"""What no event shows, by code, beside facts by their names."""
UNCHECKED = (
    *("training", "models", "handle", "measured", "copies", "superseded_deleted"),
    *("raw_updates_deleted", "covey_version", "receipt", "consistency"),
)
"""What is on the operator's word though the ledger is at hand."""
SKEW = timedelta(minutes=1)
"""How far two clocks may be apart."""

_MINE = Check.passed("subject", "the proof is about this client")
_OTHER = Check.failed("subject", "the ledger's event of this answer holds another mark, or none")


@dataclass(frozen=True, slots=True)
class Verification:
    """What a proof is worth.

    Attributes:
        valid: no check failed.
        checks: what follows from the document, its keys and the ledger, or does not.
        anchored: the start of the history that cannot be rewritten without the receipt showing it.
        operator: what is on the operator's word alone: names of facts, and codes, of which
            `OPERATOR` has the words.
    """

    valid: bool
    checks: tuple[Check, ...]
    anchored: tuple[Anchor, ...]
    operator: tuple[str, ...]

    @classmethod
    def of(
        cls,
        checks: Sequence[Check],
        anchored: Sequence[Anchor] = (),
        operator: tuple[str, ...] = (),
    ) -> Verification:
        """Return what these checks are worth together."""
        valid = all(each.ok is not False for each in checks)
        return cls(valid, tuple(checks), tuple(anchored), operator)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed; what is open did not."""
        return tuple(each for each in self.checks if each.ok is False)


def verify(
    proof: str | Path,
    run: str | Path | None = None,
    key: str | Path | None = None,
    name_and_salt: tuple[ClientName, str] | None = None,
    receipt: str | Path | None = None,
) -> Verification:
    """Check a proof without the run's server, and against its ledger if there is one.

    Args:
        proof: the JSON file.
        run: the folder of the run that it speaks of.
        key: public keys of the signer, from elsewhere than the proof, as PEM.
        name_and_salt: the requester's name and the salt that it got with the
            answer, to see that the proof is its own.
        receipt: what the requester got for its request.
    """
    try:
        written = read_bounded(Path(proof))
        mine = (name_and_salt[0], bytes.fromhex(name_and_salt[1])) if name_and_salt else None
    except (OSError, ValueError) as error:
        raise RunError(
            f"A proof must be a file that can be read, and a salt hexadecimal, but: "
            f"{error}. Check the files and values that were passed."
        ) from error
    trusted = key_records(Path(key)) if key is not None else None
    document, checks = check_proof(written, trusted)
    if document is None:
        return Verification.of(checks)
    checks.append(_check_head(document))
    seen = _Seen()
    if run is not None:
        # a reader with only the proof needs no database library
        from covey.ledger.store import Ledger
        from covey.runtime.folder import RunFolder

        folder = RunFolder.existing(Path(run))
        with no_foreign_code(), Ledger.read(folder.ledger) as ledger:
            try:
                seen = _compared(ledger, folder, document, mine)
            except LedgerError as error:
                seen = _Seen((Check.failed("ledger", str(error)),))
    checks += seen.checks
    if mine is not None:
        is_own = _is_same(subject_mark(*mine), document.subject)
        stranger = Check.failed("subject", "the proof is about somebody else, or another salt")
        checks.append(seen.subject if is_own else stranger)
    anchor = None
    if receipt is not None:
        from covey.runtime.anchors import check_receipt

        check, anchor = check_receipt(Path(receipt), document, trusted, seen.hashes)
        if anchor and (problem := _misdated(anchor, document, seen.requested)):
            check, anchor = Check.failed("receipt", problem), None
        checks.append(check)
    held = anchor.events if anchor else 0
    rest = () if held >= document.ledger_events else ("history", "dates")
    return Verification.of(checks, [anchor] if anchor else (), (*seen.operator, *rest))


def _check_head(proof: Proof) -> Check:
    at = proof.ledger_events
    (leaf,), root = entries_of([proof.ledger_head]), bytes.fromhex(proof.tree_root)
    if is_included(leaf, at - 1, at, [bytes.fromhex(each) for each in proof.inclusion], root):
        return Check.passed("head", f"it is event {at} of {at} in the tree that is signed")
    return Check.failed("head", f"the tree that is signed does not end with it as event {at}")


def _misdated(anchor: Anchor, proof: Proof, requested: int | None) -> str | None:
    """Say why a receipt cannot have held so many events then; None: it can have."""
    requested_at, answered, moment = map(instant, (proof.asked, proof.answered, anchor.when))
    last = requested or 1
    if anchor.events < last:
        return f"it holds {anchor.events} events, and {last} had been recorded"
    if not (requested_at and answered and moment):
        return "it does not say when it was signed"
    if not requested_at - SKEW <= moment <= answered + SKEW:
        return f"it was signed at {anchor.when}, not between the request and the answer"
    return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a ledger shows of a proof.

    Attributes:
        hashes: of its events; None: its chain was not verified.
        operator: what rests on the operator's word alone.
        subject: whether the ledger's answer is about whom the proof's mark is of.
        requested: the position of the request; None: not known.
    """

    checks: Sequence[Check] = ()
    hashes: Sequence[str] | None = None
    operator: tuple[str, ...] = ("facts",)
    subject: Check = _MINE
    requested: int | None = None


def _compared(
    ledger: Ledger, place: RunFolder, proof: Proof, mine: tuple[ClientName, bytes] | None
) -> _Seen:
    """Find the facts again from the ledger, and compare them with the proof's."""
    from covey.runtime.anchors import anchors_of
    from covey.runtime.contradictions import contradictions
    from covey.runtime.facts import facts, find_answer, unknown_facts
    from covey.runtime.folder import settings_hash

    record, at = place.reader.read(ledger), proof.ledger_events
    count = len(record.hashes)
    if at > count or record.hashes[at - 1] != proof.ledger_head:
        problem = f"the proof was made at event {at}, but the ledger has {count}"
        if at <= count:
            problem = f"event {at} of the ledger is not the one that the proof was made at"
        return _Seen((Check.failed("ledger", problem),), record.hashes)
    fits = Check.passed("ledger", f"the proof was made at event {at} of {count}")

    def refused(reason: str) -> _Seen:
        return _Seen((fits, Check.failed("record", reason)), record.hashes, subject=_OTHER)

    request = next((each for each in ledger.requests() if each.id == proof.request), None)
    if request is None:
        return refused("request: this ledger has no request of this number")
    times, names, config = ledger.times(), ledger.names(), place.config()
    answer = find_answer(record, times, request, at)
    if answer is None:
        return refused(
            "answer: the ledger records no answer to this request, or no request, before "
            "the event at which the proof was made, or several"
        )
    if answer.began and answer.began.config_hash != settings_hash(config):
        return refused("config.toml: not the settings that began the run")
    unknown = unknown_facts(answer, config)
    problems = [*contradictions(answer, record.facts, names, times, config, proof)]
    try:
        expected = facts(answer, record, config, proof, unknown)
    except RunError as error:
        problems.append(f"subtracted: {error}")
    else:
        problems += [
            f"{name}: the ledger gives {brief(value)}, the proof says {brief(other)}"
            for name in (each.name for each in fields(Facts))
            if (value := getattr(expected, name)) != (other := getattr(proof, name))
        ]
    try:
        kept = anchors_of(place, proof.request, record.hashes[:at])
    except (LedgerError, ValueError):
        kept = None
    if kept != (proof.receipt, proof.consistency):
        problems.append("receipt: the run's folder holds another of this request, or none")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        follows = Check.failed("record", f"{problems[0]}{more}")
    else:
        number = len(fields(Facts)) - len(WORD) - len(unknown)
        follows = Check.passed("record", f"{number} facts follow from the ledger's events")
    subject = _MINE if mine is None else _subject(answer, [*names.values()], *mine)
    operator = tuple(dict.fromkeys((*UNCHECKED, *unknown)))
    return _Seen((fits, follows), record.hashes, operator, subject, answer.requested_at)


def _subject(answer: Answer, names: Sequence[ClientName], name: ClientName, salt: bytes) -> Check:
    """Say whether the ledger's answer is about a client."""
    if not _is_same(subject_mark(name, salt), answer.event.subject):
        return _OTHER
    if name in names and answer.event.answer != "stop":
        return Check.failed("subject", "the ledger still names this client")
    sealed = answer.request.sealed
    if sealed and unsealed(sealed, name, salt) != answer.event.handle:
        problem = "the ledger's request of the same number is of another client"
        return Check.failed("subject", problem)
    return Check.passed("subject", "the proof, and the ledger's answer, are this client's")


def _is_same(mark: str, other: str) -> bool:
    return hmac.compare_digest(mark.encode(), other.encode())
