"""The register of requests: plain tables in one SQLite file, written in whole transactions.

It is a work list. What runs did is proved by their own ledgers and proofs. Everything that is
erased when a request is closed stands in the table `texts`, and nowhere else.
"""

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from covey import ConfigError, LedgerError, LedgerLocked
from covey.base.files import LAYOUT, bounded, layout, make_folder, strange
from covey.leaving.copies import Mention
from covey.runs.folder import RunFolder
from covey_desk.request import (
    RegisterEntry,
    Request,
    RequestState,
    RunOfRequest,
    ToDo,
    by_hand,
    denied,
    proof_path,
    unanswered,
)

FILE, PACKS = "register.sqlite", "packs"
ERASED, REQUESTER = "[erased]", "[requester]"
"""In the place of a name that was erased, and of one in another text or for a regulator."""

BUSY_SECONDS = 30.0
"""How long a command waits until another one has written the register."""

FORMAT = 2
TABLES = (
    """
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY, received TEXT NOT NULL, basis TEXT NOT NULL,
        language TEXT NOT NULL, extended TEXT NOT NULL, wanted TEXT NOT NULL DEFAULT '',
        closing TEXT NOT NULL DEFAULT '', is_closed INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE texts (
        request INTEGER NOT NULL REFERENCES requests, kind TEXT NOT NULL,
        person INTEGER NOT NULL, run TEXT NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY (request, kind, person, run)
    )
    """,
    """
    CREATE TABLE answers (
        request INTEGER NOT NULL REFERENCES requests, person INTEGER NOT NULL,
        run TEXT NOT NULL, run_request TEXT NOT NULL, answer TEXT NOT NULL,
        answered TEXT NOT NULL, model_changed INTEGER NOT NULL, proof_sha256 TEXT NOT NULL,
        ended TEXT NOT NULL, PRIMARY KEY (request, person, run)
    )
    """,
    """
    CREATE TABLE packs (
        request INTEGER NOT NULL REFERENCES requests, person INTEGER NOT NULL,
        PRIMARY KEY (request, person)
    )
    """,
    f"PRAGMA user_version = {FORMAT}",
)
NOTE = """
    INSERT INTO answers VALUES (
        :request, :index, :run, :run_request, :answer, :answered, :model_changed, :proof_sha256,
        :ended
    )
    ON CONFLICT (request, person, run) DO UPDATE SET
        run_request = ifnull(nullif(excluded.run_request, ''), run_request),
        answer = ifnull(nullif(excluded.answer, ''), answer),
        answered = ifnull(nullif(excluded.answered, ''), answered),
        model_changed = max(excluded.model_changed, model_changed),
        proof_sha256 = ifnull(nullif(excluded.proof_sha256, ''), proof_sha256),
        ended = excluded.ended
"""


