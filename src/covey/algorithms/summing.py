"""How clients' sums are counted, taken off again, and made into heads."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from covey.algorithms.base import Cohort, ServerState
from covey.algorithms.kept_sums import OwnSums
from covey.algorithms.masked_sums import Moves, masked_sums, with_waiting_moves
from covey.algorithms.records import Records
from covey.data.examples import Client
from covey.engine.fixed_features import width_of
from covey.errors import RunError
from covey.events import ClientsAssigned, MovesWaited
from covey.heads import ClusterSums, Sums
from covey.types import Handle

__all__ = ["Asked", "counted_sums", "without_leavers"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Whoever is asked for what a head is solved from.

    Attributes:
        records: theirs, as features.
        everybody: by handle, whether it is in this round's cohort or not.
        again: whether this round was played before.
        min_cohort: the fewest clients that a sum under masks is over; 0: sums are sent as
            they are.
        own: each client's own, as far as the server has them; None: it keeps none.
    """

    records: Records
    everybody: Mapping[Handle, Client]
    again: bool
    min_cohort: int = 0
    own: OwnSums | None = None

    def sums(self, clients: Sequence[tuple[Handle, int]], d: int) -> Sums:
        """Return the sums over these clients at these weights."""
        if self.min_cohort and not self.records.are_apart:
            sending = {h: partial(self._own, h, weight, d) for h, weight in clients}
            return masked_sums(sending, (d, self.records.classes), self.min_cohort)
        if self.own is not None:
            nothing = Sums.nothing(d, self.records.classes)
            return self.own.total(clients, lambda h: self._own(h, 1, d), nothing)
        each = ((self.everybody[h], weight) for h, weight in clients)
        return self.records.sums(each, d)

    @property
    def at_hand(self) -> Collection[Handle]:
        """Whose sums nobody needs to be asked for."""
        return () if self.own is None else self.own.gram.keys()

    def kept(self, sums: ClusterSums, d: int) -> tuple[OwnSums, ...]:
        """Return what is kept of everybody in these sums, one by one."""
        if self.own is None:
            return ()
        return (self.own.over(sums.counted, lambda h: self._own(h, 1, d)),)

    def _own(self, handle: Handle, weight: int, d: int) -> Sums:
        return self.records.sums([(self.everybody[handle], weight)], d)

    def ready(
        self,
        state: ServerState,
        clusters: Mapping[Handle, int],
        weights: Mapping[Handle, int],
    ) -> "Asked":
        """Return the same, with the sums at hand of everybody who comes or moves."""
        known, counted = _before_and_after(state, clusters, weights)
        d = width_of(state.clusters[0])
        if self.min_cohort and self.records.are_apart:
            moves = Moves.after(state, clusters, self.min_cohort)
            moving = tuple(self.everybody[h] for h in sorted(moves.wishes))
            where = d, state.round_index
            return replace(
                self, records=self.records.under_masks(known, moving, moves, *where)
            )
        changed = dict(known.counted.items() ^ counted.items())
        weighs = {
            h
            for each in (known.counted, counted)
            for h, (_, w) in each.items()
            if w and h in changed and h not in self.at_hand
        }
        cohort = tuple(self.everybody[h] for h in sorted(weighs))
        records = self.records.ready(known, cohort, d, state.round_index)
        return replace(self, records=records)

    def parted(
        self, state: ServerState, clusters: Mapping[Handle, int]
    ) -> tuple[ServerState, Mapping[Handle, int], tuple[MovesWaited, ...]]:
        """Return whose sums are counted where, and who waits for others to move alike."""
        if not self.min_cohort:
            return state, clusters, ()
        return with_waiting_moves(state, clusters, self.min_cohort, self.records.summed)

    def answered(self, chosen: ClientsAssigned) -> ClientsAssigned:
        """Return the choices of those whose sums are at hand, where they are needed."""
        lacking = self.records.lacking
        there = {h: j for h, j in chosen.clusters.items() if h not in lacking}
        return replace(chosen, clusters=there)


