"""Perturbed k-anonymous integrally private federated averaging: updates hidden in sets.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Algorithm 1 and Eq. 10-12.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from covey.aggregation.base import (
    Aggregation,
    AggregationResult,
    Aggregator,
    AnonymityTerms,
    ClientUpdate,
    ClusterMeans,
    FederationInfo,
    mean_per_cluster,
    updates_per_cluster,
)
from covey.aggregation.mean import NoiseShape, noisy, projected
from covey.aggregation.partition import (
    Sets,
    SketchedCluster,
    Sketches,
    balanced_kmeans,
    diameters,
    mdav,
    neighbours,
    public_random,
    set_sizes,
    sets_within,
    sketch_error,
    unit_rows,
    update_bytes,
)
from covey.aggregation.robust import bounded_by_median
from covey.aggregation.server import Models
from covey.base.built_ins import component
from covey.base.components import AboveZero, NotNegative, Positive
from covey.base.events import (
    AnonymitySetsFormed,
    ClientsOutsideSets,
    ClusterWaited,
    DistancesSketched,
    Event,
    RepresentativesPerturbed,
)
from covey.base.names import Distance, Handle, Params
from covey.base.params import add, flatten, trained
from covey.base.rng import Streams

WINDOW = 2.0**30
"""Bytes of a round's updates that are held; beyond, they pass by, and sketches are left."""


def sets_event(
    cluster: int,
    handles: Sequence[Handle],
    sets: Sets,
    widths: Sequence[float | None],
    close: tuple[Sets, ...],
    distance: Distance,
) -> AnonymitySetsFormed:
    """Return which sets were formed, each in the order of its handles.

    Args:
        cluster: whose clients they hide.
        handles: of all these clients.
        sets: as indices of them.
        widths: the sets' diameters.
        close: per set and member, who is near; empty where none is needed.
        distance: by which they are.
    """
    rows: list[tuple[tuple[Handle, ...], float | None, tuple[tuple[Handle, ...], ...]]] = []
    for c, members in enumerate(sets):
        order = sorted(range(len(members)), key=lambda i: handles[members[i]])
        near = [tuple(sorted(handles[n] for n in close[c][i])) for i in order] if close else []
        rows.append((tuple(handles[members[i]] for i in order), widths[c], tuple(near)))
    names, diameters_, near_ = zip(*sorted(rows), strict=True)
    return AnonymitySetsFormed(cluster, names, diameters_, near_ if close else (), distance)


Points = Float[Tensor, "clients coordinates"]
NoiseScale = Callable[[Sequence[Params], Sequence[int]], float]
"""The standard deviation, per coordinate, of what hides one set's representative; from all
clients' models, and which of them are in the set."""
Near = tuple[Sets, ...]


@dataclass(frozen=True, slots=True)
class Hiding:
    """How a run hides its updates: by these sets, with what only a run has.

    Attributes:
        sets: the settings.
        noise: the standard deviation of what is added to a representative.
        noise_multiplier: z, where representatives are differentially private for each
            client (`dp_hiding`): the noise has standard deviation 2 z Delta.
        window: bytes of a round's updates. Where they take more, sets are made over sketches, and
            the updates of representatives are needed again.
    """

    sets: "AnonymitySets"
    noise: NoiseScale
    noise_multiplier: float | None = None
    window: float = math.inf


def dp_hiding(sets: "AnonymitySets", z: float) -> Hiding:
    """Return the way of hiding that is differentially private for each client.

    u_i <- min(1, Delta / |u_i|) u_i;  s_c = 2 z Delta

    Sets look at no data, so that replacing a client replaces one update of one set: it
    moves its representative by at most 2 Delta, if it is drawn at all. Nothing else that
    depends on the updates is recorded, diameters neither.
    """
    return Hiding(sets, lambda _, __: 2 * z * sets.radius, z)


