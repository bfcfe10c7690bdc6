"""What holds a history fast: receipts of requests, and heads that witnesses saw.

A receipt is one signed JSON file, handed to the requester before anything is answered. It says what
was requested, when, and the head of the ledger's tree at that moment.

An operator's log is a ledger, beside its runs, whose events are the heads of theirs. A witness
follows it under one name, whatever runs there are, and sees nothing but its size and root.

A history that is rewritten later fits neither.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

from covey.base.as_json import HIDDEN
from covey.base.errors import LedgerError, RunError
from covey.base.files import read_bounded, read_text, replace_whole
from covey.ledger import tree
from covey.ledger.chain import GENESIS, Link, Record, sealed_text
from covey.ledger.store import Ledger
from covey.ledger.tree import LogProof, TreeHead, begins_with, entries_of, head_of, origin_of
from covey.runtime.folder import RunFolder, now
from covey.unlearning.proof import Proof, proof_json
from covey.unlearning.requests import Request
from covey.unlearning.signature import (
    LOG,
    Anchor,
    Check,
    KeyRecord,
    PublicKey,
    SigningKey,
    check_signature,
    fingerprint,
    instant,
    key_line,
    key_records,
    sign,
    signing_key,
)

if TYPE_CHECKING:
    from covey.settings.load import Config

_FORMAT = "covey-receipt"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, LedgerError)
_LOG, _RUN_HEAD = "heads.sqlite", "RunHead"
_MOST_ANSWERED, _ANSWER_SECONDS = 2**16, 30.0
"""Bytes of a witness's answer, and how long it may take."""
_UNKNOWN = "it does not know the log, or its key: give its operator the line {line}"
_REWRITTEN = "the log does not continue the heads that it saw: they were taken out or rewritten"
_REFUSED = {403: _UNKNOWN, 404: _UNKNOWN, 409: _REWRITTEN, 422: _REWRITTEN}


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
    return Check.passed("receipt", detail), Anchor("receipt", signer, head.size, receipt["signed"])


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
    return folder.receipts / f"{request}.json"


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


def log_heads(place: Path, runs: Mapping[str, RunFolder]) -> list[Link]:
    """Add the heads of the runs that grew to the operator's log, and return all of it.

    Args:
        place: the folder that the log is in; it is begun if there is none.
        runs: by their names in the log.

    Raises:
        LedgerError: a run's history is not the one that was logged, none has any, or something
            cannot be read or written.
    """
    path = place / _LOG
    with (Ledger.open if Ledger.exists(path) else Ledger.create)(path, now) as ledger:
        links = [*ledger.links()]
        known = dict(map(_run_head, links))
        grown: list[Record] = []
        for name, run in runs.items():
            if not Ledger.exists(run.ledger):
                continue
            with Ledger.read(run.ledger) as read:
                hashes = [each.hash for each in read.links()]
            before = known.get(name)
            if not hashes or (before and before.origin != origin_of(hashes[0])):
                before = None  # another run
            if before and not begins_with(hashes, before):
                raise LedgerError(
                    f"The history of {run.path} must continue the {before.size} events whose "
                    f"head is in {path}, but it does not begin with them: it was cut off or "
                    f"rewritten. Restore it from a copy, or give another run another folder."
                )
            if len(hashes) > (before.size if before else 0):
                grown.append(Record(None, _RUN_HEAD, {"run": name, "head": head_of(hashes).body}))
        if grown:
            ledger.append_between(grown)
            links = [*ledger.links()]
        if not links:
            raise RunError(f"A log holds the heads of runs, but no run in {place} has any yet.")
        return links


def _run_head(link: Link) -> tuple[str, TreeHead]:
    """Return which run's head an event of an operator's log is.

    Raises:
        LedgerError: it is none.
    """
    body = link.record().body
    try:
        return str(body["run"]), TreeHead.parse_body(body["head"])
    except (KeyError, TypeError) as error:
        raise LedgerError("An operator's log must hold heads of runs, but it does not.") from error


