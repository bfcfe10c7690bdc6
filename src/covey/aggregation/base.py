"""What an aggregation is: how clients' updates become the next cluster models."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from covey.aggregation.merging import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    combined_per_cluster,
)
from covey.components.capability import Capability
from covey.components.component import Component
from covey.errors import ConfigError
from covey.params import misfit
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["Aggregation", "AnonymityTerms", "ClusterwiseAggregation", "FederationInfo"]


def _unaccounted(_: float, __: float, ___: Sequence[int]) -> float:
    raise ConfigError(
        "Noise that is accounted for needs to know over how many rounds it is added, "
        "found an aggregation by itself. Call `prepared` with a FederationInfo first."
    )


@dataclass(frozen=True, slots=True)
class FederationInfo:
    """What an aggregation may know of the federation before its first round.

    Attributes:
        clients: how many there are.
        rounds: how many are played.
        participation: chance of each client in each round.
        shared: whether all clients train one model.
        noise_multiplier: from epsilon, delta, and how large the sets are of which one
            member speaks: the least noise that keeps all rounds within them, as a
            multiple of what replacing the speaker can change.
        organisations: of its clients, as far as they are attested; None: nobody asks, as
            the clients are those of a rehearsal.
    """

    clients: int
    rounds: int = 1
    participation: float = 1.0
    shared: bool = False
    noise_multiplier: Callable[[float, float, Sequence[int]], float] = _unaccounted
    organisations: Mapping[Handle, str] | None = None


@dataclass(frozen=True, slots=True)
class AnonymityTerms:
    """What an aggregation that hides clients among each other says about it.

    Attributes:
        min_anonymity: the least members of an anonymity set; fewer clients wait.
        deniability_threshold: a client can be denied while every set that held it keeps
            so many members.
        max_distance: beyond which (L2) a member does not speak for another; 0: none is
            too far.
        noise: the standard deviation of the noise on a representative; None: unknown.
        radius: the largest norm of an update, where the noise is accounted for; else 0.
        delta: for which it is accounted; 0 where it is not.
        min_organisations: different organisations of the members of each set; above 1,
            only members whose organisation is attested count.
    """

    min_anonymity: int
    deniability_threshold: int = 1
    max_distance: float = 0.0
    noise: float | None = 0.0
    radius: float = 0.0
    delta: float = 0.0
    min_organisations: int = 1

    @property
    def accounted(self) -> bool:
        """Whether the noise gives a guarantee that counts on every client."""
        return self.radius > 0


class Aggregation(Component):
    """How the updates of a round become the next cluster models.

    Write one by deriving from it. Annotated fields are its options:

    >>> class Slowed(Aggregation):
    ...     factor: float = 0.5
    ...
    ...     def aggregate(self, models, updates, streams):
    ...         slow = (replace(u, update=scale(u.update, self.factor)) for u in updates)
    ...         return mean_per_cluster(models, slow, streams)

    Its name in the settings is `merge.name = "package.module:Slowed"`, and its options
    stand in `[merge.options]`. `ClusterwiseAggregation` takes less where every cluster is
    aggregated by itself, from all its updates at once.

    Everybody's exposure counts in every cluster, as an aggregation may mix them, unless it
    is a `ClusterwiseAggregation` or its own class has a `rules_out` without
    `Capability.CLUSTER_ISOLATION`.
    """

    waits: ClassVar[bool] = True
    """Whether a cluster may have too few clients for it, and waits."""
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SINGLE_UPDATES})
    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CLUSTER_ISOLATION}
    )

    @abstractmethod
    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> AggregationResult:
        """Return the next cluster models.

        Args:
            models: of the clusters, before the round. Nobody may write into them.
            updates: one by one, in client-name order, all of them finite. A cluster may
                have none: it does not move.
            streams: from which whatever is random is drawn.
        """

    def prepared(self, federation: FederationInfo) -> Aggregator:  # noqa: ARG002 - for others
        """Return how updates are aggregated in this federation: by `aggregate`."""
        return self.aggregate

    def masked(self, min_cohort: int) -> Aggregator | None:  # noqa: ARG002 - for others
        """Return the same under masks, of so many clients at least; None: there is none."""
        return None

    def anonymity(self) -> AnonymityTerms | None:
        """Return how clients are hidden among each other; None: they are not."""
        return None


class ClusterwiseAggregation(Aggregation):
    """An aggregation that looks at each cluster by itself, at all its updates at once.

    It holds all updates of a round in memory. A cluster with fewer clients than `fewest`
    keeps its model, and waits: the fact is recorded, and after `redteam.every` such rounds
    its clients take their next best.
    """

    @property
    def fewest(self) -> int:
        """How many clients a cluster needs."""
        return 1

    @abstractmethod
    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the update of a cluster's model; there are at least `fewest` updates."""

    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,  # noqa: ARG002 - for others
    ) -> AggregationResult:
        """Move every cluster model by the combined update of its clients."""
        return combined_per_cluster(models, updates, self._fitting, self.fewest)

    def _fitting(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the combined update, which is one of the model's names and shapes."""
        combined = self.combined(updates)
        if unlike := misfit(updates[0].update, combined):
            raise ConfigError(
                f"{type(self).__name__}.combined must return a tensor for every parameter "
                f"of the model, of the same shape: {unlike}. Keep the names and shapes of "
                f"`updates[0].update`."
            )
        return combined
