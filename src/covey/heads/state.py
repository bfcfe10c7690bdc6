"""What a server knows of clients' data where heads are solved: sums, and who is in them."""

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from covey.components.state import ComponentState
from covey.heads.solving import Head, solved_head
from covey.heads.sums import Sums
from covey.types import Handle

__all__ = ["ClusterSums"]


class ClusterSums(ComponentState):
    """A_j and B_j of every cluster, and how its head is solved from them.

    Attributes:
        gram, targets: the sums, cluster by cluster (`covey.heads.Sums`).
        counted: whose records are in them: the cluster and the weight of each client.
        clients: how many that were. Where `counted` has fewer, somebody left.
        pooling, regularisation: of each cluster, as `covey.heads.solved_head` takes them.
    """

    key = "cluster-sums"
    gram: tuple[Tensor, ...] = ()
    targets: tuple[Tensor, ...] = ()
    counted: Mapping[Handle, tuple[int, int]] = {}
    clients: int = 0
    pooling: tuple[float, ...] = ()
    regularisation: tuple[float, ...] = ()

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
        """Return a cluster's head, solved."""
        own, others = self.own_and_others(cluster)
        pooling, regularisation = self.pooling[cluster], self.regularisation[cluster]
        return solved_head(own, others, pooling, regularisation)

    def own_and_others(self, cluster: int) -> tuple[Sums, Sums]:
        """Return a cluster's sums, and those of all other clusters together."""
        sums = self.sums
        others = sums[:cluster] + sums[cluster + 1 :]
        return sums[cluster], sum(others, Sums.nothing(*self.targets[cluster].shape))
