"""What is released of sums and of heads under noise, when, and what is recorded of it."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from covey.algorithms.state import ServerState
from covey.base.component_state import ComponentState
from covey.base.errors import RunError
from covey.base.events import Event, HeadPerturbed, SharesPerturbed, SumPerturbed
from covey.base.names import Handle
from covey.base.rng import Draws, Streams
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_state import ClusterSums, SumNoise, noisy_head
from covey.models.ridge_sums import WEIGHT_STEPS, Head, Rows, Sums, solved_head


class ReleasedSums(ComponentState):
    """Every cluster's sums under the noise that was drawn when they last changed.

    Attributes:
        gram, targets: the noisy sums, cluster by cluster.
        exact: SHA-256 of the sums that they are of, and of who is in them: while both
            stay, so does the noise.
    """

    key = "released-sums"
    gram: tuple[Tensor, ...] = ()
    targets: tuple[Tensor, ...] = ()
    exact: tuple[str, ...] = ()

    @property
    def sums(self) -> tuple[Sums, ...]:
        """The noisy sums of every cluster."""
        return tuple(map(Sums, self.gram, self.targets))


@dataclass(frozen=True, slots=True)
class Release:
    """Sums that heads are solved from.

    Attributes:
        digests: SHA-256 of what is released for each cluster: its sums, or its head.
        theta: a cluster's head.
        kept: what a server keeps of the release.
        facts: of the noise that was drawn for it.
    """

    digests: tuple[str, ...]
    theta: Callable[[int], Tensor]
    kept: tuple[ComponentState, ...] = ()
    facts: tuple[Event, ...] = ()


def release_of(
    state: ServerState, sums: ClusterSums, noise: SumNoise | None, streams: Streams
) -> Release:
    """Return what heads are solved from: without noise the sums themselves.

    Noise is drawn for a cluster whose sums or clients have changed, and for no other: the
    same under other noise would be a second release, and other sums under the same noise
    would reveal exactly what changed. That clients changed is enough: if noise stayed for
    one whose sums are zero, and was drawn for all others, it would reveal that one.

    Args:
        state: before the round.
        sums: of the round.
        noise: hides them; None: nothing does.
        streams: of the round.
    """
    if noise is None:
        digests = tuple(each.digest() for each in sums.sums)
        return Release(digests, lambda j: sums.head(j).theta)
    known, clients = state.kept(ReleasedSums), sums.clients_per_cluster()
    exact = tuple(digest_of(sums, j) for j in range(len(sums.gram)))
    released: list[Sums] = []
    facts: list[SumPerturbed | SharesPerturbed] = []
    for j, own in enumerate(sums.sums):
        there = known.exact[j : j + 1] == exact[j : j + 1]
        if there or not clients[j]:
            released.append(known.sums[j] if there else own)
        elif noise.honest:  # what came from clients is noisy
            released.append(own)
            z = noise.shares.effective_multiplier(len(own.gram) + own.targets.numel())
            facts.append(SharesPerturbed("sums", j, noise.clip, z, noise.honest))
        else:
            released.append(noise.released(own, _hidden(streams, j, exact[j])))
            facts.append(SumPerturbed(j, noise.clip, noise.multiplier, 1.0))
    noisy = ReleasedSums(
        gram=tuple(each.gram for each in released),
        targets=tuple(each.targets for each in released),
        exact=exact,
    )

    def theta(cluster: int) -> Tensor:
        return _head(sums, noisy.sums, cluster, noise).theta

    digests = tuple(each.digest() for each in released)
    return Release(digests, theta, (noisy,), tuple(facts))


def digest_of(sums: ClusterSums, cluster: int) -> str:
    """Return the SHA-256 of a cluster's sums, and of who is in them at what weight."""
    hashed = hashlib.sha256(sums.sums[cluster].digest().encode())
    for handle, (j, weight) in sorted(sums.counted.items()):
        if j == cluster and weight:  # a weight of 0 is no membership
            hashed.update(f" {handle} {weight}".encode())
    return hashed.hexdigest()


def _hidden(streams: Streams, cluster: int, digest: str) -> Draws:
    """Return what draws noise that no other sums ever get, under whatever secret."""
    return streams.at("sums", cluster, digest).draws()


def _head(sums: ClusterSums, released: tuple[Sums, ...], cluster: int, noise: SumNoise) -> Head:
    """Return a cluster's head, solved from what was released of all clusters."""
    hidden = sums.model_copy(
        update={
            "gram": tuple(each.gram for each in released),
            "targets": tuple(each.targets for each in released),
        }
    )
    own, others = hidden.own_and_others(cluster)
    pooling = sums.pooling[cluster]
    clients = sums.clients_per_cluster()
    elsewhere = sum(n > 0 for n in clients) - (clients[cluster] > 0)
    edge = noise.of(clients[cluster]).edge(len(own.targets))
    edge *= math.sqrt(1 + pooling**2 * elsewhere)
    return noisy_head(own, others, pooling, sums.regularisation[cluster], edge)


def head_alone(sums: Sums, regularisation: float, noise: SumNoise | None, streams: Streams) -> Head:
    """Return the head of one cluster by itself, as a release of these sums makes it."""
    nothing = Sums.nothing(*sums.targets.shape)
    if noise is None:
        return solved_head(sums, nothing, 0.0, regularisation)
    released = noise.released(sums, _hidden(streams, 0, sums.digest()))
    edge = noise.edge(len(sums.targets))
    return noisy_head(released, nothing, 0.0, regularisation, edge)


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
        weights = {handle: each.weight / WEIGHT_STEPS for handle, each in inside.items()}
        fact = HeadPerturbed(
            cluster=j,
            clip=noise.clip,
            noise_multiplier=noise.multiplier,
            regularisation=noise.regularisation,
            classes=noise.classes,
            weights=weights,
            heaviest=max((weights[h] * len(each) for h, each in inside.items()), default=0.0),
        )
        facts.append(fact)
    kept = ReleasedHeads(thetas=tuple(thetas), exact=exact, rounds=known.rounds + bool(facts))
    digests = tuple(hashlib.sha256(each.numpy().tobytes()).hexdigest() for each in thetas)
    return Release(digests, thetas.__getitem__, (kept,), tuple(facts))


def theta_alone(sums: Sums, noise: HeadNoise, streams: Streams, digest: str) -> Tensor:
    """Return one head under noise that no other sums ever get, under whatever secret."""
    d, classes = sums.targets.shape
    drawn = streams.at("head", digest).draws().normal(0.0, 1.0, (d, classes))
    return noise.head(sums, drawn)


def _check_residuals(sums: Sums, noise: HeadNoise, inside: Mapping[Handle, Rows]) -> None:
    there = [each for each in inside.values() if each.weight]
    hidden = noise.hidden(sums, there)
    largest = max((each.largest_residual for each in hidden), default=0.0)
    if largest > noise.clip:
        raise RunError(
            f"No record's residual in a head without it may be above privacy.record_clip "
            f"= {noise.clip}, as the noise hides no more; found {largest:.3f}. Nothing was "
            f"released. Raise privacy.record_clip, or method.regularisation."
        )
