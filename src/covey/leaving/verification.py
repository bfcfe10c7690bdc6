"""Checking a proof: offline, or against the ledger of the run that it speaks of."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.base.arguments import place
from covey.base.errors import LedgerError, RunError
from covey.base.events import ClientLeft, CohortSampled, StepsPerturbed
from covey.base.files import read_bounded
from covey.base.names import ClientName, Handle
from covey.base.own_code import no_foreign_code
from covey.base.signature import (
    Anchor,
    Check,
    KeyRecord,
    PublicKey,
    check_signature,
    instant,
    key_records,
)
from covey.leaving.facts import Facts
from covey.leaving.handover import subject_mark, unsealed
from covey.leaving.proof import Proof, brief, check_proof, statements
from covey.ledger import tree
from covey.ledger.tree import TreeHead, begins_with, entries_of, is_included, origin_of
from covey.runs.grammar import check_times

if TYPE_CHECKING:
    from covey.leaving.evidence import RecordedAnswer
    from covey.ledger.store import Ledger
    from covey.runs.folder import RunFolder
    from covey.runs.ledger_record import RecordedEvent

OPERATOR = {
    "facts": "all facts of the proof",
    "training": "that rounds were trained as they are recorded",
    "models": "that the hashes are those of the models in use",
    "handle": "whose handle it was",
    "sizes": "how many examples each client has, which its steps under noise rest on",
    "own_parts": "what the parts that are not covey's code carried over",
    "history": "that the history was not rewritten after the last event that is anchored",
    "dates": "all dates after that event",
}
"""What no event shows, by code, beside facts by their names."""
UNCHECKED = (
    *("training", "models", "handle", "measured", "copies", "superseded_deleted"),
    *("raw_updates_deleted", "covey_version", "answered", "receipt", "consistency"),
)
"""What is on the operator's word though the ledger is at hand."""
SKEW = timedelta(minutes=1)
"""How far two clocks may be apart."""

