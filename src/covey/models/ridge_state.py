"""What a server has where heads are solved; one noisy release; a head without a client.

What a head would answer without a client, as long as lambda's unit stays.

That is what a client compares heads by. It says nothing of what a head reveals.

With e = t - p the errors on a client's records, R R^T = M^-1 and w the weight with which
they stand in the system of the head:

    H = w Phi M^-1 Phi^T = w (Phi R) (Phi R)^T
    error without the client = (I - H)^-1 e                   (block leave-out)

References:
    Dwork, Talwar, Thakurta, Zhang, Analyze Gauss, 2014: noise on a Gram matrix.
    Wang, Revisiting Differentially Private Linear Regression (AdaSSP), 2018:
    regularisation from the noise.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from pydantic import PrivateAttr
from torch import Tensor

from covey.base.component_state import ComponentState
from covey.base.names import Handle
from covey.base.rng import Draws, with_noise
from covey.models.ridge_sums import (
    CLIENT_STEPS,
    FEATURE_STEPS,
    MAX_NORM,
    WEIGHT_STEPS,
    Head,
    Rows,
    SentHead,
    Sums,
    blocks,
    bounded_client,
    diagonal_of,
    solved_head,
    target_norm,
)
from covey.secure_sums.noise import NoiseShares, Numbers

Scores = Float[Tensor, "rows classes"]


def scores_without_client(head: Head | SentHead, rows: Rows, share: float) -> Scores:
    """Return the scores on a client's records of a head that never met the client.

    Args:
        head: solved with the client's records, at their weight times `share`.
        rows: the client's.
        share: 1 in the client's own cluster, gamma in any other; 0: it never met them.
    """
    phi = rows.features.float().div_(FEATURE_STEPS)
    scores = phi @ head.theta.float()
    weight = share * rows.weight / WEIGHT_STEPS
    if not weight or not len(rows):
        return scores
    targets = targets_of(rows.labels, scores)
    # R has nothing below its diagonal, which is not multiplied
    edges = blocks(len(head.root))
    rooted = torch.cat([phi[:, :end] @ head.root[:end, start:end] for start, end in edges], dim=1)
    hat = (rooted @ rooted.T).double() * weight
    rest = torch.eye(len(hat), dtype=torch.float64) - hat
    errors = torch.linalg.solve(rest, (targets - scores).double())
    return targets - errors.float()


def targets_of(labels: Int64[Tensor, " rows"], scores: Scores) -> Scores:
    """Return onehot(y) - 1 / classes, in the type of these scores."""
    classes = scores.shape[1]
    return torch.nn.functional.one_hot(labels, classes).to(scores) - 1 / classes


@dataclass(frozen=True, slots=True)
class SumNoise:
    """Gaussian noise on a cluster's sums, and the bound on what hides in it.

        A' = A + E_A,    B' = B + E_B
        E_A symmetric: N(0, 2 s^2 R^4) on the diagonal, N(0, s^2 R^4) beside it
        E_B: N(0, 2 s^2 R^2 |t|^2), in the directions in which targets add up to 0
        s = z times what one client adds at most

    In the norm of `covey.models.ridge_sums` it is N(0, s^2) on every coordinate: one Gaussian
    mechanism of multiplier z, half of whose mu^2 is A's, and half B's.

    Attributes:
        clip: C: the largest norm of what a client adds.
        multiplier: z.
        honest: where clients add it, a share each: how many keep theirs to themselves
            (`covey.secure_sums.noise`); 0: whoever has the sums adds it.
    """

    clip: float
    multiplier: float
    honest: int = 0

    @property
    def shares(self) -> NoiseShares:
        """What every client adds to its own sums, where clients do."""
        return NoiseShares(CLIENT_STEPS, self.multiplier, self.honest)

    def bounded(self, rows: Rows, classes: int) -> Rows:
        """Return a client's records as they enter the sums."""
        return bounded_client(rows, self.clip, classes)

    def released(self, sums: Sums, draws: Draws) -> Sums:
        """Return the sums under noise: whole numbers again, rounded after the noise."""
        d, classes = sums.targets.shape
        on_gram = self._std() * (MAX_NORM * FEATURE_STEPS) ** 2
        drawn = draws.normal(0.0, on_gram, (d * (d + 1) // 2,))
        drawn[diagonal_of(d).numpy()] *= math.sqrt(2)
        std = self._std() * MAX_NORM * FEATURE_STEPS * math.sqrt(2)
        std *= target_norm(classes)
        on_targets = draws.normal(0.0, std, (d, classes))
        on_targets -= on_targets.mean(axis=1, keepdims=True)
        # What is kept of B are classes, of which the centre is taken off by A's last row.
        on_targets += drawn[-d:, None] / FEATURE_STEPS / classes
        return Sums(
            with_noise(sums.gram, np.rint(drawn), on_gram, draws),
            with_noise(sums.targets, np.rint(on_targets), std, draws),
        )

    def numbers(self, sums: Sums, draws: Draws) -> Numbers:
        """Return what a client sends under masks: its A and B, centred, under its noise."""
        classes = sums.targets.shape[1]
        centre = sums.gram[-len(sums.targets) :, None] / (FEATURE_STEPS * classes)
        both = torch.cat([sums.gram.double(), (sums.targets - centre).flatten()])
        return self.shares.numbers(both.numpy(), draws, _scales(*sums.targets.shape))

    def sums(self, numbers: Numbers, shape: tuple[int, int]) -> Sums:
        """Return the sums that a sum of such numbers stands for: whole numbers again."""
        d, classes = shape
        found = torch.from_numpy(self.shares.values(numbers, _scales(d, classes)))
        gram, targets = found.split([d * (d + 1) // 2, d * classes])
        gram, centred = gram.round(), targets.reshape(shape)
        centred = centred - centred.mean(dim=1, keepdim=True)  # of it only noise is left
        centre = gram[-d:, None] / (FEATURE_STEPS * classes)
        return Sums(gram.long(), (centred + centre).round().long())

    def of(self, clients: int) -> "SumNoise":
        """Return the noise in a sum over so many clients, whoever added it."""
        more = math.sqrt(clients / self.honest) if self.honest else 1.0
        return SumNoise(self.clip, self.multiplier * more)

    def edge(self, d: int) -> float:
        """Return 2 s R^2 sqrt(d), to which the largest eigenvalue of E_A tends (Wigner)."""
        return 2 * self._std() * MAX_NORM**2 * math.sqrt(d) / WEIGHT_STEPS

    def _std(self) -> float:
        """Return s, in steps of weight."""
        return self.multiplier * CLIENT_STEPS


def _scales(d: int, classes: int) -> Float64[np.ndarray, " numbers"]:
    """Return how much of each number of A and of centred B makes 1 in their joint norm."""
    on_gram = np.full(d * (d + 1) // 2, float((MAX_NORM * FEATURE_STEPS) ** 2))
    on_gram[diagonal_of(d).numpy()] *= math.sqrt(2)
    on_target = MAX_NORM * FEATURE_STEPS * math.sqrt(2) * target_norm(classes)
    return np.concatenate([on_gram, np.full(d * classes, on_target)])


def noisy_head(own: Sums, others: Sums, pooling: float, regularisation: float, edge: float) -> Head:
    """Return the head of a cluster, solved from released sums alone.

        theta_j = ((A'_j + gamma A'_rest)_+ + lambda e I)^-1 (B'_j + gamma B'_rest)

    ()_+ takes negative eigenvalues, which only noise can make, as 0.

    Args:
        own: A'_j and B'_j.
        others: A'_rest and B'_rest, of all other clusters.
        pooling: gamma.
        regularisation: lambda, in units of e.
        edge: e, of the noise in the system: from its standard deviation and d alone.
    """
    system, targets = own.matrices(others, pooling)
    values, basis = torch.linalg.eigh(system)
    kept = values.clamp(min=0) + regularisation * edge
    theta = basis @ ((basis.T @ targets) / kept[:, None])
    lower = torch.linalg.cholesky((basis * kept) @ basis.T)  # pyright: ignore[reportUnknownMemberType]
    return Head(theta, lower)


class _Solved(NamedTuple):
    """A head, and what it was solved from."""

    sums: tuple[Tensor, ...]
    coefficients: tuple[float, float]
    head: Head


class ClusterSums(ComponentState):
    """A_j and B_j of every cluster, and how its head is solved from them.

    Attributes:
        gram, targets: the sums, cluster by cluster (`covey.models.ridge_sums.Sums`).
        counted: whose records are in them: the cluster and the weight of each client.
        clients: how many that were. Where `counted` has fewer, somebody left.
        pooling, regularisation: of each cluster, as `ridge_sums.solved_head` takes them.
        digests: of what remote clients sent, before it is weighed: they must send the same
            again to be taken off.
    """

    key = "cluster-sums"
    gram: tuple[Tensor, ...] = ()
    targets: tuple[Tensor, ...] = ()
    counted: Mapping[Handle, tuple[int, int]] = {}
    clients: int = 0
    pooling: tuple[float, ...] = ()
    regularisation: tuple[float, ...] = ()
    digests: Mapping[Handle, str] = {}
    _solved: dict[int, _Solved] = PrivateAttr(default_factory=dict[int, _Solved])

    def of(
        self, sums: tuple[Sums, ...], counted: Mapping[Handle, tuple[int, int]]
    ) -> "ClusterSums":
        """Return these sums over these clients, from which heads are solved alike."""
        return self.model_copy(
            update={
                "gram": tuple(each.gram for each in sums),
                "targets": tuple(each.targets for each in sums),
                "counted": dict(counted),
                "clients": len(counted),
            }
        )

    @property
    def is_whole(self) -> bool:
        """Whether everybody whose records are in the sums is still known."""
        return self.clients == len(self.counted)

    @property
    def sums(self) -> tuple[Sums, ...]:
        """The sums of every cluster."""
        return tuple(map(Sums, self.gram, self.targets))

    def clients_per_cluster(self) -> tuple[int, ...]:
        """Return how many clients' records are in each cluster's sums."""
        counts = Counter(j for j, _ in self.counted.values())
        return tuple(counts[j] for j in range(len(self.gram)))

    def head(self, cluster: int) -> Head:
        """Return a cluster's head, solved once: the newest of each cluster is kept."""
        coefficients = self.pooling[cluster], self.regularisation[cluster]
        sums = (*self.gram, *self.targets)
        known = self._solved.get(cluster)
        # the head of these very tensors, which stay unchanged
        if (
            not known
            or known.coefficients != coefficients
            or [*map(id, known.sums)] != [*map(id, sums)]
        ):
            head = solved_head(*self.own_and_others(cluster), *coefficients)
            self._solved[cluster] = known = _Solved(sums, coefficients, head)
        return known.head

    def weight_and_shares(self, handle: Handle) -> tuple[int, tuple[float, ...]]:
        """Return a client's weight, and which share of it is in each cluster's head."""
        if handle not in self.counted:
            return 0, (0.0,) * len(self.gram)
        own, weight = self.counted[handle]
        return weight, tuple(1.0 if j == own else gamma for j, gamma in enumerate(self.pooling))

    def own_and_others(self, cluster: int) -> tuple[Sums, Sums]:
        """Return a cluster's sums, and those of all other clusters together."""
        sums = self.sums
        others = sums[:cluster] + sums[cluster + 1 :]
        if not others:
            return sums[cluster], Sums.nothing(*sums[cluster].targets.shape)
        return sums[cluster], sum(others[1:], others[0])
