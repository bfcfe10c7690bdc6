"""How clients' sums are counted, and taken off again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from jaxtyping import Int64
from numpy import ndarray

from covey.algorithms.federation import Federation
from covey.algorithms.state import Cohort, ServerState
from covey.algorithms.sum_cohorts import (
    SumCohorts,
    counted_together,
    numbers_of,
    sums_of_numbers,
    uncounted,
)
from covey.base.errors import ModelError, RunError
from covey.base.events import ClientsWaited
from covey.base.names import Handle
from covey.data.examples import Client
from covey.engine.fixed_features import width_of
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums
from covey.secure_sums.server import secure_sum

RING = 2**63
"""Whole numbers that stay below it come out of the ring as they went in."""


def masked_sums(
    clients: Mapping[Handle, Callable[[], Sums]], shape: tuple[int, int], minimum: int
) -> Sums:
    """Return the sums over these clients, each of which sends its own under masks.

    Args:
        clients: what makes each one's sums.
        shape: d, and how many classes there are.
        minimum: the fewest clients that a sum may be over.

    Raises:
        RoundGivenUpError: they are fewer.
        ModelError: the sums are too large to be exact.
    """
    nothing = Sums.nothing(*shape)
    length = len(nothing.gram) + nothing.targets.numel()

    def numbers(own: Callable[[], Sums]) -> Int64[ndarray, " numbers"]:
        sums = own()
        if int(sums.gram.max()) * len(clients) >= RING:
            raise ModelError(
                f"Under masks, a client's sums must stay below 2^63 divided by the number "
                f"of clients, found {int(sums.gram.max())} of {len(clients)} clients. "
                f"Scale the features down, or have fewer records."
            )
        return numbers_of(sums)

    sending = {handle: partial(numbers, own) for handle, own in clients.items()}
    return nothing + sums_of_numbers(secure_sum(sending, length, minimum).values, shape)


@dataclass(frozen=True, slots=True)
class SumSource:
    """Where the sums come from that a head is solved from.

    Attributes:
        federation: the way to them.
        everybody: by handle, whether it is in this round's cohort or not.
        min_cohort: the fewest clients that a sum under masks is over; 0: sums are sent as
            they are.
    """

    federation: Federation
    everybody: Mapping[Handle, Client]
    min_cohort: int = 0

    def sums(self, clients: Sequence[Handle], d: int) -> Sums:
        """Return the sums over these clients."""
        if self.min_cohort and not self.federation.is_apart:
            sending = {h: partial(self.federation.sums, [self.everybody[h]], d) for h in clients}
            return masked_sums(sending, (d, self.federation.classes), self.min_cohort)
        return self.federation.sums((self.everybody[h] for h in clients), d)

    def ready(self, state: ServerState, clusters: Mapping[Handle, int]) -> "SumSource":
        """Return the same, with the sums at hand of everybody who comes or moves."""
        known, counted = _before_and_after(state, clusters)
        d = width_of(state.clusters[0])
        if self.min_cohort and self.federation.is_apart:
            cohort = tuple(self.everybody[h] for h in sorted(uncounted(state, clusters)))
            may = partial(state.kept(SumCohorts).groups, minimum=self.min_cohort)
            where = self.min_cohort, d, state.round_index
            federation = self.federation.under_masks(known, cohort, may, *where)
            return replace(self, federation=federation)
        changed = dict(known.counted.items() ^ counted.items())
        cohort = tuple(self.everybody[h] for h in sorted(changed))
        federation = self.federation.ready(known, cohort, d, state.round_index)
        return replace(self, federation=federation)

    def counting(
        self, state: ServerState, clusters: Mapping[Handle, int]
    ) -> tuple[ServerState, Mapping[Handle, int], tuple[ClientsWaited, ...]]:
        """Return whose sums are counted where, and who waits until enough have come."""
        if not self.min_cohort:
            return state, clusters, ()
        least, summed = self.min_cohort, self.federation.summed
        state, counted, waited = counted_together(state, clusters, least, summed)
        return state, dict.fromkeys(counted, 0), waited


def counted_sums(
    state: ServerState, clusters: Mapping[Handle, int], source: SumSource
) -> ClusterSums:
    """Return the sums after these choices: who moved is taken off, and added anew."""
    known, counted = _before_and_after(state, clusters)
    for handle in source.federation.lacking & counted.keys():
        if handle in known.counted:
            counted[handle] = known.counted[handle]
        else:
            del counted[handle]
    d, classes = width_of(state.clusters[0]), source.federation.classes
    sums = list(known.sums) or [Sums.nothing(d, classes) for _ in state.clusters]
    for j in range(len(sums)):
        if came := _differing(counted, known.counted, j):
            sums[j] += source.sums(came, d)
        if went := _differing(known.counted, counted, j):
            sums[j] -= source.sums(went, d)
    return source.federation.with_digests(known.of(tuple(sums), counted))


def without_leavers(state: ServerState, leavers: Cohort, source: SumSource) -> ServerState:
    """Return the state after the sums of clients that leave were subtracted.

    Where somebody's cannot be, those of all others are counted anew: of remote clients
    now, as no client gets a request once the answer is recorded.
    """
    known = state.kept(ClusterSums)
    stay = state.without({client.handle for client in leavers})
    if not known.sums:
        return stay
    d = width_of(state.clusters[0])
    inside = tuple(c for c in leavers if c.handle in known.counted)
    sending = inside if known.is_whole else ()
    federation = source.federation.ready(known, sending, d, state.round_index)
    if not (known.is_whole or source.federation.is_apart):
        return stay
    if not known.is_whole or federation.lacking:
        anew = source.ready(stay, {})
        gone = anew.federation.lacking
        stay, clusters, _ = anew.counting(stay, {})
        if source.min_cohort:
            if not clusters:
                raise RunError(
                    "Sums under masks are made anew without a client that gives none of its own "
                    "only by nodes whose node.toml says that it left. Set leave = true in "
                    "its node.toml and start it, or name it in `left` in the node.toml of those "
                    "who stay."
                )
            gone = stay.assignment.keys() - clusters.keys()
        return stay.without(gone).keeping(counted_sums(stay, clusters, anew))
    sums, them = list(known.sums), {client.handle: client for client in leavers}
    source = replace(source, federation=federation, everybody=them, min_cohort=0)
    for j, each in enumerate(sums):
        gone = [c.handle for c in leavers if known.counted.get(c.handle) == j]
        if gone:
            sums[j] = each - source.sums(gone, d)
    left = stay.kept(ClusterSums)
    return stay.keeping(left.of(tuple(sums), left.counted))


def _before_and_after(
    state: ServerState, clusters: Mapping[Handle, int]
) -> tuple[ClusterSums, dict[Handle, int]]:
    """Return the sums to begin with, and who is to be in them after these choices."""
    known = state.kept(ClusterSums)
    counted = {**known.counted, **clusters}
    # where somebody left, its sums are in them still
    return (known if known.is_whole else known.of((), {})), counted


def _differing(these: Mapping[Handle, int], those: Mapping[Handle, int], j: int) -> list[Handle]:
    """Return who is in a cluster of these and not of those."""
    return [h for h, own in sorted(these.items()) if own == j and those.get(h) != j]
