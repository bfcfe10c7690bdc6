"""A run as its events say it: what tables, pictures and progress show."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from covey.base import events
from covey.base.events import Event
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle

T = TypeVar("T")
E = TypeVar("E", bound=Event)

FINAL, SHARED = "final", "shared"
"""Of `ClientsAssigned.by`: after the last round; in a warm start, of which all share the model."""


NOTABLE = (
    events.AnswerRefused,
    events.ClusterAbandoned,
    events.ClustersCollapsed,
    events.ClientsOutsideSets,
    events.ClusterWaited,
    events.GroupsSought,
    events.ModelDiverged,
    events.ClientsWaited,
    events.NewcomersWaited,
    events.RiskUnknown,
    events.SumGivenUp,
)
"""Kinds of events that a reader of the rounds is to be shown."""


def of_kinds(facts: Iterable[Event], *kinds: type[E]) -> Iterator[E]:
    """Yield the events of these kinds, in order."""
    return (fact for fact in facts if isinstance(fact, kinds))


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round, as a line of a table.

    Attributes:
        participants: size of the cohort.
        clients: clients per cluster, by latest choice.
        moved: clients of the cohort that chose another cluster than the last time.
        risks: the estimate in force per cluster; one that is not calibrated is unknown.
        over: clients whose cluster's figure is above what they accept; None: unknown.
        metrics: those that the settings name, by what they are called.
    """

    round_index: int
    participants: int
    accuracy: float | None
    accuracy_by_group: Mapping[str, float]
    clients: tuple[int, ...]
    moved: int
    risks: tuple[Figure, ...]
    over: int | None
    squared_error: float | None = None
    squared_error_by_group: Mapping[str, float] = field(default_factory=dict[str, float])
    metrics: Mapping[str, events.MetricMeasured] = field(
        default_factory=dict[str, events.MetricMeasured]
    )


@dataclass(frozen=True, slots=True)
class History:
    """Everything that the events of a run say, in the order in which readers need it.

    Facts about single clients are of those who are in the run now (`clients`): who leaves
    is in none of them. What a round shows is of who was there then.

    Attributes:
        started: as if all had been known then that is known now: the rounds of a run that
            ended early, who joined and who left.
        trained: per client, the clusters whose model it ever trained; of who left, where
            the answer took its updates out of no model.
        sums_only: whether models were solved anew from sums, and no client's place in
            these has been read yet.
        left_since_end: how many left after the end was measured with them.
        empty_rounds: how many of the latest rounds, in a row, had clients drawn of whom none
            took part.
        reached: per cluster, the clients whose examples came to it by pooling.
        pooling: per cluster, the share of its model that it last had in common.
        in_force: per cluster, the estimate of its risk by which clients choose.
        moves: per client that moved, the rounds in which it chose another cluster.
        hidden: the anonymity sets of each round, if there are any.
        left: who requested to leave and what was last answered to each, in order.
        attacks: all others on final models, of whatever models those were.
        reported: what remote clients last reported of themselves.
        refused: whose updates were ever refused.
        diverged: per cluster whose model is none after the latest round, why, and since
            which round in a row. What it shows is no figure of anybody's privacy.
        components: those that are a user's own, or have options of their own.
        ended_early: why the run has fewer rounds than were planned, if it has.
        all_events: of all rounds ever played, superseded ones first: what they
            released stays released.
        preparing: how many records have features by now, of how many, while a user's network
            computes them before the rounds: no event says it.
    """

    started: events.RunStarted | None = None
    rounds: tuple[RoundRow, ...] = ()
    assignment: Mapping[Handle, int] = field(default_factory=dict[Handle, int])
    trained: Mapping[Handle, frozenset[int]] = field(default_factory=dict[Handle, frozenset[int]])
    reached: Mapping[int, frozenset[Handle]] = field(default_factory=dict[int, frozenset[Handle]])
    pooling: tuple[float, ...] = ()
    in_force: Mapping[int, RiskEstimate] = field(default_factory=dict[int, RiskEstimate])
    measured: tuple[events.RiskMeasured, ...] = ()
    notable: tuple[tuple[int, Event], ...] = ()
    moves: Mapping[Handle, tuple[int, ...]] = field(default_factory=dict[Handle, tuple[int, ...]])
    hidden: tuple[tuple[int, events.AnonymitySetsFormed], ...] = ()
    left: tuple[events.ClientLeft, ...] = ()
    audits: tuple[events.ClusterAudited, ...] = ()
    attacks: tuple[events.ModelAttacked, ...] = ()
    exposures: tuple[events.ClientExposed, ...] = ()
    fairness: tuple[events.FairnessMeasured, ...] = ()
    metrics: tuple[events.MetricMeasured, ...] = ()
    finished: events.RunFinished | None = None
    reported: events.ClientsReported | None = None
    all_events: tuple[Event, ...] = ()
    preparing: tuple[int, int] | None = None
    refused: frozenset[Handle] = frozenset()
    diverged: Mapping[int, events.ModelDiverged] = field(
        default_factory=dict[int, events.ModelDiverged]
    )
    components: events.ComponentsUsed | None = None
    ended_early: events.RunEndedEarly | None = None
    sums_only: bool = False
    left_since_end: int = 0
    empty_rounds: int = 0

    @property
    def clients(self) -> frozenset[Handle]:
        """Who is in the run now: who was there when it began or came, and has not left."""
        began = self.started.groups if self.started else {}
        left = {client.handle for client in self.left}
        return frozenset({*began, *self.assignment}) - left

    @property
    def figures(self) -> Mapping[int, RiskEstimate]:
        """The estimates in force that are calibrated: no other is counted, or shown bare."""
        return _calibrated(self.in_force)

    def clusters_of_clients(self) -> tuple[int, ...]:
        """Count who is in the run now, per cluster of the latest choice."""
        chosen = self.assignment or {e.handle: e.cluster for e in self.exposures}
        counts = Counter(chosen.values())
        known = self.started.num_clusters if self.started else 0
        return tuple(counts[j] for j in range(max([known, *(j + 1 for j in counts)])))

    def over(self) -> int | None:
        """Count the clients whose cluster's figure is above their threshold.

        None as soon as the figure of one chosen cluster is unknown.
        """
        return _over(self)


