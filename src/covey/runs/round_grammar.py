"""The grammar of one round: who took part, what became of it, and which noise was added."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar, cast

from covey.base import events
from covey.base.events import Event
from covey.base.history import FINAL, SHARED, of_kinds
from covey.base.names import Handle

E = TypeVar("E", bound=Event)

CHOOSE = "clients", "groups", "shared", "split", "chance"
"""Who decides, in covey's own algorithms, which model a client trains."""

Problem = tuple[Event, str]
"""An event that cannot stand where it does, and why not."""

Agrees = Callable[[Any, int], bool]
"""Whether an event is one that the settings lead to, in a run of so many clients."""

HIDING = (
    *(events.AnonymitySetsFormed, events.ClientsOutsideSets, events.DistancesSketched),
    events.RepresentativesPerturbed,
)
NOISE = (
    *(events.SumPerturbed, events.SharesPerturbed, events.ExposuresLimited),
    *(events.UpdatesPerturbed, events.StepsPerturbed, events.ChoicesPerturbed),
    events.RepresentativesPerturbed,
)


@dataclass(frozen=True, slots=True)
class SetTerms:
    """How a run hides updates in anonymity sets.

    Attributes:
        k: the least members of a set; sets have fewer than 2 k.
        leaves_out: whether a client may be in no set.
        drawn: the sets of so many clients of a cluster in a round, as indices in the cohort's
            order, where anybody can draw them again; None: nobody can.
    """

    k: int
    leaves_out: bool = False
    drawn: Callable[[int, int, int], Sequence[Sequence[int]]] | None = None


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """What a run's settings say of its ledger.

    Attributes:
        started: what the event of its start must hold.
        parts: what is recorded of parts that are not as usual, by setting.
        is_remote: whether clients are on machines of their own, or may be.
        own_rounds: whether the algorithm is a user's own.
        own_sets: whether the aggregation is.
        sets: how updates are hidden; None: they are not.
        noise: the kinds of noise that are added, and which it is.
        everybody: whether each client takes part in each round.
        repeats: whether a round that is played again has the cohort that it had.
        cohort_size: how many take part in a round, if it is a fixed number; else 0.
        subtracts: whether models are solved from sums; None: only a user's code knows.
        mixes_clusters: whether a part of a user's own may bring one cluster's clients into
            another one's model.
    """

    started: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    is_remote: bool = False
    own_rounds: bool = False
    own_sets: bool = False
    sets: SetTerms | None = None
    noise: Mapping[type[Event], Agrees] = field(default_factory=dict[type[Event], Agrees])
    everybody: bool = False
    repeats: bool = False
    cohort_size: int = 0
    subtracts: bool | None = None
    mixes_clusters: bool = False


@dataclass(frozen=True, slots=True)
class JudgedRound:
    """A round that counts.

    Attributes:
        clusters: of each client that trained.
        model_hash: of the models after it; "": it is not that of all clusters.
    """

    cohort: frozenset[Handle]
    clusters: Mapping[Handle, int]
    model_hash: str
    heads: events.HeadsSolved | None = None


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """Rounds that are played again.

    Attributes:
        event: that says so.
        before: these rounds as they were.
        until: the first round that had not been played.
        in_sums: the cluster of each client whose records were in sums before the answer.
        lacking: clients that stay, and gave no sums when these were made anew.
    """

    event: events.RunRolledBack
    before: Mapping[int, JudgedRound]
    until: int
    in_sums: Mapping[Handle, int]
    lacking: frozenset[Handle] = frozenset()


