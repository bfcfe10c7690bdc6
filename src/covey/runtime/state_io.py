"""A server's state as a checkpoint, and back."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.algorithms import ServerState
from covey.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from covey.components import States, decoded, encoded
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
        RunError: the file is torn, or its models come in releases.
    """
    checkpoint = load_checkpoint(path)
    try:
        state = ServerState(
            round_index=checkpoint.round_index + 1,
            clusters=_models(checkpoint),
            assignment=checkpoint.state["assignment"],
            states=_states(path, checkpoint),
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
    names = checkpoint.state.get("parameters", list(found[0]))
    return tuple({name: model[name] for name in names} for model in found)


def _states(path: Path, checkpoint: Checkpoint) -> States:
    if "states" in checkpoint.state:
        return decoded(checkpoint.state["states"], checkpoint.tensors)
    if checkpoint.state["releases"] > 1:
        raise RunError(
            f"{path} is of a run in which every cluster's model came in releases "
            f"(method.selection = 'menu'), which this version of covey cannot play. Its "
            f"report and proofs can still be read; start a new run."
        )
    return decoded(_before_components(checkpoint.state, checkpoint.tensors), {})


def _before_components(
    state: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return what a checkpoint of covey 0.1 holds, as components keep it now."""
    memory = state["memory"]
    shadows: dict[int, list[dict[str, Any]]] = {}
    for kept, params in zip(
        state["shadows"], unprefixed(tensors, "shadow"), strict=True
    ):
        federations = shadows.setdefault(kept["place"][0], [])
        federations.append({**kept, "params": params})
    return {
        "risk-estimates": {"estimates": [_estimate(f) for f in state["figures"]]},
        "shadow-federations": {"clusters": shadows},
        "own-risks": {
            "risks": {
                handle: [_own_estimate(each) for each in row]
                for handle, row in memory["risks"].items()
            }
        },
        "last-moves": {"rounds": memory["moved"]},
        "smoothed-losses": {"losses": memory["losses"]},
        "prices": {"prices": memory["prices"]},
        "pooling": {"shares": state["pooling"]},
        "waiting": {"rounds": state["waiting"], "closed": state["closed"]},
        "clips": {"norms": state["clips"]},
        "stalled": {"clusters": state.get("stalled", [])},
    }


def _estimate(measured: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an estimate that was kept as the event of its measurement."""
    if measured is None:
        return None
    return {key: value for key, value in measured.items() if key != "cluster"}


def _own_estimate(known: Sequence[Any] | None) -> dict[str, Any] | None:
    """Return a client's own estimate, which was kept as a row of values."""
    names = ("risk", "standard_error", "round_index", "inside")
    return None if known is None else dict(zip(names, known, strict=True))
