"""Checking a proof: offline, or against the ledger of the run that it speaks of."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from covey.base.errors import LedgerError, RunError
from covey.base.files import read_bounded
from covey.base.names import ClientName
from covey.components.own_code import no_foreign_code
from covey.ledger.tree import entries_of, is_included
from covey.unlearning.facts import WORD, Facts
from covey.unlearning.proof import Proof, brief, check_proof, subject_mark, unsealed
from covey.unlearning.signature import Check, key_records

if TYPE_CHECKING:
    from covey.ledger.store import Ledger
    from covey.runtime.facts import Answer
    from covey.runtime.folder import RunFolder

_NO_ANCHOR = (
    "That the history was not rewritten, and all dates, are the operator's word: no "
    "receipt and no witness was given."
)
_LATER = "What the ledger says after that, and when, is the operator's word."
_ON_WORD = (
    "that rounds were trained as they are recorded",
    "that the hashes are those of the models in use",
    "whose handle it was",
    "measured",
    "copies",
    "superseded_deleted",
    "raw_updates_deleted",
    "covey_version",
)
"""What no event tells."""

_MINE = Check.passed("subject", "the proof is about this client")
_OTHER = Check.failed("subject", "the ledger's event of this answer holds another mark, or none")


def verify(
    proof: str | Path,
    run: str | Path | None = None,
    key: str | Path | None = None,
    name_and_salt: tuple[ClientName, str] | None = None,
    receipt: str | Path | None = None,
    witness: tuple[str | Path, str | Path] | None = None,
) -> list[Check]:
    """Check a proof without the run's server, and against its ledger if that is given.

    Args:
        proof: the JSON file.
        run: the folder of the run that it speaks of.
        key: public keys of the signer, from elsewhere than the proof, as PEM.
        name_and_salt: the requester's name and the salt that it was given with the
            answer, to see that the proof is its own.
        receipt: what the requester was given when it asked.
        witness: what shows a head of the run in the log that a witness follows, and that
            witness's keys, as lines of C2SP signed-note.
    """
    try:
        written = read_bounded(Path(proof))
        mine = (name_and_salt[0], bytes.fromhex(name_and_salt[1])) if name_and_salt else None
    except (OSError, ValueError) as error:
        raise RunError(
            f"A proof must be a file that can be read, and a salt hexadecimal, but: "
            f"{error}. Check what was given."
        ) from error
    trusted = key_records(Path(key)) if key is not None else None
    document, checks = check_proof(written, trusted)
    if document is None:
        return checks
    at = document.ledger_events
    try:
        (leaf,), root = entries_of([document.ledger_head]), bytes.fromhex(document.tree_root)
        path = [bytes.fromhex(each) for each in document.inclusion]
        is_last = is_included(leaf, at - 1, at, path, root)
    except ValueError:
        is_last = False
    found = f"it is event {at} of {at} in the tree that is signed"
    other = f"the tree that is signed does not end with it as event {at}"
    checks.append(Check("head", is_last, found if is_last else other))
    seen = _Seen((), None, "all facts", _MINE)
    if run is not None:
        # a database's library is needed by nobody who has only the proof
        from covey.ledger.store import Ledger
        from covey.runtime.folder import RunFolder

        folder = RunFolder.existing(Path(run))
        with no_foreign_code(), Ledger.read(folder.ledger) as ledger:
            try:
                seen = _compared(ledger, folder, document, mine)
            except LedgerError as error:
                seen = _Seen([Check.failed("ledger", str(error))], None, "all facts", _MINE)
    checks += seen.checks
    if mine is not None:
        mark = subject_mark(*mine)
        stranger = Check.failed("subject", "the proof is about somebody else, or another salt")
        checks.append(seen.subject if _is_same(mark, document.subject) else stranger)
    anchored = f"Nothing is anchored. {_NO_ANCHOR}"
    if receipt is not None or witness is not None:
        from covey.runtime.anchors import check_receipt, check_witness

        anchors = []
        if receipt is not None:
            anchors.append(check_receipt(Path(receipt), document, trusted, seen.hashes))
        if witness is not None:
            shown, public = map(Path, witness)
            anchors.append(check_witness(shown, public, document, seen.hashes))
        checks += [each.check for each in anchors]
        if held := [f"events 1 to {each.size} by {each.by}" for each in anchors if each.size]:
            last = max(each.size for each in anchors) >= document.ledger_events
            anchored = f"Anchored: {'; '.join(held)}.{'' if last else f' {_LATER}'}"
    word = f"on the signer's word alone: {seen.word}. {anchored}"
    return [*checks, Check("operator", None, word)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a ledger shows of a proof.

    Attributes:
        hashes: of its events; None: its chain was not verified.
        word: what rests on the signer's word alone.
        subject: whether the ledger's answer is about whom the proof's mark is of.
    """

    checks: Sequence[Check]
    hashes: Sequence[str] | None
    word: str
    subject: Check


