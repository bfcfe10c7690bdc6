"""Heads under objective perturbation: when one is made anew, and what is told of it."""

import hashlib
from collections.abc import Callable, Mapping

from torch import Tensor

from covey.algorithms.base import ServerState
from covey.algorithms.released_sums import Release, digest_of
from covey.components.state import ComponentState
from covey.errors import RunError
from covey.events import HeadPerturbed
from covey.heads import WEIGHT_STEPS, ClusterSums, HeadNoise, Rows, Sums
from covey.rng import Streams
from covey.types import Handle

__all__ = ["ReleasedHeads", "heads_of_release", "theta_alone"]


class ReleasedHeads(ComponentState):
    """Every cluster's head, as it was released when its sums or its clients changed.

    Attributes:
        thetas: of every cluster.
        exact: SHA-256 of the sums that each is solved from, and of who is in them.
        rounds: in how many rounds some head was released.
    """

    key = "released-heads"
    thetas: tuple[Tensor, ...] = ()
    exact: tuple[str, ...] = ()
    rounds: int = 0


def heads_of_release(
    state: ServerState,
    sums: ClusterSums,
    noise: HeadNoise,
    rows: Callable[[Handle, int], Rows],
    streams: Streams,
) -> Release:
    """Return the heads of a round: those of before, or new ones under new noise.

    Args:
        state: before the round.
        sums: of the round.
        noise: hides records in heads.
        rows: a client's records at a weight, as they are in the sums.
        streams: of the round.

    Raises:
        RunError: a record's residual is larger than the noise counts on.
    """
    known, clients = state.kept(ReleasedHeads), sums.clients_per_cluster()
    exact = tuple(digest_of(sums, j) for j in range(len(sums.gram)))
    thetas: list[Tensor] = []
    facts: list[HeadPerturbed] = []
    for j, own in enumerate(sums.sums):
        if known.exact[j : j + 1] == exact[j : j + 1] or not clients[j]:
            thetas.append(known.thetas[j] if known.thetas else own.targets * 0.0)
            continue
        inside = {
            h: rows(h, weight)
            for h, (cluster, weight) in sorted(sums.counted.items())
            if cluster == j
        }
        _check_residuals(own, noise, inside)
        thetas.append(theta_alone(own, noise, streams.at("cluster", j), exact[j]))
        facts.append(_fact(j, noise, inside))
    kept = ReleasedHeads(
        thetas=tuple(thetas), exact=exact, rounds=known.rounds + bool(facts)
    )
    digests = tuple(
        hashlib.sha256(each.numpy().tobytes()).hexdigest() for each in thetas
    )
    return Release(digests, thetas.__getitem__, (kept,), tuple(facts))


def theta_alone(sums: Sums, noise: HeadNoise, streams: Streams, digest: str) -> Tensor:
    """Return one head under noise that no other sums ever get, under whatever secret."""
    d, classes = sums.targets.shape
    drawn = streams.at("head", digest).draws().normal(0.0, 1.0, (d, classes))
    return noise.head(sums, drawn)


def _check_residuals(
    sums: Sums, noise: HeadNoise, inside: Mapping[Handle, Rows]
) -> None:
    there = [each for each in inside.values() if each.weight]
    found = noise.hidden(sums, there)
    largest = max((each.largest_residual for each in found), default=0.0)
    if largest > noise.clip:
        raise RunError(
            f"No record's residual in a head without it may be above privacy.record_clip "
            f"= {noise.clip}, as the noise hides no more; found {largest:.3f}. Nothing was "
            f"released. Raise privacy.record_clip, or method.options.regularisation."
        )


def _fact(
    cluster: int, noise: HeadNoise, inside: Mapping[Handle, Rows]
) -> HeadPerturbed:
    weights = {handle: each.weight / WEIGHT_STEPS for handle, each in inside.items()}
    return HeadPerturbed(
        cluster=cluster,
        clip=noise.clip,
        noise_multiplier=noise.multiplier,
        regularisation=noise.regularisation,
        classes=noise.classes,
        weights=weights,
        heaviest=max(
            (weights[h] * len(each) for h, each in inside.items()), default=0.0
        ),
    )
