"""Checkpoints: a run's whole state after a round, one safetensors file each.

A file appears under its name only when every byte of it is on the disk, so a checkpoint
is whole or it is not there, whenever the process or the machine dies.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from safetensors import SafetensorError, safe_open
from torch import Tensor

from covey.atomic_io import delete, flush_folder, make_folder, move, replace_whole
from covey.bounded_io import check_regular
from covey.errors import RunError
from covey.tensor_bytes import safetensors_pieces
from covey.version import another_format

__all__ = [
    "Checkpoint",
    "Keep",
    "checkpoint_of",
    "checkpoint_paths",
    "checkpointed_rounds",
    "delete_before",
    "delete_from",
    "load_checkpoint",
    "newest_checkpoint",
    "round_of",
    "save_checkpoint",
    "set_aside_from",
    "thin",
]

Keep = Literal["all", "thin"]
"""Which checkpoints stay: every one, or round 0, powers of two and the last ten."""

NAME = re.compile(r"round-(\d{5,})\.safetensors")
LAST_KEPT = 10
FORMAT = 1
TORN = (
    *(SafetensorError, OSError, ValueError, KeyError),
    *(TypeError, AttributeError, RecursionError),
)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A run's state after the round `round_index`.

    Attributes:
        state: everything that is not a tensor, as JSON has it.
    """

    round_index: int
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]


def save_checkpoint(
    folder: Path,
    round_index: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    announce: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write a checkpoint that outlives a power cut from the moment this returns.

    Equal contents give equal bytes. Tensors may share memory and lie anywhere; they
    come back apart, on the CPU. `announce` is called with the SHA-256 of the file before
    it is written.
    """
    header = {"format": FORMAT, "round": round_index, "state": state}
    # one key only: safetensors writes several in an order that changes
    metadata = {"covey": _dumps(header)}
    payload = b"".join(safetensors_pieces(tensors, metadata))
    make_folder(folder)
    path = _path(folder, round_index)
    announce(hashlib.sha256(payload).hexdigest())
    replace_whole(path, payload, mode=0o600)
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        RunError: the file is missing, torn or something else.
    """
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            round_index, state = _header(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except TORN as error:
        raise RunError(
            f"{path} must be a whole checkpoint, but: {error}. "
            f"Resume from an older one, or start the run again."
        ) from error
    return Checkpoint(round_index, tensors, state)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; torn files are passed over.

    Raises:
        RunError: there are checkpoints, and none of them is whole.
    """
    paths = checkpoint_paths(folder)
    for path in reversed(paths):
        if _is_whole(path):
            return path
    if paths:
        raise RunError(
            f"A run resumes from a whole checkpoint, but none of the {len(paths)} in "
            f"{folder} is. Restore one from a copy, or start the run again."
        )
    return None


def checkpoint_of(folder: Path, round_index: int) -> Path | None:
    """Return the whole checkpoint of this very round, if it is there."""
    path = _path(folder, round_index)
    return path if _is_whole(path) else None


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return the files that are named like checkpoints, oldest round first."""
    paths = folder.glob("round-*.safetensors")
    return sorted(filter(_is_named, paths), key=round_of)


def round_of(path: Path) -> int:
    """Return the round of a file that is named like a checkpoint."""
    return int(path.stem.removeprefix("round-"))


def checkpointed_rounds(folder: Path) -> tuple[int, ...]:
    """Return the rounds whose states are there, in order."""
    return tuple(round_of(path) for path in checkpoint_paths(folder))


def set_aside_from(folder: Path, first: int, aside: Path) -> None:
    """Move the states after round `first` and all later ones to another folder.

    If it is killed half-way, it can be called again.
    """
    gone = [path for path in checkpoint_paths(folder) if round_of(path) >= first]
    if not gone:
        return
    make_folder(aside)
    for path in gone:
        move(path, aside / path.name)
    flush_folder(aside)
    flush_folder(folder)


def delete_from(folder: Path, first: int) -> None:
    """Delete the states after round `first` and all later ones, torn ones too."""
    for path in checkpoint_paths(folder):
        if round_of(path) >= first:
            delete(path)
    for unfinished in folder.glob("round-*.unfinished"):
        delete(unfinished)
    if folder.is_dir():
        flush_folder(folder)


def delete_before(folder: Path, first: int) -> None:
    """Delete the states after all rounds before `first`."""
    for path in checkpoint_paths(folder):
        if round_of(path) < first:
            delete(path)
    if folder.is_dir():
        flush_folder(folder)


def thin(folder: Path, keep: Keep, spared: int | None = None) -> None:
    """Delete the checkpoints that the policy does not keep, but for one round's."""
    if keep == "all":
        return
    for path in checkpoint_paths(folder)[:-LAST_KEPT]:
        index = round_of(path)
        if index & (index - 1) != 0 and index != spared:  # neither 0 nor a power of two
            delete(path)


def _dumps(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _header(metadata: Mapping[str, str] | None) -> tuple[int, dict[str, Any]]:
    if not metadata or "covey" not in metadata:
        raise ValueError("covey did not write it")
    header = json.loads(metadata["covey"])
    if (found := header.get("format")) != FORMAT:
        raise ValueError(another_format("it", repr(found), FORMAT))
    round_index, state = header["round"], header["state"]
    if not isinstance(round_index, int) or not isinstance(state, dict):
        raise TypeError("its round must be a number and its state a table")
    return round_index, cast("dict[str, Any]", state)


def _is_whole(path: Path) -> bool:
    """Return whether the file is a checkpoint with as many bytes as it announces."""
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            _header(file.metadata())
    except TORN:
        return False
    return True


def _path(folder: Path, round_index: int) -> Path:
    return folder / f"round-{round_index:05d}.safetensors"


def _is_named(path: Path) -> bool:
    return NAME.fullmatch(path.name) is not None
