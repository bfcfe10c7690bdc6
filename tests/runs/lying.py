"""A signer who lies: it has the key and every file, and signs whatever it likes."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from covey import LedgerError, verify
from covey.base.signature import SigningKey, document_json, sign, signing_key
from covey.leaving.evidence import facts, find_answer
from covey.leaving.proof import read_proof
from covey.leaving.verification import Verification
from covey.ledger import rows
from covey.ledger.chain import Record
from covey.ledger.rows import seal_tables
from covey.ledger.store import Ledger
from covey.ledger.tables import clients, clock, events, requests
from covey.ledger.tree import TreeHead, consistency_proof, entries_of, root_of
from covey.runs.folder import RunFolder, now
from runs.left_runs import LEAVER, Left

Entries = list[tuple[str, list[Record]]]


class Forger:
    """One run that a client left, its proof, and what is done to them before they are shown.

    Attributes:
        document: the proof, which is signed when it is shown.
        mine: who checks, and its salt.
        key: that signs.
        keys: the public keys that whoever checks trusts.
        folder: of the run; its own once something in it is changed.
        arguments: what else `verify` is given: a receipt.
    """

    def __init__(self, left: Left, place: Path) -> None:
        self._left, self.place = left, place
        self.document = left.document
        self.mine: tuple[str, str] = (LEAVER, left.salt)
        self.key = signing_key(left.keys)
        self.keys = Path(shutil.copy(left.keys.with_suffix(".pub.pem"), place / "keys.pub.pem"))
        self.folder = left.folder
        self.arguments: dict[str, Any] = {}

    def shown(self) -> Verification:
        """Return what comes of it."""
        forged = self.place / "forged.json"
        if "signature" not in self.document or self.document != self._left.document:
            self.document = sign(self.key, self.document)
        forged.write_text(document_json(self.document))
        return verify(forged, self.folder, self.keys, self.mine, **self.arguments)

    @property
    def hashes(self) -> list[str]:
        with Ledger.read(self.folder / "ledger.sqlite") as ledger:
            return [link.hash for link in ledger.links()]

    def own_folder(self) -> Path:
        """Return a folder of the run in which anything may be changed."""
        if self.folder == self._left.folder:
            self.folder = Path(shutil.copytree(self._left.folder, self.place / "lied"))
        return self.folder

    def head(self, size: int, *, root: bytes | None = None) -> TreeHead:
        """Return a head of so many events, signed, with the root of as many as there are."""
        tree_root = root_of(entries_of(self.hashes[:size])) if root is None else root
        return TreeHead(f"covey.run/{self.document['run']}", size, tree_root).signed(self.key)

    def receipt(
        self, *, linked: bool = True, key: SigningKey | None = None, **changes: Any
    ) -> None:
        """Show a receipt with changes, and, if it is linked, a proof that refers to it."""
        folder = self.own_folder()
        path = folder / "receipts" / f"{self.document['request']}.json"
        receipt = json.loads(path.read_text()) | changes
        written = document_json(sign(key or self.key, receipt)).encode()
        (self.place / "receipt.json").write_bytes(written)
        self.arguments["receipt"] = self.place / "receipt.json"
        if not linked:
            return
        path.write_bytes(written)
        self.document["receipt"] = sha256(written).hexdigest()
        at, self.document["consistency"] = self.document["ledger_events"], []
        with suppress(LedgerError, ValueError):  # it is of no tree that there can be
            size = TreeHead.parse(receipt["checkpoint"]).size
            grown = consistency_proof(entries_of(self.hashes[:at]), size)
            self.document["consistency"] = [hash_value.hex() for hash_value in grown]

    def dated(self, **dates: str) -> None:
        """Write dates before the operator's key: since, revoked."""
        lines = "".join(f"{name}: {moment}\n" for name, moment in dates.items())
        pem = self.keys.read_text().partition("-----BEGIN")
        self.keys.write_text(f"{lines}{pem[1]}{pem[2]}")


