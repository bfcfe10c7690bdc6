"""What a client keeps of secure sums: the round that it is in, and the sums before."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from covey.atomic_io import replace_whole
from covey.bounded_io import read_bounded
from covey.checked_json import checked, checked_json
from covey.errors import RunError
from covey.secure_sums import ClientRound

__all__ = ["EarlierSums", "SumFiles", "SumMemory"]

Sums = Mapping[str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True, slots=True)
class SumMemory:
    """What keeps a client from being asked twice in a run.

    Attributes:
        round: the latest one, with its secrets; "": it is over, or none has begun. A
            client that has opened a sum has no more secrets of it.
        what: names the numbers that it sent in it.
        digest: of the numbers that are to be taken off again; "": there are none.
        opened: whether they are in a sum.
    """

    round: str = ""
    what: str = ""
    digest: str = ""
    opened: bool = False

    def in_round(self, after: ClientRound) -> "SumMemory":
        """Return what is kept before the next message is sent."""
        text = "" if after.step == "over" else after.to_bytes().decode()
        return replace(self, round=text)


@dataclass(frozen=True, slots=True)
class EarlierSums:
    """Of whom every sum was that a client opened, in any run.

    Attributes:
        sums: by what was added up: two sums of the same numbers tell what one does not.
    """

    sums: Sums = field(default_factory=dict[str, tuple[tuple[str, ...], ...]])

    def among(self, what: str, left: Iterable[str]) -> tuple[frozenset[str], ...]:
        """Return the earlier sums of these numbers, without clients that have left."""
        gone = frozenset(left)
        return tuple(frozenset(each) - gone for each in self.sums.get(what, ()))

    def opening(self, what: str, clients: tuple[str, ...]) -> "EarlierSums":
        """Return what is kept before a sum is opened."""
        known = dict.fromkeys((*self.sums.get(what, ()), clients))
        return EarlierSums({**self.sums, what: tuple(known)})


_memory = TypeAdapter(SumMemory).validate_python
_earlier = TypeAdapter(EarlierSums).validate_python


@dataclass(frozen=True, slots=True)
class SumFiles:
    """Where it is kept, in the client's own folder.

    Attributes:
        path: the folder of all runs.
        run: names this one.
    """

    path: Path
    run: str

    def read(self) -> SumMemory:
        """Return what the client keeps of the run.

        Raises:
            RunError: it cannot be read.
        """
        return _memory(self._read(f"{self.run}.sums.json"))

    def read_earlier(self) -> EarlierSums:
        """Return what it keeps of all runs.

        Raises:
            RunError: it cannot be read.
        """
        return _earlier(self._read("sums.json"))

    def write(self, memory: SumMemory) -> None:
        """Keep it, before anything is sent."""
        self._write(f"{self.run}.sums.json", asdict(memory))

    def write_earlier(self, earlier: EarlierSums) -> None:
        """Keep it, before anything is sent."""
        self._write("sums.json", asdict(earlier))

    def _read(self, name: str) -> dict[str, Any]:
        file = self.path / name
        if not file.is_file():
            return {}
        try:
            found = json.loads(checked(read_bounded(file)))
            found.pop("checksum", None)
            (_memory if self.run in name else _earlier)(found)
        except (OSError, ValueError, AttributeError, ValidationError) as error:
            raise RunError(
                f"{file} must hold what this client keeps of the sums that it was in, but "
                f"it cannot be read ({type(error).__name__}). Restore the file; without "
                f"it the client could be asked for two sums that tell its own."
            ) from error
        return found

    def _write(self, name: str, kept: Mapping[str, Any]) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        replace_whole(self.path / name, checked_json(kept), mode=0o600)
