"""What an aggregation is: how clients' updates become the next cluster models.

How clients' updates become the next cluster models.

Every aggregation is a function `(cluster models, updates, streams) -> AggregationResult`;
what it draws, it draws from `streams`. A user's own is one too: `package.module:function`.
Updates arrive one by one, in client-name order, so that a mean never holds more than one
of them.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch

from covey.aggregation.server import Models, NoServerOptimizer, ServerOptimizer
from covey.base.components import Component, OwnFunction, Part
from covey.base.errors import ConfigError
from covey.base.events import AnswerRefused, ClusterWaited, Event
from covey.base.names import Distance, Handle, Params
from covey.base.params import add, misfit, not_finite, scale
from covey.base.rng import Streams


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
    """

    handle: Handle
    cluster: int
    update: Params
    weight: float
    kept: Mapping[str, Params] | None = None
    loss: float | None = None
    streams: Streams | None = None


Updates = Iterable[ClientUpdate]
"""One by one, in client-name order."""


@dataclass(frozen=True, slots=True, eq=False)
class AggregationResult:
    """The next cluster models, and what a ledger should remember of the aggregation."""

    clusters: Models
    events: tuple[Event, ...] = ()


Aggregator = Callable[[Models, Updates, Streams], AggregationResult]

Transform = Callable[[Updates], Updates]
"""What a round's updates pass between training and aggregation."""


def mean_per_cluster(clusters: Models, updates: Updates, _: Streams) -> AggregationResult:
    """Move every cluster model by the weighted mean of its clients' updates.

    theta_j <- theta_j + sum_{i in S_j} w_i (theta_i - theta_j) / sum_{i in S_j} w_i

    With equal weights this is the mean of the clients' models. An empty cluster does not
    move. Counters take their maximum instead.

    References:
        Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Algorithm 1 line 17.
    """
    sums, weights = sum_per_cluster(updates)
    return AggregationResult(
        tuple(
            add(model, scale(sums[j], 1 / weights[j])) if j in sums else model
            for j, model in enumerate(clusters)
        )
    )


def combined_per_cluster(
    clusters: Models,
    updates: Updates,
    combined: Callable[[list[ClientUpdate]], Params],
    fewest: int,
) -> AggregationResult:
    """Move every cluster model by what all of its clients' updates combine to.

    A cluster with fewer clients than `fewest` keeps its model, and waits.
    """
    members: dict[int, list[ClientUpdate]] = {}
    for each in updates:
        members.setdefault(each.cluster, []).append(each)
    moved, facts = list(clusters), list[Event]()
    for j, own in sorted(members.items()):
        if len(own) < fewest:
            facts.append(ClusterWaited(j, len(own), fewest))
        else:
            moved[j] = add(clusters[j], combined(own))
    return AggregationResult(tuple(moved), tuple(facts))


def sum_per_cluster(updates: Updates) -> tuple[Mapping[int, Params], Mapping[int, float]]:
    """Return sum_{i in S_j} w_i u_i and sum_{i in S_j} w_i of each cluster j with clients.

    Counters are not added: their maximum is taken.
    """
    sums: dict[int, dict[str, torch.Tensor]] = {}
    weights: dict[int, float] = {}
    for each in updates:
        _accumulate(sums.setdefault(each.cluster, {}), each)
        weights[each.cluster] = weights.get(each.cluster, 0.0) + each.weight
        del each  # before the next one comes
    return sums, weights


def _accumulate(total: dict[str, torch.Tensor], each: ClientUpdate) -> None:
    for name, value in each.update.items():
        if name not in total:
            total[name] = value * each.weight if value.is_floating_point() else value
        elif value.is_floating_point():
            total[name].add_(value, alpha=each.weight)
        else:
            total[name] = torch.maximum(total[name], value)


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
    """

    clients: int
    rounds: int = 1
    participation: float = 1.0
    shared: bool = False
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

    Write one by deriving from it. Annotated fields are its options:

    >>> class Slowed(Aggregation):
    ...     factor: float = 0.5
    ...
    ...     def aggregate(self, models, updates, streams):
    ...         slow = (replace(u, update=scale(u.update, self.factor)) for u in updates)
    ...         return mean_per_cluster(models, slow, streams)

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
    def aggregate(self, models: Models, updates: Updates, streams: Streams) -> AggregationResult:
        """Return the next cluster models.

        Args:
            models: of the clusters, before the round, from which others go on.
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


class OwnAggregation(Aggregation, OwnFunction):
    """A user's function of models, updates and streams."""

    def aggregate(self, *args: Any, **named: Any) -> AggregationResult:  # noqa: ANN401
        """Return what the function says."""
        return self.call(*args, **named)


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

    def aggregate(
        self,
        models: Models,
        updates: Updates,
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


@dataclass(frozen=True, slots=True, eq=False)
class RepeatableUpdates:
    """A round's updates, one by one, and a way to those of some clients afterwards.

    A simulation trains these clients once more: every draw of a client has a name, so that
    the same comes of it. Where clients are remote nothing of the kind is passed: who is
    trained again would learn that it speaks for others.

    Attributes:
        arriving: the updates, in client-name order; they can be taken once.
        again: yields the updates of these clients, in this order. All of `arriving` must
            have been taken before.
    """

    arriving: Iterator[ClientUpdate]
    again: Callable[[Sequence[Handle]], Iterator[ClientUpdate]]

    def __iter__(self) -> Iterator[ClientUpdate]:
        return self.arriving


NOT_FINITE = "must hold finite numbers only"
"""How the reason of such a refusal ends, a remote node's as well."""


class RefusedUpdate(NamedTuple):
    """An update that is not finite, or is not together with the others of its cluster.

    Attributes:
        cluster: whose model it would have moved.
        entry: the first of the update's entries that holds NaN or infinity, or the first
            of the model that all updates make.
        together: whether all are finite by themselves, and what they add up to is not.
    """

    handle: Handle
    cluster: int
    entry: str
    together: bool = False


def finite_updates(
    updates: Updates, refused: list[RefusedUpdate] | None = None, *, as_zero: bool = False
) -> Iterator[ClientUpdate]:
    """Yield the updates that are finite, one by one, as they are.

    Args:
        updates: one by one too: a mean never holds more than one of them.
        refused: grows by what is refused, as far as updates have been taken.
        as_zero: whether a refused update is yielded as 0, instead of left out. Where the
            noise on updates is accounted for, how many there are must not follow from
            anybody's data.
    """
    for each in updates:
        entry = not_finite(each.update)
        if not entry:
            yield each
            del each  # before the next one comes
            continue
        if refused is not None:
            refused.append(RefusedUpdate(each.handle, each.cluster, entry))
        if as_zero:
            zero = {name: torch.zeros_like(v) for name, v in each.update.items()}
            yield replace(each, update=zero)


def refusal_events(refused: Iterable[RefusedUpdate]) -> tuple[AnswerRefused, ...]:
    """Return the facts, one per client, worded as a remote node's."""
    first: dict[Handle, RefusedUpdate] = {}
    for each in refused:
        first.setdefault(each.handle, each)
    return tuple(
        AnswerRefused(
            handle, f"its update of {each.entry} {'and the others ' * each.together}{NOT_FINITE}"
        )
        for handle, each in first.items()
    )
