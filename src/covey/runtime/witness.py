"""A witness: whoever keeps the newest head of a ledger's tree, and cosigns what grew.

It needs nothing of a run but the signed head and a path of a few hashes. It can lie in
another folder, or on another machine; what counts is that the operator cannot write there.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.base.errors import LedgerError, RunError
from covey.base.files import read_bounded, read_text, replace_whole
from covey.ledger.chain import consistency_proof, entries_of, is_consistent
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.receipts import begins_with, head_of, key_of
from covey.unlearning.proof import Proof
from covey.unlearning.signature import (
    Anchor,
    Check,
    SigningKey,
    fingerprint,
    key_records,
    signing_key,
)
from covey.unlearning.tree_head import TreeHead, origin_of

_KEY = "witness-key.pem"
_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class HeadUpdate:
    """What an operator hands to a witness.

    Attributes:
        head: signed by the operator.
        since: the size of the tree that the witness knows; 0: none.
        path: shows that the head's tree begins with that one.
    """

    head: TreeHead
    since: int
    path: Sequence[bytes] = ()

    def text(self) -> str:
        """Return it as it is handed over."""
        told = {
            "checkpoint": self.head.note(),
            "since": self.since,
            "consistency": [each.hex() for each in self.path],
        }
        return json.dumps(told, indent=2, sort_keys=True) + "\n"


def head_update(folder: RunFolder, since: int = 0, key: SigningKey | None = None) -> HeadUpdate:
    """Sign the head of a run's ledger, with the path from an older one.

    Args:
        folder: the run's; nothing is written to it.
        since: the size that the witness knows.
        key: the operator's; None: the one of the run's settings.

    Raises:
        CoveyError: nothing is recorded, fewer events than `since` are, or the key cannot
            be used.
    """
    with Ledger.read(folder.ledger) as ledger:
        hashes = ledger.hashes()
    if not max(since, 1) <= len(hashes):
        raise RunError(
            f"The ledger of {folder.path} must have {max(since, 1)} events or more, but it "
            f"has {len(hashes)}. Where a witness saw more, events were taken out: restore "
            f"the ledger from a copy."
        )
    head = head_of(hashes).signed(key or key_of(folder.config()))
    path = consistency_proof(entries_of(hashes), since) if since else []
    return HeadUpdate(head, since, path)


def read_update(path: Path) -> HeadUpdate:
    """Read what an operator handed over.

    Raises:
        LedgerError: it is no such file.
    """
    try:
        told: Mapping[str, Any] = json.loads(read_text(path))
        hashes = tuple(bytes.fromhex(each) for each in told["consistency"])
        return HeadUpdate(TreeHead.parse(told["checkpoint"]), int(told["since"]), hashes)
    except (*_UNREADABLE, OSError, OverflowError) as error:
        raise LedgerError(
            f"{path} must be a head as `covey ledger head` writes it, but it cannot be read: "
            f"{type(error).__name__}. Ask the operator for it again."
        ) from error


def witnessed_size(place: Path, origin: str) -> int:
    """Return the size of the tree that a witness knows of a ledger; 0: none."""
    known = _known(place, origin)
    return known.size if known else 0


def witness_head(
    place: Path,
    update: HeadUpdate,
    operator: Path | None = None,
    clock: Callable[[], float] = time.time,
) -> TreeHead:
    """Cosign a head that continues what this witness saw before, and keep it.

    Args:
        place: the witness's folder; its key is made on first use.
        update: what the operator handed over.
        operator: the operator's public keys, as PEM, from elsewhere than the run; they
            are kept. None: those that were given before.
        clock: seconds since 1970.

    Raises:
        LedgerError: the head is not signed by the operator, or it is of another history
            than the one that was seen; nothing was kept.
    """
    head, seconds = update.head, int(clock())
    note = _witness_path(place, head.origin)
    key, known = signing_key(place / _KEY), _known(place, head.origin)
    _check_signed(place, head, operator, datetime.fromtimestamp(seconds, UTC))
    if known is not None:
        _check_grown(known, update)
    cosigned = head.cosigned(f"witness-{fingerprint(key.public_key())[:9]}", key, seconds)
    replace_whole(note, cosigned.note().encode())
    return cosigned


def _check_signed(place: Path, head: TreeHead, operator: Path | None, moment: datetime) -> None:
    pinned = place / f"{_witness_path(place, head.origin).stem}.operator.pub.pem"
    if operator is None and not pinned.exists():
        raise LedgerError(
            f"A witness must know who signs for {head.origin}, and it sees that ledger for "
            f"the first time. Give the operator's public keys, from elsewhere, as --key."
        )
    spoke = head.signed_by(key_records(operator or pinned), moment)
    if spoke is None or not spoke.ok:
        found = spoke.detail if spoke else "none of them signed it"
        raise LedgerError(
            f"A head must be signed by the operator of {head.origin}, with a key of "
            f"{operator or pinned} that is in use, but: {found}. If the key was replaced, "
            f"fetch the new file of public keys by another way, and give it as --key."
        )
    if operator is not None:
        replace_whole(pinned, read_bounded(operator))


def _check_grown(known: TreeHead, update: HeadUpdate) -> None:
    head, same = update.head, known.size == update.head.size
    if not same and update.since not in (known.size, head.size):
        raise LedgerError(
            f"The path must begin at the {known.size} events that this witness saw, but it "
            f"begins at {update.since}. Make it with `covey ledger head RUN --since {known.size}`."
        )
    roots, path = (known.root, head.root), () if same else update.path
    if not is_consistent((known.size, head.size), roots, path):
        raise LedgerError(
            f"The history of {head.origin} must continue the {known.size} events that this "
            f"witness saw, but its {head.size} do not begin with them: it was cut off or "
            f"rewritten. Keep the witness's folder as evidence."
        )


def _known(place: Path, origin: str) -> TreeHead | None:
    path = _witness_path(place, origin)
    if not path.exists():
        return None
    try:
        return TreeHead.parse(read_text(path))
    except (OSError, ValueError, LedgerError) as error:
        raise LedgerError(
            f"{path} must be the newest head that this witness saw, but: {str(error)!a}. "
            f"Restore it from a copy: without it a rewritten history cannot be told."
        ) from error


def _witness_path(place: Path, origin: str) -> Path:
    """Return where a ledger's newest head is kept; no name leads out of the folder."""
    start, _, name = origin.partition("/")
    if start != "covey.run" or not (name.isascii() and name.isalnum()):
        raise LedgerError(
            f"A head must be of a covey run, found the origin {origin!a}. Make it "
            f"with `covey ledger head`."
        )
    return place / f"{name}.checkpoint"


