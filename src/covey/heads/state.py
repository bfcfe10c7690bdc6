"""What a server knows of clients' data where heads are solved: sums, and who is in them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import PrivateAttr
from torch import Tensor

from covey.components.state import ComponentState
from covey.heads.solving import Head, solved_head
from covey.heads.sums import Sums
from covey.types import Handle

__all__ = ["ClusterSums"]


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """A head, and what it was solved from."""

    sums: tuple[Tensor, ...]
    dials: tuple[float, float]
    head: Head

    def is_of(self, sums: tuple[Tensor, ...], dials: tuple[float, float]) -> bool:
        """Say whether it is the head of these very tensors, which nobody writes into."""
        same = len(sums) == len(self.sums) and all(
            one is other for one, other in zip(sums, self.sums, strict=True)
        )
        return same and dials == self.dials


class ClusterSums(ComponentState):
    """A_j and B_j of every cluster, and how its head is solved from them.

    Attributes:
        gram, targets: the sums, cluster by cluster (`covey.heads.Sums`).
        counted: whose records are in them: the cluster and the weight of each client.
        clients: how many that were. Where `counted` has fewer, somebody left.
        pooling, regularisation: of each cluster, as `covey.heads.solved_head` takes them.
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
        dials = self.pooling[cluster], self.regularisation[cluster]
        sums = (*self.gram, *self.targets)
        known = self._solved.get(cluster)
        if known is None or not known.is_of(sums, dials):
            head = solved_head(*self.own_and_others(cluster), *dials)
            self._solved[cluster] = known = _Solved(sums, dials, head)
        return known.head

    def stake(self, handle: Handle) -> tuple[int, tuple[float, ...]]:
        """Return a client's weight, and which share of it is in each cluster's head."""
        if handle not in self.counted:
            return 0, (0.0,) * len(self.gram)
        own, weight = self.counted[handle]
        return weight, tuple(
            1.0 if j == own else gamma for j, gamma in enumerate(self.pooling)
        )

    def own_and_others(self, cluster: int) -> tuple[Sums, Sums]:
        """Return a cluster's sums, and those of all other clusters together."""
        sums = self.sums
        others = sums[:cluster] + sums[cluster + 1 :]
        if not others:
            return sums[cluster], Sums.nothing(*sums[cluster].targets.shape)
        return sums[cluster], sum(others[1:], others[0])
