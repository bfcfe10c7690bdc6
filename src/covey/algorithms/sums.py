"""How clients' sums are counted, taken off again, and made into heads."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from covey.algorithms.local_clients import Backend, LocalClients
from covey.algorithms.state import Cohort, ServerState
from covey.base.errors import ModelError, RunError
from covey.base.events import Event, MovesWaited
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.components.state import ComponentState
from covey.data.examples import Client, Examples
from covey.engine.fixed_features import LocalRecords, width_of
from covey.heads.perturbed import HeadNoise
from covey.heads.state import ClusterSums, SumNoise, scores_without_client
from covey.heads.sums import Head, SentHead, Sums
from covey.secure_sums.client import movable
from covey.secure_sums.server import secure_sum


class OwnSums(ComponentState):
    """What each client that is counted added to sums, before it was weighed.

    Attributes:
        gram, targets: of each client (`covey.heads.sums.Sums`), each of its records once: at
            the smallest weight there is.
    """

    key = "own-sums"
    gram: Mapping[Handle, Tensor] = {}
    targets: Mapping[Handle, Tensor] = {}

    def total(
        self,
        clients: Iterable[tuple[Handle, int]],
        compute: Callable[[Handle], Sums],
        nothing: Sums,
    ) -> Sums:
        """Return the sums over these clients at these weights.

        Args:
            clients: whose, each with its weight.
            compute: those of one client that are not kept.
            nothing: the sums over nobody.
        """
        found = nothing
        for handle, weight in clients:
            if weight:
                found += self._of(handle, compute).times(weight)
        return found

    def over(
        self, counted: Mapping[Handle, tuple[int, int]], compute: Callable[[Handle], Sums]
    ) -> "OwnSums":
        """Return the sums of all who are counted at some weight, and of nobody else."""
        found = {h: self._of(h, compute) for h, (_, weight) in counted.items() if weight}
        return OwnSums(
            gram={handle: each.gram for handle, each in found.items()},
            targets={handle: each.targets for handle, each in found.items()},
        )

    def _of(self, handle: Handle, compute: Callable[[Handle], Sums]) -> Sums:
        if handle not in self.gram:
            return compute(handle)
        return Sums(self.gram[handle], self.targets[handle])


RING = 2**63
"""Whole numbers that stay below it come out of the ring as they went in."""


class SumParts(ComponentState):
    """Which clients were in exactly the same sums until now.

    Attributes:
        parts: of everybody who is in some sum, a number that it shares with those.
    """

    key = "sum-parts"
    parts: Mapping[Handle, int] = {}


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

    def numbers(own: Callable[[], Sums]) -> Int64[np.ndarray, " numbers"]:
        sums = own()
        if int(sums.gram.max()) * len(clients) >= RING:
            raise ModelError(
                f"Under masks, a client's sums must stay below 2^63 divided by the number "
                f"of clients, found {int(sums.gram.max())} of {len(clients)} clients. "
                f"Scale the features down, or have fewer records."
            )
        return numbers_of(sums)

    sending = {handle: partial(numbers, own) for handle, own in clients.items()}
    found = secure_sum(sending, length, minimum).values
    return nothing + sums_of_numbers(found, shape)


@dataclass(frozen=True, slots=True)
class Summed:
    """What the rounds of secure sums of remote clients came to.

    Attributes:
        groups: whose sums came, those of each group together.
        shown: groups that were asked to open a sum which then did not come. To these
            clients it is released, so they move together from then on.
    """

    groups: tuple[frozenset[Handle], ...] = ()
    shown: tuple[frozenset[Handle], ...] = ()

    @property
    def clients(self) -> frozenset[Handle]:
        """All whose sums came."""
        return frozenset[Handle]().union(*self.groups)


@dataclass(frozen=True, slots=True)
class Moves:
    """Who is to be counted elsewhere than it is.

    Attributes:
        wishes: where, by handle.
        parts: of everybody who is in some sum.
        minimum: the fewest clients that a sum may be over.
    """

    wishes: Mapping[Handle, int]
    parts: Mapping[Handle, int]
    minimum: int

    @classmethod
    def after(cls, state: ServerState, wishes: Mapping[Handle, int], minimum: int) -> "Moves":
        """Return what remote clients' choices come to.

        Where somebody left, all are summed anew, and still in parts: to those who stay,
        every sum that they were in is released.
        """
        known = state.kept(ClusterSums)
        at = {handle: j for handle, (j, _) in known.counted.items()}
        if not known.is_whole:
            wishes, at = {**at, **wishes}, {}
        moves = {handle: j for handle, j in wishes.items() if at.get(handle) != j}
        return cls(moves, state.kept(SumParts).parts, minimum)

    def groups(self, among: Collection[Handle] | None = None) -> tuple[frozenset[Handle], ...]:
        """Return who may move, those together whose sums are one; or who of these may."""
        asking = self.wishes.keys() if among is None else among
        wishes = {handle: self.wishes[handle] for handle in asking}
        found: dict[tuple[int | None, int], set[Handle]] = defaultdict(set)
        for handle in movable(wishes, self.parts, self.minimum):
            found[self.parts.get(handle), wishes[handle]].add(handle)
        return tuple(sorted(map(frozenset, found.values()), key=min))


def with_waiting_moves(
    state: ServerState, wishes: Mapping[Handle, int], minimum: int, summed: Summed | None = None
) -> tuple[ServerState, dict[Handle, int], tuple[MovesWaited, ...]]:
    """Return whose sums are counted where, so that no part of them is of too few clients.

    Who moves without all others of its part stays counted where it was; who was in no sum
    yet stays out of them until `minimum` come together.

    Args:
        state: before the round. Where somebody left and its sums are in them still, they
            are all made anew.
        wishes: what clients of the cohort chose.
        minimum: the fewest clients that a sum may be over.
        summed: whose sums came, and so who moves, where clients are remote.
    """
    known, parts = state.kept(ClusterSums), dict(state.kept(SumParts).parts)
    at = {handle: j for handle, (j, _) in known.counted.items()}
    if not known.is_whole:
        wishes, at = {**at, **wishes}, {}
        parts = parts if summed else {}
        state = state.keeping(known.of((), {}))
    moves = {handle: j for handle, j in wishes.items() if at.get(handle) != j}
    groups = Moves(moves, parts, minimum).groups() if summed is None else summed.groups
    moving = frozenset[Handle]().union(*groups)
    fresh = max(parts.values(), default=-1) + 1
    for number, group in enumerate((*groups, *(summed.shown if summed else ())), fresh):
        parts.update(dict.fromkeys(group, number))
    waiting = sorted(moves.keys() - moving)
    counted = {
        handle: j if handle in moving else at[handle]
        for handle, j in wishes.items()
        if handle in moving or handle in at
    }
    facts = (MovesWaited(tuple(waiting), minimum),) if waiting else ()
    return state.keeping(SumParts(parts=parts)), counted, facts


def numbers_of(sums: Sums) -> Int64[np.ndarray, " numbers"]:
    """Return sums as the numbers that are added up."""
    return torch.cat([sums.gram, sums.targets.flatten()]).numpy()


def sums_of_numbers(numbers: Int64[np.ndarray, " numbers"], shape: tuple[int, int]) -> Sums:
    """Undo `numbers_of`, of d features and so many classes."""
    d, classes = shape
    gram, targets = torch.from_numpy(numbers).split([d * (d + 1) // 2, d * classes])
    return Sums(gram, targets.reshape(shape))


@runtime_checkable
class Records(Protocol):
    """Clients' records, as far as sums and choices need them.

    What has a body holds where the records are here.
    """

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        ...

    @property
    def noise(self) -> SumNoise | HeadNoise | None:
        """What hides the sums, or the heads, that are released; None: nothing does."""
        ...

    @property
    def are_apart(self) -> bool:
        """Whether they are not here, and whoever is asked may give no answer."""
        return False

    @property
    def lacking(self) -> frozenset[Handle]:
        """Who was asked for its sums, and gave none that are in order."""
        return frozenset()

    @property
    def facts(self) -> tuple[Event, ...]:
        """What is to be told of their answers."""
        return ()

    @property
    def summed(self) -> Summed | None:
        """Whose sums came under masks; None: masks are not asked of these clients."""
        return None

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return the mean features of every client that tells them."""
        ...

    def ready(self, known: ClusterSums, cohort: Cohort, d: int, round_index: int) -> "Records":
        """Return the records with these clients' sums at hand, but for who is `lacking`.

        Args:
            known: the sums so far.
            cohort: whose sums are needed.
            d: how many features there are, and a bias.
            round_index: the round that they are needed in.
        """
        del known, cohort, d, round_index
        return self

    def under_masks(
        self, known: ClusterSums, cohort: Cohort, moves: Moves, d: int, round_index: int
    ) -> "Records":
        """Return the records with the sums of who moves at hand, each group's together.

        Args:
            known: the sums so far.
            cohort: all who want to move.
            moves: where to, and with whom.
            d: how many features there are, and a bias.
            round_index: the round that they are needed in.
        """
        del known, cohort, moves, d, round_index
        return self

    def sums(self, clients: Iterable[tuple[Client, int]], d: int) -> Sums:
        """Return the sums over these clients, each at its weight; all were made `ready`."""
        ...

    def noted(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums with what has to be known of whoever is counted in them."""
        return sums

    def judging(self, backend: Backend, known: ClusterSums | None, *, last: bool) -> Backend:
        """Return how clients choose among heads; nobody trains.

        Args:
            backend: how they are reached.
            known: the sums from which they compare heads that never met them; None: they
                compare the models as they are.
            last: whether it is the last choice of a run.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecordsHere(Records):
    """Simulated clients' records."""

    records: LocalRecords

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        return self.records.classes

    @property
    def noise(self) -> SumNoise | HeadNoise | None:
        """What hides the sums, or the heads, that are released; None: nothing does."""
        return self.records.noise

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return every client's mean features."""
        del d, round_index
        return {each.handle: self.records.mean(each.train) for each in cohort}

    def sums(self, clients: Iterable[tuple[Client, int]], d: int) -> Sums:
        """Return the sums over these clients, each at its weight."""
        return self.records.sums(((each.train, w) for each, w in clients), d)

    def judging(self, backend: Backend, known: ClusterSums | None, *, last: bool) -> Backend:
        """Return how clients compare heads that never met them, or models as they are."""
        del last
        if known is None:
            return backend
        records = self.records
        heads = [known.head(j) for j in range(len(known.gram))]

        def evaluate(_: object, cohort: Cohort, __: Streams) -> Tensor:
            found = torch.empty(len(cohort), len(heads))
            for i, client in enumerate(cohort):
                stake = known.stake(client.handle)
                found[i] = losses_without_oneself(records, client.train, heads, stake)
            return found

        return LocalClients(evaluate)


def losses_without_oneself(
    records: LocalRecords,
    examples: Examples,
    heads: Sequence[Head | SentHead],
    stake: tuple[int, Sequence[float]],
) -> Float[Tensor, " heads"]:
    """Return a client's mean loss under every head, as it would be without the client.

    Args:
        records: turns its examples into features.
        examples: the client's.
        heads: solved from everybody's sums, the client's among them.
        stake: as `ClusterSums.stake` returns it.
    """
    weight, shares = stake
    rows = records.rows(examples, weight)
    scores = (
        scores_without_client(head, rows, share) for head, share in zip(heads, shares, strict=True)
    )
    return torch.stack([records.losses(each, rows.labels).mean() for each in scores])


def heads_of(models: Sequence[Params], roots: Mapping[int, Tensor]) -> tuple[SentHead, ...]:
    """Return heads as a client was sent them."""
    return tuple(
        SentHead.of(each["head.weight"], each["head.bias"], roots.get(j))
        for j, each in enumerate(models)
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """Whoever is asked for what a head is solved from.

    Attributes:
        records: theirs, as features.
        everybody: by handle, whether it is in this round's cohort or not.
        min_cohort: the fewest clients that a sum under masks is over; 0: sums are sent as
            they are.
        own: each client's own, as far as the server has them; None: it keeps none.
    """

    records: Records
    everybody: Mapping[Handle, Client]
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
        self, state: ServerState, clusters: Mapping[Handle, int], weights: Mapping[Handle, int]
    ) -> "Asked":
        """Return the same, with the sums at hand of everybody who comes or moves."""
        known, counted = _before_and_after(state, clusters, weights)
        d = width_of(state.clusters[0])
        if self.min_cohort and self.records.are_apart:
            moves = Moves.after(state, clusters, self.min_cohort)
            moving = tuple(self.everybody[h] for h in sorted(moves.wishes))
            where = d, state.round_index
            return replace(self, records=self.records.under_masks(known, moving, moves, *where))
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


def counted_sums(
    state: ServerState, clusters: Mapping[Handle, int], weights: Mapping[Handle, int], asked: Asked
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
            if not clusters:
                raise RunError(
                    "Sums under masks are made anew without a client that gives none of its own "
                    "only by nodes that know that it left. Set leave = true in its node.toml and "
                    "start it, or name it in `left` in the node.toml of those who stay."
                )
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
    these: Mapping[Handle, tuple[int, int]], those: Mapping[Handle, tuple[int, int]], j: int
) -> list[tuple[Handle, int]]:
    """Return who is in a cluster of these and not, or at another weight, of those."""
    return [
        (handle, weight)
        for handle, (cluster, weight) in sorted(these.items())
        if cluster == j and those.get(handle) != (cluster, weight)
    ]