def check_witness(
    note: Path, key: Path, proof: Proof, hashes: Sequence[str] | None
) -> tuple[Check, Anchor | None]:
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
        return Check.failed("witness", ascii(str(error))), None
    seen = head.cosigned_by(key_records(key))
    if seen is None:
        return Check.failed("witness", "no key that you trust cosigned the head"), None
    witness, moment, spoke = seen
    by = f"witness {fingerprint(witness.public)}, {moment.isoformat()}"
    at = proof.ledger_events
    if head.origin != origin_of(proof.run):
        return Check.failed("witness", "the head is of another ledger"), None
    if hashes is not None:
        holds = begins_with(hashes, head)
    else:
        holds = head.root.hex() == proof.tree_root if head.size == at else None
    if holds is False:
        problem = f"the history that {by} saw up to event {head.size} is another one"
        return Check.failed("witness", problem), None
    if not spoke.ok:
        return Check("witness", spoke.ok, f"{by}, cosigned it, but {spoke.detail}"), None
    if holds is None:
        detail = f"{by} saw events 1 to {head.size}: give --ledger to compare them"
        return Check("witness", None, detail), None
    where = "among them" if at <= head.size else "later"
    detail = f"{by} saw events 1 to {head.size}; the proof's event {at} is {where}"
    anchor = Anchor("witness", fingerprint(witness.public), head.size, moment.isoformat())
    return Check.passed("witness", detail), anchor