def _compared(
    ledger: Ledger, place: RunFolder, proof: Proof, mine: tuple[ClientName, bytes] | None
) -> _Seen:
    """Find the facts again from the ledger, and compare them with the proof's."""
    from covey.runtime.anchors import anchors_of
    from covey.runtime.contradictions import of_answer, of_ledger
    from covey.runtime.facts import facts, find_answer, unknown_facts
    from covey.runtime.folder import settings_hash

    record, at = place.reader.read(ledger), proof.ledger_events
    count = len(record.hashes)
    if not 1 <= at <= count or record.hashes[at - 1] != proof.ledger_head:
        problem = f"the proof was made at event {at}, but the ledger has {count}"
        if 1 <= at <= count:
            problem = f"event {at} of the ledger is not the one that the proof was made at"
        return _Seen([Check.failed("ledger", problem)], record.hashes, "all facts", _MINE)
    checks = [Check.passed("ledger", f"the proof was made at event {at} of {count}")]

    def refused(reason: str) -> _Seen:
        record_check = Check.failed("record", reason)
        return _Seen([*checks, record_check], record.hashes, "all facts", _OTHER)

    request = next((each for each in ledger.requests() if each.id == proof.request), None)
    if request is None:
        return refused("request: nobody asked under this number in this ledger")
    times, names, config = ledger.times(), ledger.names(), place.config()
    answer = find_answer(record, times, request, at)
    if answer is None:
        return refused(
            "answer: the ledger records no answer to this request, or no request, before "
            "the event at which the proof was made"
        )
    if answer.began and answer.began.config_hash != settings_hash(config):
        return refused("config.toml: not the settings that began the run")
    unknown = unknown_facts(answer, config)
    problems = [*of_ledger(answer, record.facts, names), *of_answer(answer, config, proof, times)]
    try:
        found = facts(answer, record, config, proof, unknown)
        problems += [
            f"{name}: the ledger gives {brief(value)}, the proof says {brief(other)}"
            for name in (each.name for each in fields(Facts))
            if (value := getattr(found, name)) != (other := getattr(proof, name))
        ]
    except RunError as error:
        problems.append(f"subtracted: {error}")
    try:
        kept = anchors_of(place, proof.request, record.hashes[:at])
    except (LedgerError, ValueError):
        kept = None
    if kept != (proof.receipt, proof.consistency):
        problems.append("receipt: the run's folder holds another of this request, or none")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        checks.append(Check.failed("record", f"{problems[0]}{more}"))
    else:
        number = len(fields(Facts)) - len(WORD) - len(unknown)
        checks.append(Check.passed("record", f"{number} facts follow from the ledger's events"))
    subject = _MINE if mine is None else _subject(answer, [*names.values()], *mine)
    return _Seen(checks, record.hashes, ", ".join((*_ON_WORD, *unknown)), subject)


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