def register_of(root: Path) -> Path:
    """Return where the runs below a folder have their register; a run has it beside itself."""
    is_run = RunFolder(root).config_path.is_file()
    return (root.resolve().parent if is_run else root) / "requests"


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """The requests of one folder, as one transaction reads or writes them."""

    folder: Path
    _database: sqlite3.Connection

    def requests(self) -> dict[str, Request]:
        """Return every request by its number, in the order in which they came."""
        texts: dict[int, dict[tuple[str, int, str], str]] = defaultdict(dict)
        for number, *key, text in self._database.execute("SELECT * FROM texts ORDER BY person"):
            texts[number][tuple(key)] = text
        answers: dict[int, list[sqlite3.Row]] = defaultdict(list)
        for row in self._database.execute("SELECT * FROM answers ORDER BY person, run"):
            answers[row["request"]].append(row)
        packs: dict[int, list[int]] = defaultdict(list)
        for number, person in self._database.execute("SELECT * FROM packs ORDER BY person"):
            packs[number].append(person)
        requests: dict[str, Request] = {}
        for row in self._database.execute("SELECT * FROM requests ORDER BY number"):
            number = row["number"]
            request = self._request(row, texts[number], answers[number], packs[number])
            requests[request.request] = _with_repeats(request, requests)
        return requests

    def request(self, number: str) -> Request:
        """Return one request.

        Raises:
            ConfigError: there is none.
        """
        requests = self.requests()
        if number not in requests:
            raise ConfigError(
                f"A request must be one of {', '.join(requests) or 'none'}, found {number!r}: give "
                f"a number that `covey requests list` shows."
            )
        return requests[number]

    def _request(
        self,
        row: sqlite3.Row,
        texts: dict[tuple[str, int, str], str],
        answers: Sequence[sqlite3.Row],
        packs: Sequence[int],
    ) -> Request:
        number, names = str(row["number"]), [t for (kind, *_), t in texts.items() if kind == "name"]
        entry = RegisterEntry(
            names=tuple(names),
            received=row["received"],
            basis=row["basis"],
            reference=texts.get(("reference", 0, ""), ""),
            language=row["language"],
            extended=row["extended"],
            reason=texts.get(("reason", 0, ""), ""),
            salts=tuple(t for (kind, *_), t in texts.items() if kind == "salt"),
        )
        runs: list[RunOfRequest] = []
        for answer in answers:
            values: dict[str, Any] = dict(answer)
            index, run = values.pop("person"), values["run"]
            left = json.loads(texts.get(("left", index, run), "[]"))
            values |= {
                "request": number,
                "person": names[index - 1],
                "index": index,
                "model_changed": bool(values["model_changed"]),
                "held": texts.get(("held", index, run), ""),
                "left": tuple(ToDo(**one) for one in left),
            }
            if values["answer"]:
                values["proof"] = str(proof_path(Path(run), values["run_request"]))
            runs.append(RunOfRequest(**values))
        waiting, folder = len(unanswered(entry.basis, runs)), self.folder / PACKS
        if row["closing"]:
            state: RequestState = "closed" if row["is_closed"] else "closing"
        elif not row["wanted"]:
            state = "open"
        elif waiting:
            state = "answering"
        else:
            state = "denied" if denied(entry.basis, runs) else "answered"
        return Request(
            request=number,
            state=state,
            entry=entry,
            due=entry.due.isoformat(),
            days_left=(entry.due - date.today()).days,
            repeats=(),
            wanted=row["wanted"],
            runs=runs,
            waiting=waiting,
            by_hand=by_hand(runs, json.loads(texts.get(("done", 0, ""), "{}"))),
            packs=[str(folder / f"request-{number}-{e}") for e in packs if not row["closing"]],
            closed=row["closing"],
            closed_because=texts.get(("closing", 0, ""), ""),
        )

    def add(self, entry: RegisterEntry) -> str:
        """Add a request, and return its number."""
        into = "INSERT INTO requests (received, basis, language, extended) VALUES (?, ?, ?, ?)"
        values = entry.received, entry.basis, entry.language, entry.extended
        number = str(self._database.execute(into, values).lastrowid)
        self._set_names(number, entry)
        return number

    def correct(self, number: str, entry: RegisterEntry) -> None:
        """Let a request say something else; what was searched for other names goes."""
        changed = "UPDATE requests SET received=?, basis=?, language=?, extended=? WHERE number=?"
        values = entry.received, entry.basis, entry.language, entry.extended, number
        self._database.execute(changed, values)
        if entry.names != self.request(number).entry.names:
            for kind in ("name", "held", "left"):
                erase = "DELETE FROM texts WHERE request = ? AND kind = ?"
                self._database.execute(erase, (number, kind))
            self._database.execute("DELETE FROM answers WHERE request = ?", (number,))
        self._set_names(number, entry)

    def _set_names(self, number: str, entry: RegisterEntry) -> None:
        for index, name in enumerate(entry.names, 1):
            self._set_text(number, "name", name, index)
        self._set_text(number, "reference", entry.reference)
        self._set_text(number, "reason", entry.reason)
        for index, salt in enumerate(entry.salts, 1):
            self._set_text(number, "salt", salt, index)

    def _set_text(self, number: str, kind: str, text: str, person: int = 0, run: str = "") -> None:
        if text:
            row = number, kind, person, run, text
            self._database.execute("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?)", row)

    def begin(self, number: str, wanted: str) -> None:
        """Note that from here on runs are answered; wanted: the answer, or "auto"."""
        changed = "UPDATE requests SET wanted = ? WHERE number = ?"
        self._database.execute(changed, (wanted, number))

    def note(self, run: RunOfRequest) -> None:
        """Add to what a run did; what is empty changes nothing, but for `ended`.

        Nothing is added to a request that another process began to close meanwhile.
        """
        if not self.request(run.request).is_open:
            return
        self._database.execute(NOTE, asdict(run))
        left = json.dumps([asdict(item) for item in run.left]) if run.answer else ""
        self._set_text(run.request, "held", run.held, run.index, run.run)
        self._set_text(run.request, "left", left, run.index, run.run)
        if run.answer or run.ended:
            outdated = "DELETE FROM packs WHERE request = ? AND person = ?"
            self._database.execute(outdated, (run.request, run.index))

    def note_done(self, number: str, items: Iterable[ToDo], day: str) -> None:
        """Note on which day a person did these items."""
        done = {f"{e.kind} {e.where}": e.done for e in self.request(number).by_hand if e.done}
        done |= {f"{e.kind} {e.where}": day for e in items}
        self._set_text(number, "done", json.dumps(done))

    def note_pack(self, number: str, index: int) -> None:
        """Note that a person's answer was written, to be handed over."""
        self._database.execute("INSERT OR IGNORE INTO packs VALUES (?, ?)", (number, index))

    def begin_closing(self, number: str, reason: str) -> None:
        """Note that from here on salts, packs and names are deleted."""
        changed = "UPDATE requests SET closing = ? WHERE number = ?"
        self._database.execute(changed, (date.today().isoformat(), number))
        self._set_text(number, "closing", reason)

    def erase(self, number: str) -> None:
        """Erase the names of a request and what runs held; other texts say `REQUESTER`.

        Texts of other requests, too, unless an open one is about the same name.
        """
        requests, run_text = self.requests(), "SELECT DISTINCT run FROM answers WHERE request = ?"
        known = {name for request in requests.values() for name in request.entry.names}
        others = [
            request
            for request in requests.values()
            if request.request != number and request.is_open
        ]
        needed = {name for request in others for name in request.entry.names}
        gone = "DELETE FROM texts WHERE request = ? AND kind IN ('held', 'left', 'salt', 'done')"
        self._database.execute(gone, (number,))
        erased = "UPDATE texts SET text = ? WHERE request = ? AND kind = 'name'"
        self._database.execute(erased, (ERASED, number))
        for name in {*requests[number].entry.names} - {ERASED}:
            plain = Mention.of(name, known)
            in_json = Mention.of(_in_json(name), {_in_json(other) for other in known})
            texts = "SELECT rowid, request, kind, text FROM texts WHERE kind != 'name'"
            for row, about, kind, text in self._database.execute(texts).fetchall():
                if name not in needed or str(about) == number:
                    mention = in_json if kind in ("held", "left", "done") else plain
                    changed = "UPDATE texts SET text = ? WHERE rowid = ?"
                    self._database.execute(changed, (mention.masked(text, REQUESTER), row))
            for (run,) in self._database.execute(run_text, (number,)).fetchall():
                changed = "UPDATE OR REPLACE answers SET run = ? WHERE request = ? AND run = ?"
                values = plain.masked(run, REQUESTER), number, run
                self._database.execute(changed, values)

    def end_closing(self, number: str) -> None:
        """Note that nothing is left to delete."""
        changed = "UPDATE requests SET is_closed = 1 WHERE number = ?"
        self._database.execute(changed, (number,))


