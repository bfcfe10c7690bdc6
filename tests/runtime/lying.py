"""A signer who lies: it rewrites its ledger, seals it again, and signs what follows."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, update

from covey.ledger import rows
from covey.ledger.chain import Record
from covey.ledger.rows import seal_tables
from covey.ledger.store import Ledger
from covey.ledger.tables import clients, clock, events, participation, requests
from covey.runtime.facts import facts, find_answer
from covey.runtime.folder import RunFolder, now
from covey.unlearning.proof import proof_json, read_proof
from covey.unlearning.signature import Check


@dataclass
class Liar:
    """A ledger as a lie is put into it.

    Attributes:
        entries: what was written at once, and when.
        signed: how many entries there were when the proof was signed.
        handle: of the requester.
        document: the proof.
        facts: what the proof says beside what follows from the ledger.
        renamed: handles and the names that the table gives them from now on.
        basis: what the table of requests says, if it is another.
        mine: who checks, and its salt.
    """

    entries: list[tuple[str, list[Record]]]
    signed: int
    handle: str
    document: dict[str, Any]
    names: dict[str, str]
    mine: tuple[str, str]
    facts: dict[str, Any] = field(default_factory=dict)
    renamed: dict[str, str | None] = field(default_factory=dict)
    basis: str | None = None

    def of(self, *kinds: str, after: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the bodies of events of these kinds, or those after the answer alone."""
        at = self.answer if after else -1
        for _, records in self.entries[at + 1 :]:
            yield from (r.body for r in records if r.kind in kinds)

    @property
    def answer(self) -> int:
        """The index of the entry in which the request was answered."""
        return next(
            i for i, (_, some) in enumerate(self.entries) for r in some if r.kind == "ClientLeft"
        )

    def rounds(self, *, again: bool) -> list[tuple[str, list[Record]]]:
        """Return the entries of rounds before the answer, or those that were replayed."""
        part = slice(self.answer + 1, self.signed) if again else slice(self.answer)
        rounds = [e for e in self.entries[part] if e[1][0].round_index is not None]
        return [e for e in rounds if not any(r.kind == "RunFinished" for r in e[1])]

    def drop(self, kind: str) -> None:
        """Take all events of one kind out."""
        for _, records in self.entries:
            records[:] = [r for r in records if r.kind != kind]
        gone = [e for e in self.entries[: self.signed] if not e[1]]
        self.entries = [e for e in self.entries if e[1]]
        self.signed -= len(gone)


Lie = Callable[[Liar], Any]


def told_by(
    lie: Lie,
    honest: tuple[Path, dict[str, Any], tuple[str, str]],
    place: Path,
    checked: Callable[[dict[str, Any], Path, tuple[str, str]], list[Check]],
) -> list[Check]:
    """Return what a verifier finds of a lie; the signer has the key and every file.

    Args:
        lie: changes a `Liar`.
        honest: the folder that a client left, the proof, and who it is about.
        place: for the run that is lied about.
        checked: signs a proof and verifies it.
    """
    folder, document, mine = honest
    shutil.copytree(folder, place)
    with Ledger.open(place / "ledger.sqlite", now) as ledger:
        liar = _liar(ledger, document, mine)
        lie(liar)
        with ledger._database.reading() as connection:
            connection.execute(delete(events))
            connection.execute(delete(participation))
            connection.execute(delete(clock))
            for when, records in liar.entries:
                rows.add(connection, records[0].round_index, records, when)
            for handle, name in liar.renamed.items():
                connection.execute(delete(clients).where(clients.c.handle == handle))
                if name is not None:
                    new = {"handle": handle, "name": name}
                    connection.execute(insert(clients), new)
            if liar.basis is not None:
                connection.execute(update(requests).values(basis=liar.basis))
            seal_tables(connection)
    signed = sum(len(records) for _, records in liar.entries[: liar.signed])
    return checked(_following(place, document, signed, liar.facts), place, liar.mine)


def _liar(ledger: Ledger, document: dict[str, Any], mine: tuple[str, str]) -> Liar:
    links, entries, start = [*ledger.links()], [], 0
    for end, when in sorted(ledger.times().items()):
        some = [
            Record(each.round_index, each.kind, json.loads(str(each.body)))
            for each in links[start:end]
        ]
        entries.append((when, some))
        start = end
    ends = sorted(ledger.times())
    (request,) = [r for r in ledger.requests() if r.id == document["request"]]
    names = {name: handle for handle, name in ledger.names().items()}
    signed = ends.index(document["ledger_events"]) + 1
    return Liar(entries, signed, request.handle, document, names, mine)


def _following(
    place: Path, document: dict[str, Any], signed: int, told: dict[str, Any]
) -> dict[str, Any]:
    """Return a proof of which everything that can be derived follows from the ledger."""
    home = RunFolder(place)
    document |= {"receipt": None, "consistency": []}
    shutil.rmtree(home.receipts, ignore_errors=True)
    word = read_proof(proof_json(document).encode())
    with Ledger.read(home.ledger) as ledger:
        record = home.reader.read(ledger)
        (request,) = [r for r in ledger.requests() if r.id == document["request"]]
        answer = find_answer(record, ledger.times(), request, signed)
    document |= {"ledger_events": signed, "ledger_head": record.hashes[signed - 1]}
    if answer is not None:
        found = facts(answer, record, home.config(), word)
        document |= json.loads(json.dumps(asdict(found)))
    return document | told
