"""Whether a round can change nothing, so that nobody needs to be asked."""

from covey.algorithms.base import ServerState
from covey.algorithms.clients import Clients
from covey.algorithms.cluster_selection import Prices
from covey.components.state import ComponentState
from covey.events import ClientsAssigned
from covey.types import Handle

__all__ = ["Settled", "is_settled", "settled_after"]


class Settled(ComponentState):
    """Nobody moved since heads were last solved from other sums.

    Attributes:
        asked: who chose among the heads as they are, and stayed.
        risks: what was known of the clusters then; empty where somebody moved.
    """

    key = "settled"
    asked: frozenset[Handle] = frozenset()
    risks: tuple[float | None, ...] = ()


def settled_after(state: ServerState, chosen: ClientsAssigned) -> Settled:
    """Return who stayed where it was in this round too, and what it knew then."""
    before, known, risks = state.assignment, state.kept(Settled), _risks(state)
    if any(before.get(handle) != j for handle, j in chosen.clusters.items()):
        return Settled()
    earlier = known.asked if known.risks == risks else frozenset[Handle]()
    return Settled(asked=earlier | chosen.clusters.keys(), risks=risks)


def is_settled(state: ServerState, clients: Clients) -> bool:
    """Say whether a choice would be the last one again: then nobody is asked."""
    known = state.kept(Settled)
    asked = all(client.handle in known.asked for client in clients.cohort)
    return asked and not state.kept(Prices).prices and known.risks == _risks(state)


def _risks(state: ServerState) -> tuple[float | None, ...]:
    return tuple(each and each.risk for each in state.risk_estimates())
