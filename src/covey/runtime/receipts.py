"""Receipts: what a requester is given when it asks, before anything is answered.

A receipt is one signed JSON file. It says what was asked, when, and the head of the
ledger's tree at that moment: a history that is rewritten later is not consistent with it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.atomic_io import replace_whole
from covey.bounded_io import read_bounded
from covey.errors import LedgerError
from covey.ledger import Request
from covey.ledger.merkle import consistency_proof, entries_of, root_of
from covey.runtime.anchors import FORMAT
from covey.runtime.asking import new_request, put_down
from covey.runtime.folder import RunFolder
from covey.runtime.session import Session
from covey.runtime.unacknowledged import Handover, keep_handover
from covey.types import ClientName
from covey.unlearning import WantedAnswer, signing_key
from covey.unlearning.key_files import SigningKey
from covey.unlearning.proof import proof_json
from covey.unlearning.served import Mark
from covey.unlearning.signature import sign
from covey.unlearning.tree_head import TreeHead, origin_of

__all__ = [
    "OnReceipt",
    "Receipt",
    "anchoring_facts",
    "ask_with_receipts",
    "head_of",
    "key_of",
    "receipts_of",
]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt that was written.

    Attributes:
        salt: hex; with its name it tells the requester its own receipt and proof.
    """

    request: str
    path: Path
    salt: str = field(repr=False)


OnReceipt = Callable[[ClientName, Receipt], None]
"""Called with a client's name and its receipt, before it is answered."""


def ask_with_receipts(
    session: Session, asked: Mapping[ClientName, WantedAnswer]
) -> list[Request]:
    """Put requests in the ledger's queue, all of them or none, and sign their receipts.

    Raises:
        CoveyError: the signing key cannot be used, or the ledger cannot be written;
            nothing was done.
    """
    key = key_of(session)
    new = [new_request(name, wanted) for name, wanted in asked.items()]
    requests, hashes = put_down(session, new), session.record().hashes
    for request in requests:
        mark = _mark(request)
        keep_handover(session.folder, key, Handover(request.id, mark.salt))
        if hashes:  # before anything was recorded there is no tree to sign
            _write(session.folder, key, _document(request, hashes, key))
    return requests


def receipts_of(folder: RunFolder, requests: Sequence[Request]) -> dict[str, Receipt]:
    """Return the receipts of requests that are not answered yet, by request."""
    return {
        each.id: Receipt(each.id, path, each.mark.salt)
        for each in requests
        if each.mark and (path := _path(folder, each.id)).exists()
    }


def key_of(session: Session) -> SigningKey:
    """Return the key with which this run's documents are signed."""
    path = session.run.config.secrets.key_path
    return signing_key(Path(path) if path else None)


def head_of(hashes: Sequence[str]) -> TreeHead:
    """Return the head, not signed, of the tree over a ledger's events, one at least."""
    return TreeHead(origin_of(hashes[0]), len(hashes), root_of(entries_of(hashes)))


def anchoring_facts(
    folder: RunFolder, request: str, hashes: Sequence[str]
) -> dict[str, Any]:
    """Return what a proof says of its receipt, and of the tree that it was made at."""
    leaves, path = entries_of(hashes), _path(folder, request)
    facts: dict[str, Any] = {"receipt": None, "consistency": []}
    if path.exists():
        written, size = _read(path)
        grown = consistency_proof(leaves, size)
        facts = {
            "receipt": hashlib.sha256(written).hexdigest(),
            "consistency": [each.hex() for each in grown],
        }
    return {**facts, "tree_root": root_of(leaves).hex()}


def _document(
    request: Request, hashes: Sequence[str], key: SigningKey
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": 1,
        "request": request.id,
        "run": hashes[0][:16],
        "asked": request.asked_at,
        "signed": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "wanted": request.wanted,
        "basis": request.basis,
        "subject": _mark(request).subject,
        "checkpoint": head_of(hashes).signed(key).note(),
    }


def _mark(request: Request) -> Mark:
    if request.mark is None:
        raise LedgerError(
            f"A request has marks from its asking on, but {request.id} has none. Ask again."
        )
    return request.mark


def _write(folder: RunFolder, key: SigningKey, document: Mapping[str, Any]) -> None:
    folder.receipts.mkdir(mode=0o700, exist_ok=True)
    written = proof_json(sign(key, document)).encode("ascii")
    replace_whole(_path(folder, document["request"]), written, mode=0o600)


def _path(folder: RunFolder, request: str) -> Path:
    return folder.receipts / f"{request}.json"


def _read(path: Path) -> tuple[bytes, int]:
    """Return a receipt's bytes, and the size of the tree that it was signed at."""
    try:
        written = read_bounded(path)
        return written, TreeHead.parse(json.loads(written)["checkpoint"]).size
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"{path} must be the receipt that was signed when this was asked, but it "
            f"cannot be read: {type(error).__name__}. Restore it from a copy."
        ) from error