def _calibrated(estimates: Mapping[int, RiskEstimate]) -> Mapping[int, RiskEstimate]:
    return {j: estimate for j, estimate in estimates.items() if estimate.calibrated}


def _over(known: "History | _Fold") -> int | None:
    risks = {j: estimate.risk for j, estimate in _calibrated(known.in_force).items()}
    taus = known.started.risk_thresholds if known.started else {}
    chosen = known.assignment
    if not risks or not chosen or not taus.keys() >= chosen.keys():
        return None
    if not risks.keys() >= set(chosen.values()):
        return None
    return sum(risks[j] > taus[handle] for handle, j in chosen.items())


def history_of(
    entries: Iterable[tuple[int | None, Iterable[Event]]], superseded: Iterable[Event] = ()
) -> History:
    """Fold a whole run: its rounds, and what happened between them (None).

    Args:
        entries: what still counts.
        superseded: facts of rounds that were rolled back.
    """
    return with_entries(History(all_events=tuple(superseded)), entries)


def with_entries(
    history: History, entries: Iterable[tuple[int | None, Iterable[Event]]]
) -> History:
    """Return a history with more entries: of a round or the end, or between two (None)."""
    fold = _Fold(history)
    for round_index, entry in entries:
        fold.add(round_index, tuple(entry))
    return fold.frozen()


def trained_clusters(history: History, num_clusters: int) -> list[set[Handle]]:
    """Return per cluster the clients that ever trained its model after the start.

    Shared rounds of a warm start belong to no cluster: everybody's examples are in all.
    """
    trained: list[set[Handle]] = [set() for _ in range(num_clusters)]
    for handle, clusters in history.trained.items():
        for j in clusters:
            trained[j].add(handle)
    return trained


def pooled_clusters(history: History, num_clusters: int) -> list[set[Handle]]:
    """Return per cluster the clients whose examples reached it by pooling alone."""
    trained = trained_clusters(history, num_clusters)
    return [set(history.reached.get(j, frozenset())) - trained[j] for j in range(num_clusters)]


