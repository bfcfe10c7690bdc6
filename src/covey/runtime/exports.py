"""A cluster's model, written for others, and put on record."""

import hashlib
from pathlib import Path

from covey.atomic_io import replace_whole
from covey.errors import RunError
from covey.ledger import Ledger
from covey.runtime.copies import (
    Copy,
    erase_copy,
    model_bytes,
    recipient_of,
    record_copy,
)
from covey.runtime.folder import RunFolder
from covey.runtime.state_checks import checked_state
from covey.types import Params

__all__ = ["export_model", "latest_model"]


def latest_model(folder: RunFolder, cluster: int) -> tuple[int, Params]:
    """Return a cluster's newest model, and how many rounds it has seen.

    Raises:
        RunError: there is no such cluster, or no checkpoint yet, or it is damaged.
    """
    with Ledger.read(folder.ledger) as ledger:
        state = checked_state(folder, ledger)
    if state is None:
        raise RunError(f"{folder.path} has no checkpoint yet. Resume the run first.")
    if not 0 <= cluster < len(state.clusters):
        raise RunError(
            f"{folder.path} has clusters 0 to {len(state.clusters) - 1}, found {cluster}."
        )
    return state.round_index, state.clusters[cluster]


def export_model(
    folder: RunFolder, cluster: int, out: Path | None = None, recipient: str = ""
) -> Copy:
    """Write a cluster's model as safetensors; the record of it is there first.

    Args:
        folder: the run's.
        cluster: its number.
        out: the file; None: one in `exports/` of the run's folder.
        recipient: for whom; "": nobody in particular.

    Raises:
        RunError: there is no such model, or it cannot be written.
        ConfigError: the recipient cannot be kept.
    """
    rounds, params = latest_model(folder, cluster)
    payload = model_bytes(params)
    path = out or folder.exports / f"cluster-{cluster}.safetensors"
    told = {
        "recipient": recipient_of(recipient),
        "cluster": cluster,
        "round_index": rounds,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = record_copy(
            folder, "model", path, hashlib.sha256(payload).hexdigest(), told
        )
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        replace_whole(path, payload)
    except OSError as error:
        erase_copy(folder, copy)
        raise _unwritable(path, error) from error
    return copy


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(
        f"An export is a file that can be written, and a record of it in the run's folder, "
        f"but {path}: {error.strerror}. Give another --out, or the right to write there."
    )
