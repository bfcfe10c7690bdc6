"""What a client's presence influenced, beyond the models that it trained."""

from collections.abc import Iterable, Iterator

from covey.events import ClientsAssigned, Event, PricesSet, RiskMeasured, RoundMeasured
from covey.types import Handle
from covey.unlearning.proof_text import Influence

__all__ = ["influences_on"]


def influences_on(
    events: Iterable[tuple[int | None, Event]], handle: Handle
) -> Iterator[Influence]:
    """Yield the sizes, risks and prices of the clusters that it was in, and its moves."""
    state: int | None = None
    for t, event in events:
        if t is None:
            continue
        if isinstance(event, ClientsAssigned):
            now = event.clusters.get(handle, state)
            if state is not None and now != state:
                yield Influence(t, "cluster left", state)
            state = now
        elif state is not None:
            yield from _published(t, event, state)


def _published(t: int, event: Event, state: int) -> Iterator[Influence]:
    match event:
        case RiskMeasured() if event.cluster == state:
            yield Influence(t, "risk", state, event.risk)
        case PricesSet():
            yield Influence(t, "price", state, event.prices[state])
        case RoundMeasured():
            yield Influence(t, "cluster size", state, event.clients[state])
        case _:
            return