@dataclass(frozen=True)
class RoundFacts:
    """The events of a round, and what was before it.

    Attributes:
        present: who may take part.
        gone: who has left.
        replay: of which the round is; None: it is played for the first time.
        clusters: how many the run has.
    """

    t: int
    facts: Sequence[Event]
    terms: RoundTerms | None
    present: frozenset[Handle]
    gone: Collection[Handle]
    replay: ReplayTerms | None
    num_clusters: int

    def of(self, *kinds: type[E]) -> list[E]:
        """Return the events of these kinds, in order."""
        return list(of_kinds(self.facts, *kinds))

    @cached_property
    def cohort(self) -> events.CohortSampled:
        """Who was drawn."""
        return self.of(events.CohortSampled)[0]

    @cached_property
    def chosen(self) -> list[events.ClientsAssigned]:
        """Who trained what, as it is recorded."""
        return self.of(events.ClientsAssigned)

    @cached_property
    def clusters(self) -> Mapping[Handle, int]:
        """Of each client that trained."""
        return {h: j for choice in self.chosen for h, j in choice.clusters.items()}

    @cached_property
    def is_own(self) -> bool:
        """Whether a user's own algorithm played it."""
        return bool(self.of(events.ClientsHandedOut))

    def inside(self, cluster: int) -> set[Handle]:
        """Return who trained the model of a cluster."""
        return {h for h, j in self.clusters.items() if j == cluster}

    def played(self) -> JudgedRound:
        """Return what later rounds are compared with."""
        merged = self.of(events.ModelsMerged, events.ModelsPooled)
        shared = any(choice.by == SHARED for choice in self.chosen) and self.num_clusters > 1
        heads = next(iter(self.of(events.HeadsSolved)), None)
        model = "" if shared else merged[-1].model_hash
        return JudgedRound(frozenset(self.cohort.handles), self.clusters, model, heads)

    def problems(self) -> Iterator[Problem]:
        """Yield what cannot have been so."""
        first, last = self.facts[0], self.facts[-1]
        for kind in (events.CohortSampled, events.RoundMeasured):
            if len(self.of(kind)) != 1:
                yield first, f"a round has one {kind.__name__}, and round {self.t} has not"
                return
        if not self.of(events.ModelsMerged):
            yield last, "no models were merged in its round"
            return
        if not self.is_own:
            for kind in (events.ModelsMerged, events.HeadsSolved):
                yield from (
                    (event, f"its round has two {kind.__name__}") for event in self.of(kind)[1:]
                )
        yield from self._choices()
        yield from self._cohort()
        if not self.is_own:
            yield from self._trained()
            yield from self._hidden()
        yield from self._noise()
        solves = self.terms is not None and self.terms.subtracts and not self.is_own
        if solves and self.clusters and not self.of(events.HeadsSolved):
            yield last, "no heads were solved in its round"
        if self.replay is not None:
            yield from self._again(self.replay)

    def _choices(self) -> Iterator[Problem]:
        if self.terms and self.is_own != self.terms.own_rounds:
            yield self.cohort, "whom an algorithm was handed is recorded where it is a user's own"
        for choice in self.chosen:
            if choice.by not in CHOOSE and not self.is_own:
                yield choice, f"clients are assigned by {', '.join(CHOOSE)}, not by {choice.by!a}"
            if choice.by == FINAL or (len(self.chosen) > 1 and not self.is_own):
                yield choice, "clients choose once a round, and last at the end"
            strange = choice.clusters.keys() - {*self.cohort.handles}
            if strange and not self.is_own:
                yield choice, f"it names a client that was not drawn: {min(strange)!a}"

    def _cohort(self) -> Iterator[Problem]:
        event, handles, terms = self.cohort, frozenset(self.cohort.handles), self.terms
        if len(handles) < len(event.handles):
            yield event, "it names a client twice"
        if strange := handles - self.present:
            yield event, f"it names a client that is not there: {min(strange)!a}"
        how = self.replay.event.how if self.replay else ""
        if terms is None or terms.is_remote or how in ("subtracted", "calibrated"):
            return
        if terms.everybody and handles != self.present:
            yield event, "each client takes part in each round, and it does not name all"
        if terms.cohort_size and len(handles) != min(terms.cohort_size, len(self.present)):
            yield event, f"{terms.cohort_size} clients take part in a round, not {len(handles)}"
        then = self.replay.before.get(self.t) if self.replay else None
        if terms.repeats and then and handles != then.cohort & self.present:
            yield event, "the round had another cohort when it was first played"

    def _trained(self) -> Iterator[Problem]:
        """Judge that all who trained were merged, and that all others have a reason."""
        (merged, *_), counts = self.of(events.ModelsMerged), Counter(self.clusters.values())
        models = 1 if any(choice.by == SHARED for choice in self.chosen) else self.num_clusters
        if len(merged.participants) not in (models, self.num_clusters) or any(
            counts[j] != n for j, n in enumerate(merged.participants)
        ):
            yield merged, f"{[*merged.participants]} clients were merged, and others trained"
        idle = {*self.cohort.handles} - self.clusters.keys() - missing(self.facts)
        waiting = sum(event.waiting for event in self.of(events.NewcomersWaited))
        if self.terms and len(idle) > waiting and not self._waits():
            yield self.cohort, f"it is not recorded what became of {min(idle)!a}"

    def _waits(self) -> bool:
        """Say whether nodes that are too few for a sum under masks were asked for nothing."""
        few = self.of(events.ClusterWaited, events.SumGivenUp)
        return self.terms is not None and self.terms.is_remote and bool(few)

    def _hidden(self) -> Iterator[Problem]:
        """Judge that the sets of a cluster are a partition of who trained its model."""
        formed = {event.cluster: event for event in self.of(events.AnonymitySetsFormed)}
        if len(formed) < len(every := self.of(events.AnonymitySetsFormed)):
            yield every[-1], "the sets of its cluster are recorded twice"
        refused = {event.handle for event in self.of(events.AnswerRefused)}
        seen: set[Handle] = set()
        for j, event in formed.items():
            members = [*chain.from_iterable(event.sets)]
            if len({*members}) < len(members) or seen & {*members}:
                yield event, "a client stands in two of its sets"
            if strange := {*members} - self.inside(j) - refused:
                yield event, f"it hides a client that did not train: {min(strange)!a}"
            seen |= {*members}
        terms = self.terms
        if terms is None or terms.own_sets:
            return
        yield from self._waiting(terms)
        if terms.sets is None:
            yield from ((e, "its settings hide no updates") for e in self.of(*HIDING))
            return
        for j in sorted({*self.clusters.values()}):
            yield from self._partition(j, terms.sets, formed.get(j))

    def _waiting(self, terms: RoundTerms) -> Iterator[Problem]:
        """Judge which clusters wait for more clients; where nodes fail, how many came is open."""
        waited, refused = self.of(events.ClusterWaited), len(self.of(events.AnswerRefused))
        if len({event.cluster for event in waited}) < len(waited):
            yield waited[-1], "its cluster waits twice"
        for event in waited:
            n = len(self.inside(event.cluster))
            if not terms.is_remote and not n <= event.clients <= n + refused:
                yield event, f"{n} clients trained for its cluster, it says {event.clients}"
            if terms.sets and event.min_anonymity != (k := terms.sets.k):
                yield event, f"clusters wait for {k} clients, not for {event.min_anonymity}"

    def _partition(
        self, j: int, terms: SetTerms, event: events.AnonymitySetsFormed | None
    ) -> Iterator[Problem]:
        inside, k = self.inside(j), terms.k
        if event is None:
            waited = any(event.cluster == j for event in self.of(events.ClusterWaited))
            if not waited or (len(inside) >= k and not terms.leaves_out):
                yield self.cohort, f"it is not recorded in which sets cluster {j} hides its clients"
            return
        sizes, members = [*map(len, event.sets)], {*chain.from_iterable(event.sets)}
        if any(not k <= size < 2 * k for size in sizes):
            yield event, f"sets have {k} to {2 * k - 1} members, not {min(sizes)} to {max(sizes)}"
        outside = {h for e in self.of(events.ClientsOutsideSets) for h in e.handles}
        if bare := inside - members - (outside if terms.leaves_out else set()):
            yield event, f"a client trained and stands in no set: {min(bare)!a}"
        if terms.drawn and members == inside:
            order = [h for h in self.cohort.handles if h in inside]
            drawn = terms.drawn(self.t, j, len(order))
            if {frozenset(order[i] for i in own) for own in drawn} != {*map(frozenset, event.sets)}:
                yield event, "its sets are not those that the seed draws"

    def _noise(self) -> Iterator[Problem]:
        """Judge the noise that is recorded by the noise that the settings add."""
        if self.terms is None or self.terms.own_sets:
            return
        sizes = {e.cluster: [*map(len, e.sets)] for e in self.of(events.AnonymitySetsFormed)}
        noise = self.of(*NOISE)
        if self.terms.noise:
            yield from self._bare(self.terms, sizes)
        for i, event in enumerate(noise):
            if event in noise[:i]:
                yield event, "the same noise is recorded twice"
            agrees = self.terms.noise.get(type(event))
            if agrees is None:
                yield event, "its settings add no such noise"
            elif not agrees(event, len(self.present)):
                yield event, "its settings add other noise"
        for event in self.of(events.RepresentativesPerturbed):
            if [*event.sizes] != sizes.get(event.cluster):
                yield event, "it is not of the sets that were formed"

    def _bare(self, terms: RoundTerms, sizes: Mapping[int, object]) -> Iterator[Problem]:
        """Judge that nobody is without the noise that the settings add."""
        for kind, clusters in (
            (events.SumPerturbed, {*self.clusters.values()}),
            (events.RepresentativesPerturbed, {*sizes}),
        ):
            noised = {event.cluster for event in self.of(kind)}
            if kind in terms.noise and (bare := clusters - noised):
                yield self.cohort, f"its settings add noise, and cluster {min(bare)} has none"
        if terms.is_remote or self.is_own:  # a node may not say it; a user's may train fewer
            return
        of_steps = {h for event in self.of(events.StepsPerturbed) for h in event.steps}
        of_updates = {h for event in self.of(events.UpdatesPerturbed) for h in event.clients}
        for kind, noised in (
            (events.StepsPerturbed, of_steps),
            (events.UpdatesPerturbed, of_updates),
        ):
            if kind in terms.noise and (bare := self.clusters.keys() - noised):
                yield self.cohort, f"its settings add noise, and {min(bare)!a} has none"

    def _again(self, replay: ReplayTerms) -> Iterator[Problem]:
        """Judge a round that is played again by what it was."""
        then, how = replay.before.get(self.t), replay.event.how
        if then is None:
            return
        moved = {h for h, j in self.clusters.items() if then.clusters.get(h, j) != j}
        if how == "recorded" and moved:
            yield self.chosen[0], f"{min(moved)!a} chose another cluster when it was first played"
        if how == "subtracted":
            yield from self._solved_again(replay, then)

    def _solved_again(self, replay: ReplayTerms, then: JudgedRound) -> Iterator[Problem]:
        """Judge that sums lost those who left, and no one else, cluster by cluster."""
        before, after = then.heads, next(iter(self.of(events.HeadsSolved)), None)
        if before is None or after is None or len(before.sums) != len(after.sums):
            yield self.cohort, "no heads are recorded as solved again"
            return
        lacking = replay.lacking | missing(self.facts)
        stay = {h: j for h, j in then.clusters.items() if h not in {*self.gone} | lacking}
        if stay != {h: j for h, j in self.clusters.items() if h not in lacking}:
            yield after, "others are not in the clusters that are recorded"
        inside = Counter(replay.in_sums.values())
        for j, (old, new) in enumerate(zip(before.sums, after.sums, strict=True)):
            if inside[j] != before.clients[j]:
                yield (
                    after,
                    f"{before.clients[j]} clients were in cluster {j}, {inside[j]} chose it",
                )
            least = sum(replay.in_sums.get(h) == j for h in self.gone)
            most = least + sum(replay.in_sums.get(h) == j for h in lacking)
            lost = before.clients[j] - after.clients[j]
            if not least <= lost <= most:
                yield after, f"{least} left cluster {j}, and its sums lost {lost}"
            if least and old == new:
                yield after, f"{least} left cluster {j}, and its sums did not change"


