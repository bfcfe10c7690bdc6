"""What holds a ledger's history fast: receipts, and heads that a witness cosigned."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.base.errors import LedgerError
from covey.base.files import read_bounded, read_text
from covey.ledger.chain import entries_of, is_consistent, root_of
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.unlearning.proof import Proof, proof_json
from covey.unlearning.signature import (
    Check,
    KeyRecord,
    PublicKey,
    check_signature,
    fingerprint,
    instant,
    key_records,
)
from covey.unlearning.tree_head import TreeHead, origin_of

FORMAT = "covey-receipt"


@dataclass(frozen=True, slots=True)
class Anchored:
    """A check, and which part of the history it holds fast.

    Attributes:
        size: events that it covers; 0: none.
        by: whose signature it is, and since when.
    """

    check: Check
    size: int = 0
    by: str = ""


def check_anchors(folder: RunFolder, ledger: Ledger) -> None:
    """Compare a run's history with the receipts in its folder.

    Who rewrites the chain and seals it again would have to rewrite these, too, and those
    that requesters hold.

    Raises:
        LedgerError: it is another history than the one that a receipt was signed for.
    """
    places = sorted(folder.receipts.glob("*.json"))
    if not places:
        return
    leaves = entries_of(folder.reader.read(ledger).hashes)
    for path in places:
        head = _receipt_head(path)
        if not _holds(head, leaves):
            raise LedgerError(
                f"The history in {ledger.location} must be the one that {path} was signed "
                f"for, up to event {head.size}, but it is another: events were changed or "
                f"taken out, and the chain was sealed again. Restore it from a copy."
            )


def check_receipt(
    written: bytes, proof: Proof, trusted: Sequence[KeyRecord] | None, hashes: Sequence[str] | None
) -> Anchored:
    """Check that a proof answers the request of which the requester holds the receipt.

    Args:
        written: the receipt's file.
        proof: the proof.
        trusted: the signer's keys, if they are known.
        hashes: of the ledger's events, if it is at hand.
    """
    try:
        receipt = _receipt(written)
        head = TreeHead.parse(receipt["checkpoint"])
    except (ValueError, KeyError, TypeError, RecursionError, LedgerError) as error:
        reason = ascii(str(error))
        return Anchored(Check.failed("receipt", f"not a covey receipt: {reason}"))
    signed = check_signature(receipt, trusted, "signed")
    if wrong := next((each for each in signed if each.ok is False), None):
        return Anchored(Check.failed("receipt", f"its {wrong.name}: {wrong.detail}"))
    problem = next(_misfits(receipt, head, written, proof, hashes), None)
    if problem:
        return Anchored(Check.failed("receipt", problem))
    by = f"the receipt, signed {receipt['signed']}"
    detail = f"the proof answers it; it was signed at event {head.size} of this history"
    if late := next((each for each in signed if each.name == "key" and not each.ok), None):
        return Anchored(Check("receipt", None, f"{detail}. Its key: {late.detail}"))
    return Anchored(Check.passed("receipt", detail), head.size, by)


def check_witness(note: Path, key: Path, proof: Proof, hashes: Sequence[str] | None) -> Anchored:
    """Check a head that a witness cosigned against the proof and the ledger.

    Args:
        note: the file that the witness gave.
        key: its public keys, from elsewhere, as PEM.
        proof: the proof.
        hashes: of the ledger's events, if it is at hand.
    """
    try:
        head = TreeHead.parse(read_text(note))
    except (OSError, ValueError, LedgerError) as error:
        return Anchored(Check.failed("witness", ascii(str(error))))
    seen = head.cosigned_by(key_records(key))
    if seen is None:
        return Anchored(Check.failed("witness", "no key that you trust cosigned the head"))
    witness, moment, spoke = seen
    by = f"witness {fingerprint(witness.public)}, {moment.isoformat()}"
    found = _compared(head, by, proof, hashes)
    if spoke.ok or found.check.ok is False:
        return found
    return Anchored(Check("witness", spoke.ok, f"{by}, cosigned it, but {spoke.detail}"))


def _compared(head: TreeHead, by: str, proof: Proof, hashes: Sequence[str] | None) -> Anchored:
    """Compare a head that a witness saw with the proof, and with the ledger."""
    if head.origin != origin_of(proof.run):
        return Anchored(Check.failed("witness", "the head is of another ledger"))
    at, holds = proof.ledger_events, _witnessed(head, proof, hashes)
    if holds is None:
        detail = f"{by} saw events 1 to {head.size}: give --ledger to compare them"
        return Anchored(Check("witness", None, detail))
    if not holds:
        found = f"the history that {by} saw up to event {head.size} is another one"
        return Anchored(Check.failed("witness", found))
    where = "among them" if at <= head.size else "later"
    detail = f"{by} saw events 1 to {head.size}; the proof's event {at} is {where}"
    return Anchored(Check.passed("witness", detail), head.size, by)


def _receipt(written: bytes) -> dict[str, Any]:
    receipt = json.loads(written.decode("ascii"))
    if receipt["format"] != FORMAT or proof_json(receipt).encode() != written:
        raise ValueError("it is not in the one form of a receipt")
    return receipt


def _witnessed(head: TreeHead, proof: Proof, hashes: Sequence[str] | None) -> bool | None:
    if hashes is not None:
        return _holds(head, entries_of(hashes))
    if head.size == proof.ledger_events:
        return head.root.hex() == proof.tree_root
    return None


def _holds(head: TreeHead, leaves: Sequence[bytes]) -> bool:
    """Say whether the tree of a head is the beginning of this one."""
    return head.size <= len(leaves) and root_of(leaves[: head.size]) == head.root


def _misfits(
    receipt: Mapping[str, Any],
    head: TreeHead,
    written: bytes,
    proof: Proof,
    hashes: Sequence[str] | None,
) -> Iterator[str]:
    for name in ("request", "run", "asked", "basis", "subject"):
        if receipt.get(name) != getattr(proof, name):
            yield f"{name}: the receipt and the proof say different things"
    if receipt.get("wanted") not in ("auto", proof.answer):
        yield f"wanted: {receipt.get('wanted')!a} was asked for, another answer given"
    if proof.receipt != hashlib.sha256(written).hexdigest():
        yield "the proof refers to another receipt, or to none"
    if not _grew(head, proof):
        yield "the ledger's tree at the proof does not begin with the receipt's"
    if head.origin != origin_of(proof.run):
        yield "its tree head is of another ledger"
    moment = instant(receipt.get("signed"))
    if moment is None or not head.signed_by(_signers(receipt), moment):
        yield "its tree head is not signed by who signed the receipt"
    if hashes is not None and not _holds(head, entries_of(hashes)):
        yield (
            f"the history up to event {head.size} is not the one that it was signed for: "
            f"the ledger was rewritten"
        )


def _signers(document: Mapping[str, Any]) -> list[KeyRecord]:
    """Return the key that a document with a valid signature was signed with."""
    raw = base64.b64decode(document["signature"]["public_key"])
    return [KeyRecord(PublicKey.from_public_bytes(raw))]


def _grew(head: TreeHead, proof: Proof) -> bool:
    try:
        root = bytes.fromhex(proof.tree_root)
        path = [bytes.fromhex(each) for each in proof.consistency]
    except ValueError:
        return False
    return is_consistent((head.size, proof.ledger_events), (head.root, root), path)


def _receipt_head(path: Path) -> TreeHead:
    try:
        return TreeHead.parse(json.loads(read_bounded(path))["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"{path} must be the receipt of a request, as covey wrote it, but it cannot "
            f"be read: {type(error).__name__}. Restore it from a copy."
        ) from error
