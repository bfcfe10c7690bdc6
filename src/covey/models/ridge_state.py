"""What a server has where heads are solved, and what a head would answer without a client.

That is what a client compares heads by, as long as lambda's unit stays. It says nothing of
what a head reveals. With e = t - p the errors on a client's records, R R^T = M^-1 and w the
share of them in the system of the head:

    H = w Phi M^-1 Phi^T = w (Phi R) (Phi R)^T
    error without the client = (I - H)^-1 e                   (block leave-out)
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from pydantic import PrivateAttr
from torch import Tensor

from covey.base.component_state import ComponentState
from covey.base.names import Handle
from covey.models.ridge_sums import FEATURE_STEPS, Head, Rows, SentHead, Sums, blocks, solved_head

Scores = Float[Tensor, "rows classes"]


def scores_without_client(head: Head | SentHead, rows: Rows, share: float) -> Scores:
    """Return the scores on a client's records of a head that never met the client.

    Args:
        head: solved with this share of the client's records.
        rows: the client's.
        share: 1 in the client's own cluster, gamma in any other; 0: it never met them.
    """
    phi = rows.features.float().div_(FEATURE_STEPS)
    scores = phi @ head.theta.float()
    if not share or not len(rows):
        return scores
    targets = targets_of(rows.labels, scores)
    # R has nothing below its diagonal, which is not multiplied
    edges = blocks(len(head.root))
    rooted = torch.cat([phi[:, :end] @ head.root[:end, start:end] for start, end in edges], dim=1)
    hat = (rooted @ rooted.T).double() * share
    rest = torch.eye(len(hat), dtype=torch.float64) - hat
    errors = torch.linalg.solve(rest, (targets - scores).double())
    return targets - errors.float()


def targets_of(labels: Int64[Tensor, " rows"], scores: Scores) -> Scores:
    """Return onehot(y) - 1 / classes, in the type of these scores."""
    classes = scores.shape[1]
    return torch.nn.functional.one_hot(labels, classes).to(scores) - 1 / classes


class _Solved(NamedTuple):
    """A head, and what it was solved from."""

    sums: tuple[Tensor, ...]
    coefficients: tuple[float, float]
    head: Head


class ClusterSums(ComponentState):
    """A_j and B_j of every cluster, and how its head is solved from them.

    Attributes:
        gram, targets: the sums, cluster by cluster (`covey.models.ridge_sums.Sums`).
        counted: whose records are in them: the cluster of each client.
        clients: how many that were. Where `counted` has fewer, somebody left.
        pooling, regularisation: of each cluster, as `ridge_sums.solved_head` takes them.
        digests: of what remote clients sent: they must send the same again to be taken off.
    """

    key = "cluster-sums"
    gram: tuple[Tensor, ...] = ()
    targets: tuple[Tensor, ...] = ()
    counted: Mapping[Handle, int] = {}
    clients: int = 0
    pooling: tuple[float, ...] = ()
    regularisation: tuple[float, ...] = ()
    digests: Mapping[Handle, str] = {}
    _solved: dict[int, _Solved] = PrivateAttr(default_factory=dict[int, _Solved])

    def of(self, sums: tuple[Sums, ...], counted: Mapping[Handle, int]) -> "ClusterSums":
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
        counts = Counter(self.counted.values())
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

    def shares(self, handle: Handle) -> tuple[float, ...]:
        """Return which share of a client's records is in each cluster's head."""
        own = self.counted.get(handle)
        if own is None:
            return (0.0,) * len(self.gram)
        return tuple(1.0 if j == own else gamma for j, gamma in enumerate(self.pooling))

    def own_and_others(self, cluster: int) -> tuple[Sums, Sums]:
        """Return a cluster's sums, and those of all other clusters together."""
        sums = self.sums
        others = sums[:cluster] + sums[cluster + 1 :]
        if not others:
            return sums[cluster], Sums.nothing(*sums[cluster].targets.shape)
        return sums[cluster], sum(others[1:], others[0])
