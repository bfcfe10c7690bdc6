"""What an aggregation is: how clients' updates become the next cluster models.

In every round it begins an `Aggregator`, which takes the updates one by one, in client-name
order, so that a mean never holds more than one of them.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch

from covey.aggregation.server import Models, NoServerOptimizer, ServerOptimizer
from covey.base.components import Component, OwnFunction, Part
from covey.base.errors import ConfigError
from covey.base.events import ClusterWaited, Event
from covey.base.names import Distance, Handle, Params
from covey.base.params import add, add_scaled, misfit, scale
from covey.base.rng import Streams

NOT_FINITE = "must hold finite numbers only"
"""How the reason of a refused update ends, a remote node's as well."""


class NoisySteps(NamedTuple):
    """The noise in the steps by which an update was trained (DP-SGD).

    Attributes:
        multiplier: z: noise on a sum of clipped gradients, in units of their largest L2 norm.
        steps: how many.
        sampling: the chance, per step, that one of the examples is in the batch.
    """

    multiplier: float
    steps: int
    sampling: float


@dataclass(frozen=True, slots=True, eq=False)
class ClientUpdate:
    """One client's contribution to one cluster: `update = local - start`.

    Attributes:
        weight: share in a weighted mean, any positive unit.
        kept: what the client keeps for its next round, by name; None: nothing. It stays on
            the client's side, and is empty here where that is elsewhere; a simulation plays
            both.
        loss: of its training, in nats; None: not known here.
        streams: from which the client draws noise of its own; None: that is not done here.
        noise: in the steps that made it; None: there is none, or it is not known here.
    """

    handle: Handle
    cluster: int
    update: Params
    weight: float
    kept: Mapping[str, Params] | None = None
    loss: float | None = None
    streams: Streams | None = None
    noise: NoisySteps | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AggregationResult:
    """The next cluster models, and what a ledger should remember of the aggregation.

    Attributes:
        again: clients whose updates are needed once more, in this order: they are added, and
            then `result` is called again.
    """

    clusters: Models
    events: tuple[Event, ...] = ()
    again: tuple[Handle, ...] = ()


@runtime_checkable
class Aggregator(Protocol):
    """The aggregation of one round."""

    def add(self, update: ClientUpdate, /) -> None:
        """Take one more update."""
        ...

    def result(self) -> AggregationResult:
        """Return the next models, once all updates were added."""
        ...


BeginRound = Callable[[Models, Streams], Aggregator]
"""From the cluster models before a round, and its streams."""


class ClusterMeans:
    """Move every cluster model by the weighted mean of its clients' updates.

    theta_j <- theta_j + sum_{i in S_j} w_i (theta_i - theta_j) / sum_{i in S_j} w_i

    With equal weights this is the mean of the clients' models. An empty cluster does not
    move. Counters take their maximum instead.

    References:
        Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Algorithm 1 line 17.
    """

    def __init__(self, models: Models) -> None:
        self.models = models
        self.sums: dict[int, dict[str, torch.Tensor]] = {}
        self.weights: dict[int, float] = {}

    def add(self, update: ClientUpdate) -> None:
        """Add w_i u_i to the sum of its cluster, and w_i to that of its weights."""
        j, weight = update.cluster, update.weight
        self.weights[j] = self.weights.get(j, 0.0) + weight
        if j in self.sums:
            add_scaled(self.sums[j], update.update, weight)
        else:
            self.sums[j] = cast("dict[str, torch.Tensor]", scale(update.update, weight))

    def result(self) -> AggregationResult:
        """Return the models, each moved by its mean."""
        moved = list(self.models)
        for j in self.sums:
            moved[j] = add(moved[j], self.mean(j))
        return AggregationResult(tuple(moved))

    def mean(self, cluster: int) -> Params:
        """Return the weighted mean of a cluster's updates.

        Raises:
            ConfigError: none came of this cluster.
        """
        if cluster not in tuple(self.sums):  # whatever it is, it need not be hashable
            raise ConfigError(
                f"cluster must be one that an update came of, {sorted(self.sums)}, found "
                f"{cluster!r}: ask for one of these."
            )
        return scale(self.sums[cluster], 1 / self.weights[cluster])


