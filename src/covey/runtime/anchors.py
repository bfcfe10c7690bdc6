"""Receipts of requests, which make the rewriting of a history detectable.

A receipt is one signed JSON file, handed to the requester before anything is answered. It says what
was requested, when, and the head of the ledger's tree at that moment.

A history that is rewritten later does not fit it.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.base.as_json import HIDDEN
from covey.base.errors import LedgerError
from covey.base.files import make_folder, path_inside, read_bounded, replace_whole
from covey.base.signature import (
    Anchor,
    Check,
    KeyRecord,
    PublicKey,
    SigningKey,
    check_signature,
    instant,
    sign,
    signing_key,
)
from covey.ledger import tree
from covey.ledger.requests import Request
from covey.ledger.store import Ledger
from covey.ledger.tree import TreeHead, begins_with, entries_of, head_of, origin_of
from covey.runtime.folder import RunFolder, now
from covey.unlearning.proof import Proof, proof_json

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
    folder: RunFolder, key: SigningKey, request: Request, subject: str, hashes: Sequence[str]
) -> None:
    """Write the receipt of a request, whose requester has this mark."""
    document = {
        "format": _FORMAT,
        "version": 1,
        "request": request.id,
        "run": hashes[0][:16],
        "asked": request.asked_at,
        "signed": now(),
        "wanted": request.wanted,
        "basis": request.basis,
        "subject": subject,
        "checkpoint": head_of(hashes).signed(key).note(),
    }
    make_folder(folder.receipts)
    written = proof_json(sign(key, document)).encode("ascii")
    replace_whole(_path(folder, request.id), written, mode=0o600)


def receipts_of(folder: RunFolder, requests: Sequence[Request]) -> dict[str, Receipt]:
    """Return the receipts of requests that are not answered yet, by request."""
    return {
        each.id: Receipt(each.id, path, each.mark.salt)
        for each in requests
        if each.mark and (path := _path(folder, each.id)).exists()
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
    written, _, head = _read(path)
    grown = tree.consistency_proof(entries_of(hashes), head.size)
    return hashlib.sha256(written).hexdigest(), tuple(each.hex() for each in grown)


def check_anchors(folder: RunFolder, ledger: Ledger) -> None:
    """Compare a run's history with the receipts in its folder.

    Who rewrites the chain and seals it again would have to rewrite these, too, and those
    that requesters hold.

    Raises:
        LedgerError: it is another history than the one that a receipt was signed for.
    """
    for path in sorted(folder.receipts.glob("*.json")):
        *_, head = _read(path)
        if not begins_with(folder.reader.read(ledger).hashes, head):
            raise LedgerError(
                f"The history in {ledger.location} must be the one that {path} was signed "
                f"for, up to event {head.size}, but it is another: events were changed or "
                f"taken out, and the chain was sealed again. Restore it from a copy."
            )


def check_receipt(
    path: Path, proof: Proof, trusted: Sequence[KeyRecord] | None, hashes: Sequence[str] | None
) -> tuple[Check, Anchor | None]:
    """Check that a proof answers the request of which the requester holds the receipt.

    Args:
        path: the receipt's file.
        proof: the proof.
        trusted: the signer's keys, if they are known.
        hashes: of the ledger's events, if it is at hand.
    """
    try:
        written, receipt, head = _read(path)
    except LedgerError as error:
        return Check.failed("receipt", str(error)), None
    signed = check_signature(receipt, trusted, "signed")
    wrong = (f"its {each.name}: {each.detail}" for each in signed if each.ok is False)
    if problem := next(chain(wrong, _misfits(receipt, head, proof, written, hashes)), None):
        return Check.failed("receipt", problem), None
    detail = f"the proof answers it; it was signed at event {head.size} of this history"
    if late := next((each for each in signed if each.name == "key" and not each.ok), None):
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
    for name in ("request", "run", "asked", "basis", "subject"):
        if receipt.get(name) != getattr(proof, name):
            yield f"{name}: the receipt and the proof say different things"
    if receipt.get("wanted") not in ("auto", proof.answer):
        yield f"wanted: {receipt.get('wanted')!a} was requested, another answer recorded"
    if proof.receipt != hashlib.sha256(written).hexdigest():
        yield "the proof refers to another receipt, or to none"
    with suppress(ValueError):
        path = [bytes.fromhex(each) for each in proof.consistency]
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


def _path(folder: RunFolder, request: str) -> Path:
    return path_inside(folder.receipts, f"{request}.json")


def _read(path: Path) -> tuple[bytes, dict[str, Any], TreeHead]:
    """Return a receipt's bytes, what it says, no signature checked, and its head."""
    try:
        written = read_bounded(path)
        receipt = json.loads(written.decode("ascii"))
        head = TreeHead.parse(receipt["checkpoint"])
        if receipt["format"] != _FORMAT or proof_json(receipt).encode() != written:
            raise ValueError("it is not in the one form of a receipt")
    except (*_UNREADABLE, AttributeError, RecursionError) as error:
        raise LedgerError(
            f"{path} must be the receipt of a request, as covey wrote it, but it cannot "
            f"be read: {str(error)!a}. Restore it from a copy."
        ) from error
    return written, receipt, head
