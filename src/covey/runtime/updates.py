"""Raw updates on disk, for who wants to calibrate them later."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.atomic_io import delete, flush_folder
from covey.bounded_io import file_hash
from covey.checkpoints import load_checkpoint, save_checkpoint
from covey.errors import RunError
from covey.ledger.file_hashes import FileHashes
from covey.types import Handle, Params

__all__ = [
    "delete_updates",
    "drop_client",
    "read_updates",
    "stored_rounds",
    "updates_problem",
    "write_updates",
]

NAME = re.compile(r"round-(\d{5,})\.safetensors")


def write_updates(
    folder: Path, round_index: int, updates: Iterable[ClientUpdate], noted: FileHashes
) -> None:
    """Keep what each client sent in this round, and note the file's hash."""
    tensors = {
        f"{each.handle}/{name}": value
        for each in updates
        for name, value in each.update.items()
    }

    def announce(digest: str) -> None:
        noted.note(_noted_name(round_index), digest)

    path = save_checkpoint(folder, round_index, tensors, {}, announce)
    noted.settle(_noted_name(round_index), file_hash(path))


def read_updates(
    folder: Path, round_index: int, noted: FileHashes
) -> Mapping[Handle, Params]:
    """Return what each client sent in this round; empty if it was not stored.

    Raises:
        RunError: the file is not what was written.
    """
    if round_index not in stored_rounds(folder):
        return {}
    if problem := updates_problem(folder, round_index, noted):
        raise RunError(
            f"The updates stored of round {round_index} must be those that clients sent, "
            f"but {problem}. Restore the file from a copy, or ask for the answer "
            f"'retrain', which needs none; `covey doctor` says what else is damaged."
        )
    found: dict[Handle, dict[str, Tensor]] = {}
    for key, value in load_checkpoint(_path(folder, round_index)).tensors.items():
        handle, _, name = key.partition("/")
        found.setdefault(handle, {})[name] = value
    return found


def updates_problem(folder: Path, round_index: int, noted: FileHashes) -> str:
    """Say why a file of stored updates is not what was written; "": it is."""
    path = _path(folder, round_index)
    changed = file_hash(path) not in noted.of(_noted_name(round_index))
    return f"{path} was changed after it was written" if changed else ""


def stored_rounds(folder: Path) -> tuple[int, ...]:
    """Return the rounds whose updates are on disk, in order."""
    names = (NAME.fullmatch(path.name) for path in folder.glob("round-*"))
    return tuple(sorted(int(name[1]) for name in names if name))


def drop_client(folder: Path, handle: Handle, noted: FileHashes) -> None:
    """Take one client's updates out of every round."""
    for t in stored_rounds(folder):
        kept = read_updates(folder, t, noted)
        rest = [ClientUpdate(h, 0, u, 1.0) for h, u in kept.items() if h != handle]
        write_updates(folder, t, rest, noted)


def delete_updates(folder: Path, first: int) -> int:
    """Delete the updates of this round and all later ones; return how many files."""
    gone = [t for t in stored_rounds(folder) if t >= first]
    for t in gone:
        delete(_path(folder, t))
    if gone:
        flush_folder(folder)
    return len(gone)


def _path(folder: Path, round_index: int) -> Path:
    return folder / f"round-{round_index:05d}.safetensors"


def _noted_name(round_index: int) -> str:
    return f"updates:{round_index}"