class HidingRound:
    """Shows the server one perturbed update per anonymity set.

    theta_j <- theta_j + sum_c p_c (u_{r_c} + N(0, s_c^2 I)) / sum_c p_c

    or Laplace noise of the same standard deviation (`noise_shape`).

    The sets C_c partition the clients of cluster j, p_c is the sum of its members'
    weights and r_c one of its members, drawn from a hidden stream. A cluster with fewer
    than k clients waits; so do, with `limit_sets`, clients that are in no set.

    Updates that take more than `hiding.window` bytes are not held: the sets compare their
    sketches, and the update of each r_c is taken again. The same sets then give the same
    models, to the bit.

    References:
        Algorithm 1; Eq. 11 and 12.
    """

    def __init__(self, models: Models, streams: Streams, *, hiding: Hiding) -> None:
        self._models, self._streams, self._hiding = models, streams, hiding
        self._window = math.inf if _compares_all(hiding.sets) else hiding.window
        self._held, self._bytes = deque[ClientUpdate](), 0
        self._sketches: Sketches | None = None
        self._again: dict[Handle, _Representative] = {}
        self._means, self._facts = ClusterMeans(models), tuple[Event, ...]()

    def add(self, update: ClientUpdate) -> None:
        """Hold one more update, or its sketch; or perturb a representative's."""
        update = _bounded(self._hiding, update)
        if known := self._again.get(update.handle):
            self._means.add(known.perturbed(update))
        elif self._sketches is not None:
            self._sketches.take(update)
        else:
            self._held.append(update)
            self._bytes += update_bytes(update.update)
            if self._bytes > self._window:
                self._sketches = Sketches(self._models, self._streams)
                while self._held:
                    self._sketches.take(self._held.popleft())

    def result(self) -> AggregationResult:
        """Return the models, moved by what hides; or whose updates are needed for that."""
        if self._again:
            return replace(self._means.result(), events=self._facts)
        if self._sketches is None:
            sets, facts = _formed_sets(self._hiding, self._models, self._held, self._streams)
            merged = mean_per_cluster(self._models, (group.released() for group in sets))
            return replace(merged, events=facts)
        clusters = self._sketches.clusters
        self._again, self._facts = _sketched_sets(self._hiding, clusters, self._streams)
        return AggregationResult(self._models, self._facts, tuple(self._again))


