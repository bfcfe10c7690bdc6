"""A cluster's model, written for others, and put on record."""

import hashlib
from pathlib import Path

from covey.atomic_io import replace_whole
from covey.checkpoints import checkpointed_rounds
from covey.errors import ConfigError, RunError
from covey.history import History
from covey.ledger import Ledger
from covey.runtime.copies import (
    Copy,
    erase_copy,
    model_bytes,
    recipient_of,
    record_copy,
)
from covey.runtime.early_end import FIGURES, BestRound, best_round
from covey.runtime.folder import RunFolder
from covey.runtime.state_checks import checked_state, kept_state
from covey.types import Params

__all__ = ["best_kept_round", "export_model", "latest_model"]


def best_kept_round(folder: RunFolder, history: History, figure: str) -> BestRound:
    """Return the best of the rounds whose states are there.

    Raises:
        ConfigError: there is no such figure.
        RunError: it is not known of any of them.
    """
    if figure not in FIGURES:
        raise ConfigError(
            f"Rounds are compared by one of {', '.join(FIGURES)}, found {figure!r}. Take "
            f"one of these."
        )
    kept = set(checkpointed_rounds(folder.checkpoints))
    rows = (row for row in history.rounds if row.round_index in kept)
    best = best_round(rows, figure)
    if best is None:
        raise RunError(
            f"The best round by {figure} needs one whose state is in {folder.checkpoints} "
            f"and of which it is known, found none among {len(kept)}. Choose another "
            f"figure, or set checkpoints.best before the run."
        )
    return best


def latest_model(
    folder: RunFolder, cluster: int, after: int | None = None
) -> tuple[int, Params]:
    """Return a cluster's newest model, and how many rounds it has seen.

    Args:
        folder: the run's.
        cluster: its number.
        after: the model as it was after this round, if its state was kept.

    Raises:
        RunError: there is no such cluster or state, or no checkpoint yet, or it is
            damaged.
    """
    with Ledger.read(folder.ledger) as ledger:
        state = (
            checked_state(folder, ledger)
            if after is None
            else kept_state(folder, ledger, after)
        )
    if state is None:
        raise RunError(f"{folder.path} has no checkpoint yet. Resume the run first.")
    if not 0 <= cluster < len(state.clusters):
        raise RunError(
            f"{folder.path} has clusters 0 to {len(state.clusters) - 1}, found {cluster}."
        )
    return state.round_index, state.clusters[cluster]


def export_model(
    folder: RunFolder,
    cluster: int,
    out: Path | None = None,
    recipient: str = "",
    after: int | None = None,
) -> Copy:
    """Write a cluster's model as safetensors; the record of it is there first.

    Args:
        folder: the run's.
        cluster: its number.
        out: the file; None: one in `exports/` of the run's folder.
        recipient: for whom; "": nobody in particular.
        after: the model as it was after this round; None: the newest.

    Raises:
        RunError: there is no such model, or it cannot be written.
        ConfigError: the recipient cannot be kept.
    """
    rounds, params = latest_model(folder, cluster, after)
    payload = model_bytes(params)
    of_round = "" if after is None else f"-round-{after}"
    path = out or folder.exports / f"cluster-{cluster}{of_round}.safetensors"
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
