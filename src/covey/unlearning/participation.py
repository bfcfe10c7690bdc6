"""Which clients took part in which rounds, sets and clusters, and how likely a denial fails.

The arithmetic of leaving: how likely it is that a request cannot be denied.

In the symbols of Varshney and Torra, Efficient Federated Unlearning under Plausible
Deniability, 2024: N clients, sets of at least k, of which x must remain, T rounds.
"""

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from covey.base.events import (
    AnonymitySetsFormed,
    ClientLeft,
    ClientsAssigned,
    ClientsHandedOut,
    Event,
    HeadsSolved,
    ModelsMerged,
    ModelsPooled,
    OrganisationsAttested,
    PricesSet,
    RiskMeasured,
    RunRolledBack,
    RunStarted,
)
from covey.base.names import Handle


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """An anonymity set, as it was formed.

    Attributes:
        near: by member, who is within the largest distance that counts; None: anybody.
        organisations: of the members whose organisation is attested, which one it is among
            those of this set; None: organisations do not count, and every member does.
    """

    round_index: int
    cluster: int
    members: frozenset[Handle]
    diameter: float | None
    near: Mapping[Handle, frozenset[Handle]] | None = None
    organisations: Mapping[Handle, int] | None = None

    def plausible_members(self, leaver: Handle, left: frozenset[Handle]) -> int:
        r"""Count the remaining members to whom the set's update can be attributed.

        |S \ L \ {u}| or, with o(v) the attested organisation of v, as many different ones
        as there are beside the leaver's own: |{o(v) : v in S \ L} \ {o(u)}|.
        """
        others = self.members if self.near is None else self.near[leaver]
        return self.counted(others - left - {leaver}, leaver)

    def counted(self, members: Iterable[Handle], leaver: Handle | None = None) -> int:
        """Count members: those of one organisation are one, the leaver's own is none."""
        known, counted = self.organisations, frozenset(members)
        if known is None:
            return len(counted)
        own = {known.get(leaver)} if leaver is not None else set[int | None]()
        return len({known[each] for each in counted if each in known} - own)


@dataclass(slots=True)
class _Formed:
    """The sets of one cluster in a round, and what was attested of their members."""

    round_index: int
    event: AnonymitySetsFormed
    organisations: dict[int, Sequence[int | None]] = field(
        default_factory=dict[int, Sequence[int | None]]
    )

    def made(self, c: int) -> AnonymitySet:
        """Return the set `c`."""
        event, members = self.event, self.event.sets[c]
        near = None
        if event.near:
            near = dict(zip(members, map(frozenset, event.near[c]), strict=True))
        known = None
        if c in self.organisations:
            pairs = zip(sorted(members), self.organisations[c], strict=True)
            known = {handle: each for handle, each in pairs if each is not None}
        return AnonymitySet(
            self.round_index, event.cluster, frozenset(members), event.diameters[c], near, known
        )


class FormedSets(Collection[AnonymitySet]):
    """All anonymity sets of a run, in order; each is made when it is looked at."""

    def __init__(self) -> None:
        self._formed: list[_Formed] = []
        self._ends: list[int] = []
        self._of: dict[Handle, array[int]] = {}  # millions of small numbers: no objects

    def add(self, round_index: int, event: AnonymitySetsFormed) -> None:
        """Note the sets of one cluster."""
        for index, members in enumerate(event.sets, len(self)):
            for handle in members:
                self._of.setdefault(handle, array("L")).append(index)
        self._formed.append(_Formed(round_index, event))
        self._ends.append(len(self) + len(event.sets))

    def attest(self, organisations: Sequence[Sequence[int | None]]) -> None:
        """Note the organisations of the sets that were added last, so many."""
        for i, numbers in enumerate(organisations, len(self) - len(organisations)):
            formed, c = self._at(i)
            formed.organisations[c] = numbers

    def of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
        at = (self._at(i) for i in self._of.get(handle, ()))
        return tuple(formed.made(c) for formed, c in at)

    def _at(self, index: int) -> tuple[_Formed, int]:
        chunk = bisect_right(self._ends, index)
        return self._formed[chunk], index - (self._ends[chunk - 1] if chunk else 0)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __contains__(self, item: object) -> bool:
        return any(each == item for each in self)

    def __iter__(self) -> Iterator[AnonymitySet]:
        for formed in self._formed:
            yield from map(formed.made, range(len(formed.event.sets)))


