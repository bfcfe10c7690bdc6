"""A cluster's model as a file: which one, written where, and on record before it is there."""

import hashlib
import re
import time
from pathlib import Path

from covey.base.arguments import in_range
from covey.base.components import Count
from covey.base.errors import ConfigError, RunError
from covey.base.files import delete_whole, make_folder, replace_whole
from covey.base.history import History
from covey.base.names import Params, unknown
from covey.engine.metrics import metric_named
from covey.leaving.copies import (
    Copy,
    erase_copy,
    hash_of_model,
    header_of,
    model_bytes,
    record_copy,
)
from covey.ledger.store import Ledger
from covey.runs.evaluation import FIGURES, BestRound, best_round
from covey.runs.folder import RunFolder, rounds_in
from covey.runs.states import kept_state, whole_models

MAX_RECIPIENT_LENGTH = 200
"""Characters of a recipient's name."""


_UNFINISHED = re.compile(r"cluster-\d+(-round-\d+)?\.unfinished")
"""An export whose writing was cut off."""

_STALE_SECONDS = 600.0
"""From which age on no process is writing it."""


def delete_unfinished(folder: RunFolder) -> None:
    """Delete what a kill left of exports in the run's folder."""
    if folder.exports.is_dir():
        for path in folder.exports.iterdir():
            is_ours = _UNFINISHED.fullmatch(path.name) is not None
            if is_ours and path.lstat().st_mtime < time.time() - _STALE_SECONDS:
                delete_whole(path)


def best_kept_round(folder: RunFolder, history: History, figure: str) -> BestRound:
    """Return the best of the rounds whose states are there.

    Raises:
        ConfigError: there is no such figure.
        RunError: it is not known of any of them.
    """
    metrics = {name for row in history.rounds for name in row.metrics}
    if figure not in FIGURES and metric_named(figure, metrics) is None:
        known = *FIGURES, *sorted(metrics)
        raise ConfigError(unknown("The figure of the best round", figure, known))
    stored = set(rounds_in(folder.checkpoints))
    best = best_round((row for row in history.rounds if row.round_index in stored), figure)
    if best is None:
        raise RunError(
            f"The best round by {figure} must have its state in {folder.checkpoints}, "
            f"found none known of {len(stored)}: choose another figure, or set "
            f"checkpoints.best before the run."
        )
    return best


def latest_model(folder: RunFolder, cluster: int, after: int | None = None) -> tuple[int, Params]:
    """Return a cluster's newest model, and how many rounds it has seen.

    Args:
        folder: the run's.
        cluster: its number.
        after: the model as it was after this round, if its state was kept.

    Raises:
        RunError: there is no such cluster or state, or no checkpoint yet, or it is
            damaged.
    """
    cluster = in_range("cluster", cluster, Count)
    after = None if after is None else in_range("after", after, Count)
    with Ledger.read(folder.ledger) as ledger:
        state = kept_state(folder, ledger, after)
        models = whole_models(folder.reader.read(ledger).history, folder, state.clusters)
    if not 0 <= cluster < len(models):
        raise RunError(f"cluster must be 0 to {len(models) - 1}, found {cluster}: take one.")
    return state.round_index, models[cluster]


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
        recipient: for whom; "": no one in particular.
        after: the model as it was after this round; None: the newest.

    Raises:
        RunError: there is no such model, or it cannot be written.
        ConfigError: the recipient is no line of text.
    """
    name = recipient.strip()
    if len(name) > MAX_RECIPIENT_LENGTH or not name.isprintable():
        raise ConfigError(
            f"--recipient must be one printable line of at most {MAX_RECIPIENT_LENGTH} characters, "
            f"found {name[:80]!r}: shorten it."
        )
    rounds, params = latest_model(folder, cluster, after)
    model_hash = hash_of_model(params)
    with Ledger.read(folder.ledger) as ledger:
        header = header_of(folder.reader.read(ledger).hashes[0], rounds, cluster, model_hash)
    payload = model_bytes(params, header)
    of_round = "" if after is None else f"-round-{after}"
    path = out or folder.exports / f"cluster-{cluster}{of_round}.safetensors"
    digest = hashlib.sha256(payload).hexdigest()
    about = {"recipient": name, "cluster": cluster, "round_index": rounds, "model_hash": model_hash}
    try:
        make_folder(path.parent)
        delete_unfinished(folder)
        copy = record_copy(folder, "model", path, digest, **about)
        try:
            replace_whole(path, payload)
        except OSError:
            erase_copy(folder, copy)
            raise
    except OSError as error:
        raise RunError(
            f"An export and its record in the run's folder must be writable, found "
            f"{error.strerror} for {path}: give another --out, or the right to write."
        ) from error
    return copy
