"""What a server carries from round to round: every cluster's sums, and who is in them."""

from collections import Counter
from collections.abc import Mapping

from pydantic import PrivateAttr

from covey.base.component_state import ComponentState
from covey.base.names import Handle
from covey.ridge.head import Head, solved_head
from covey.ridge.sums import Sums


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