def _with_repeats(request: Request, earlier: dict[str, Request]) -> Request:
    names = {*request.entry.names} - {ERASED}
    same = [e for e in earlier.values() if e.state != "closed" and names & {*e.entry.names}]
    return request if not same else replace(request, repeats=[repeat.request for repeat in same])


def _in_json(name: str) -> str:
    return json.dumps(name)[1:-1]


@contextmanager
def register_at(folder: Path) -> Generator[Register]:
    """Open a register and write it, all of it or nothing; it is made if it is not there.

    Raises:
        LedgerError: it cannot be written, or another process does not stop writing it.
    """
    make_folder(folder)
    path = folder / FILE
    if not path.exists():  # SQLite asks the umask alone
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    with _opened(path, "PRAGMA foreign_keys = ON", "BEGIN IMMEDIATE") as database:
        if not _is_made(database, path):
            for table in TABLES:
                database.execute(table)
        yield Register(folder, database)
        database.execute("COMMIT")


@contextmanager
def read_register(folder: Path) -> Generator[Register]:
    """Open a register to read it.

    Raises:
        ConfigError: there is none.
        LedgerError: it cannot be read.
    """
    path = folder / FILE
    if path.is_file():
        with _opened(path, "PRAGMA query_only = ON", "BEGIN") as database:
            if _is_made(database, path):
                yield Register(folder, database)
                return
    raise ConfigError(
        f"{folder} must hold a register of requests, found none: begin one with `covey requests "
        f"add`, or say where it is with --register."
    )