def ask_witness(
    hashes: Sequence[str], url: str, witness: Sequence[KeyRecord], key: SigningKey
) -> TreeHead:
    """Have a witness cosign the head of the operator's log, by the tlog-witness protocol.

    Args:
        hashes: of the log's events.
        url: the witness's, without `add-checkpoint`.
        witness: its keys.
        key: the operator's.

    Raises:
        LedgerError: it does not answer or refuses, or the answer is not of one of its keys.
    """
    head = head_of(hashes).signed(key)
    status, answer = _sent(url, tree.witness_request(hashes, 0, key))
    if status == 409 and re.fullmatch("[1-9][0-9]{0,18}\n", answer):  # what it saw before
        status, answer = _sent(url, tree.witness_request(hashes, int(answer), key))
    if status != 200:
        line = key_line(head.origin, key.public_key(), LOG)
        reason = _REFUSED.get(status, "it answered with status {status}")
        raise LedgerError(
            f"The witness {url} must cosign the head of {head.origin}, but "
            f"{reason.format(line=line, status=status)}."
        )
    cosigned = TreeHead.parse(head.note() + answer)
    seen = cosigned.cosigned_by(witness)
    if seen is None or not seen.check.ok:
        found = seen.check.detail if seen else "none of them did"
        raise LedgerError(
            f"The witness {url} must sign with a key that you know to be its own, but: {found}. "
            f"Fetch its key by another way."
        )
    return cosigned


def _sent(url: str, text: str) -> tuple[int, str]:
    """Return a witness's status and answer."""
    try:
        place = f"{url.rstrip('/')}/add-checkpoint"
        with urlopen(place, text.encode(), timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
            return answer.status, answer.read(_MOST_ANSWERED).decode()
    except HTTPError as error:
        with error:
            return error.code, error.read(_MOST_ANSWERED).decode(errors="replace")
    except (OSError, ValueError, HTTPException) as error:
        raise LedgerError(
            f"The witness {url} must answer as tlog-witness says, but: {error}. Try again later."
        ) from error


def write_witnessed(
    links: Sequence[Link], head: TreeHead, runs: Mapping[str, RunFolder]
) -> dict[str, Path]:
    """Write into each run's folder what shows its newest head in the log that a witness saw."""
    leaves = entries_of([each.hash for each in links])
    newest = {_run_head(each)[0]: index for index, each in enumerate(links)}
    logged = [name for name in runs if name in newest]
    for name in logged:
        index = newest[name]
        previous = links[index - 1].hash if index else GENESIS
        extra = sealed_text(previous, None, links[index].kind, links[index].body)
        proof = LogProof(extra, index, tuple(tree.inclusion_proof(leaves, index)), head)
        replace_whole(runs[name].witnessed, proof.text().encode(), mode=0o600)
    return {name: runs[name].witnessed for name in logged}


def check_witness(
    shown: Path, key: Path, proof: Proof, hashes: Sequence[str] | None
) -> tuple[Check, Anchor | None]:
    """Check what a witness saw of a run against the proof and the ledger.

    Args:
        shown: what `write_witnessed` wrote.
        key: the witness's keys, from elsewhere.
        proof: the proof.
        hashes: of the ledger's events, if it is at hand.
    """
    try:
        log = LogProof.parse(read_text(shown))
        previous, _, kind, body = json.loads(log.extra)
        _, head = _run_head(Link(log.index + 1, None, kind, body, previous))
    except (*_UNREADABLE, RecursionError) as error:
        return Check.failed("witness", ascii(str(error))), None
    seen = log.head.cosigned_by(key_records(key))
    if seen is None:
        return Check.failed("witness", "no key that you trust cosigned the head"), None
    by = f"witness {seen.key.name}, {seen.moment.isoformat()}, in the log {log.head.origin}"
    at = proof.ledger_events
    if hashes is not None:
        holds = begins_with(hashes, head)
    else:
        holds = head.root.hex() == proof.tree_root if head.size == at else None
    problems = {
        "the log that it cosigned does not hold this": kind != _RUN_HEAD or not log.holds(),
        "the head is of another ledger": head.origin != origin_of(proof.run),
        f"the history that {by} saw up to event {head.size} is another one": holds is False,
    }
    if problem := next((problem for problem, is_so in problems.items() if is_so), None):
        return Check.failed("witness", problem), None
    if not seen.check.ok:
        detail = f"{by}, cosigned it, but {seen.check.detail}"
        return Check("witness", seen.check.ok, detail), None
    if holds is None:
        detail = f"{by} saw events 1 to {head.size}: give --ledger to compare them"
        return Check("witness", None, detail), None
    where = "among them" if at <= head.size else "later"
    detail = f"{by} saw events 1 to {head.size}; the proof's event {at} is {where}"
    signer, when = fingerprint(seen.key.public), seen.moment.isoformat()
    return Check.passed("witness", detail), Anchor("witness", signer, head.size, when)
