"""What a client keeps of secure sums: the round that it is in, and the sums before."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter, ValidationError

from covey.atomic_io import make_folder, replace_whole, user_folder
from covey.bounded_io import read_bounded
from covey.checked_json import checked, checked_json
from covey.errors import RunError
from covey.secure_sums import ClientRound

__all__ = ["OpenedSum", "OpenedSums", "SumFiles", "SumGuard", "SumMemory"]

EXACT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class SumMemory:
    """What keeps a client from being asked twice in a run.

    Attributes:
        round: the latest one, with its secrets; "": it is over, or none has begun. A
            client that has opened a sum has no more secrets of it.
        what: names the numbers that it sent in it.
        records: digest of the records that these are sums over; "": they are none.
        digest: of the numbers that are to be taken off again; "": there are none.
        opened: whether they are in a sum.
    """

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    round: str = ""
    what: str = ""
    records: str = ""
    digest: str = ""
    opened: bool = False

    def in_round(self, after: ClientRound) -> "SumMemory":
        """Return what is kept before the next message is sent."""
        text = "" if after.step == "over" else after.to_bytes().decode()
        return replace(self, round=text)


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """A sum that a client opened, or signed.

    Attributes:
        what: names the numbers: two sums of the same ones tell what one does not.
        records: digest of the client's records; "": they are no sums over records.
        name: the client's own.
        clients: whose numbers are in it.
    """

    what: str
    records: str
    name: str
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenedSums:
    """All of them, of any run."""

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    sums: tuple[OpenedSum, ...] = ()

    def like(
        self, what: str, records: str, name: str, left: Iterable[str]
    ) -> tuple[frozenset[str], ...]:
        """Return who is in each earlier sum of such numbers, without clients that left.

        With other records than now the client is another one: of two sums over the same
        clients, the difference would be what has changed.
        """
        gone = frozenset(left)
        return tuple(
            frozenset(each.clients) - gone - {each.name}
            | {name if each.records == records else each.records}
            for each in self.sums
            if each.what == what
        )


_memory = TypeAdapter(SumMemory).validate_python
_opened = TypeAdapter(OpenedSums).validate_python


@dataclass(frozen=True, slots=True)
class SumGuard:
    """Of whom every sum was that was opened: by this client, and over these records.

    Attributes:
        files: all that hold it: one in the client's folder and, of the records, one of the
            user's, wherever the records lie. Names with "-" are no run's.
    """

    files: tuple[Path, ...]

    @classmethod
    def of(cls, folder: Path, records: str) -> "SumGuard":
        """Return the guard of a client.

        Args:
            folder: where the client keeps what it knows of all runs.
            records: digest of its records; "": other nodes have nothing of them.

        Raises:
            RunError: there is nowhere to keep it.
        """
        own = folder / "opened-sums.json"
        if not records:
            return cls((own,))
        try:
            shared = user_folder() / "sums"
            make_folder(shared)
        except (OSError, RuntimeError) as error:
            raise RunError(
                f"Sums over records are opened where it can be kept of whom they were, "
                f"for all nodes with the same records, found no folder for it ({error}). "
                f"Set XDG_CONFIG_HOME to one that lasts."
            ) from error
        return cls((own, shared / f"{records}.json"))

    @contextmanager
    def locked(self) -> Iterator[OpenedSums]:
        """Keep all other processes out; return what is known until then.

        Raises:
            RunError: it cannot be read.
        """
        with ExitStack() as held:
            for file in self.files:
                held.enter_context(_lock(file))
            known = [_read(file, _opened).sums for file in self.files]
            yield OpenedSums(tuple(dict.fromkeys(s for sums in known for s in sums)))

    def add(self, opened: OpenedSum) -> None:
        """Keep that a sum is opened, before anything is sent."""
        for file in self.files:
            known = _read(file, _opened).sums
            if opened not in known:
                _write(file, {"sums": [asdict(each) for each in (*known, opened)]})


@dataclass(frozen=True, slots=True)
class SumFiles:
    """Where a client keeps what it knows of one run, in its own folder.

    Attributes:
        path: the folder of all runs.
        run: names this one.
    """

    path: Path
    run: str

    def locked(self) -> FileLock:
        """Keep all other processes from taking the same step at the same time."""
        return _lock(self._file)

    def read(self) -> SumMemory:
        """Return what the client keeps of the run.

        Raises:
            RunError: it cannot be read.
        """
        return _read(self._file, _memory)

    def write(self, memory: SumMemory) -> None:
        """Keep it, before anything is sent."""
        _write(self._file, asdict(memory))

    @property
    def _file(self) -> Path:
        return self.path / f"{self.run}.sums.json"


def _lock(file: Path) -> FileLock:
    """Return the right to change a file; a process that ends gives it back."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    place = file.with_suffix(".lock")
    return FileLock(place, mode=0o600, thread_local=False, fallback_to_soft=False)


def _read(file: Path, adopt: Any) -> Any:  # noqa: ANN401 - as the file has it
    if not file.is_file():
        return adopt({})
    try:
        found = json.loads(checked(read_bounded(file)))
        found.pop("checksum", None)
        return adopt(found)
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise RunError(
            f"{file} must hold what this client keeps of the sums that it was in, but "
            f"it cannot be read ({type(error).__name__}). Restore the file; without "
            f"it the client could be asked for two sums that tell its own."
        ) from error


def _write(file: Path, kept: Mapping[str, Any]) -> None:
    replace_whole(file, checked_json(kept), mode=0o600)