def overwrite_traces(folder: Path) -> None:
    """Rewrite the file, so that no page holds what was erased.

    `secure_delete` overwrites a row where it lies; pages that were split or merged before can
    hold another copy.

    Raises:
        LedgerLocked: another process does not stop using it.
    """
    with _opened(folder / FILE, "VACUUM") as database:
        (busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:  # somebody turned write-ahead logging on
            raise _locked(folder / FILE)


@contextmanager
def _opened(path: Path, *at_begin: str) -> Generator[sqlite3.Connection]:
    """Lend a connection; what it began is undone unless it was committed.

    `EXTRA` is `FULL`, and also makes the end of a transaction outlive a power cut. Readers
    open the file for writing, too: after a kill, the first one puts back what was half done.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        opened = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        with closing(bounded(opened)) as database:
            database.row_factory = sqlite3.Row
            for statement in ("PRAGMA synchronous = EXTRA", "PRAGMA secure_delete = ON", *at_begin):
                database.execute(statement)
            yield database
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
            raise _locked(path) from error
        raise LedgerError(
            f"{path} must be a register of requests to read and write, found {error}: check its "
            f"permissions and the free space, or restore it from a copy."
        ) from error


def _is_made(database: sqlite3.Connection, path: Path) -> bool:
    """Say whether a file has its tables; a kill may have left it empty.

    Raises:
        LedgerError: it has others.
    """
    (format_version,) = database.execute("PRAGMA user_version").fetchone()
    tables = layout(database.execute(LAYOUT))
    if format_version != FORMAT and tables:
        raise LedgerError(
            f"{path} must be a register of format {FORMAT}, found {format_version}: close its "
            f"requests with the covey that wrote it, and move it away."
        )
    if tables and (odd := strange(tables, _layout())):
        raise LedgerError(
            f"{path} must hold a register's tables alone, differs by the {odd}: restore a copy."
        )
    return bool(tables)


@cache
def _layout() -> frozenset[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as database:
        for table in TABLES:
            database.execute(table)
        return layout(database.execute(LAYOUT))


def _locked(path: Path) -> LedgerLocked:
    return LedgerLocked(
        f"{path} must be used by one process, found another: wait until it ends, and say it again."
    )