@dataclass(frozen=True, slots=True, eq=False)
class _Representative:
    """How the update of one that stands for a set is released.

    Attributes:
        weight: p_c, before all are divided by their sum.
        std: the standard deviation of the noise on its update.
        shape: of that noise.
        streams: of that noise.
    """

    weight: float
    std: float
    shape: NoiseShape
    streams: Streams

    def perturbed(self, update: ClientUpdate) -> ClientUpdate:
        """Return its perturbed update, with the weight of the whole set."""
        if self.std == 0:
            return replace(update, weight=self.weight)
        noise = self.streams.at("noise").draws()
        perturbed = noisy(update.update, self.std, noise, self.shape)
        return replace(update, update=perturbed, weight=self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class HiddenSet:
    """One anonymity set of a round, with what it hides.

    Attributes:
        members: their updates, as the server uses them.
        representative: r_c, by its place among them.
        release: how its update is released.
    """

    members: Sequence[ClientUpdate]
    representative: int
    release: _Representative

    @property
    def weight(self) -> float:
        """p_c, before all are divided by their sum."""
        return self.release.weight

    def released(self) -> ClientUpdate:
        """Return the one update that counts, perturbed, with the weight of the whole set."""
        return self.release.perturbed(self.members[self.representative])


def _formed_sets(
    hiding: Hiding, clusters: Models, updates: Iterable[ClientUpdate], streams: Streams
) -> tuple[tuple[HiddenSet, ...], tuple[Event, ...]]:
    """Divide updates that are all here into sets, and draw a representative of each."""
    if hiding.sets.max_relative_norm > 0:
        updates = bounded_by_median(tuple(updates), hiding.sets.max_relative_norm)
    hidden: list[HiddenSet] = []
    facts: list[Event] = []
    for j, of_cluster in updates_per_cluster(updates).items():
        handles = [update.handle for update in of_cluster]
        if len(handles) < hiding.sets.min_anonymity:
            facts.append(ClusterWaited(j, len(of_cluster), hiding.sets.min_anonymity))
            continue
        locals_ = [add(clusters[j], update.update) for update in of_cluster]
        blind, angles = hiding.sets.partition == "public-random", hiding.sets.distance == "cosine"
        models = _points(locals_) if angles or not blind else None
        sets = _partition(hiding, models, handles, streams.at("partition", j))
        points = _points([update.update for update in of_cluster])
        compared = models if models is not None and angles else points
        if hiding.sets.limit_sets:
            k, most, by = hiding.sets.min_anonymity, hiding.sets.max_distance, hiding.sets.distance
            sets = sets_within(compared, sets, k, most, by)
            inside = set(chain.from_iterable(sets))
            if waiting := tuple(sorted(h for i, h in enumerate(handles) if i not in inside)):
                facts.append(ClientsOutsideSets(j, waiting))
            if not sets:
                facts.append(ClusterWaited(j, len(of_cluster), hiding.sets.min_anonymity))
                continue
        near = _near(hiding, compared, sets, hiding.sets.max_distance)
        widths = _diameters_to_record(hiding, points, sets)
        formed = sets_event(j, handles, sets, widths, near, hiding.sets.distance)
        facts += (formed, *_events_beside(hiding, formed))
        for c, anonymity_set in enumerate(sets):
            at = streams.at("anonymity set", j, c)
            own = tuple(of_cluster[i] for i in anonymity_set)
            weight, std = sum(one.weight for one in own), hiding.noise(locals_, anonymity_set)
            release = _Representative(weight, std, hiding.sets.noise_shape, at)
            hidden.append(HiddenSet(own, _representative(len(own), at), release))
    return tuple(hidden), tuple(facts)


def _sketched_sets(
    hiding: Hiding, clusters: Mapping[int, SketchedCluster], streams: Streams
) -> tuple[dict[Handle, _Representative], tuple[Event, ...]]:
    """Divide clients into sets by their sketches, and draw a representative of each."""
    drawn: dict[Handle, _Representative] = {}
    facts: list[Event] = []
    for j, own in sorted(clusters.items()):
        if len(own.handles) < hiding.sets.min_anonymity:
            facts.append(ClusterWaited(j, len(own.handles), hiding.sets.min_anonymity))
            continue
        points = own.points()
        models = points + own.model if hiding.sets.distance == "cosine" else points
        sets = _partition(hiding, models, own.handles, streams.at("partition", j))
        most = own.sketch.surely_within(hiding.sets.max_distance)
        near = _near(hiding, points, sets, most)
        widths = _diameters_to_record(hiding, points, sets)
        formed = sets_event(j, own.handles, sets, widths, near, hiding.sets.distance)
        numbers, estimates = own.sketch.numbers, tuple(formed.diameters)
        facts += (  # the diameters were not measured
            replace(formed, diameters=(None,) * len(sets)),
            DistancesSketched(j, numbers, sketch_error(numbers), estimates),
            *_events_beside(hiding, formed),
        )
        for c, anonymity_set in enumerate(sets):
            at = streams.at("anonymity set", j, c)
            weight, std = (
                sum(own.weights[i] for i in anonymity_set),
                hiding.noise((), anonymity_set),
            )
            one = own.handles[anonymity_set[_representative(len(anonymity_set), at)]]
            drawn[one] = _Representative(weight, std, hiding.sets.noise_shape, at)
    return drawn, tuple(facts)


def noise_scale(
    noise: Literal["none", "released", "paper"], distance: Distance, std: float
) -> NoiseScale:
    """Return the noise of this name.

    none: no noise. released: what the paper's published code adds, the largest distance
    between two members of the set. paper: sigma * Delta, as printed, passed as `std`.
    None of them by itself makes a model differentially private.
    """
    if noise == "none":
        return lambda _, __: 0.0
    if noise == "paper":
        return lambda _, __: std
    apart = _angle if distance == "cosine" else _mean_row_distance
    return lambda models, members: max(
        (apart(models[a], models[b]) for a, b in combinations(members, 2)), default=0.0
    )


def _bounded(hiding: Hiding, update: ClientUpdate) -> ClientUpdate:
    """Return what a client shows of its update; in a ball, all count the same."""
    if hiding.noise_multiplier is None:
        return update
    return replace(update, update=projected(update.update, hiding.sets.radius), weight=1.0)


def _partition(
    hiding: Hiding, points: Points | None, handles: Sequence[Handle], streams: Streams
) -> Sets:
    k, how = hiding.sets.min_anonymity, hiding.sets.partition
    if points is not None and hiding.sets.distance == "cosine":
        points = unit_rows(points)
    if points is None or how == "public-random":
        return public_random(len(handles), k, streams.generator())
    if how == "kmeans":
        return balanced_kmeans(points, k, streams.generator())
    return mdav(points, k)


def _points(models: Sequence[Params]) -> Points:
    return torch.stack([flatten(trained(model)) for model in models])


def _near(hiding: Hiding, points: Points, sets: Sets, most: float) -> Near:
    """Return who is near whom in each set, where that is needed."""
    if not hiding.sets.max_distance:
        return ()
    return neighbours(points, sets, most, hiding.sets.distance)


def _compares_all(sets: "AnonymitySets") -> bool:
    """Say whether all models have to be here: sketches bound no angle, and no diameter."""
    return sets.limit_sets or (sets.distance == "cosine" and sets.max_distance > 0)


def _diameters_to_record(hiding: Hiding, points: Points, sets: Sets) -> Sequence[float | None]:
    """Return the sets' diameters, where they are finite and may be recorded."""
    if hiding.noise_multiplier is not None:
        return [None] * len(sets)
    return [d if math.isfinite(d) else None for d in diameters(points, sets)]


def _events_beside(hiding: Hiding, formed: AnonymitySetsFormed) -> list[Event]:
    """Return what noise representatives have."""
    if (z := hiding.noise_multiplier) is None:
        return []
    sizes = tuple(map(len, formed.sets))
    return [RepresentativesPerturbed(formed.cluster, sizes, hiding.sets.radius, z)]


def _representative(members: int, streams: Streams) -> int:
    """Draw r_c, by its place among so many members."""
    return int(streams.at("representative").draws().integers(members))


def _mean_row_distance(left: Params, right: Params) -> float:
    """Return the mean over all rows of all layers of the rows' L2 distance."""
    gaps = [
        (value - right[name]).reshape(len(value), -1).norm(dim=1)
        for name, value in trained(left).items()
        if value.dim() > 0
    ]
    return float(torch.cat(gaps).mean())


def _angle(left: Params, right: Params) -> float:
    one, other = flatten(trained(left)), flatten(trained(right))
    return float(1 - torch.nn.functional.cosine_similarity(one, other, dim=0))


@component("aggregation", "anonymity-sets")
class AnonymitySets(Aggregation):
    """Each update is hidden among at least k, of which one is released.

    Perturbed k-anonymous integrally private averaging: `HidingRound`.

    Attributes:
        min_anonymity: the paper's k: anonymity sets have k to 2k - 1 members; a cluster with
            fewer clients waits, and after `risk.every` rounds they take their next best.
        deniability_threshold: the paper's x, at most k: a client is denied while every set
            that held it keeps so many members.
        partition: of a cluster's clients into sets: `mdav`, or balanced `kmeans`, both of
            the clients' models; `public-random` looks at no data.
        distance: `l2`, or `cosine`: 1 - cos of the angle between models, as in the paper's
            experiments; it bounds no L2 distance.
        max_distance: the paper's Delta, by `distance`: a member farther away does not count
            towards x; 0: all count. With `cosine` a round's models are all held in memory.
        limit_sets: whether every two members of a set are within `max_distance`: clients for
            whom no such set is found take no part in the round. Its models are all held in
            memory. Not for `public-random`.
        noise: what is added to a representative: `released` (as the paper's published code,
            the set's largest mean row distance) or `paper` (standard deviation `radius`, the
            paper's sigma times Delta), which make no model differentially private by
            themselves; or `sound`: updates projected to norm `radius`, and as much noise as
            `epsilon` asks for. It needs `partition = "public-random"`, `distance = "l2"`,
            `weights = "equal"` and `max_distance = 0`.
        noise_shape: `gaussian`, or `laplace` of the same standard deviation s, so of scale
            s / sqrt(2): the paper has either (section 3.1). For `noise = "paper"` and
            `noise = "released"`; `sound` is accounted for Gaussian noise alone, and how well
            Laplace noise hides an update from a holder of two candidates' is unknown.
        radius: for `noise = "paper"` and `noise = "sound"`.
        epsilon: what `noise = "sound"` keeps to over all rounds, for one client replaced by
            another; above 0 there.
        delta: delta of what `noise = "sound"` keeps to.
        max_relative_norm: above 0: before sets are formed, an update is shortened to so
            many times the median norm in its cluster. Everybody stays in a set: a rule that
            leaves out clients that are far from the others would make sets smaller than k, show
            in the ledger who was left out, and deny nothing to those.

    References:
        Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
        Algorithm 1 and Eq. 10-12.
    """

    needs_shared_models: ClassVar[bool] = True
    hides_members: ClassVar[bool] = True

    min_anonymity: Positive = 6
    deniability_threshold: Positive = 3
    partition: Literal["mdav", "kmeans", "public-random"] = "mdav"
    distance: Distance = "l2"
    max_distance: NotNegative = 0.0
    limit_sets: bool = False
    noise: Literal["none", "released", "paper", "sound"] = "none"
    noise_shape: NoiseShape = "gaussian"
    radius: AboveZero = 1.0
    epsilon: NotNegative = 0.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_relative_norm: NotNegative = 0.0

    @model_validator(mode="after")
    def _agree(self) -> "AnonymitySets":
        k, x = self.min_anonymity, self.deniability_threshold
        if x > k:
            raise ValueError(
                f"deniability_threshold (x), how many of a set of min_anonymity (k) must stay, "
                f"must be at most k = {k}, found x = {x}: lower x or raise k."
            )
        if self.limit_sets and (self.max_distance == 0 or self.partition == "public-random"):
            raise ValueError(
                f"limit_sets needs a max_distance above 0 and a partition that looks at models, "
                f"found {self.max_distance:g} and {self.partition!r}: set both, or it to false."
            )
        if self.noise != "sound":
            if self.epsilon > 0:
                raise ValueError(
                    f"epsilon needs noise = 'sound', found {self.noise!r}: set it, or epsilon = 0."
                )
            return self
        if self.max_relative_norm > 0:
            raise ValueError(
                f"max_relative_norm must be 0 with noise = 'sound', which does not account for it, "
                f"found {self.max_relative_norm:g}: remove it, as radius bounds every update."
            )
        if self.noise_shape != "gaussian":
            raise ValueError(
                f"noise = 'sound' needs noise_shape = 'gaussian', found {self.noise_shape!r}: set "
                f"it, or noise = 'paper', which guarantees nothing."
            )
        blind = self.partition == "public-random" and self.distance == "l2"
        if not blind or self.max_distance > 0 or self.epsilon == 0:
            raise ValueError(
                f"noise = 'sound' needs partition = 'public-random', distance = 'l2', max_distance "
                f"= 0 and an epsilon above 0, found {self.partition!r}, {self.distance!r}, "
                f"{self.max_distance:g} and {self.epsilon:g}: set these, as sets that follow "
                f"updates reveal them."
            )
        return self

    def anonymity(self) -> AnonymityTerms:
        """Return how clients are hidden among each other."""
        gaussian = {"paper": self.radius} if self.noise_shape == "gaussian" else {}
        sound = self.noise == "sound"
        return AnonymityTerms(
            min_anonymity=self.min_anonymity,
            deniability_threshold=self.deniability_threshold,
            max_distance=self.max_distance,
            distance=self.distance,
            noise=({"none": 0.0} | gaussian).get(self.noise),
            radius=self.radius if sound else 0.0,
            delta=self.delta if sound else 0.0,
        )

    def begin(self, models: Models, streams: Streams, federation: FederationInfo) -> Aggregator:
        """Begin to hide updates, with as much noise as all rounds together need."""
        return HidingRound(models, streams, hiding=self._hiding(federation))

    def sets_of(
        self,
        federation: FederationInfo,
        models: Models,
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> tuple[HiddenSet, ...]:
        """Return the sets of a round as its aggregation forms them, with their representatives."""
        hiding = self._hiding(federation)
        bounded = [_bounded(hiding, update) for update in updates]
        return _formed_sets(hiding, models, bounded, streams)[0]

    def _hiding(self, federation: FederationInfo) -> Hiding:
        """Return how these sets hide updates in a federation."""
        # what was released compares all members, and a median all norms
        together = self.noise == "released" or self.max_relative_norm > 0
        window = WINDOW if federation.repeats and not together else math.inf
        if self.noise == "sound":
            k = self.min_anonymity
            everybody = federation.shared and federation.participation == 1
            sizes = set_sizes(federation.clients, k) if everybody else (k,)
            z = federation.noise_multiplier(self.epsilon, self.delta, sizes)
            return replace(dp_hiding(self, z), window=window)
        return Hiding(self, noise_scale(self.noise, self.distance, self.radius), window=window)