class Liar:
    """A ledger as a lie is put into it.

    Attributes:
        entries: what was written at once, and when.
        signed: how many entries there were when the proof was signed.
        handle: of the requester.
        names: handles by name.
        forger: whose ledger it is.
        facts: what the proof says beside what follows from the ledger.
        renamed: handles and the names that the table gives them from now on.
        basis: what the table of requests says, if it is another.
        unsealed: whether what was sealed of the requester is deleted.
        follows: whether the proof is made anew from what the ledger says then.
    """

    def __init__(self, ledger: Ledger, forger: Forger) -> None:
        document = forger.document
        self.forger, self.entries = forger, entries_in(ledger)
        (request,) = [r for r in ledger.requests() if r.id == document["request"]]
        self.handle, self.request = request.handle, request.id
        self.names = {name: handle for handle, name in ledger.names().items()}
        self.signed = sorted(ledger.times()).index(document["ledger_events"]) + 1
        self.facts: dict[str, Any] = {}
        self.renamed: dict[str, str | None] = {}
        self.basis: str | None = None
        self.unsealed = False
        self.follows = True

    def of(self, *kinds: str, after: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the bodies of events of these kinds, or those after the answer alone."""
        at = self.answer if after else -1
        for _, records in self.entries[at + 1 :]:
            yield from (r.body for r in records if r.kind in kinds)

    @property
    def answer(self) -> int:
        """The index of the entry in which the request was answered."""
        return next(
            i
            for i, (_, records) in enumerate(self.entries)
            for r in records
            if r.kind == "ClientLeft"
        )

    def rounds(self, *, again: bool) -> Entries:
        """Return the entries of rounds before the answer, or those that were replayed."""
        part = slice(self.answer + 1, self.signed) if again else slice(self.answer)
        return rounds_of(self.entries[part])

    def drop(self, kind: str) -> None:
        """Take all events of one kind out."""
        for _, records in self.entries:
            records[:] = [r for r in records if r.kind != kind]
        gone = [e for e in self.entries[: self.signed] if not e[1]]
        self.entries = [e for e in self.entries if e[1]]
        self.signed -= len(gone)

    def replay(self, rounds: Entries) -> None:
        """Put these rounds in the place of those that were replayed."""
        self.entries[self.answer + 1 : self.signed] = rounds
        self.signed = self.answer + 1 + len(rounds)
        del self.entries[self.signed :]

    def add(self, *records: Record, when: str = "2099-01-01T00:00:00.000+00:00") -> None:
        """Write events at the ledger's end."""
        self.entries.append((when, [*records]))


def entries_in(ledger: Ledger) -> Entries:
    """Return what was written at once, and when."""
    links, entries, start = [*ledger.links()], [], 0
    for end, when in sorted(ledger.times().items()):
        records = [
            Record(link.round_index, link.kind, json.loads(str(link.body)))
            for link in links[start:end]
        ]
        entries.append((when, records))
        start = end
    return entries


def rounds_of(entries: Entries) -> Entries:
    """Return the entries of rounds, without the run's end."""
    rounds = [e for e in entries if e[1][0].round_index is not None]
    return [e for e in rounds if not any(r.kind == "RunFinished" for r in e[1])]


def write_anew(connection: Connection, entries: Entries) -> None:
    """Put these events in the place of all that a ledger has; `seal_tables` follows."""
    for table in (events, clock):
        connection.execute(delete(table))
    for when, records in entries:
        rows.add(connection, records[0].round_index, records, when)
        at = select(func.max(events.c.position)).scalar_subquery()
        stamp = update(clock).where(clock.c.position == at).values(written_at=when)
        connection.execute(stamp)


def in_the_ledger(lie: Callable[[Liar], Any]) -> Callable[[Forger], None]:
    """Return a forgery that rewrites the ledger, seals it again, and signs what follows."""

    def forged(forger: Forger) -> None:
        place = forger.own_folder()
        with Ledger.open(place / "ledger.sqlite", now) as ledger:
            liar = Liar(ledger, forger)
            lie(liar)
            with ledger._database.reading() as connection:
                write_anew(connection, liar.entries)
                for handle, name in liar.renamed.items():
                    connection.execute(delete(clients).where(clients.c.handle == handle))
                    if name is not None:
                        new = {"handle": handle, "name": name}
                        connection.execute(insert(clients), new)
                if liar.basis is not None:
                    connection.execute(update(requests).values(basis=liar.basis))
                if liar.unsealed:
                    connection.execute(update(requests).values(sealed=None))
                seal_tables(connection)
        if liar.follows:
            at = sum(len(records) for _, records in liar.entries[: liar.signed])
            shutil.rmtree(place / "receipts")
            forger.document = _following(forger, at) | liar.facts

    return forged


def _following(forger: Forger, at: int) -> dict[str, Any]:
    """Return a proof of which everything that can be derived follows from the ledger."""
    home = RunFolder(forger.folder)
    document = forger.document | {"receipt": None, "consistency": []}
    word = read_proof(document_json(document).encode())
    with Ledger.read(home.ledger) as ledger:
        hashes = [link.hash for link in ledger.links()]
        (request,) = [r for r in ledger.requests() if r.id == document["request"]]
        document |= {"ledger_events": at, "ledger_head": hashes[at - 1]}
        with suppress(LedgerError):  # it holds what is no event of this run
            record = home.reader.read(ledger)
            answer = find_answer(record, ledger.times(), request, at)
            if answer is not None:
                proof_facts = facts(answer, record, home.config(), word)
                document |= json.loads(json.dumps(asdict(proof_facts)))
    return document


def moment(document: dict[str, Any], name: str) -> int:
    """Return a date of a proof as seconds since 1970."""
    return int(datetime.fromisoformat(document[name]).timestamp())
