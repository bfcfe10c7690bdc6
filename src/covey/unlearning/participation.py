"""Which clients took part in which rounds, sets and clusters, and how likely a denial fails.

The arithmetic of leaving: how likely it is that a request cannot be denied.

In the symbols of Varshney and Torra, Efficient Federated Unlearning under Plausible
Deniability, 2024: N clients, sets of at least k, of which x must remain, T rounds.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from covey.base import events
from covey.base.events import Event
from covey.base.history import FINAL, SHARED
from covey.base.names import Handle


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """An anonymity set, as it was formed.

    Attributes:
        near: by member, who is within the largest distance that counts; None: anybody.
    """

    round_index: int
    cluster: int
    members: frozenset[Handle]
    diameter: float | None
    near: Mapping[Handle, frozenset[Handle]] | None = None

    def plausible_members(self, leaver: Handle, left: frozenset[Handle]) -> int:
        r"""Count the members to whom the set's update can still be attributed: |S \ L \ {u}|."""
        others = self.members if self.near is None else self.near[leaver]
        return len(others - left - {leaver})


@dataclass(frozen=True, slots=True)
class Participation:
    """Which client took part in which round, folded from the events.

    Attributes:
        sets: every anonymity set of every round.
        trained: by client, the rounds it trained in, and the cluster it trained.
        handed_out: rounds in which a user's own algorithm was handed clients, and which:
            whatever it made of them, no anonymity set hides it.
        left: who has left, in order, each once.
        stopped: those of them whose name stays, since they were answered with a stop.
        lingering: by client that left, a round that was played again with the choices
            that others had made in its presence, the first one.
    """

    sets: Sequence[AnonymitySet] = ()
    trained: Mapping[Handle, Mapping[int, int]] = field(
        default_factory=dict[Handle, Mapping[int, int]]
    )
    handed_out: Mapping[int, Collection[Handle]] = field(
        default_factory=dict[int, Collection[Handle]]
    )
    left: tuple[Handle, ...] = ()
    stopped: frozenset[Handle] = frozenset()
    lingering: Mapping[Handle, int] = field(default_factory=dict[Handle, int])

    def sets_of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
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


def participation_of(current: Iterable[tuple[int | None, Event]]) -> Participation:
    """Fold the current events; rounds that were rolled back are left out."""
    sets: list[AnonymitySet] = []
    trained: dict[Handle, dict[int, int]] = {}
    handed_out: dict[int, Collection[Handle]] = {}
    left: dict[Handle, None] = {}
    stopped: set[Handle] = set()
    lingering: dict[Handle, int] = {}
    for round_index, event in current:
        match round_index, event:
            case None, events.ClientLeft(handle, answer):
                left[handle] = None
                stopped = stopped | {handle} if answer == "stop" else stopped - {handle}
            case None, events.RunRolledBack():
                # played anew, nothing of them is left; else what others chose beside them is
                first, anew = event.round_index, event.how == "anew"
                before = {handle: t for handle, t in lingering.items() if t < first}
                lingering = before if anew else dict.fromkeys(left, first) | before
            case int(t), events.AnonymitySetsFormed():
                sets += _formed(t, event)
            case int(t), events.ClientsAssigned(clusters, by) if by != FINAL:
                for handle, j in clusters.items():
                    trained.setdefault(handle, {})[t] = j
            case int(t), events.ClientsHandedOut(handles):
                handed_out[t] = frozenset(handles)
            case _:
                pass
    return Participation(
        sets=tuple(sets),
        trained=trained,
        handed_out=handed_out,
        left=tuple(left),
        stopped=frozenset(stopped),
        lingering=lingering,
    )


def _formed(t: int, event: events.AnonymitySetsFormed) -> Iterator[AnonymitySet]:
    for c, (members, diameter) in enumerate(zip(event.sets, event.diameters, strict=True)):
        near = None
        if event.near:
            near = dict(zip(members, map(frozenset, event.near[c]), strict=True))
        yield AnonymitySet(t, event.cluster, frozenset(members), diameter, near)


def latest_models(current: Iterable[tuple[int | None, Event]]) -> str | None:
    """Return the hash of the newest cluster models.

    None before the first round, and while a warm start trains one model for all clusters.
    """
    latest, shared, alone = None, False, False
    for _, event in current:
        match event:
            case events.RunStarted():
                alone = event.num_clusters == 1
            case events.ClientsAssigned(_, by) if by != FINAL:
                shared = by == SHARED
            case events.ModelsMerged() | events.ModelsPooled():
                latest = None if shared and not alone else event.model_hash
            case _:
                pass
    return latest


def latest_sums(current: Iterable[tuple[int | None, Event]]) -> events.HeadsSolved | None:
    """Return the newest sums that models were solved from; None: none were."""
    return ([None, *(event for _, event in current if isinstance(event, events.HeadsSolved))])[-1]


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
