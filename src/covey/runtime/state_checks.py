"""States checked against the ledger, which holds the hash of every state's file."""

import logging
from pathlib import Path

from covey.algorithms import ServerState
from covey.bounded_io import file_hash
from covey.checkpoints import checkpoint_paths, round_of
from covey.errors import LedgerError, RunError
from covey.ledger import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.state_io import load_state

__all__ = [
    "checked_state",
    "kept_state",
    "missing_state",
    "newest_whole_state",
    "state_problem",
]

log = logging.getLogger(__name__)


def state_problem(path: Path, ledger: Ledger) -> str:
    """Say why a state is not one that this ledger's run wrote; "": it is.

    Raises:
        LedgerError: the state is whole, and the ledger lost what it has seen.
    """
    try:
        digest = file_hash(path)
    except OSError as error:
        return f"it cannot be read ({error})"
    written_after = ledger.files.round_of_state(digest)
    if written_after is not None:
        same = written_after == round_of(path)
        return "" if same else f"it is the state after round {written_after}"
    if ledger.files.knows_state(digest):
        raise LedgerError(
            f"The ledger must hold every round that a checkpoint has seen, but the last "
            f"one that {path} has seen is not there. Events were removed or exchanged: "
            f"restore {ledger.location} from a copy."
        )
    return "its bytes are not those that were written"


def newest_whole_state(folder: Path, ledger: Ledger) -> Path | None:
    """Return the newest state that is what was written; others are passed over.

    Rounds without a state are played again and compared with the ledger, so that
    nothing is lost by passing over.

    Raises:
        RunError: there are states, and none of them is whole.
    """
    paths = checkpoint_paths(folder)
    problems: list[str] = []
    for path in reversed(paths):
        problem = state_problem(path, ledger)
        if not problem:
            return path
        problems.append(f"{path}: {problem}")
        log.warning("a damaged state is passed over: %s: %s", path, problem)
    if problems:
        raise RunError(
            f"A run resumes from a whole state, but none of the {len(paths)} in {folder} "
            f"is: {problems[0]}. Restore one from a copy, or let `covey doctor "
            f"{folder.parent} --repair` play the rounds again from the start."
        )
    return None


def checked_state(folder: RunFolder, ledger: Ledger) -> ServerState | None:
    """Return the state after the last round that left one; None: no round did.

    Raises:
        RunError: it is damaged, or it is gone and another one is the newest.
    """
    paths = checkpoint_paths(folder.checkpoints)
    missing = missing_state(folder, ledger)
    if missing is not None:
        raise RunError(
            f"The state after round {missing} must be in {folder.checkpoints}, but it is "
            f"gone. {_remedy(folder)}"
        )
    if not paths:
        return None
    if problem := state_problem(paths[-1], ledger):
        raise RunError(
            f"{paths[-1]} must be the state that the run wrote, but {problem}. "
            f"{_remedy(folder)}"
        )
    return load_state(paths[-1])[0]


def kept_state(folder: RunFolder, ledger: Ledger, round_index: int) -> ServerState:
    """Return the state after one round.

    Raises:
        RunError: it was not kept, or it is damaged.
    """
    paths = {round_of(path): path for path in checkpoint_paths(folder.checkpoints)}
    path = paths.get(round_index)
    if path is None:
        raise RunError(
            f"The state after a round must have been kept, and {folder.checkpoints} has "
            f"those after rounds {', '.join(map(str, paths)) or '(none)'}, found "
            f"{round_index}. Take one of these; checkpoints.every and checkpoints.best say "
            f"which are kept."
        )
    if problem := state_problem(path, ledger):
        raise RunError(
            f"{path} must be the state that the run wrote, but {problem}. "
            f"{_remedy(folder)}"
        )
    return load_state(path)[0]


def missing_state(folder: RunFolder, ledger: Ledger) -> int | None:
    """Return after which round the newest state was written, if it is not there.

    None while another process plays the run: it may be just about to write it.
    """
    expected = ledger.files.newest_state()
    there = {round_of(path) for path in checkpoint_paths(folder.checkpoints)}
    if expected is None or expected in there or ledger.is_being_written():
        return None
    return expected


def _remedy(folder: RunFolder) -> str:
    return (
        f"`covey doctor {folder.path}` says what else is damaged; with --repair it plays "
        f"the lost rounds again, from the last state that is whole."
    )
