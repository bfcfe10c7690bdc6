"""Checking a proof: offline, or against the ledger of the run that it speaks of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.base.errors import LedgerError, RunError
from covey.base.files import read_bounded
from covey.base.names import ClientName
from covey.components.registry import no_foreign_code
from covey.unlearning.participation import latest_models
from covey.unlearning.signature import Check, key_records
from covey.unlearning.verifying import ChainView
from covey.unlearning.verifying import verify as check_proof

if TYPE_CHECKING:
    from covey.ledger.store import Ledger
    from covey.runtime.anchors import Anchored
    from covey.runtime.folder import RunFolder
    from covey.unlearning.signature import KeyRecord


NO_ANCHOR = (
    "That the history was not rewritten, and all dates, are the operator's word: no "
    "receipt and no witness was given."
)
LATER = "What the ledger says after that, and when, is the operator's word."


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
        witness: a head that a witness cosigned, and that witness's public keys as PEM.
    """
    try:
        written = read_bounded(Path(proof))
        subject = _with_bytes(name_and_salt) if name_and_salt else None
        given = read_bounded(Path(receipt)) if receipt is not None else None
    except (OSError, ValueError) as error:
        raise RunError(
            f"A proof must be a file that can be read, and a salt hexadecimal, but: "
            f"{error}. Check what was given."
        ) from error
    trusted = key_records(Path(key)) if key is not None else None
    with no_foreign_code():
        chain = _chain(Path(run), written) if run is not None else None
    checks = check_proof(written, trusted, chain, subject)
    told = _document(written)
    hashes = chain.hashes if chain is not None and chain.verified else None
    anchors = _anchors(told, trusted, hashes, given, witness)
    return _with_anchors(checks, told, anchors)


def _anchors(
    told: Mapping[str, Any],
    trusted: Sequence[KeyRecord] | None,
    hashes: Sequence[str] | None,
    receipt: bytes | None,
    witness: tuple[str | Path, str | Path] | None,
) -> list[Anchored]:
    if receipt is None and witness is None:
        return []
    from covey.runtime.anchors import check_receipt, check_witness

    found = [] if receipt is None else [check_receipt(receipt, told, trusted, hashes)]
    if witness is not None:
        note, key = map(Path, witness)
        found.append(check_witness(note, key, told, hashes))
    return found


def _with_anchors(
    checks: list[Check], told: Mapping[str, Any], anchors: Sequence[Anchored]
) -> list[Check]:
    """Return all checks; the last one says what is anchored by whom, and what is not."""
    *others, last = sorted(checks, key=lambda check: check.name == "operator")
    if last.name != "operator":  # it is no proof
        return [*checks, *(each.check for each in anchors)]
    held = [f"events 1 to {each.size} by {each.by}" for each in anchors if each.size]
    at, most = (told.get("ledger_events"), max((each.size for each in anchors), default=0))
    if not held:
        anchored = f"Nothing is anchored. {NO_ANCHOR}"
    elif isinstance(at, int) and most >= at:
        anchored = f"Anchored: {'; '.join(held)}."
    else:
        anchored = f"Anchored: {'; '.join(held)}. {LATER}"
    last = replace(last, detail=f"{last.detail} {anchored}")
    return [*others, *(each.check for each in anchors), last]


def _with_bytes(name_and_salt: tuple[ClientName, str]) -> tuple[ClientName, bytes]:
    name, salt = name_and_salt
    return name, bytes.fromhex(salt)


def _chain(folder: Path, proof: bytes) -> ChainView:
    """Return the ledger that a proof speaks of, as it stood at the proof's position."""
    # a database's library is needed by nobody who has only the proof
    from covey.ledger.store import Ledger
    from covey.runtime.folder import RunFolder

    place = RunFolder.existing(folder)
    with Ledger.read(place.ledger) as ledger:
        try:
            return _view(ledger, place, _document(proof))
        except LedgerError as error:
            return ChainView((), verified=False, problem=str(error))


def _view(ledger: Ledger, place: RunFolder, told: Mapping[str, Any]) -> ChainView:
    from covey.ledger.chain import current_records
    from covey.runtime.ledger_record import event_of
    from covey.runtime.recorded_answer import recorded_answer

    record = place.reader.read(ledger)
    at, hashes = told.get("ledger_events"), record.hashes
    _ = record.entries  # a chain can hold what is no event
    if not isinstance(at, int) or not 1 <= at <= len(hashes):
        return ChainView(hashes, verified=True)  # its own check says so
    if hashes[at - 1] != told.get("ledger_head"):
        return ChainView(hashes, verified=True)
    records = current_records(record.records[:at])
    events = [(r.round_index, event_of(r)) for r in records]
    return ChainView(
        hashes,
        verified=True,
        head_model_hash=latest_models(events),
        answer=recorded_answer(ledger, record, place.config(), told),
    )


def _document(proof: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(proof)
    except (ValueError, RecursionError):
        return {}  # no proof: its own checks say so
    return found if isinstance(found, dict) else {}
