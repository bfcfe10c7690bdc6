"""Raw updates on disk, for who wants to calibrate them later."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.checkpoints import load_checkpoint, save_checkpoint
from covey.types import Handle, Params

__all__ = [
    "delete_updates",
    "drop_client",
    "read_updates",
    "stored_rounds",
    "write_updates",
]

NAME = re.compile(r"round-(\d{5,})\.safetensors")


def write_updates(
    folder: Path, round_index: int, updates: Iterable[ClientUpdate]
) -> None:
    """Keep what each client sent in this round."""
    tensors = {
        f"{each.handle}/{name}": value
        for each in updates
        for name, value in each.update.items()
    }
    save_checkpoint(folder, round_index, tensors, {})


def read_updates(folder: Path, round_index: int) -> Mapping[Handle, Params]:
    """Return what each client sent in this round; empty if it was not stored."""
    if round_index not in stored_rounds(folder):
        return {}
    found: dict[Handle, dict[str, Tensor]] = {}
    tensors = load_checkpoint(folder / f"round-{round_index:05d}.safetensors").tensors
    for key, value in tensors.items():
        handle, _, name = key.partition("/")
        found.setdefault(handle, {})[name] = value
    return found


def stored_rounds(folder: Path) -> tuple[int, ...]:
    """Return the rounds whose updates are on disk, in order."""
    names = (NAME.fullmatch(path.name) for path in folder.glob("round-*"))
    return tuple(sorted(int(name[1]) for name in names if name))


def drop_client(folder: Path, handle: Handle) -> None:
    """Take one client's updates out of every round."""
    for t in stored_rounds(folder):
        kept = read_updates(folder, t)
        rest = [ClientUpdate(h, 0, u, 1.0) for h, u in kept.items() if h != handle]
        write_updates(folder, t, rest)


def delete_updates(folder: Path, first: int) -> int:
    """Delete the updates of this round and all later ones; return how many files."""
    gone = [t for t in stored_rounds(folder) if t >= first]
    for t in gone:
        (folder / f"round-{t:05d}.safetensors").unlink()
    return len(gone)
