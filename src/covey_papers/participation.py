"""The participation game SG_FL: did this client take part in training these models?

The adversary holds all of a client's examples and every final cluster model. Real clients
are set against reserved ones, which never took part: pseudo-clients made of matched
non-members. Everything but their making works on plain arrays.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    section 3.
    Rao, Wu, Resampling Inference With Complex Survey Data, 1988.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from covey import Examples, Streams
from covey.data.examples import Client
from covey.membership.intervals import LEVEL, clopper_pearson

MIN_RESERVED = 5
"""Reserved clients of a group below which its participants are not compared."""

MIN_RESAMPLED = 8
"""Clients of a side below which a bootstrap is too sure: of 5, it covers 0.86, not 0.95."""

RESAMPLES = 2_000

ScoresByGroup = Mapping[int, Float[ndarray, "_"]]
"""Per group, a score per client; a group without clients is left out."""


@dataclass(frozen=True, slots=True)
class GameOutcome:
    """How well the adversary separates clients from reserved ones.

    Attributes:
        auc: the chance that such a client scores higher than a reserved one of its
            group; 0.5 is a coin toss.
        low, high: the 95% interval, over clients.
        clients: how many such clients there were, reserved ones apart.
    """

    auc: float
    low: float
    high: float
    clients: int


def reserved_clients(
    clients: Sequence[Client],
    non_members: int,
    held: Callable[[int, Int[Tensor, " images"]], Examples],
    streams: Streams,
) -> dict[int, list[Examples]]:
    """Deal matched non-members to pseudo-clients as large as each group's real clients.

    Groups share their non-members, one image under each group's transform: an image
    serves one group and one pseudo-client, and groups get equally many images. Groups
    for which fewer than `MIN_RESERVED` can be made are left out.

    Args:
        clients: the real ones.
        non_members: how many images there are to deal.
        held: what a pseudo-client of this group holds of these images, by their index.
        streams: of the game.
    """
    if not non_members:
        return {}
    sizes: dict[int, list[int]] = {}
    for client in clients:
        if client.group is not None:
            sizes.setdefault(client.group, []).append(len(client.train))
    order = torch.from_numpy(streams.generator().permutation(non_members))
    parts = order.tensor_split(max(1, len(sizes)))
    made = {
        group: [held(group, own) for own in _blocks(part, own_sizes)]
        for part, (group, own_sizes) in zip(parts, sorted(sizes.items()), strict=False)
    }
    return {g: sets for g, sets in made.items() if len(sets) >= MIN_RESERVED}


def client_scores(
    losses: Float[ndarray, "clusters examples"], sizes: Sequence[int]
) -> Float[ndarray, " clients"]:
    """Return minus each client's mean loss under the model that suits it best.

    score(c) = -min_j mean_{x in D_c} loss(theta_j, x)

    A model that diverged (NaN) suits no client.

    Args:
        losses: of all clients' examples, one client after the other.
        sizes: how many examples each client has, at least one.
    """
    starts = [0, *accumulate(sizes)][:-1]
    means = np.add.reduceat(losses, starts, axis=1) / np.asarray(sizes)
    return -np.nan_to_num(np.fmin.reduce(means, axis=0), nan=np.inf, posinf=np.inf)


def participation_game(
    inside: ScoresByGroup, reserved: ScoresByGroup, streams: Streams
) -> GameOutcome | None:
    """Compare clients with the reserved clients of their own group.

    The groups' AUCs are averaged, weighted by the clients in `inside`: two groups of
    unequal difficulty are never compared with each other, and a diverged model, whose
    score is -inf, needs no mean to be subtracted. The interval is the percentile
    bootstrap's: within each group both sides are drawn again, one client less than there
    are (Rao, Wu, 1988). Where it is not to be trusted, with fewer than `MIN_RESAMPLED`
    clients on a side or sides that do not overlap, it is Clopper and Pearson's for as
    many trials as the smaller side has clients, which errs on the wide side:
    Var(AUC) <= AUC (1 - AUC) / min(n1, n0).

    Returns:
        None where no group has clients on both sides.
    """
    groups = sorted(inside.keys() & reserved.keys())
    if not groups:
        return None
    counts = np.array([len(inside[group]) for group in groups])
    shares = counts / counts.sum()
    wins = [_wins(inside[group], reserved[group]) for group in groups]
    pairs = zip(groups, wins, strict=True)
    drawn = [_resampled(values, streams.at("bootstrap", g).generator()) for g, values in pairs]
    again = shares @ np.stack(drawn)
    auc = float(shares @ [win.mean() for win in wins])
    least = min(int(counts.sum()), sum(len(reserved[group]) for group in groups))
    if least < MIN_RESAMPLED or np.ptp(again) < 1e-9:
        low, high = clopper_pearson(round(auc * least), least)
    else:
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(again, [tail, 1 - tail])
    return GameOutcome(auc, min(auc, float(low)), max(auc, float(high)), int(counts.sum()))


def _blocks(order: torch.Tensor, sizes: Sequence[int]) -> Iterator[torch.Tensor]:
    """Cut into disjoint blocks of these sizes, over and over, while they are whole."""
    used = 0
    for size in cycle(sizes):
        if used + size > len(order):
            return
        yield order[used : used + size]
        used += size


def _wins(
    inside: Float[ndarray, " clients"], others: Float[ndarray, " others"]
) -> Float[ndarray, "clients others"]:
    """Return 1 where a client scores higher, 0.5 on a tie; in order of the scores.

    In order, so that the resamples do not depend on which client comes first.
    """
    a, b = np.sort(inside)[:, None], np.sort(others)
    return (a > b) + 0.5 * (a == b)


def _resampled(
    wins: Float[ndarray, "clients others"], generator: np.random.Generator
) -> Float[ndarray, " resamples"]:
    """Return the AUC of each resample: both sides are drawn with replacement.

    Of n clients n - 1 are drawn: n would spread too little by (n - 1) / n, and groups may
    be small.
    """
    rows, columns = (
        generator.multinomial(max(1, n - 1), np.full(n, 1 / n), RESAMPLES) / max(1, n - 1)
        for n in wins.shape
    )
    return ((rows @ wins) * columns).sum(axis=1)
