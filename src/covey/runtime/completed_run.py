"""A completed run, opened read-only."""

from dataclasses import dataclass
from pathlib import Path

from covey.build import BuiltRun
from covey.errors import RunError
from covey.events import CohortSampled
from covey.history import History, history_of
from covey.ledger import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import check_inputs
from covey.runtime.record_files import with_changed_records
from covey.runtime.session import (
    check_data,
    check_same,
    read_events,
    read_history,
    recorded_secrets,
    with_recorded_handles,
)
from covey.runtime.state_checks import checked_state
from covey.types import Handle, Params

__all__ = ["CompletedRun", "final_models", "is_finished", "load_completed"]


@dataclass(frozen=True, slots=True, eq=False)
class CompletedRun:
    """What is left of a run.

    Attributes:
        run: with the clients that have not left, under their handles.
        participants: everybody who was ever in a cohort.
        models: the final cluster models.
    """

    run: BuiltRun
    history: History
    participants: frozenset[Handle]
    models: tuple[Params, ...]


def is_finished(path: Path) -> bool:
    """Say whether a run lies in this folder, and was played to its end."""
    folder = RunFolder(path)
    if not folder.config_path.is_file() or not Ledger.exists(folder.ledger):
        return False
    with Ledger.read(folder.ledger) as ledger:
        return read_history(ledger).finished is not None


def load_completed(run: BuiltRun, folder: RunFolder, purpose: str) -> CompletedRun:
    """Read a finished run.

    Args:
        run: as its settings make it, those who left included.
        folder: the run's.
        purpose: who asks, as an error's sentence begins: "An audit".

    Raises:
        RunError: the run is not finished, or its settings or data are others now.
    """
    with Ledger.read(folder.ledger) as ledger:
        entries = read_events(ledger)
        secrets = recorded_secrets(run, folder, ledger)
        run = with_changed_records(run, folder, ledger)
        history, whole = history_of(entries), run
        run = with_recorded_handles(run, ledger, secrets)
        check_same(run, history, folder)
        check_data(whole, run, history, ledger)
        check_inputs(run, history, ledger)
    participants = frozenset(
        handle
        for _, events in entries
        for event in events
        if isinstance(event, CohortSampled)
        for handle in event.handles
    )
    return CompletedRun(
        run, history, participants, final_models(folder, history, purpose)
    )


def final_models(
    folder: RunFolder, history: History, purpose: str
) -> tuple[Params, ...]:
    """Return the cluster models that a run ended with.

    Raises:
        RunError: it has not ended, and `purpose` needs it to; or its state is damaged.
    """
    with Ledger.read(folder.ledger) as ledger:
        state = checked_state(folder, ledger) if history.finished else None
    if state is None:
        raise RunError(
            f"{purpose} needs a finished run, and {folder.path} is not. Carry it on with "
            f"`covey resume {folder.path}`."
        )
    return state.clusters