class _Fold:
    """A history that is being folded: each entry changes it."""

    def __init__(self, history: History) -> None:
        self.started = history.started
        self.rounds = list(history.rounds)
        self.assignment = dict(history.assignment)
        self.trained = dict(history.trained)
        self.reached = dict(history.reached)
        self.pooling = history.pooling
        self.in_force = dict(history.in_force)
        self.measured = list(history.measured)
        self.notable = list(history.notable)
        self.moves = dict(history.moves)
        self.hidden = list(history.hidden)
        self.left = list(history.left)
        self.audits = list(history.audits)
        self.attacks = list(history.attacks)
        self.exposures = list(history.exposures)
        self.fairness = list(history.fairness)
        self.metrics = list(history.metrics)
        self.finished = history.finished
        self.reported = history.reported
        self.all_events = list(history.all_events)
        self.refused = history.refused
        self.diverged = dict(history.diverged)
        self.components = history.components
        self.ended_early = history.ended_early
        self.sums_only = history.sums_only
        self.left_since_end = history.left_since_end
        self.empty_rounds = history.empty_rounds

    def frozen(self) -> History:
        """Return what was folded; nothing is added after it."""
        known: dict[str, Any] = vars(self)
        lists = {name: tuple(known[name]) for name in known if isinstance(known[name], list)}
        return History(**{**known, **lists})

    def add(self, round_index: int | None, entry: Sequence[Event]) -> None:
        """Fold one entry: of a round or the end, or between two (None)."""
        self.all_events += entry
        if round_index is None:
            for event in entry:
                self._between(event)
        else:
            self._round(round_index, entry)

    def _between(self, event: Event) -> None:
        began = self.started
        match event:
            case events.ThresholdChanged(deniability_threshold=x) if began:
                self.started = replace(began, deniability_threshold=x)
            case events.ModelAttacked():
                self._attacked(event)
            case events.RunEndedEarly():
                self.started = _shortened(began, event)
                self.ended_early = event
            case events.ClientLeft():
                self._left(event)
            case events.RunRolledBack(how="subtracted"):  # depends on no earlier round
                self.trained, self.reached, self.sums_only = {}, {}, True
            case _:
                pass

    def _round(self, round_index: int, entry: Sequence[Event]) -> None:
        moved, participants = 0, 0
        before, self.diverged = self.diverged, {}
        for event in entry:
            if isinstance(event, events.ClientsAssigned):
                moved, participants = len(self._movers(event)), len(event.clusters)
            self._add(round_index, event)
        for j, divergence in self.diverged.items():  # since the first round of those in a row
            if j in before:
                self.diverged[j] = replace(divergence, round_index=before[j].round_index)
        valid = self.started.risk_lifetime if self.started else 0
        self._keep_in_force([j for j, f in self.in_force.items() if f.is_valid(round_index, valid)])
        row = next(of_kinds(entry, events.RoundMeasured), None)
        metrics = list(of_kinds(entry, events.MetricMeasured))
        if row is None:
            self.metrics += metrics
        else:
            drawn = any(event.handles for event in of_kinds(entry, events.CohortSampled))
            self.empty_rounds = 0 if participants else self.empty_rounds + drawn
            self.rounds.append(
                RoundRow(
                    round_index=round_index,
                    participants=participants,
                    accuracy=row.accuracy,
                    accuracy_by_group=row.accuracy_by_group,
                    clients=row.clients,
                    moved=moved,
                    risks=tuple(self._figure_of(j) for j in range(len(row.clients))),
                    over=_over(self),
                    squared_error=row.squared_error,
                    squared_error_by_group=row.squared_error_by_group,
                    metrics={metric.metric: metric for metric in metrics},
                )
            )

    def _add(self, t: int, event: Event) -> None:  # noqa: C901, PLR0912 - a line per kind
        match event:
            case events.RunStarted():
                self.started = _shortened(event, self.ended_early)
            case events.ComponentsUsed():
                self.components = event
            case events.ClientsJoined():
                self._joined(event)
            case events.ClientsAssigned():
                self._assigned(t, event)
            case events.ClientsHandedOut(handles):
                self._mixed(handles)
            case events.ModelsPooled():
                self._pooled(event)
            case events.RiskMeasured():
                self.measured.append(event)
                if event.estimate.counts:
                    self.in_force[event.cluster] = event.estimate
            case events.ClusterAudited():
                self.audits.append(event)
            case events.ModelAttacked():
                self._attacked(event)
            case events.ClientExposed():
                self.exposures.append(event)
            case events.FairnessMeasured():
                self.fairness.append(event)
            case events.RunFinished():
                self.finished, self.left_since_end = event, 0
            case events.ClientsReported():
                self.reported = event
            case events.AnonymitySetsFormed():
                self.hidden.append((t, event))
            case events.ModelDiverged(cluster=j):  # and its figure was of the model before
                self.in_force.pop(j, None)
                self.diverged[j] = event
            case events.AnswerRefused(handle=handle) if handle:
                self.refused |= {handle}
            case events.RiskUnknown(clusters=unknown):  # clients chose without these figures
                self._keep_in_force(self.in_force.keys() - set(unknown))
            case _:
                pass
        if isinstance(event, NOTABLE):
            self.notable.append((t, event))

    def _joined(self, event: events.ClientsJoined) -> None:
        if self.started is not None:
            groups = dict.fromkeys(event.handles) | dict(self.started.groups)
            self.started = replace(self.started, groups=groups)

    def _left(self, event: events.ClientLeft) -> None:
        """Take out what is of a client alone that left."""
        gone, began, reported = event.handle, self.started, self.reported
        if began is not None:
            self.started = replace(
                began,
                data_hash=event.data_hash or began.data_hash,
                groups=_others(began.groups, gone),
                risk_thresholds=_others(began.risk_thresholds, gone),
            )
        if reported is not None:
            self.reported = events.ClientsReported(
                _others(reported.accuracy, gone), _others(reported.above, gone)
            )
        self.assignment.pop(gone, None)
        self.moves.pop(gone, None)
        self.left = [*(e for e in self.left if e.handle != gone), event]
        self.exposures = [e for e in self.exposures if e.handle != gone]
        self.metrics = [replace(e, clients=_others(e.clients, gone)) for e in self.metrics]
        self.left_since_end += self.finished is not None

    def _assigned(self, t: int, event: events.ClientsAssigned) -> None:
        for handle in self._movers(event):
            self.moves[handle] = (*self.moves.get(handle, ()), t)
        num_clusters = self.started.num_clusters if self.started else 1
        if event.by == SHARED and num_clusters > 1:
            return
        self.assignment.update(event.clusters)
        if event.by == "final":
            return
        if self.sums_only:
            self.trained = {h: frozenset([j]) for h, j in self.assignment.items()}
            # a model that is solved without any client's sums has no risk
            self._keep_in_force(set(self.assignment.values()))
            self.sums_only = False
        moved = {j: frozenset([j]) for j in set(event.clusters.values())}
        for handle, j in event.clusters.items():
            known = self.trained.get(handle)
            if known is None or j not in known:
                self.trained[handle] = moved[j] if known is None else known | moved[j]
        self._mixed()

    def _mixed(self, handed_out: Iterable[Handle] = ()) -> None:
        """Count everybody in for every cluster, where a user's algorithm may mix them."""
        if self.components is None or not self.components.mixes_clusters:
            return
        num_clusters = self.started.num_clusters if self.started else 1
        before = self.reached.get(0, frozenset[Handle]())
        everybody = before.union(self.trained, handed_out)
        self.reached = dict.fromkeys(range(num_clusters), everybody)

    def _pooled(self, event: events.ModelsPooled) -> None:
        """Note the shares, and that the shared model has traces of everybody who trained so far."""
        everybody = frozenset(self.trained)
        self.reached |= {j: everybody for j, share in enumerate(event.shares) if share > 0}
        self.pooling = event.shares

    def _attacked(self, event: events.ModelAttacked) -> None:
        """Note an attack; of the same one on the same model the newest counts."""

        def what(event: events.ModelAttacked) -> tuple[str, int, str, str]:
            return event.model_hash, event.cluster, event.estimate.source, event.client

        self.attacks = [attack for attack in self.attacks if what(attack) != what(event)]
        self.attacks.append(event)

    def _figure_of(self, cluster: int) -> Figure:
        known = self.in_force.get(cluster)
        if known is None:
            return Figure.unknown("")
        return known.figure if known.calibrated else Figure.unknown("not calibrated")

    def _keep_in_force(self, clusters: Collection[int]) -> None:
        self.in_force = {j: f for j, f in self.in_force.items() if j in clusters}

    def _movers(self, event: events.ClientsAssigned) -> list[Handle]:
        known = self.assignment
        return [handle for handle, j in event.clusters.items() if known.get(handle, j) != j]


def _others(of_clients: Mapping[Handle, T], gone: Handle) -> dict[Handle, T]:
    return {handle: client for handle, client in of_clients.items() if handle != gone}


def _shortened(
    began: events.RunStarted | None, ended: events.RunEndedEarly | None
) -> events.RunStarted | None:
    """Return how a run would have begun with the rounds that it has."""
    return replace(began, rounds=ended.rounds) if began and ended else began
