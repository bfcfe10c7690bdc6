"""Who shares masks with whom, and how many neighbours are enough."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Neighbourhood", "neighbourhood", "neighbours_of", "ring_order"]


def ring_order(names: Sequence[str], salt: bytes) -> tuple[str, ...]:
    """Return the names in an order that the salt draws, and anybody can compute."""

    def place(name: str) -> bytes:
        return hashlib.sha256(salt + name.encode()).digest()

    return tuple(sorted(names, key=place))


def neighbours_of(order: Sequence[str], name: str, degree: int) -> tuple[str, ...]:
    """Return the k / 2 names on each side on the ring; all others if k is that many."""
    if degree >= len(order) - 1:
        return tuple(other for other in order if other != name)
    here, half = order.index(name), degree // 2
    steps = (*range(-half, 0), *range(1, half + 1))
    return tuple(order[(here + step) % len(order)] for step in steps)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """How many neighbours a round of so many clients takes.

    Attributes:
        neighbours: k, even; or all others.
        majority: share of them above which is the threshold.
        lost: bound on the chance that a round has no sum, as some client's mask cannot be
            taken off.
        exposed: bound on the chance that more is learnt than one sum over all honest
            clients: that some client's neighbours on the server's side reach the
            threshold, or that the honest ones fall apart into several sums.
    """

    neighbours: int
    majority: float
    lost: float
    exposed: float


def neighbourhood(
    clients: int,
    *,
    dropping: float = 0.3,
    colluding: float = 0.1,
    lost: float = 2**-10,
    exposed: float = 2**-40,
) -> Neighbourhood:
    """Return the smallest neighbourhood with these chances of failure; all, if none is.

    Clients are on the ring in a random order. Of the k neighbours of one, the number that
    drop out or collude is hypergeometric; by the union bound over all clients

        lost    <= n P[Hyp(n - 1, (1 - dropping) n, k) < t]
        exposed <= n P[Hyp(n - 1, colluding n, k) >= t] + n (dropping + colluding)^(k / 2)

    The last term: honest clients fall apart only where k / 2 in a row are gone.

    Args:
        clients: n.
        dropping: share that drops out, in [0, 1).
        colluding: share that tells the server all it has, in [0, 1).
        lost: the largest chance of no sum that is accepted.
        exposed: the largest chance that more is learnt than one sum.

    References:
        Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead,
        2020: the graph, and the three events. The bounds here are the exact tails.
    """
    complete = Neighbourhood(clients - 1 + (clients - 1) % 2, 0.5, 0.0, 0.0)
    for k in range(2, clients - 1, 2):
        found = _failing(clients, k, dropping, colluding)
        if found.lost <= lost and found.exposed <= exposed:
            return found
    return complete


def _failing(n: int, k: int, dropping: float, colluding: float) -> Neighbourhood:
    from scipy.stats import hypergeom  # slow to import, and no client asks

    threshold = k // 2 + 1
    gone, bad = int(dropping * n), int(colluding * n)
    there = hypergeom(n - 1, n - 1 - gone, k)
    colluders = hypergeom(n - 1, bad, k)
    lost = n * float(there.cdf(threshold - 1))
    apart = n * ((gone + bad) / n) ** (k // 2)
    exposed = n * float(colluders.sf(threshold - 1)) + apart
    return Neighbourhood(k, 0.5, min(lost, 1.0), min(exposed, 1.0))
