"""What else of a run came of one client's presence, beyond the models that it trained."""

from collections.abc import Iterable, Iterator

from covey.events import ClientsAssigned, Event, PricesSet, RiskMeasured, RoundMeasured
from covey.types import Handle
from covey.unlearning.proof_text import Touch

__all__ = ["touched_by"]


def touched_by(
    story: Iterable[tuple[int | None, Event]], handle: Handle
) -> Iterator[Touch]:
    """Yield the sizes, risks and prices of the clusters that it was in, and its moves."""
    here: int | None = None
    for t, event in story:
        if t is None:
            continue
        if isinstance(event, ClientsAssigned):
            now = event.clusters.get(handle, here)
            if here is not None and now != here:
                yield Touch(t, "cluster left", here)
            here = now
        elif here is not None:
            yield from _published(t, event, here)


def _published(t: int, event: Event, here: int) -> Iterator[Touch]:
    match event:
        case RiskMeasured() if event.cluster == here:
            yield Touch(t, "risk", here, event.risk)
        case PricesSet():
            yield Touch(t, "price", here, event.prices[here])
        case RoundMeasured():
            yield Touch(t, "cluster size", here, event.clients[here])
        case _:
            return
