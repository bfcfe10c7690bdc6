"""Who asks to leave, the receipt it is given, and the witness that keeps the ledger's head.

Receipts: what a requester is given when it asks, before anything is answered.

A receipt is one signed JSON file. It says what was asked, when, and the head of the
ledger's tree at that moment: a history that is rewritten later is not consistent with it.

A witness: whoever keeps the newest head of a ledger's tree, and cosigns what grew.

It needs nothing of a run but the signed head and a path of a few hashes. It can lie in
another folder, or on another machine; what counts is that the operator cannot write there.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.base.errors import LedgerError, RunError
from covey.base.events import LeaveRequested, kind_and_body
from covey.base.files import read_bounded, read_text, replace_whole
from covey.base.names import ClientName, Handle
from covey.build.run import BuiltRun
from covey.ledger.chain import Record, consistency_proof, entries_of, is_consistent, root_of
from covey.ledger.requests import NewRequest, Request
from covey.ledger.store import Ledger
from covey.runtime.anchors import FORMAT
from covey.runtime.folder import RunFolder
from covey.runtime.secrets import Handover, keep_handover
from covey.runtime.session import Session
from covey.unlearning.plan import WantedAnswer
from covey.unlearning.proof import Mark, proof_json, unsealed
from covey.unlearning.signature import SigningKey, fingerprint, key_records, sign, signing_key
from covey.unlearning.tree_head import TreeHead, origin_of


@dataclass(frozen=True, slots=True)
class Returning:
    """A client that has left, and comes back for a stronger answer.

    Attributes:
        salt: hex; the one that it was given with its last answer.
    """

    client: ClientName
    salt: str = field(repr=False)


def find_clients(
    session: Session, run: BuiltRun, clients: Sequence[ClientName | Returning]
) -> tuple[Session, dict[ClientName, Handle]]:
    """Return the clients' handles, each once, and the session in which they are found.

    Args:
        session: the run without those who left.
        run: the run with the data that are there, of those who left as well.
        clients: their names, with the salt of those who left.

    Raises:
        RunError: a client is not known to the run.
    """
    handles = {client.name: client.handle for client in session.run.population.clients}
    known: dict[ClientName, Handle] = {}
    for each in clients:
        name = each.client if isinstance(each, Returning) else each
        handle = (
            _unsealed_handle(session, each) if isinstance(each, Returning) else handles.get(name)
        )
        if handle is None:
            raise RunError(
                f"Clients are asked for by the names that {session.folder.path} knows, but "
                f"it knows no client {name!r}: it never did, or not any more. Check the "
                f"spelling; who left comes back with --salt and the salt of the last "
                f"answer, unless that was a retraining."
            )
        known[name] = handle
    back = {each.client for each in clients if isinstance(each, Returning)}
    returned = {
        known[client.name]: replace(client, handle=known[client.name])
        for client in run.population.clients
        if client.name in back
    }
    return replace(session, returned=returned), known


def new_request(name: ClientName, wanted_answer: WantedAnswer) -> NewRequest:
    """Return what to put in the ledger's queue.

    Its marks are made now: the receipt tells them, and nobody but the requester knows
    the name of who left, so that a request that a crash cuts off is served without it.
    """
    mark = Mark.fresh(wanted_answer.handle, name)
    return NewRequest(
        wanted_answer.handle, wanted_answer.wanted, basis=wanted_answer.basis, mark=mark
    )


def put_down(session: Session, new: Sequence[NewRequest]) -> list[Request]:
    """Put requests in the ledger's queue, and in its chain what they ask for.

    Before anything is recorded there is no chain: then they enter it with their answers.
    """
    asked = [
        LeaveRequested(
            each.id, each.handle, each.wanted, each.basis, each.mark.subject if each.mark else ""
        )
        for each in new
    ]
    records = [Record(None, *kind_and_body(each)) for each in asked]
    return session.ledger.ask_all(new, records if session.record().hashes else ())


def recorded_requests(session: Session) -> dict[str, LeaveRequested]:
    """Return what the chain holds of requests, by their identifiers."""
    events = (each for _, each in session.record().events)
    return {e.request: e for e in events if isinstance(e, LeaveRequested)}


def as_recorded(request: Request, known: Mapping[str, LeaveRequested]) -> LeaveRequested | None:
    """Return what is still to be recorded of a request; None: it stands in the chain.

    Raises:
        LedgerError: the chain has it otherwise.
    """
    subject = request.mark.subject if request.mark else ""
    asked = LeaveRequested(request.id, request.handle, request.wanted, request.basis, subject)
    found = known.get(request.id)
    if found not in (None, asked):
        raise LedgerError(
            f"A request is answered as it was asked, but of {request.id} the table of "
            f"requests says {asked}, and the chain {found}: the table was changed. Restore "
            f"the ledger from a copy."
        )
    return asked if found is None else None


def mark_of(request: Request, name: ClientName | None) -> Mark:
    """Return the requester's marks; new ones, unless it has left already."""
    if request.mark is not None:
        return request.mark
    if name is None:
        raise RunError(
            f"Who is served must be known by name, or have left marks with its request, "
            f"but nobody is known behind the handle {request.handle}. Ask again."
        )
    return Mark.fresh(request.handle, name)


def _unsealed_handle(session: Session, returning: Returning) -> Handle | None:
    try:
        salt = bytes.fromhex(returning.salt)
    except ValueError as error:
        raise RunError(
            f"A salt is hexadecimal digits, as the answer printed them, but: {error}. "
            f"Copy it again."
        ) from error
    records = [each.sealed for each in session.ledger.requests() if each.sealed]
    opened = (unsealed(record, returning.client, salt) for record in records)
    return next((handle for handle in opened if handle is not None), None)


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


def ask_with_receipts(session: Session, asked: Mapping[ClientName, WantedAnswer]) -> list[Request]:
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


def anchors_of(
    folder: RunFolder, request: str, hashes: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the hash of a request's receipt, and the path from its tree to this ledger's."""
    path = _path(folder, request)
    if not path.exists():
        return None, ()
    written, size = _read(path)
    grown = consistency_proof(entries_of(hashes), size)
    return hashlib.sha256(written).hexdigest(), tuple(each.hex() for each in grown)


def _document(request: Request, hashes: Sequence[str], key: SigningKey) -> dict[str, Any]:
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


KEY = "witness-key.pem"
UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)


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
    place = folder.config().secrets.key_path
    head = head_of(hashes).signed(key or signing_key(Path(place) if place else None))
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
    except (*UNREADABLE, OSError, OverflowError) as error:
        raise LedgerError(
            f"{path} must be a head as `covey head` writes it, but it cannot be read: "
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
    head = update.head
    _witness_path(place, head.origin)
    key = signing_key(place / KEY)
    known = _known(place, head.origin)
    seconds = int(clock())
    _check_signed(place, head, operator, datetime.fromtimestamp(seconds, UTC))
    if known is not None:
        _check_grown(known, update)
    cosigned = head.cosigned(f"witness-{fingerprint(key.public_key())[:9]}", key, seconds)
    note = _witness_path(place, head.origin)
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
    head = update.head
    sizes, roots = (known.size, head.size), (known.root, head.root)
    path = () if known.size == head.size else update.path
    if update.since not in (known.size, head.size) and known.size != head.size:
        raise LedgerError(
            f"The path must begin at the {known.size} events that this witness saw, but it "
            f"begins at {update.since}. Make it with `covey head RUN --since {known.size}`."
        )
    if not is_consistent(sizes, roots, path):
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
            f"with `covey head`."
        )
    return place / f"{name}.checkpoint"