_MINE = Check.passed("subject", "the proof is about this client")
_OTHER = Check.failed("subject", "the ledger's event of this answer holds another mark, or none")


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A sentence of a proof.

    Attributes:
        follows: from the ledger's events; False: it is the operator's word.
    """

    text: str
    follows: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """What a proof is worth.

    Attributes:
        valid: no check failed.
        checks: what follows from the document, its keys and the ledger, or does not.
        anchored: the start of the history that cannot be rewritten without the receipt showing it.
        operator: what is on the operator's word alone: names of facts, and codes, of which
            `OPERATOR` has the words.
        statements: what the proof says, sentence by sentence.
    """

    valid: bool
    checks: tuple[Check, ...]
    anchored: tuple[Anchor, ...]
    operator: tuple[str, ...]
    statements: tuple[CheckedStatement, ...] = ()

    @classmethod
    def of(
        cls,
        checks: Sequence[Check],
        anchored: Sequence[Anchor] = (),
        operator: tuple[str, ...] = (),
        proof: Proof | None = None,
    ) -> Verification:
        """Return what these checks are worth together."""
        valid = all(check.ok is not False for check in checks)
        said = statements(proof) if proof and valid else {}
        checked = (
            CheckedStatement(statement.text, statement.follows(operator))
            for subject in ("summary", "done", "claim")
            for statement in said.get(subject, ())
        )
        return cls(valid, tuple(checks), tuple(anchored), operator, tuple(checked))

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed; what is open did not."""
        return tuple(check for check in self.checks if check.ok is False)


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
        written = read_bounded(place("proof", proof))
        mine = (name_and_salt[0], bytes.fromhex(name_and_salt[1])) if name_and_salt else None
    except (OSError, ValueError) as error:
        raise RunError(
            f"A proof must be a file that can be read, and a salt hexadecimal, found "
            f"{getattr(error, 'strerror', None) or error}: check {proof}, and the salt."
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
        from covey.runs.folder import RunFolder

        folder = RunFolder.existing(place("run", run))
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
        check, anchor = _check_receipt(Path(receipt), document, trusted, seen.hashes)
        if anchor and (problem := _misdated(anchor, document, seen.requested)):
            check, anchor = Check.failed("receipt", problem), None
        checks.append(check)
    held = anchor.events if anchor else 0
    rest = () if held >= document.ledger_events else ("history", "dates")
    anchors = [anchor] if anchor else ()
    return Verification.of(checks, anchors, (*seen.operator, *rest), document)


def _check_head(proof: Proof) -> Check:
    at = proof.ledger_events
    (leaf,), root = entries_of([proof.ledger_head]), bytes.fromhex(proof.tree_root)
    if is_included(leaf, at - 1, at, [bytes.fromhex(sibling) for sibling in proof.inclusion], root):
        return Check.passed("head", f"it is event {at} of {at} in the tree that is signed")
    return Check.failed("head", f"the tree that is signed does not end with it as event {at}")


def _check_receipt(
    path: Path, proof: Proof, trusted: Sequence[KeyRecord] | None, hashes: Sequence[str] | None
) -> tuple[Check, Anchor | None]:
    """Check that a proof answers the request of which the requester holds the receipt.

    Args:
        path: the receipt's file.
        proof: the proof.
        trusted: the signer's keys, if they are known.
        hashes: of the ledger's events, if it is at hand.
    """
    from covey.runs.receipts import read_receipt

    try:
        written, receipt, head = read_receipt(path)
    except LedgerError as error:
        return Check.failed("receipt", str(error)), None
    signed = check_signature(receipt, trusted, "signed")
    wrong = (f"its {check.name}: {check.detail}" for check in signed if check.ok is False)
    if problem := next(chain(wrong, _misfits(receipt, head, proof, written, hashes)), None):
        return Check.failed("receipt", problem), None
    detail = f"the proof answers it; it was signed at event {head.size} of this history"
    if late := next((check for check in signed if check.name == "key" and not check.ok), None):
        return Check("receipt", None, f"{detail}. Its key: {late.detail}"), None
    signer = receipt["signature"]["fingerprint"]
    return Check.passed("receipt", detail), Anchor(signer, head.size, receipt["signed"])


def _misfits(
    receipt: Mapping[str, Any],
    head: TreeHead,
    proof: Proof,
    written: bytes,
    hashes: Sequence[str] | None,
) -> Iterator[str]:
    grown = False
    for name in ("request", "run", "requested", "basis", "subject"):
        if receipt.get(name) != getattr(proof, name):
            yield f"{name}: the receipt and the proof say different things"
    if receipt.get("wanted") not in ("auto", proof.answer):
        yield f"wanted: {receipt.get('wanted')!a} was requested, another answer recorded"
    if proof.receipt != hashlib.sha256(written).hexdigest():
        yield "the proof refers to another receipt, or to none"
    with suppress(ValueError):
        path = [bytes.fromhex(sibling) for sibling in proof.consistency]
        roots = head.root, bytes.fromhex(proof.tree_root)
        grown = tree.is_consistent((head.size, proof.ledger_events), roots, path)
    if not grown:
        yield "the ledger's tree at the proof does not begin with the receipt's"
    if head.origin != origin_of(proof.run):
        yield "its tree head is of another ledger"
    if instant(receipt.get("signed")) is None:
        yield "signed: it is no moment"
    raw = base64.b64decode(receipt["signature"]["public_key"])  # it was verified
    if not head.is_signed_by(PublicKey.from_public_bytes(raw)):
        yield "its tree head is not signed by who signed the receipt"
    if hashes is not None and not begins_with(hashes, head):
        yield f"the history up to event {head.size} is another one: the ledger was rewritten"


def _misdated(anchor: Anchor, proof: Proof, requested: int | None) -> str | None:
    """Say why a receipt cannot have held so many events then; None: it can have."""
    requested_at, answered, moment = map(instant, (proof.requested, proof.answered, anchor.when))
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
    """Read the ledger by its grammar, find the facts again from it, and compare them."""
    from covey.leaving.evidence import facts, find_answer, unknown_facts
    from covey.runs.ledger_terms import terms_of

    config = place.config()
    place.reader.compare_with(terms_of(config))
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

    request = next(
        (recorded for recorded in ledger.requests() if recorded.id == proof.request), None
    )
    if request is None:
        return refused("request: this ledger has no request of this number")
    times, names = ledger.times(), ledger.names()
    answer = find_answer(record, times, request, at)
    if answer is None:
        return refused(
            "answer: the ledger records no answer to this request, or no request, before "
            "the event at which the proof was made, or several"
        )
    unknown = unknown_facts(answer, config)
    problems = [
        *_beside_the_chain(answer, record.facts, names, times),
        *_when_and_what(answer, proof, times),
    ]
    try:
        expected = facts(answer, record, config, proof, unknown)
    except RunError as error:
        problems.append(f"subtracted: {error}")
    else:
        problems += [
            f"{name}: the ledger gives {brief(value)}, the proof says {brief(other)}"
            for name in (field.name for field in fields(Facts))
            if (value := getattr(expected, name)) != (other := getattr(proof, name))
        ]
    problems += _receipt(place, proof, record.hashes[:at])
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        follows = Check.failed("record", f"{problems[0]}{more}")
    else:
        number = sum(field.name not in {*UNCHECKED, *unknown} for field in fields(Facts))
        follows = Check.passed("record", f"{number} facts follow from the ledger's events")
    subject = _MINE if mine is None else _subject(answer, [*names.values()], *mine)
    sampled = any(isinstance(event, StepsPerturbed) for event in answer.history.all_events)
    more = (("own_parts", proof.own_parts), ("sizes", sampled))
    word = (code for code, holds in more if holds)
    operator = tuple(dict.fromkeys((*UNCHECKED, *word, *unknown)))
    return _Seen((fits, follows), record.hashes, operator, subject, answer.requested_at)


def _beside_the_chain(
    answer: RecordedAnswer,
    recorded: Sequence[RecordedEvent],
    names: Mapping[Handle, ClientName],
    times: Mapping[int, str],
) -> Iterator[str]:
    """Compare the tables of requests, names and times with the chain."""
    row, requested, handle = answer.request, answer.requested, answer.event.handle
    for name in ("handle", "wanted", "basis"):
        if getattr(row, name) != getattr(requested, name):
            yield f"{name}: the table of requests has another one than the chain"
    if handle in names and answer.event.answer != "stop":
        yield "names: the table still names the requester"
    later = [event for _, event in recorded[answer.end :]]
    left = {event.handle for _, event in recorded if isinstance(event, ClientLeft)}
    cohorts = (e.handles for e in later if isinstance(e, CohortSampled))
    if {*chain.from_iterable(cohorts)} - names.keys() - left:
        yield "names: somebody takes part whom the table does not name, and who has not left"
    again = any(isinstance(e, ClientLeft) and e.handle == handle for e in later)
    if not row.sealed and answer.event.answer != "retrain" and not again:
        yield "sealed_record_kept: the table of requests has none, and no later answer destroyed it"
    if problem := check_times(times, len(recorded)):
        yield f"times: {problem}"


def _when_and_what(answer: RecordedAnswer, proof: Proof, times: Mapping[int, str]) -> Iterator[str]:
    """Compare the operator's word with what the ledger leaves possible."""
    moment, rewind = instant(proof.answered), answer.rewind
    later = [when for position, when in sorted(times.items()) if position > answer.at]
    earlier = [when for position, when in sorted(times.items()) if position <= answer.at]
    before = map(instant, earlier[-1:])
    after = map(instant, (*later[:1], answer.request.answered_at))
    if moment and any(moment < then for then in before if then):
        yield "answered: before the ledger was written as the proof saw it"
    if moment and any(moment > then for then in after if then):
        yield "answered: after the ledger went on, or the request was closed"
    played = max((t for t, _ in answer.now if t is not None), default=-1) + 1
    if rewind and played < rewind.until:
        yield f"replays: rounds up to {rewind.until} were to be played again first, not {played}"
    most = rewind.until - rewind.round_index + 1 if rewind else 0
    if rewind and answer.event.answer == "subtract":
        most = rewind.until  # no state of any round may stay
    if any(proof.superseded_deleted.get(what, 0) > most for what in ("states", "updates")):
        yield "superseded_deleted: more than the replayed rounds had"


def _receipt(place: RunFolder, proof: Proof, hashes: Sequence[str]) -> Iterator[str]:
    from covey.runs.receipts import anchors_of

    try:
        anchors = anchors_of(place, proof.request, hashes)
    except (LedgerError, ValueError):
        anchors = None
    if anchors != (proof.receipt, proof.consistency):
        yield "receipt: the run's folder holds another of this request, or none"


def _subject(
    answer: RecordedAnswer, names: Sequence[ClientName], name: ClientName, salt: bytes
) -> Check:
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
