"""What a run reads beside its clients' data: hashed at the start, and compared since.

The clients' own examples are in `RunStarted.data_hash`, the source of a user's components
in `ComponentsUsed`. Here is the rest: what clients accept, and the examples of nobody.
"""

import hashlib
import json
from collections.abc import Mapping

from covey.build import BuiltRun
from covey.errors import RunError
from covey.events import RunStarted
from covey.history import History
from covey.ledger import Ledger

__all__ = ["check_inputs", "input_hashes", "note_inputs"]

PREFERENCES = "input:preferences"


def check_inputs(run: BuiltRun, history: History, ledger: Ledger) -> Mapping[str, str]:
    """Refuse other inputs than those that the run last knew.

    Whoever left while no data were at hand left no hash of what the others accept:
    their thresholds are then compared with those that began the run.

    Args:
        run: with the clients that have not left, under their handles.
        history: the run's.
        ledger: the same.

    Returns:
        Their hashes.

    Raises:
        RunError: naming what changed.
    """
    began = history.started
    unhashed = bool(history.left) and history.left[-1].data_hash is None
    found = input_hashes(run)
    for name, digest in found.items():
        if began is None or digest in ledger.files.of(name):
            continue
        if unhashed and name == PREFERENCES and _as_recorded(run, began):
            continue
        raise RunError(
            f"{_described(run, name)} must be what began the run in {ledger.location}, "
            f"but it was changed since. Put it back, or start a new run."
        )

    return found


def note_inputs(found: Mapping[str, str], ledger: Ledger) -> None:
    """Note the hashes of what the run reads, with the clients that it has now."""
    if found:
        ledger.files.note_all(found)


def input_hashes(run: BuiltRun) -> Mapping[str, str]:
    """Return a hash of every input that is at hand."""
    if run.client_backend is not None or run.data_hash is None:
        return {}
    accepted = [
        (c.handle, c.preference.risk_threshold, c.preference.risk_weight)
        for c in run.population.clients
    ]
    nobodys = hashlib.sha256()
    for examples in (*run.population.non_members, *run.population.test):
        nobodys.update(examples.inputs.numpy().tobytes())
        nobodys.update(examples.labels.numpy().tobytes())
    return {
        PREFERENCES: hashlib.sha256(json.dumps(accepted).encode()).hexdigest(),
        "input:others": nobodys.hexdigest(),
    }


def _as_recorded(run: BuiltRun, began: RunStarted) -> bool:
    """Compare thresholds with those of the first event, all that is known then."""
    told = began.risk_thresholds
    return all(
        told.get(c.handle, c.preference.risk_threshold) == c.preference.risk_threshold
        for c in run.population.clients
    )


def _described(run: BuiltRun, name: str) -> str:
    path = run.config.population.preferences
    if name == PREFERENCES:
        return (
            f"The file {path} of population.preferences"
            if path
            else "What clients accept"
        )
    return "The data of which no client has any (the non-members)"
