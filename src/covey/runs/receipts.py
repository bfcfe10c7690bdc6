"""Receipts of requests, which make the rewriting of a history detectable.

A receipt is one signed JSON file, handed to the requester before anything is answered. It says what
was requested, when, and the head of the ledger's tree at that moment.

A history that is rewritten later does not fit it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.base.as_json import HIDDEN
from covey.base.errors import LedgerError
from covey.base.files import make_folder, path_inside, read_bounded, replace_whole
from covey.base.signature import SigningKey, document_json, sign, signing_key
from covey.ledger import tree
from covey.ledger.requests import LeaveRequest
from covey.ledger.store import Ledger
from covey.ledger.tree import TreeHead, begins_with, entries_of, head_of
from covey.runs.folder import RunFolder, now

if TYPE_CHECKING:
    from covey.settings.load import Config

_FORMAT = "covey-receipt"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, LedgerError)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt that was written.

    Attributes:
        salt: hex; with its name it leads the requester to its own receipt and proof.
    """

    request: str = field(metadata=HIDDEN)
    path: Path
    salt: str = field(repr=False, metadata=HIDDEN)


def key_of(config: "Config") -> SigningKey:
    """Return the key with which a run's documents are signed.

    Raises:
        ConfigError: it cannot be used.
    """
    place = config.secrets.key_path
    return signing_key(Path(place) if place else None)


def sign_receipt(
    folder: RunFolder, key: SigningKey, request: LeaveRequest, subject: str, hashes: Sequence[str]
) -> None:
    """Write the receipt of a request, whose requester has this mark."""
    document = {
        "format": _FORMAT,
        "version": 1,
        "request": request.id,
        "run": hashes[0][:16],
        "requested": request.requested_at,
        "signed": now(),
        "wanted": request.wanted,
        "basis": request.basis,
        "subject": subject,
        "checkpoint": head_of(hashes).signed(key).note(),
    }
    make_folder(folder.receipts)
    written = document_json(sign(key, document)).encode("ascii")
    replace_whole(_path(folder, request.id), written, mode=0o600)


def receipts_of(folder: RunFolder, requests: Sequence[LeaveRequest]) -> dict[str, Receipt]:
    """Return the receipts of requests that are not answered yet, by request."""
    return {
        request.id: Receipt(request.id, path, request.mark.salt)
        for request in requests
        if request.mark and (path := _path(folder, request.id)).exists()
    }


def anchors_of(
    folder: RunFolder, request: str, hashes: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the hash of a request's receipt, and the path from its tree to this ledger's.

    Raises:
        LedgerError: the file is no receipt.
        ValueError: it is of no tree of before.
    """
    path = _path(folder, request)
    if not path.exists():
        return None, ()
    written, _, head = read_receipt(path)
    grown = tree.consistency_proof(entries_of(hashes), head.size)
    return hashlib.sha256(written).hexdigest(), tuple(digest.hex() for digest in grown)


def check_anchors(folder: RunFolder, ledger: Ledger) -> None:
    """Compare a run's history with the receipts in its folder.

    Who rewrites the chain and seals it again would have to rewrite these, too, and those
    that requesters hold.

    Raises:
        LedgerError: it is another history than the one that a receipt was signed for.
    """
    for path in sorted(folder.receipts.glob("*.json")):
        *_, head = read_receipt(path)
        if not begins_with(folder.reader.read(ledger).hashes, head):
            raise LedgerError(
                f"The history in {ledger.location} must be what {path} was signed for, up to event "
                f"{head.size}, found another, sealed again: restore it from a copy."
            )


def _path(folder: RunFolder, request: str) -> Path:
    return path_inside(folder.receipts, f"{request}.json")


def read_receipt(path: Path) -> tuple[bytes, dict[str, Any], TreeHead]:
    """Return a receipt's bytes, what it says, no signature checked, and its head."""
    try:
        written = read_bounded(path)
        receipt = json.loads(written.decode("ascii"))
        head = TreeHead.parse(receipt["checkpoint"])
        if receipt["format"] != _FORMAT or document_json(receipt).encode() != written:
            raise ValueError("it is not in the one form of a receipt")
    except (*_UNREADABLE, AttributeError, RecursionError) as error:
        raise LedgerError(
            f"{path} must be a receipt that covey wrote, found {str(error)!a}: restore a copy."
        ) from error
    return written, receipt, head