def missing(facts: Iterable[Event]) -> frozenset[Handle]:
    """Return who gave nothing, for a reason that is recorded."""
    handles: set[Handle] = set()
    for event in facts:
        match event:
            case (
                events.AnswersMissing(handles=clients)
                | events.SumGivenUp(clients=clients)
                | events.ClientsWaited(clients=clients)
                | events.BudgetSpent(clients=clients)
            ):
                handles |= {*clients}
            case events.AnswerRefused(handle=str(one)):
                handles.add(one)
            case _:
                pass
    return frozenset(handles)


def per_cluster(event: Event) -> Sequence[Sequence[object]]:
    """Return what an event says of each cluster."""
    match event:
        case events.RoundMeasured(clients=clients):
            return (clients,)
        case events.HeadsSolved():
            return (event.sums, event.clients, event.pooling, event.regularisation)
        case events.PricesSet():
            return (event.prices, event.desired)
        case _:
            return ()


def clusters_in(event: Event) -> Collection[int]:
    """Return the clusters that an event names."""
    if isinstance(event, events.ClientsAssigned):
        return event.clusters.values()
    cluster: Any = getattr(event, "cluster", None)
    if isinstance(cluster, int):
        return (cluster,)
    several: Any = getattr(event, "clusters", ())
    return cast("Collection[int]", several)


def handles_in(event: Event) -> Iterator[Handle]:
    """Yield the clients that an event names."""
    for name in ("handle", "handles", "steps", "accuracy", "above", "exposures", "sets", "clients"):
        value: Any = getattr(event, name, None)
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping | tuple):
            yield from _texts_in(cast("Iterable[object]", value))
    if isinstance(event, events.ClientsAssigned):
        yield from event.clusters


def _texts_in(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts_in(cast("tuple[object, ...]", value))
