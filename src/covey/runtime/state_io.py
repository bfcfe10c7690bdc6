"""A server's state as a checkpoint, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from covey.algorithms import KnownRisk, SelectionHistory, ServerState
from covey.checkpoints import load_checkpoint, save_checkpoint
from covey.events import RiskMeasured
from covey.membership import ShadowFederation
from covey.params import prefixed, unprefixed

__all__ = ["load_state", "save_state"]


def save_state(folder: Path, state: ServerState, ledger_head: str) -> None:
    """Write the state after the last played round, and the ledger's head at that time."""
    shadows = [each for kept in state.shadows for each in kept]
    tensors = prefixed(state.clusters, "cluster") | prefixed(
        [each.params for each in shadows], "shadow"
    )
    rest = {
        "assignment": dict(state.assignment),
        "figures": [None if f is None else asdict(f) for f in state.risk_estimates],
        "shadows": [
            {
                "profile": each.profile,
                "place": each.place,
                "rounds": each.rounds,
            }
            for each in shadows
        ],
        "pooling": list(state.pooling),
        "releases": state.releases,
        "waiting": list(state.waiting),
        "closed": sorted(state.closed),
        "clips": list(state.clips),
        "stalled": sorted(state.stalled),
        "memory": asdict(state.selection_history),
        "ledger_head": ledger_head,
    }
    save_checkpoint(folder, state.round_index - 1, tensors, rest)


def load_state(path: Path) -> tuple[ServerState, str]:
    """Read a state, and the ledger's head when it was written."""
    checkpoint = load_checkpoint(path)
    clusters = unprefixed(checkpoint.tensors, "cluster")
    shadows: list[list[ShadowFederation]] = [[] for _ in clusters]
    models = unprefixed(checkpoint.tensors, "shadow")
    for kept, params in zip(checkpoint.state["shadows"], models, strict=True):
        profile = tuple((group, size) for group, size in kept["profile"])
        shadows[kept["place"][0]].append(
            ShadowFederation(profile, tuple(kept["place"]), kept["rounds"], params)
        )
    figures = checkpoint.state["figures"]
    state = ServerState(
        round_index=checkpoint.round_index + 1,
        clusters=clusters,
        assignment=checkpoint.state["assignment"],
        risk_estimates=tuple(None if f is None else RiskMeasured(**f) for f in figures),
        shadows=tuple(tuple(kept) for kept in shadows),
        pooling=tuple(checkpoint.state["pooling"]),
        selection_history=_memory(checkpoint.state["memory"]),
        releases=checkpoint.state["releases"],
        waiting=tuple(checkpoint.state["waiting"]),
        closed=frozenset(checkpoint.state["closed"]),
        clips=tuple(checkpoint.state["clips"]),
        stalled=frozenset(checkpoint.state.get("stalled", ())),
    )
    return state, checkpoint.state["ledger_head"]


def _memory(kept: Mapping[str, Any]) -> SelectionHistory:
    return SelectionHistory(
        moved=kept["moved"],
        losses={handle: tuple(row) for handle, row in kept["losses"].items()},
        prices=tuple(kept["prices"]),
        risks={
            handle: tuple(None if k is None else KnownRisk(*k) for k in row)
            for handle, row in kept["risks"].items()
        },
    )
