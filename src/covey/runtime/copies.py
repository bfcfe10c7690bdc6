"""What was written out of a run, for its owner or for others: every copy is on record.

The record stands in the run's folder, one file per copy, beside the ledger's chain and
not in it: it holds paths, times and names of recipients, and these can be erased.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from pydantic import TypeAdapter

from covey.atomic_io import delete_whole, make_folder, replace_whole
from covey.bounded_io import file_hash, read_bounded
from covey.checked_json import checked, checked_json
from covey.errors import ConfigError, RunError
from covey.runtime.folder import RunFolder
from covey.types import Handle, Params

__all__ = [
    "Copy",
    "copies_of",
    "erase_copy",
    "hash_of",
    "keep_copy",
    "model_bytes",
    "moved_up",
    "recipient_of",
    "record_copy",
    "timestamp",
]

CopyKind = Literal["model", "report", "comparison", "explanation"]

MAX_RECIPIENT_LENGTH = 200
"""Characters of a recipient's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One file that was written, and what was written beside it.

    Attributes:
        id: names the record; as text it is larger than those of all earlier records.
        path: inside the run's folder a relative path, elsewhere an absolute one.
        sha256: of the file as it was written; "": writing it did not end.
        written: when, ISO 8601.
        recipient: for whom, as the command was told; "": nobody is named.
        cluster: whose model it is.
        round_index: how many rounds the model had seen; None: not known.
        subject: the one client that it is about; "": the whole run.
        beside: what was written with it into the same folder, as glob patterns.
        deleted: when covey deleted it, or wrote another file in its place, ISO 8601; "":
            it did not.
    """

    id: str
    what: CopyKind
    path: str
    sha256: str
    written: str
    recipient: str = ""
    cluster: int | None = None
    round_index: int | None = None
    subject: Handle = ""
    beside: tuple[str, ...] = ()
    deleted: str = ""

    @property
    def is_inside(self) -> bool:
        """Whether it was written into the run's folder."""
        return not Path(self.path).is_absolute()

    def location(self, folder: RunFolder) -> Path:
        """Return where it was written."""
        return folder.path / self.path


_reader = TypeAdapter(Copy).validate_json


def copies_of(folder: RunFolder) -> tuple[Copy, ...]:
    """Return the copies on record, in the order in which they were written.

    Raises:
        RunError: a record cannot be read.
    """
    found: list[Copy] = []
    for path in sorted(folder.copies.glob("*.json")):
        try:
            found.append(_reader(checked(read_bounded(path))))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path} must be the record of a copy, as covey wrote it, but it cannot be "
                f"read: {type(error).__name__}. Restore it, or delete it and look yourself "
                f"for the copy that it spoke of."
            ) from error
    return tuple(found)


def record_copy(
    folder: RunFolder,
    kind: CopyKind,
    path: Path,
    sha256: str,
    more: Mapping[str, Any] | None = None,
) -> Copy:
    """Record that something is written to a path; to be called before it is.

    What was written there before is no longer there. Its record goes, unless it names
    another recipient, or other bytes: that recipient still has what it was given.

    Args:
        folder: of the run that the copy shows.
        kind: kind of copy.
        path: the file.
        sha256: of its bytes.
        more: further attributes of the copy.

    Raises:
        RunError: the record cannot be read or written.
    """
    known = copies_of(folder)
    copy = Copy(
        id=_next_id(known),
        what=kind,
        path=_recorded_path(folder, path),
        sha256=sha256,
        written=timestamp(),
        **(more or {}),
    )
    keep_copy(folder, copy)
    for each in (each for each in known if each.path == copy.path):
        again = (each.recipient, each.sha256) == (copy.recipient, copy.sha256)
        if again or not each.recipient:
            erase_copy(folder, each)
        elif not each.deleted:
            keep_copy(folder, replace(each, deleted=copy.written))
    return copy


def _next_id(known: Sequence[Copy]) -> str:
    """Return an id behind all of these, whatever a clock says; the rest is chance.

    Two processes that write at once get two ids, in any order.
    """
    last = known[-1].id.partition("-")[0] if known else "0"
    return f"{int(last) + 1:08d}-{secrets.token_hex(4)}"


def keep_copy(folder: RunFolder, copy: Copy) -> None:
    """Write a record, in the place of what it said before.

    Raises:
        RunError: it cannot be written.
    """
    record = checked_json(asdict(copy))
    try:
        make_folder(folder.copies)
        replace_whole(folder.copies / f"{copy.id}.json", record, mode=0o600)
    except OSError as error:
        raise RunError(
            f"What is written out of a run is put on record in {folder.copies}, but that "
            f"cannot be written: {error.strerror}. Get the right to write there."
        ) from error


def erase_copy(folder: RunFolder, copy: Copy) -> None:
    """Delete a record, and not what it speaks of."""
    delete_whole(folder.copies / f"{copy.id}.json")


def recipient_of(text: str) -> str:
    """Return a recipient's name as it is kept.

    Raises:
        ConfigError: it is no line of text.
    """
    name = text.strip()
    if len(name) > MAX_RECIPIENT_LENGTH or not name.isprintable():
        raise ConfigError(
            f"--recipient takes one line of at most {MAX_RECIPIENT_LENGTH} characters, "
            f"found {len(name)} characters, or some that cannot be printed. Shorten it."
        )
    return name


def model_bytes(params: Params) -> bytes:
    """Return a model as it is exported: safetensors of its state dict."""
    tensors = {name: each.detach().cpu().clone() for name, each in params.items()}
    return safetensors.torch.save(tensors)


def hash_of(path: Path) -> str | None:
    """Return SHA-256 of a file's bytes, as hex; None where it is not there.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():
        return None
    return file_hash(path)


def timestamp() -> str:
    """Return the time, as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def moved_up(copy: Copy, inner: str) -> Copy:
    """Return a copy of a run inside a run's folder as one of the outer run's."""
    path = f"{inner}/{copy.path}" if copy.is_inside else copy.path
    return replace(copy, path=path, round_index=None)


def _recorded_path(folder: RunFolder, path: Path) -> str:
    whole, home = path.resolve(), folder.path.resolve()
    return (
        whole.relative_to(home).as_posix() if whole.is_relative_to(home) else str(whole)
    )
