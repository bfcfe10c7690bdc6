"""Receipts: what a requester is given when it asks, before anything is answered.

A receipt is one signed JSON file. It says what was asked, when, and the head of the
ledger's tree at that moment: a history that is rewritten later is not consistent with it.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.base.errors import LedgerError
from covey.base.files import read_bounded, replace_whole
from covey.config.settings import Config
from covey.ledger.chain import consistency_proof, entries_of, is_consistent, root_of
from covey.ledger.requests import Request
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder, now
from covey.unlearning.proof import Proof, proof_json
from covey.unlearning.signature import (
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
from covey.unlearning.tree_head import TreeHead, origin_of

_FORMAT = "covey-receipt"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt that was written.

    Attributes:
        salt: hex; with its name it tells the requester its own receipt and proof.
    """

    request: str = field(metadata={"json": "hidden"})
    path: Path
    salt: str = field(repr=False, metadata={"json": "hidden"})


def key_of(config: Config) -> SigningKey:
    """Return the key with which a run's documents are signed.

    Raises:
        ConfigError: it cannot be used.
    """
    place = config.secrets.key_path
    return signing_key(Path(place) if place else None)


def head_of(hashes: Sequence[str]) -> TreeHead:
    """Return the head, not signed, of the tree over a ledger's events, one at least."""
    return TreeHead(origin_of(hashes[0]), len(hashes), root_of(entries_of(hashes)))


def begins_with(hashes: Sequence[str], head: TreeHead) -> bool:
    """Say whether the tree of a head is the beginning of that over a ledger's events."""
    leaves = entries_of(hashes[: head.size])
    return head.size <= len(hashes) and root_of(leaves) == head.root


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
    folder.receipts.mkdir(mode=0o700, exist_ok=True)
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
    """Return the hash of a request's receipt, and the path from its tree to this ledger's."""
    path = _path(folder, request)
    if not path.exists():
        return None, ()
    written, head = _read(path)
    grown = consistency_proof(entries_of(hashes), head.size)
    return hashlib.sha256(written).hexdigest(), tuple(each.hex() for each in grown)


def check_anchors(folder: RunFolder, ledger: Ledger) -> None:
    """Compare a run's history with the receipts in its folder.

    Who rewrites the chain and seals it again would have to rewrite these, too, and those
    that requesters hold.

    Raises:
        LedgerError: it is another history than the one that a receipt was signed for.
    """
    for path in sorted(folder.receipts.glob("*.json")):
        _, head = _read(path)
        if not begins_with(folder.reader.read(ledger).hashes, head):
            raise LedgerError(
                f"The history in {ledger.location} must be the one that {path} was signed "
                f"for, up to event {head.size}, but it is another: events were changed or "
                f"taken out, and the chain was sealed again. Restore it from a copy."
            )


def check_receipt(
    written: bytes, proof: Proof, trusted: Sequence[KeyRecord] | None, hashes: Sequence[str] | None
) -> tuple[Check, Anchor | None]:
    """Check that a proof answers the request of which the requester holds the receipt.

    Args:
        written: the receipt's file.
        proof: the proof.
        trusted: the signer's keys, if they are known.
        hashes: of the ledger's events, if it is at hand.
    """
    try:
        receipt, head = _parsed(written)
    except ValueError as error:
        return Check.failed("receipt", f"not a covey receipt: {error}"), None
    signed = check_signature(receipt, trusted, "signed")
    if wrong := next((each for each in signed if each.ok is False), None):
        return Check.failed("receipt", f"its {wrong.name}: {wrong.detail}"), None
    digest = hashlib.sha256(written).hexdigest()
    if problem := next(_misfits(receipt, head, digest, proof, hashes), None):
        return Check.failed("receipt", problem), None
    detail = f"the proof answers it; it was signed at event {head.size} of this history"
    if late := next((each for each in signed if each.name == "key" and not each.ok), None):
        return Check("receipt", None, f"{detail}. Its key: {late.detail}"), None
    signer = receipt["signature"]["fingerprint"]
    return Check.passed("receipt", detail), Anchor("receipt", signer, head.size, receipt["signed"])


def _misfits(
    receipt: Mapping[str, Any],
    head: TreeHead,
    digest: str,
    proof: Proof,
    hashes: Sequence[str] | None,
) -> Iterator[str]:
    for name in ("request", "run", "asked", "basis", "subject"):
        if receipt.get(name) != getattr(proof, name):
            yield f"{name}: the receipt and the proof say different things"
    if receipt.get("wanted") not in ("auto", proof.answer):
        yield f"wanted: {receipt.get('wanted')!a} was asked for, another answer given"
    if proof.receipt != digest:
        yield "the proof refers to another receipt, or to none"
    try:
        path = [bytes.fromhex(each) for each in proof.consistency]
        roots = head.root, bytes.fromhex(proof.tree_root)
        grew = is_consistent((head.size, proof.ledger_events), roots, path)
    except ValueError:
        grew = False
    if not grew:
        yield "the ledger's tree at the proof does not begin with the receipt's"
    if head.origin != origin_of(proof.run):
        yield "its tree head is of another ledger"
    moment = instant(receipt.get("signed"))
    raw = base64.b64decode(receipt["signature"]["public_key"])  # it was verified
    signer = KeyRecord(PublicKey.from_public_bytes(raw))
    if moment is None or not head.signed_by([signer], moment):
        yield "its tree head is not signed by who signed the receipt"
    if hashes is not None and not begins_with(hashes, head):
        yield (
            f"the history up to event {head.size} is not the one that it was signed for: "
            f"the ledger was rewritten"
        )


def _path(folder: RunFolder, request: str) -> Path:
    return folder.receipts / f"{request}.json"


def _read(path: Path) -> tuple[bytes, TreeHead]:
    """Return the bytes of a receipt in a run's folder, and the head that it was signed at."""
    try:
        written = read_bounded(path)
        return written, _parsed(written)[1]
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"{path} must be the receipt of a request, as covey wrote it, but it cannot "
            f"be read: {error}. Restore it from a copy."
        ) from error


def _parsed(written: bytes) -> tuple[dict[str, Any], TreeHead]:
    """Return a receipt, no signature checked, and its head; a ValueError: it is none."""
    try:
        receipt = json.loads(written.decode("ascii"))
        is_one = receipt["format"] == _FORMAT and proof_json(receipt).encode() == written
        head = TreeHead.parse(receipt["checkpoint"])
    except (ValueError, KeyError, TypeError, RecursionError, LedgerError) as error:
        raise ValueError(ascii(str(error))) from error
    if not is_one:
        raise ValueError("it is not in the one form of a receipt")
    return receipt, head
