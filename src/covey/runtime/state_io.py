"""A server's state as a checkpoint, and back."""

from collections.abc import Callable
from pathlib import Path

from covey.algorithms import ServerState
from covey.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from covey.components import decoded, encoded
from covey.errors import RunError
from covey.params import named, unprefixed
from covey.types import Params

__all__ = ["load_state", "save_state"]

DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a header raises whose JSON is whole, and says something else."""


def save_state(
    folder: Path,
    state: ServerState,
    ledger_head: str,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the state after the last played round, and the ledger's head at that time.

    `announce` is called with the SHA-256 of the file before it is written.
    """
    states, tensors = encoded(state.states)
    rest = {
        "parameters": list(state.clusters[0]),
        "assignment": dict(state.assignment),
        "states": states,
        "ledger_head": ledger_head,
    }
    models = named(state.clusters, "cluster")
    t = state.round_index - 1
    save_checkpoint(folder, t, models | tensors, rest, announce)


def load_state(path: Path) -> tuple[ServerState, str]:
    """Read a state, and the ledger's head when it was written.

    Raises:
        RunError: the file is torn, or of another format.
    """
    checkpoint = load_checkpoint(path)
    try:
        state = ServerState(
            round_index=checkpoint.round_index + 1,
            clusters=_models(checkpoint),
            assignment=checkpoint.state["assignment"],
            states=decoded(checkpoint.state["states"], checkpoint.tensors),
        )
        return state, checkpoint.state["ledger_head"]
    except DAMAGE as error:
        raise RunError(
            f"{path} must be a state that covey wrote, but it cannot be read as one "
            f"({type(error).__name__}). Run `covey doctor` on the run's folder."
        ) from error


def _models(checkpoint: Checkpoint) -> tuple[Params, ...]:
    """Return the models, their parameters in the order in which they were written."""
    found = unprefixed(checkpoint.tensors, "cluster")
    names = checkpoint.state["parameters"]
    return tuple({name: model[name] for name in names} for model in found)