def mean_per_cluster(
    models: Models, updates: Iterable[ClientUpdate], streams: Streams | None = None
) -> AggregationResult:
    """Return what `ClusterMeans` makes of these updates; nothing is drawn."""
    del streams
    means = ClusterMeans(models)
    for update in updates:
        means.add(update)
        del update  # before the next one comes
    return means.result()


class AtOnce:
    """Holds all updates of a round, for a function of all of them."""

    def __init__(
        self,
        models: Models,
        streams: Streams,
        aggregate: Callable[[Models, list[ClientUpdate], Streams], AggregationResult],
    ) -> None:
        self._models, self._streams, self._aggregate = models, streams, aggregate
        self._updates: list[ClientUpdate] = []

    def add(self, update: ClientUpdate) -> None:
        """Hold it."""
        self._updates.append(update)

    def result(self) -> AggregationResult:
        """Return what the function says."""
        return self._aggregate(self._models, self._updates, self._streams)


def combined_per_cluster(
    models: Models,
    updates: Iterable[ClientUpdate],
    combined: Callable[[list[ClientUpdate]], Params],
    fewest: int,
) -> AggregationResult:
    """Move every cluster model by what all of its clients' updates combine to.

    A cluster with fewer clients than `fewest` keeps its model, and waits.
    """
    moved, facts = list(models), list[Event]()
    for j, own in updates_per_cluster(updates).items():
        if len(own) < fewest:
            facts.append(ClusterWaited(j, len(own), fewest))
        else:
            moved[j] = add(models[j], combined(own))
    return AggregationResult(tuple(moved), tuple(facts))


def updates_per_cluster(updates: Iterable[ClientUpdate]) -> Mapping[int, list[ClientUpdate]]:
    """Return every cluster's updates, of clusters that have some, in order."""
    members: dict[int, list[ClientUpdate]] = {}
    for update in updates:
        members.setdefault(update.cluster, []).append(update)
    return dict(sorted(members.items()))


def _unaccounted(_: float, __: float, ___: Sequence[int]) -> float:
    raise ConfigError(
        "Accounted noise must know its rounds, found none: pass `begin` a FederationInfo of them."
    )


@dataclass(frozen=True, slots=True)
class FederationInfo:
    """What an aggregation may know of the federation.

    Attributes:
        clients: how many there are.
        rounds: how many are played.
        participation: chance of each client in each round.
        shared: whether all clients train one model.
        repeats: whether clients can be trained once more in a round, to the same updates. A
            remote client that trains again would learn that it represents others.
        noise_multiplier: from epsilon, delta, and how large the sets are of which one
            member speaks: the least noise that keeps all rounds within them, as a
            multiple of what replacing the speaker can change.
    """

    clients: int
    rounds: int = 1
    participation: float = 1.0
    shared: bool = False
    repeats: bool = False
    noise_multiplier: Callable[[float, float, Sequence[int]], float] = _unaccounted


@dataclass(frozen=True, slots=True)
class AnonymityTerms:
    """What an aggregation that hides clients among each other says about it.

    Attributes:
        min_anonymity: the least members of an anonymity set; fewer clients wait.
        deniability_threshold: a client can be denied while every set that held it keeps
            so many members.
        max_distance: beyond which a member does not speak for another; 0: none is too far.
        distance: by which: L2 between updates, or cosine between models.
        noise: the standard deviation of the Gaussian noise on a representative; None: it is
            unknown, or the noise is not Gaussian.
        radius: the largest norm of an update, where the noise is accounted for; else 0.
        delta: for which it is accounted; 0 where it is not.
    """

    min_anonymity: int
    deniability_threshold: int = 1
    max_distance: float = 0.0
    distance: Distance = "l2"
    noise: float | None = 0.0
    radius: float = 0.0
    delta: float = 0.0

    @property
    def accounted(self) -> bool:
        """Whether the noise gives a guarantee that counts on every client."""
        return self.radius > 0


