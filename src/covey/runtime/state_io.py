"""A server's state as a checkpoint, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.algorithms import ServerState
from covey.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from covey.components import States, decoded, encoded
from covey.errors import RunError
from covey.params import prefixed, unprefixed

__all__ = ["load_state", "save_state"]


def save_state(folder: Path, state: ServerState, ledger_head: str) -> None:
    """Write the state after the last played round, and the ledger's head at that time."""
    states, tensors = encoded(state.states)
    rest = {
        "assignment": dict(state.assignment),
        "states": states,
        "ledger_head": ledger_head,
    }
    models = prefixed(state.clusters, "cluster")
    save_checkpoint(folder, state.round_index - 1, models | tensors, rest)


def load_state(path: Path) -> tuple[ServerState, str]:
    """Read a state, and the ledger's head when it was written.

    Raises:
        RunError: the file is torn, or its models come in releases.
    """
    checkpoint = load_checkpoint(path)
    state = ServerState(
        round_index=checkpoint.round_index + 1,
        clusters=unprefixed(checkpoint.tensors, "cluster"),
        assignment=checkpoint.state["assignment"],
        states=_states(path, checkpoint),
    )
    return state, checkpoint.state["ledger_head"]


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
    shadows: list[list[dict[str, Any]]] = [[] for _ in state["figures"]]
    for kept, params in zip(
        state["shadows"], unprefixed(tensors, "shadow"), strict=True
    ):
        shadows[kept["place"][0]].append({**kept, "params": params})
    return {
        "risk-estimates": {"estimates": state["figures"], "shadows": shadows},
        "own-risks": {"risks": memory["risks"]},
        "last-moves": {"rounds": memory["moved"]},
        "smoothed-losses": {"losses": memory["losses"]},
        "prices": {"prices": memory["prices"]},
        "pooling": {"shares": state["pooling"]},
        "waiting": {"rounds": state["waiting"], "closed": state["closed"]},
        "clips": {"norms": state["clips"]},
        "stalled": {"clusters": state.get("stalled", [])},
    }
