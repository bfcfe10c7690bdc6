"""Rows of features in one SQLite file, by the record that they are of, and who holds it.

A frozen network takes seconds for what a head takes milliseconds. The file is a cache: what is
missing or damaged in it is computed again. Rows of a client are deleted when it leaves.

Quick to import, as who only reads a run needs no torch.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np

from covey.base.errors import RunError
from covey.base.files import LAYOUT, bounded, layout, make_folder, strange

_TABLES = (
    "CREATE TABLE rows (key BLOB PRIMARY KEY, row BLOB NOT NULL, sum BLOB NOT NULL)",
    "CREATE TABLE holders (holder TEXT, key BLOB, PRIMARY KEY (holder, key)) WITHOUT ROWID",
)
_AT_ONCE = 500
"""Keys in one question to the file."""

log = logging.getLogger(__name__)

Rows = np.ndarray
"""float32, a row per record."""


@dataclass(eq=False)
class FeatureStore:
    """Where rows of features are kept.

    Attributes:
        path: of the file.
        may_create: whether the file may be made; until then what is written is held in memory.
    """

    path: Path
    may_create: bool = True
    _waiting: list[tuple[str, Sequence[bytes], Rows]] = field(
        default_factory=list[tuple[str, Sequence[bytes], Rows]], repr=False
    )

    @classmethod
    def at(cls, path: Path) -> "FeatureStore":
        """Return the user's store that all runs share, or the own one, at this path.

        The own one is made once the run has begun (`create`).
        """
        return cls.all_at(path)[-1]

    @classmethod
    def all_at(cls, path: Path) -> "tuple[FeatureStore, ...]":
        """Return the own store, at this path, and the user's shared one, if it is named now."""
        own, shared = cls(path, may_create=False), os.environ.get("COVEY_FEATURES")
        return (own, cls(Path(shared).expanduser() / path.name)) if shared else (own,)

    def create(self) -> None:
        """Allow the file to be made, and write what waited for it."""
        self.may_create, waiting = True, tuple(self._waiting)
        self._waiting.clear()
        for place in waiting:
            self.write(*place)

    def read(self, keys: Sequence[bytes]) -> Rows | None:
        """Return the rows of these keys in their order; None: one is missing or damaged."""
        if not keys or not self.path.is_file():
            return None
        rows: dict[bytes, np.ndarray] = {}

        def look(file: sqlite3.Connection) -> None:
            for at in range(0, len(keys), _AT_ONCE):
                part = keys[at : at + _AT_ONCE]
                query = f"SELECT * FROM rows WHERE key IN ({','.join('?' * len(part))})"  # noqa: S608
                for key, row, checksum in file.execute(query, part):
                    if _checksum(key, row) == checksum:
                        rows[key] = np.frombuffer(row, np.float32)

        self._within(look, "readable")
        if not rows.keys() >= set(keys) or len({row.shape for row in rows.values()}) != 1:
            return None
        return np.stack([rows[key] for key in keys])

    def write(self, holder: str, keys: Sequence[bytes], rows: Rows) -> None:
        """Keep rows, and note who holds the records that they are of.

        Raises:
            RunError: the file cannot be written.
        """
        if not self.may_create and not self.path.is_file():
            self._waiting.append((holder, keys, rows))
            return
        cells = [(key, row.tobytes()) for key, row in zip(keys, rows, strict=True)]

        def put(file: sqlite3.Connection) -> None:
            checked = ((*cell, _checksum(*cell)) for cell in cells)
            file.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", checked)
            notes = ((holder, key) for key in keys)
            file.executemany("INSERT OR IGNORE INTO holders VALUES (?, ?)", notes)

        self._within(put, "writable")

    def holds(self, holder: str) -> bool:
        """Say whether there are rows of somebody.

        Raises:
            RunError: the file cannot be read.
        """
        blobs: list[object] = []

        def look(file: sqlite3.Connection) -> None:
            query = "SELECT 1 FROM holders WHERE holder = ? LIMIT 1"
            blobs.extend(file.execute(query, (holder,)))

        if self.path.is_file():
            self._within(look, "readable")
        return bool(blobs)

    def forget(self, holder: str) -> None:
        """Delete the rows of all that somebody holds, though others hold it as well.

        Raises:
            RunError: the file cannot be written.
        """

        def delete(file: sqlite3.Connection) -> None:
            own = "SELECT key FROM holders WHERE holder = ?"
            file.execute(f"DELETE FROM rows WHERE key IN ({own})", (holder,))  # noqa: S608
            file.execute("DELETE FROM holders WHERE holder = ?", (holder,))

        if self.path.is_file():
            self._within(delete, "writable")

    def _within(self, work: Callable[[sqlite3.Connection], None], must: str) -> None:
        """Do something in the file; one that is damaged, or holds anything else, is made anew."""
        for is_new in (False, True):
            try:
                with closing(self._connected()) as file, file:
                    return work(file)
            except (sqlite3.Error, OSError) as error:
                damaged = isinstance(error, sqlite3.DatabaseError)
                if is_new or not damaged or isinstance(error, sqlite3.OperationalError):
                    raise RunError(
                        f"{self.path} must be {must}, found {error}: delete it, as features are "
                        f"computed again, or name another folder in COVEY_FEATURES."
                    ) from error
                log.warning("%s is made anew: %s", self.path, error)
                self.path.unlink()
        return None

    def _connected(self) -> sqlite3.Connection:
        if not self.path.is_file():
            make_folder(self.path.parent)
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        file = bounded(sqlite3.connect(self.path, timeout=30))
        try:
            file.execute("PRAGMA secure_delete = ON").close()
            if not file.execute(LAYOUT).fetchall():
                with file:
                    file.execute("BEGIN IMMEDIATE")  # other threads and processes wait
                    for statement in _TABLES if not file.execute(LAYOUT).fetchall() else ():
                        file.execute(statement)
            columns = layout(file.execute(LAYOUT))
            if odd := strange(
                frozenset(column for column in columns if column[3] != "None"), _LAYOUT
            ):
                raise sqlite3.DatabaseError(f"it holds the {odd}")
        except sqlite3.Error:
            file.close()
            raise
        return file


def _checksum(key: bytes, row: bytes) -> bytes:
    return blake2b(key + row, digest_size=8).digest()


def _expected() -> frozenset[tuple[str, ...]]:
    names = ("rows", "holders")
    return layout(("table", name, name, sql) for name, sql in zip(names, _TABLES, strict=True))


_LAYOUT = _expected()
