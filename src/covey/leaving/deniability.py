"""How likely it is that a request to leave cannot be denied, or that a denial is refuted.

In the symbols of Varshney and Torra, Efficient Federated Unlearning under Plausible
Deniability, 2024: N clients, sets of at least k, of which x must remain, T rounds.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
        raise ValueError(f"1 <= x <= k <= N must hold, found {x}, {k}, {clients}: lower x or k")
    if not 0 <= requests <= clients:
        raise ValueError(f"requests must be 0 to {clients}, found {requests}: count each once")
    if rounds < 0:
        raise ValueError(f"rounds must be 0 or more, found {rounds}: give their count")
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
        raise ValueError(f"target must be from 0 to 1, found {target}: give a probability")
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
        remaining_sizes: m_c, members left in each set of each round; where not all count for
            all (`aggregation.max_distance`), for the member that has the fewest.
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