def counted_sums(
    state: ServerState,
    clusters: Mapping[Handle, int],
    weights: Mapping[Handle, int],
    asked: Asked,
) -> ClusterSums:
    """Return the sums after these choices: who moved is taken off, and added anew."""
    known, counted = _before_and_after(state, clusters, weights)
    for handle in asked.records.lacking & counted.keys():
        if handle in known.counted:
            counted[handle] = known.counted[handle]
        else:
            del counted[handle]
    d, classes = width_of(state.clusters[0]), asked.records.classes
    sums = list(known.sums) or [Sums.nothing(d, classes) for _ in state.clusters]
    for j in range(len(sums)):
        if came := _differing(counted, known.counted, j):
            sums[j] += asked.sums(came, d)
        if went := _differing(known.counted, counted, j):
            sums[j] -= asked.sums(went, d)
    return asked.records.noted(known.of(tuple(sums), counted))


def without_leavers(state: ServerState, leavers: Cohort, asked: Asked) -> ServerState:
    """Return the state after the sums of clients that leave were subtracted.

    Where somebody's cannot be, those of all others are counted anew: of remote clients
    now, as nobody is asked once the answer is recorded.
    """
    known = state.kept(ClusterSums)
    stay = state.without({client.handle for client in leavers})
    if not known.sums:
        return stay
    d = width_of(state.clusters[0])
    weigh = (c for c in leavers if known.counted.get(c.handle, (0, 0))[1])
    weighs = tuple(c for c in weigh if c.handle not in asked.at_hand)
    asked_for = weighs if known.is_whole else ()
    records = asked.records.ready(known, asked_for, d, state.round_index)
    if not (known.is_whole or asked.records.are_apart):
        return stay
    if not known.is_whole or records.lacking:
        anew = asked.ready(stay, {}, {})
        gone = anew.records.lacking
        stay, clusters, _ = anew.parted(stay, {})
        if asked.min_cohort:
            _check_some(clusters)
            gone = stay.assignment.keys() - clusters.keys()
        weights = {h: w for h, (_, w) in known.counted.items()}
        counted = counted_sums(stay, clusters, weights, anew)
        return stay.without(gone).keeping(counted)
    sums, them = list(known.sums), {client.handle: client for client in leavers}
    asked = replace(asked, records=records, everybody=them, min_cohort=0)
    for j, each in enumerate(sums):
        gone = [
            (client.handle, known.counted[client.handle][1])
            for client in leavers
            if known.counted.get(client.handle, (None, 0))[0] == j
        ]
        if gone:
            sums[j] = each - asked.sums(gone, d)
    left = stay.kept(ClusterSums)
    return stay.keeping(left.of(tuple(sums), left.counted))


def _check_some(counted: Mapping[Handle, int]) -> None:
    if not counted:
        raise RunError(
            "Sums under masks are made anew without a client that gives none of its own "
            "only by nodes that know that it left. Set leave = true in its node.toml and "
            "start it, or name it in `left` in the node.toml of those who stay."
        )


def _before_and_after(
    state: ServerState, clusters: Mapping[Handle, int], weights: Mapping[Handle, int]
) -> tuple[ClusterSums, dict[Handle, tuple[int, int]]]:
    """Return the sums to begin with, and who is to be in them after these choices."""
    known = state.kept(ClusterSums)
    chosen = {handle: (j, weights[handle]) for handle, j in clusters.items()}
    counted = {**known.counted, **chosen}
    # where somebody left, its sums are in them still
    return (known if known.is_whole else known.of((), {})), counted


def _differing(
    these: Mapping[Handle, tuple[int, int]],
    those: Mapping[Handle, tuple[int, int]],
    j: int,
) -> list[tuple[Handle, int]]:
    """Return who is in a cluster of these and not, or at another weight, of those."""
    return [
        (handle, weight)
        for handle, (cluster, weight) in sorted(these.items())
        if cluster == j and those.get(handle) != (cluster, weight)
    ]