class Aggregation(Component):
    """How the updates of a round become the next cluster models.

    Write one by deriving from it. Annotated fields are its options; every round it begins an
    object with `add` and `result`:

    >>> class Slowed(Aggregation):
    ...     factor: float = 0.5
    ...
    ...     def begin(self, models, streams, federation):
    ...         return SlowedMeans(models, self.factor)
    >>> class SlowedMeans(ClusterMeans):
    ...     def __init__(self, models, factor):
    ...         super().__init__(models)
    ...         self.factor = factor
    ...
    ...     def add(self, update):
    ...         super().add(replace(update, update=scale(update.update, self.factor)))

    Its name in the settings is `aggregation.name = "package.module:Slowed"`, and beside it stands
    `factor`. `ClusterwiseAggregation` takes less where every cluster is aggregated by
    itself, from all its updates at once.

    Attributes:
        sees_updates: whether the server must see single updates: then there are no masks,
            and no noise on sums.
        keeps_clusters_apart: whether a cluster's next model depends on its own clients'
            updates alone, to the last bit. Unless a class says so itself, or is a
            `ClusterwiseAggregation`, everybody's exposure counts in every cluster.
        hides_members: whether what is released can be attributed to every member of the sets
            that its `AnonymitySetsFormed` record, and nothing else of an update stays. Unless
            a class says so itself, no client is denied.
        needs_equal_weights: whether clients must count alike, however many examples they
            hold.
        needs_shared_models: whether it makes no sense where each client has its own model.
        waits: whether a cluster may have too few clients for it, and waits.
        weights: clients count `equal` (the paper) or by their `examples`.
        server_optimizer: what the server makes of the result.
    """

    sees_updates: ClassVar[bool] = True
    keeps_clusters_apart: ClassVar[bool] = False
    hides_members: ClassVar[bool] = False
    needs_equal_weights: ClassVar[bool] = False
    needs_shared_models: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    weights: Literal["equal", "examples"] = "equal"
    server_optimizer: Annotated[ServerOptimizer, Part("server_optimizer")] = NoServerOptimizer()

    @abstractmethod
    def begin(self, models: Models, streams: Streams, federation: FederationInfo) -> Aggregator:
        """Return the aggregation of one round.

        Args:
            models: of the clusters, before the round; they must stay as they are.
            streams: from which whatever is random is drawn.
            federation: whose round it is.

        Returns:
            What takes the updates: finite ones, in client-name order. A cluster may have
            none: it does not move.
        """

    def anonymity(self) -> AnonymityTerms | None:
        """Return how clients are hidden among each other; None: they are not."""
        return None


class OwnAggregation(Aggregation, OwnFunction):
    """A user's function of the models, a list of all updates, and streams."""

    def begin(self, models: Models, streams: Streams, federation: FederationInfo) -> Aggregator:  # noqa: ARG002 - for others
        """Hold all updates for the function."""
        return AtOnce(models, streams, self.call)


class ClusterwiseAggregation(Aggregation):
    """An aggregation that looks at each cluster by itself, at all its updates at once.

    It holds all updates of a round in memory. A cluster with fewer clients than `fewest`
    keeps its model, and waits: the fact is recorded, and after `risk.every` such rounds
    its clients take their next best.
    """

    @property
    def fewest(self) -> int:
        """How many clients a cluster needs."""
        return 1

    @abstractmethod
    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the update of a cluster's model; there are at least `fewest` updates."""

    def begin(self, models: Models, streams: Streams, federation: FederationInfo) -> Aggregator:  # noqa: ARG002 - for others
        """Hold all updates, to move every cluster model by its combined one."""

        def aggregate(models: Models, updates: list[ClientUpdate], _: Any) -> AggregationResult:  # noqa: ANN401
            return combined_per_cluster(models, updates, self._fitting, self.fewest)

        return AtOnce(models, streams, aggregate)

    def _fitting(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the combined update, which is one of the model's names and shapes."""
        combined = self.combined(updates)
        if unlike := misfit(updates[0].update, combined):
            raise ConfigError(
                f"{type(self).__name__}.combined must return every parameter of the model, of the "
                f"same shape, found that {unlike}: keep those of `updates[0].update`."
            )
        return combined
