"""Ridge heads: their closed form, one without a client, and the sums that a server keeps for them.

A client compares heads by what each would answer without it, as long as lambda's unit stays.
That says nothing of what a head reveals. With e = t - p the errors on a client's records,
R R^T = M^-1 and w the share of them in the system of the head:

    H = w Phi M^-1 Phi^T = w (Phi R) (Phi R)^T
    error without the client = (I - H)^-1 e                   (block leave-out)
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Float32, Float64, Int64
from pydantic import PrivateAttr
from torch import Tensor

from covey.base.component_state import ComponentState
from covey.base.errors import ModelError
from covey.base.names import Handle, Params
from covey.ridge.sums import FEATURE_STEPS, Rows, Sums, blocks

Scores = Float[Tensor, "rows classes"]


@dataclass(frozen=True, eq=False)
class Head:
    """theta = M^-1 B, with what shows how much each record contributes to it.

    Attributes:
        theta: the weights, the bias last.
        lower: L with L L^T = M.
    """

    theta: Float64[Tensor, "d classes"]
    lower: Float64[Tensor, "d d"]

    @cached_property
    def root(self) -> Float32[Tensor, "d d"]:
        """R with R R^T = M^-1, upper triangular: a record's leverage is |phi R|^2."""
        d = len(self.lower)
        root = torch.zeros(d, d)
        for start, end in blocks(d):  # the columns of L^-1 are 0 above the diagonal
            one = torch.eye(d - start, end - start, dtype=torch.float64)
            below = self.lower[start:, start:]
            columns = torch.linalg.solve_triangular(below, one, upper=False)
            root[start:end, start:] = columns.T
        return root

    @property
    def params(self) -> Params:
        """The parameters of the linear layer."""
        theta = self.theta.float()
        return {"head.weight": theta[:-1].T.contiguous(), "head.bias": theta[-1].clone()}


@dataclass(frozen=True, eq=False)
class SentHead:
    """What a client needs of a head to know it without itself.

    Attributes:
        theta: as `Head.theta`; column by column in memory, like that one, so that products
            with it are the same to the last bit.
        root: as `Head.root`; without numbers where the head never met the client.
    """

    theta: Float32[Tensor, "d classes"]
    root: Float32[Tensor, "_ _"]

    @classmethod
    def of(cls, model: Params, root: Tensor | None = None) -> "SentHead":
        """Return the head that is a model's last layer."""
        theta = torch.cat([model["head.weight"], model["head.bias"][:, None]], dim=1).T
        return cls(theta, torch.empty(0, 0) if root is None else root)


def is_head(params: Params) -> bool:
    """Say whether these are a linear head's parameters, and nothing else."""
    return set(params) == {"head.weight", "head.bias"}


def shape_of(model: Params) -> tuple[int, int]:
    """Return d, how many features a head has and its bias, and how many classes."""
    classes, features = model["head.weight"].shape
    return features + 1, classes


def solved_head(own: Sums, others: Sums, pooling: float, regularisation: float) -> Head:
    """Return the head of a cluster.

        theta_j = (A_j + gamma A_rest + lambda m I)^-1 (B_j + gamma B_rest)

    Args:
        own: A_j and B_j.
        others: A_rest and B_rest, of all other clusters.
        pooling: gamma in [0, 1]; 0: own data alone, 1: everybody's alike.
        regularisation: lambda > 0, in units of m, the mean diagonal of A_j + A_rest.

    Raises:
        ModelError: there is nothing to solve, or no number to solve it with.
    """
    system, targets = own.matrices(others, pooling)
    everybody = (own.diagonal + others.diagonal).double()
    unit = float(everybody.mean()) / FEATURE_STEPS**2 or 1.0  # where there is no client
    system.diagonal().add_(regularisation * unit)
    try:
        lower: Tensor = torch.linalg.cholesky(system)  # pyright: ignore[reportUnknownMemberType]
    except RuntimeError as error:
        raise ModelError(
            f"regularisation must be high enough to solve a head, found {regularisation}: raise it."
        ) from error
    return Head(torch.cholesky_solve(targets, lower), lower)


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


class ClusterSums(ComponentState):
    """A_j and B_j of every cluster, and how its head is solved from them.

    Attributes:
        sums: cluster by cluster; none before the first client.
        counted: whose records are in them: the cluster of each client.
        clients: how many that were. Where `counted` has fewer, somebody left.
        pooling, regularisation: as `solved_head` takes them.
        digests: of what remote clients sent: they must send the same again to be taken off.
    """

    key = "cluster-sums"
    sums: tuple[Sums, ...] = ()
    counted: Mapping[Handle, int] = {}
    clients: int = 0
    pooling: float = 0.0
    regularisation: float = 1.0
    digests: Mapping[Handle, str] = {}
    _heads: dict[int, Head] = PrivateAttr(default_factory=dict[int, Head])

    def of(
        self,
        sums: tuple[Sums, ...],
        counted: Mapping[Handle, int],
        digests: Mapping[Handle, str] | None = None,
    ) -> "ClusterSums":
        """Return these sums over these clients, from which heads are solved alike."""
        return ClusterSums(
            sums=sums,
            counted=counted,
            clients=len(counted),
            pooling=self.pooling,
            regularisation=self.regularisation,
            digests=self.digests if digests is None else digests,
        )

    @property
    def is_whole(self) -> bool:
        """Whether everybody whose records are in the sums is still known."""
        return self.clients == len(self.counted)

    @property
    def clients_per_cluster(self) -> tuple[int, ...]:
        """How many clients' records are in each cluster's sums."""
        counts = Counter(self.counted.values())
        return tuple(counts[j] for j in range(len(self.sums)))

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every cluster's head, solved once."""
        return tuple(map(self.head, range(len(self.sums))))

    def head(self, cluster: int) -> Head:
        """Return a cluster's head, solved once."""
        if cluster not in self._heads:
            own, *rest = self.sums[cluster], *self.sums[:cluster], *self.sums[cluster + 1 :]
            others = sum(rest[1:], rest[0]) if rest else Sums.nothing(*own.targets.shape)
            self._heads[cluster] = solved_head(own, others, self.pooling, self.regularisation)
        return self._heads[cluster]

    def shares(self, handle: Handle) -> tuple[float, ...]:
        """Return which share of a client's records is in each cluster's head."""
        own = self.counted.get(handle)
        clusters = range(len(self.sums))
        if own is None:
            return (0.0,) * len(clusters)
        return tuple(1.0 if j == own else self.pooling for j in clusters)