class TrainedRounds(Mapping[Handle, Mapping[int, int]]):
    """By client, the rounds it trained in, and the cluster it trained."""

    def __init__(self, chosen: Sequence[tuple[int, Mapping[Handle, int]]] = ()) -> None:
        """Look into choices: rounds, and which cluster each client took in it."""
        self._chosen = chosen

    def __getitem__(self, handle: Handle) -> Mapping[int, int]:
        if clusters_by_round := {
            t: clusters[handle] for t, clusters in self._chosen if handle in clusters
        }:
            return clusters_by_round
        raise KeyError(handle)

    def __iter__(self) -> Iterator[Handle]:
        return iter(dict.fromkeys(chain.from_iterable(each for _, each in self._chosen)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


FINAL, SHARED = "final", "shared"
PUBLISHED: Mapping[type[Event], str] = {RiskMeasured: "risks", PricesSet: "prices"}


@dataclass(frozen=True, slots=True)
class Participation:
    """Which client took part in which round, folded from the events.

    Attributes:
        sets: every anonymity set of every round.
        trained: by client, the rounds it trained in, and the cluster it trained.
        handed_out: rounds in which a user's own algorithm was handed clients, and which:
            whatever it made of them, no anonymity set hides it.
        counted: by kind, the rounds in which something published came of everybody.
        left: who has left, in order, each once.
        stopped: those of them whose name stays, since they were answered with a stop.
        lingering: by client that left, a round that was played again with the choices
            that others had made in its presence, the first one.
    """

    sets: Collection[AnonymitySet] = ()
    trained: Mapping[Handle, Mapping[int, int]] = field(
        default_factory=dict[Handle, Mapping[int, int]]
    )
    handed_out: Mapping[int, Collection[Handle]] = field(
        default_factory=dict[int, Collection[Handle]]
    )
    counted: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    left: tuple[Handle, ...] = ()
    stopped: frozenset[Handle] = frozenset()
    lingering: Mapping[Handle, int] = field(default_factory=dict[Handle, int])

    def sets_of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
        if isinstance(self.sets, FormedSets):
            return self.sets.of(handle)
        return tuple(each for each in self.sets if handle in each.members)

    def first_handed_out(self, handle: Handle) -> int | None:
        """Return the first round in which a user's own algorithm was handed this client."""
        rounds = (t for t, handles in self.handed_out.items() if handle in handles)
        return min(rounds, default=None)

    def first_round(self, handle: Handle) -> int | None:
        """Return the first round that this client took part in."""
        return _first(*self.trained.get(handle, {}), self.first_handed_out(handle))

    def first_trace(self, handle: Handle) -> int | None:
        """Return the first round that is other than it would be without this client."""
        return _first(self.first_round(handle), self.lingering.get(handle))


def _first(*rounds: int | None) -> int | None:
    return min((t for t in rounds if t is not None), default=None)


def participation_of(events: Iterable[tuple[int | None, Event]]) -> Participation:
    """Fold the current events; rounds that were rolled back are left out."""
    sets = FormedSets()
    chosen: list[tuple[int, Mapping[Handle, int]]] = []
    handed_out: dict[int, Collection[Handle]] = {}
    counted: dict[str, dict[int, None]] = {kind: {} for kind in PUBLISHED.values()}
    left: dict[Handle, None] = {}
    stopped: set[Handle] = set()
    lingering: dict[Handle, int] = {}
    for round_index, event in events:
        match round_index, event:
            case None, ClientLeft(handle, answer):
                left[handle] = None
                stopped = stopped | {handle} if answer == "stop" else stopped - {handle}
            case None, RunRolledBack():
                # played anew, nothing of them is left; else what others chose beside them is
                first, anew = event.round_index, event.how == "anew"
                before = {handle: t for handle, t in lingering.items() if t < first}
                lingering = before if anew else dict.fromkeys(left, first) | before
            case int(t), AnonymitySetsFormed():
                sets.add(t, event)
            case int(), OrganisationsAttested(_, organisations):
                sets.attest(organisations)
            case int(t), ClientsAssigned(clusters, by) if by != FINAL:
                chosen.append((t, clusters))
            case int(t), ClientsHandedOut(handles):
                handed_out[t] = frozenset(handles)
            case int(t), RiskMeasured() | PricesSet():
                counted[PUBLISHED[type(event)]][t] = None
            case _:
                pass
    return Participation(
        sets=sets,
        trained=TrainedRounds(chosen),
        handed_out=handed_out,
        counted={kind: tuple(rounds) for kind, rounds in counted.items()},
        left=tuple(left),
        stopped=frozenset(stopped),
        lingering=lingering,
    )


def latest_models(events: Iterable[tuple[int | None, Event]]) -> str | None:
    """Return the hash of the newest cluster models.

    None before the first round, and while a warm start trains one model for all clusters.
    """
    latest, shared, alone = None, False, False
    for _, event in events:
        match event:
            case RunStarted():
                alone = event.num_clusters == 1
            case ClientsAssigned(_, by) if by != FINAL:
                shared = by == SHARED
            case ModelsMerged() | ModelsPooled():
                latest = None if shared and not alone else event.model_hash
            case _:
                pass
    return latest


def latest_sums(events: Iterable[tuple[int | None, Event]]) -> HeadsSolved | None:
    """Return the newest sums that models were solved from; None: none were."""
    return ([None, *(event for _, event in events if isinstance(event, HeadsSolved))])[-1]


MAX_SET_SIZE = 32
"""Largest k that is proposed: beyond it, sets hardly differ from the whole cohort."""


@dataclass(frozen=True, slots=True)
class DeniabilityRow:
    """One setting of k and x.

    Attributes:
        sets: C = floor(N/k), formed in each round.
        rollback_probability: that the requests force at least one rollback, in [0, 1].
        fine: whether that is at most the target.
    """

    k: int
    x: int
    sets: int
    rollback_probability: float
    fine: bool


@dataclass(frozen=True, slots=True)
class DeniabilityBudget:
    """How many more requests can be denied.

    Attributes:
        denials_left: requests, if all come from the set that is the closest to its limit;
            None before any set was formed.
        next_forces_rollback: probability that the next request, of a client drawn uniformly,
            forces a rollback; None if no client is left to ask.
    """

    denials_left: int | None
    next_forces_rollback: float | None


def representative_probability(sizes: Sequence[int]) -> float:
    """Return the probability that a client's update was ever the one released.

    1 - prod_t (1 - 1/m_t)

    Args:
        sizes: m_t, of the set that held the client in round t when its representative
            was drawn; each at least 1.
    """
    return 1 - math.prod((1 - 1 / m for m in sizes), start=1.0)


def refutation_success(distance: float, noise_std: float) -> float:
    """Return the success of an adversary who holds both candidates' updates.

    1 - Phi(-d / (2 s)), the best test of one perturbed release; 1 without noise.

    Args:
        distance: d, L2 between the two updates, 0 or more.
        noise_std: s, of the Gaussian noise on every coordinate, 0 or more.
    """
    if noise_std == 0:
        return 1.0
    return (1 + math.erf(distance / (2 * noise_std) / math.sqrt(2))) / 2


def rollback_probability(clients: int, k: int, x: int, rounds: int, requests: int) -> float:
    """Return the probability that R random leavers force at least one rollback.

    A round bears the leavers if each of its sets, of size s_c, keeps x members. All N
    clients are in every round, and every round's C = floor(N/k) sets are drawn blindly
    (`public_random`), so the leavers fall into sets as balls drawn without replacement:

        P(round bears R) = [z^R] prod_c sum_{j <= s_c - x} binom(s_c, j) z^j / binom(N, R)
        P(rollback)      = 1 - P(round bears R)^T

    Exact, up to one rounding. In which order they leave does not matter: sets only
    shrink. For sets formed from updates this is a guide: they recur from round to round,
    so fewer of them are at risk, and those who leave may be alike.

    Args:
        clients: N.
        k: the smallest size of a set.
        x: members that must remain in each.
        rounds: T, that every leaver took part in.
        requests: R, of different clients.

    Raises:
        ValueError: not 1 <= x <= k <= N, R not in 0..N, or T negative.
    """
    if not 1 <= x <= k <= clients:
        raise ValueError(
            f"expected 1 <= x <= k <= N, found x = {x}, k = {k}, N = {clients}: "
            "let no more members remain than a set has, and a set no more than there are"
        )
    if not 0 <= requests <= clients:
        raise ValueError(
            f"expected 0 to {clients} requests of {clients} clients, found {requests}: "
            "count each client that leaves once"
        )
    if rounds < 0:
        raise ValueError(f"expected 0 or more rounds, found {rounds}: give their count")
    drawn = math.comb(clients, requests) ** rounds
    borne = _ways_to_leave(clients, clients // k, x, requests) ** rounds
    return (drawn - borne) / drawn


def settings_below(
    target: float, clients: int, rounds: int, requests: int
) -> tuple[DeniabilityRow, ...]:
    """Return every 2 <= x <= k <= N/2, and which keep forced rollbacks at the target.

    A set alone would be the whole cohort, so there are at least two; k ends at 32.

    Args:
        target: the highest probability that is fine, in [0, 1].
        clients: N.
        rounds: T.
        requests: R.

    Raises:
        ValueError: the target is no probability, R not in 0..N, or T negative.
    """
    if not 0 <= target <= 1:
        raise ValueError(
            f"expected a probability from 0 to 1, found {target}: set target in between"
        )
    rows: list[DeniabilityRow] = []
    for k in range(2, min(clients // 2, MAX_SET_SIZE) + 1):
        for x in range(2, k + 1):
            odds = rollback_probability(clients, k, x, rounds, requests)
            rows.append(DeniabilityRow(k, x, clients // k, odds, odds <= target))
    return tuple(rows)


def budget(remaining_sizes: Iterable[int], x: int, at_risk: int, clients: int) -> DeniabilityBudget:
    """Return how many more requests can be denied, at worst and as a matter of luck.

    denials_left = max(0, min_c (m_c - x)),  next_forces_rollback = at_risk / clients

    Args:
        remaining_sizes: m_c, members left in each set of each round.
        x: members that must remain.
        at_risk: clients with a set that has no member to spare.
        clients: those that could ask next.
    """
    spare = min((size - x for size in remaining_sizes), default=None)
    return DeniabilityBudget(
        denials_left=None if spare is None else max(0, spare),
        next_forces_rollback=at_risk / clients if clients else None,
    )


def _ways_to_leave(clients: int, sets: int, x: int, requests: int) -> int:
    """Return how many choices of leavers keep x members in each of a round's sets.

    The coefficient of z^R is read off the value at z = 2^bits. Those up to it count at
    most binom(N, j) choices each, so none runs into the next; what is above is cut off.
    """
    bits = math.comb(clients, min(requests, clients // 2)).bit_length()
    end = 1 << bits * (requests + 1)
    sizes = Counter(len(range(c, clients, sets)) for c in range(sets))
    # sum_{j <= size - x} binom(size, j) z^j at z = 2^bits
    losses = {n: sum(math.comb(n, j) << bits * j for j in range(n - x + 1)) for n in sizes}
    value = math.prod(pow(losses[size], count, end) for size, count in sizes.items())
    return value % end >> bits * requests
