"""A run's story, folded out of its events: what tables, pictures and progress show.

What a run told, in order: a story that grows by a round without being copied.

A run of many rounds tells many events, and next to nobody asks for the old ones. They are
kept as compressed JSON, in pieces, and read again by who does.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TypeVar, cast, overload

from covey.base.columns import is_column
from covey.base.events import (
    AnonymitySetsFormed,
    AnswerRefused,
    ClientExposed,
    ClientLeft,
    ClientsAssigned,
    ClientsHandedOut,
    ClientsJoined,
    ClientsReported,
    ClusterAbandoned,
    ClusterAudited,
    ClustersCollapsed,
    ClusterWaited,
    ComponentsUsed,
    Event,
    FairnessMeasured,
    ForeignEvent,
    GroupsSought,
    ModelAttacked,
    ModelDiverged,
    ModelsPooled,
    MovesWaited,
    NewcomersWaited,
    OrganisationsAttested,
    PricesSet,
    RecordsChanged,
    RiskMeasured,
    RiskUnknown,
    RoundMeasured,
    RunEndedEarly,
    RunFinished,
    RunRolledBack,
    RunStarted,
    SumGivenUp,
    ThresholdChanged,
    event_from,
    kind_and_body,
)
from covey.base.names import Handle
from covey.base.risk import RiskEstimate

T = TypeVar("T")
E = TypeVar("E", bound=Event)

PIECE = 256
"""Events that are packed together; as many again may wait for it."""


class _Story(Sequence[T]):
    """A sequence that equals another one, and a tuple, of the same content."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self._at(places)
        return tuple(self._at(i) for i in places)

    def _at(self, place: int) -> T:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Story | tuple):
            return False
        return tuple(self) == tuple(cast("Sequence[object]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tuple(self)!r})"


class Told(_Story[T]):
    """What was told, in order; one that is longer shares with it what both tell.

    So that a story can be told after every round, and all of it is not copied for that.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def with_more(self, items: Iterable[T]) -> "Told[T]":
        """Return these and more."""
        longer = Told[T]()
        whole = len(self._items) == self._length
        longer._items = self._items if whole else self._items[: self._length]
        longer._items.extend(items)
        longer._length = len(longer._items)
        return longer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def _at(self, place: int) -> T:
        return self._items[place]


class ToldEvents(_Story[Event]):
    """The same of events, of which all but the newest are packed."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._kept = _Kept()
        self._kept.extend(events)
        self._length = len(self._kept)

    def with_more(self, events: Iterable[Event]) -> "ToldEvents":
        """Return these and more."""
        if self._length < len(self._kept):  # another story went on from here
            return ToldEvents(self).with_more(events)
        longer = ToldEvents()
        longer._kept = self._kept
        longer._kept.extend(events)
        longer._length = len(longer._kept)
        return longer

    def of(self, *kinds: type[E]) -> Iterator[E]:
        """Yield the events of these kinds; others are not made again for that."""
        return _before(self._kept.of(kinds), self._length)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        return self.of(Event)

    def _at(self, place: int) -> Event:
        return self._kept.at(place)


def of_kinds(told: Sequence[Event], *kinds: type[E]) -> Iterator[E]:
    """Yield the events of these kinds, in order."""
    if isinstance(told, ToldEvents):
        return told.of(*kinds)
    return (each for each in told if isinstance(each, kinds))


def _before(numbered: Iterable[tuple[int, T]], stop: int) -> Iterator[T]:
    """Yield what has a place before `stop`."""
    for place, each in numbered:
        if place >= stop:
            return
        yield each


@dataclass(frozen=True, slots=True)
class _Piece:
    """`PIECE` events: as compressed JSON, but for those of columns, which stay.

    Attributes:
        kinds: whose events are in it.
    """

    packed: bytes
    columns: dict[int, Event]
    kinds: frozenset[type[Event]]

    @classmethod
    def of(cls, events: Sequence[Event]) -> "_Piece":
        columns = {i: each for i, each in enumerate(events) if _has_columns(each)}
        rest = [None if i in columns else kind_and_body(each) for i, each in enumerate(events)]
        text = json.dumps(rest, separators=(",", ":")).encode()
        return cls(zlib.compress(text), columns, frozenset(map(type, events)))

    def events(self, kinds: tuple[type[E], ...]) -> Iterator[tuple[int, E]]:
        """Yield the events of these kinds, each with its place among all."""
        wanted = {each.__name__ for each in self.kinds if issubclass(each, kinds)}
        foreign = issubclass(ForeignEvent, kinds)  # they are called by other names
        for i, found in enumerate(json.loads(zlib.decompress(self.packed))):
            if found is None:
                event = self.columns[i]
                if isinstance(event, kinds):
                    yield i, event
            elif foreign or found[0] in wanted:
                event = event_from(*found)
                if isinstance(event, kinds):
                    yield i, event


class _Kept:
    """Events that stories of different lengths share; it only grows.

    Who reads it may be another thread than who adds to it.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._newest: tuple[int, list[Event]] = 0, []
        """How many pieces come before these events, and they."""
        self._read: tuple[int, list[Event]] = -1, []
        """The piece that was last read event by event."""

    def __len__(self) -> int:
        before, newest = self._newest
        return before * PIECE + len(newest)

    def extend(self, events: Iterable[Event]) -> None:
        for each in events:
            before, newest = self._newest
            newest.append(each)
            if len(newest) == 2 * PIECE:
                self._pieces.append(_Piece.of(newest[:PIECE]))
                self._newest = before + 1, newest[PIECE:]

    def at(self, place: int) -> Event:
        before, newest = self._newest
        number, offset = divmod(place, PIECE)
        if number >= before:
            return newest[place - before * PIECE]
        known, events = self._read
        if known != number:
            events = [each for _, each in self._pieces[number].events((Event,))]
            self._read = number, events
        return events[offset]

    def of(self, kinds: tuple[type[E], ...]) -> Iterator[tuple[int, E]]:
        before, newest = self._newest
        for number, piece in enumerate(islice(self._pieces, before)):
            if any(issubclass(each, kinds) for each in piece.kinds):
                for offset, event in piece.events(kinds):
                    yield number * PIECE + offset, event
        for place, event in enumerate(newest, before * PIECE):
            if isinstance(event, kinds):
                yield place, event


def _has_columns(event: Event) -> bool:
    return any(is_column(getattr(event, each.name)) for each in fields(event))


SHARED = "shared"
NEVER = frozenset[int]()
SOLVED_ANEW = ("subtracted", "changed")
"""Replays whose models are solved from today's sums, and depend on no earlier round."""


def _longer(told: Sequence[T], *more: T) -> Told[T]:
    return (told if isinstance(told, Told) else Told(told)).with_more(more)


def _more_told(told: Sequence[Event], events: Iterable[Event]) -> ToldEvents:
    return (told if isinstance(told, ToldEvents) else ToldEvents(told)).with_more(events)


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round, as a line of a table.

    Attributes:
        participants: size of the cohort.
        clients: clients per cluster, by latest choice.
        moved: clients of the cohort that chose another cluster than the last time.
        risks: the estimate in force per cluster; None: unknown.
        over: clients whose cluster's figure is above what they accept; None: unknown.
    """

    round_index: int
    participants: int
    accuracy: float | None
    accuracy_by_group: Mapping[str, float]
    clients: tuple[int, ...]
    moved: int
    risks: tuple[RiskEstimate | None, ...]
    over: int | None
    squared_error: float | None = None
    squared_error_by_group: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class History:
    """Everything that the events of a run say, in the order in which it is asked for.

    Facts about single clients are of those who are in the run now (`clients`): who leaves
    is in none of them. What is told of a round is of who was there then.

    Attributes:
        started: as if all had been known then that is known now: the rounds of a run that
            ended early, new records, who joined and who left.
        trained: per client, the clusters whose model it ever trained; of who left, where
            the answer took its updates out of no model.
        sums_only: whether models were solved anew from sums, and no client's place in
            these has been read yet.
        left_since_end: how many left after the end was measured with them.
        reached: per cluster, the clients whose examples came to it by pooling.
        pooling: per cluster, the share of its model that it last had in common.
        moves: per client that moved, the rounds in which it chose another cluster.
        prices: the subsidies set after each round, if the method sets any.
        hidden: the anonymity sets of each round, if there are any.
        left: who asked to leave and what was last answered to each, in order.
        attacks: all others on final models, of whatever models those were.
        reported: what clients that are apart last told of themselves.
        refused: whose updates were ever refused.
        diverged: per cluster whose model is none after the latest round, why, and since
            which round in a row. What it shows is no figure of anybody's privacy.
        components: those that are a user's own, or have options of their own.
        ended_early: why the run has fewer rounds than were planned, if it has.
        told: every fact of all rounds ever played, superseded ones first: what they
            released stays released.
    """

    started: RunStarted | None = None
    rounds: Sequence[RoundRow] = ()
    assignment: Mapping[Handle, int] = field(default_factory=dict[Handle, int])
    trained: Mapping[Handle, frozenset[int]] = field(default_factory=dict[Handle, frozenset[int]])
    reached: Mapping[int, frozenset[Handle]] = field(default_factory=dict[int, frozenset[Handle]])
    pooling: tuple[float, ...] = ()
    figures: Mapping[int, RiskEstimate] = field(default_factory=dict[int, RiskEstimate])
    measured: Sequence[RiskMeasured] = ()
    notable: Sequence[tuple[int, Event]] = ()
    moves: Mapping[Handle, tuple[int, ...]] = field(default_factory=dict[Handle, tuple[int, ...]])
    prices: Sequence[tuple[int, PricesSet]] = ()
    hidden: Sequence[tuple[int, AnonymitySetsFormed | OrganisationsAttested]] = ()
    left: tuple[ClientLeft, ...] = ()
    audits: tuple[ClusterAudited, ...] = ()
    attacks: tuple[ModelAttacked, ...] = ()
    exposures: tuple[ClientExposed, ...] = ()
    fairness: tuple[FairnessMeasured, ...] = ()
    finished: RunFinished | None = None
    reported: ClientsReported | None = None
    told: Sequence[Event] = ()
    refused: frozenset[Handle] = frozenset()
    diverged: Mapping[int, ModelDiverged] = field(default_factory=dict[int, ModelDiverged])
    components: ComponentsUsed | None = None
    ended_early: RunEndedEarly | None = None
    sums_only: bool = False
    left_since_end: int = 0

    @property
    def clients(self) -> frozenset[Handle]:
        """Who is in the run now: who was there when it began or came, and has not left."""
        began = self.started.groups if self.started else {}
        left = {each.handle for each in self.left}
        return frozenset({*began, *self.assignment}) - left

    def clusters_of_clients(self) -> tuple[int, ...]:
        """Count who is in the run now, per cluster of the latest choice."""
        chosen = self.assignment or {e.handle: e.cluster for e in self.exposures}
        if not chosen and self.rounds:  # read without choices, see `glance`
            return self.rounds[-1].clients
        counts = Counter(chosen.values())
        known = self.started.num_clusters if self.started else 0
        return tuple(counts[j] for j in range(max([known, *(j + 1 for j in counts)])))

    def over(self) -> int | None:
        """Count the clients whose cluster's figure is above their threshold.

        None as soon as the figure of one chosen cluster is unknown.
        """
        risks = {j: each.risk for j, each in self.figures.items()}
        taus = self.started.risk_thresholds if self.started else {}
        chosen = self.assignment
        if not risks or not chosen or not taus.keys() >= chosen.keys():
            return None
        if not risks.keys() >= set(chosen.values()):
            return None
        return sum(risks[j] > taus[handle] for handle, j in chosen.items())


def history_of(
    entries: Iterable[tuple[int | None, Sequence[Event]]], superseded: Iterable[Event] = ()
) -> History:
    """Fold a whole run: its rounds, and what happened between them (None).

    Args:
        entries: what still counts.
        superseded: facts of rounds that were rolled back.
    """
    history = History(told=ToldEvents(superseded))
    for round_index, events in entries:
        history = with_entry(history, round_index, events)
    return history


def with_entry(history: History, round_index: int | None, events: Sequence[Event]) -> History:
    """Return the story with one more entry: of a round, or between two (None)."""
    if round_index is None:
        return _between(history, events)
    return after(history, round_index, events)


def _between(history: History, events: Sequence[Event]) -> History:
    history = replace(history, told=_more_told(history.told, events))
    for event in events:
        history = _after_one(history, event)
    return history


def _after_one(history: History, event: Event) -> History:
    """Return the story with one event that is of no round."""
    began = history.started
    match event:
        case ThresholdChanged(deniability_threshold=x) if began:
            return replace(history, started=replace(began, deniability_threshold=x))
        case RecordsChanged() if began:
            return replace(history, started=_with_records(began, event))
        case ModelAttacked():
            return _attacked(history, event)
        case RunEndedEarly():
            began = _shortened(began, event)
            return replace(history, started=began, ended_early=event)
        case ClientsJoined():
            return _joined(history, event)
        case ClientLeft():
            return _without(history, event)
        case RunRolledBack() if event.how in SOLVED_ANEW:
            return replace(history, trained={}, reached={}, sums_only=True)
        case _:
            return history


def _joined(history: History, event: ClientsJoined) -> History:
    if history.started is None:
        return history
    groups = dict.fromkeys(event.handles) | dict(history.started.groups)
    return replace(history, started=replace(history.started, groups=groups))


def _without(history: History, event: ClientLeft) -> History:
    """Return the story once a client left: what was told of it alone is told no more."""
    gone, began = event.handle, history.started
    if began is not None:
        began = replace(
            began,
            data_hash=event.data_hash or began.data_hash,
            groups=_others(began.groups, gone),
            risk_thresholds=_others(began.risk_thresholds, gone),
        )
    reported = history.reported
    return replace(
        history,
        started=began,
        assignment=_others(history.assignment, gone),
        left=(*(e for e in history.left if e.handle != gone), event),
        exposures=tuple(e for e in history.exposures if e.handle != gone),
        moves=_others(history.moves, gone),
        reported=reported
        and ClientsReported(_others(reported.accuracy, gone), _others(reported.above, gone)),
        left_since_end=history.left_since_end + (history.finished is not None),
    )


def _others(of_clients: Mapping[Handle, T], gone: Handle) -> dict[Handle, T]:
    return {handle: each for handle, each in of_clients.items() if handle != gone}


def _shortened(began: RunStarted | None, ended: RunEndedEarly | None) -> RunStarted | None:
    """Return how a run would have begun with the rounds that it has."""
    return replace(began, rounds=ended.rounds) if began and ended else began


def _with_records(began: RunStarted, changed: RecordsChanged) -> RunStarted:
    """Return how a run would have begun, had it known of a client's new records."""
    began = replace(began, data_hash=changed.data_hash)
    tau = changed.risk_threshold
    if tau is None:
        return began
    return replace(
        began,
        groups={**began.groups, changed.handle: None},
        risk_thresholds={**began.risk_thresholds, changed.handle: tau},
    )


def after(history: History, round_index: int, events: Sequence[Event]) -> History:
    """Return the story with one more round, or with its end."""
    moved, participants = 0, 0
    before = history.diverged
    history = replace(history, told=_more_told(history.told, events), diverged={})
    for event in events:
        if isinstance(event, ClientsAssigned):
            moved = len(_movers(history, event))
            participants = len(event.clusters)
        history = _with(history, round_index, event)
    history = _without_expired(_still_diverged(history, before), round_index)
    row = next((e for e in events if isinstance(e, RoundMeasured)), None)
    if row is None:
        return history
    figures = history.figures
    found = RoundRow(
        round_index=round_index,
        participants=participants,
        accuracy=row.accuracy,
        accuracy_by_group=row.accuracy_by_group,
        clients=row.clients,
        moved=moved,
        risks=tuple(figures.get(j) for j in range(len(row.clients))),
        over=history.over(),
        squared_error=row.squared_error,
        squared_error_by_group=row.squared_error_by_group,
    )
    rounds = history.rounds
    found = _sharing(found, rounds[-1]) if rounds else found
    return replace(history, rounds=_longer(rounds, found))


def _sharing(row: RoundRow, before: RoundRow) -> RoundRow:
    """Return an equal row that shares with the one before what is the same in both."""
    same = {
        name: getattr(before, name)
        for name in ("accuracy_by_group", "clients", "risks")
        if getattr(row, name) == getattr(before, name)
    }
    return replace(row, **same)


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


def _without_expired(history: History, round_index: int) -> History:
    """Drop the figures that have become too old to act on."""
    lives = history.started.risk_lives if history.started else 0
    figures = history.figures.items()
    alive = {j: each for j, each in figures if each.is_valid(round_index, lives)}
    return replace(history, figures=alive)


def _with(  # noqa: C901, PLR0911, PLR0912 - one line per kind of event
    history: History, round_index: int, event: Event
) -> History:
    match event:
        case RunStarted():
            return replace(history, started=_shortened(event, history.ended_early))
        case ComponentsUsed():
            return replace(history, components=event)
        case ClientsJoined():
            return _joined(history, event)
        case ClientsAssigned():
            return _assigned(_with_moves(history, round_index, event), event)
        case ClientsHandedOut(handles):
            return _mixed(history, handles)
        case ModelsPooled():
            return _pooled(history, event)
        case PricesSet():
            return replace(history, prices=_longer(history.prices, (round_index, event)))
        case RiskMeasured():
            return _measured(history, event)
        case ClusterAudited():
            return replace(history, audits=(*history.audits, event))
        case ModelAttacked():
            return _attacked(history, event)
        case ClientExposed():
            return replace(history, exposures=(*history.exposures, event))
        case FairnessMeasured():
            return replace(history, fairness=(*history.fairness, event))
        case RunFinished():
            return replace(history, finished=event, left_since_end=0)
        case ClientsReported():
            return replace(history, reported=event)
        case ModelDiverged():
            return _noted(_diverged(history, event), round_index, event)
        case AnswerRefused(handle=handle):
            known = history.refused | ({handle} if handle else set())
            return _noted(replace(history, refused=known), round_index, event)
        case RiskUnknown():
            return _noted(_without_figures(history, event), round_index, event)
        case AnonymitySetsFormed() | OrganisationsAttested():
            return replace(history, hidden=_longer(history.hidden, (round_index, event)))
        case (
            GroupsSought()
            | ClusterAbandoned()
            | ClustersCollapsed()
            | ClusterWaited()
            | MovesWaited()
            | NewcomersWaited()
            | SumGivenUp()
        ):
            return _noted(history, round_index, event)
        case _:
            return history


def _assigned(history: History, event: ClientsAssigned) -> History:
    assignment = dict(history.assignment)
    assignment.update(event.clusters.items())
    if event.by == "final":
        return replace(history, assignment=assignment)
    num_clusters = history.started.num_clusters if history.started else 1
    if event.by == SHARED and num_clusters > 1:
        return history
    moved = {j: frozenset([j]) for j in set(event.clusters.values())}
    known = history.trained
    if history.sums_only:
        known = {h: frozenset([j]) for h, j in assignment.items()}
    new = {
        handle: known[handle] | moved[j] if handle in known else moved[j]
        for handle, j in event.clusters.items()
        if not moved[j] <= known.get(handle, NEVER)
    }
    trained = {**known, **new} if new else known
    if history.sums_only:  # a model that is solved from nobody's sums has no risk
        used = set(assignment.values())
        figures = {j: f for j, f in history.figures.items() if j in used}
        history = replace(history, figures=figures, sums_only=False)
    return _mixed(replace(history, assignment=assignment, trained=trained))


def _mixed(history: History, handed_out: Iterable[Handle] = ()) -> History:
    """Count everybody in for every cluster, where a user's algorithm may mix them."""
    if history.components is None or not history.components.mixes_clusters:
        return history
    num_clusters = history.started.num_clusters if history.started else 1
    before = history.reached.get(0, frozenset[Handle]())
    everybody = before.union(history.trained, handed_out)
    return replace(history, reached=dict.fromkeys(range(num_clusters), everybody))


def _pooled(history: History, event: ModelsPooled) -> History:
    """Remember the shares, and that the shared model brought traces of everybody."""
    everybody = frozenset(history.trained)
    reached = dict(history.reached)
    for j, share in enumerate(event.shares):
        if share > 0:
            reached[j] = everybody
    return replace(history, reached=reached, pooling=event.shares)


def _measured(history: History, event: RiskMeasured) -> History:
    measured = _longer(history.measured, event)
    found = RiskEstimate.measured(event)
    if found is None or not found.calibrated:
        return replace(history, measured=measured)
    figures = {**history.figures, event.cluster: found}
    return replace(history, measured=measured, figures=figures)


def _attacked(history: History, event: ModelAttacked) -> History:
    """Remember an attack; of the same one on the same model the newest counts."""
    same = (event.model_hash, event.cluster, event.attack, event.client)
    others = (
        each
        for each in history.attacks
        if (each.model_hash, each.cluster, each.attack, each.client) != same
    )
    return replace(history, attacks=(*others, event))


def _diverged(history: History, event: ModelDiverged) -> History:
    """Remember it, and drop the figure of the model that was there before."""
    figures = {j: f for j, f in history.figures.items() if j != event.cluster}
    diverged = {**history.diverged, event.cluster: event}
    return replace(history, figures=figures, diverged=diverged)


def _still_diverged(history: History, before: Mapping[int, ModelDiverged]) -> History:
    """Say since when: the round of the first fact of those that follow each other."""
    since = {
        j: replace(each, round_index=before[j].round_index) if j in before else each
        for j, each in history.diverged.items()
    }
    return replace(history, diverged=since)


def _without_figures(history: History, event: RiskUnknown) -> History:
    """Drop the figures without which clients chose."""
    alive = {j: f for j, f in history.figures.items() if j not in event.clusters}
    return replace(history, figures=alive)


def _noted(history: History, round_index: int, event: Event) -> History:
    return replace(history, notable=_longer(history.notable, (round_index, event)))


def _movers(history: History, event: ClientsAssigned) -> list[Handle]:
    return [
        handle for handle, j in event.clusters.items() if history.assignment.get(handle, j) != j
    ]


def _with_moves(history: History, round_index: int, event: ClientsAssigned) -> History:
    movers = _movers(history, event)
    if not movers:
        return history
    moves = dict(history.moves)
    for handle in movers:
        moves[handle] = (*moves.get(handle, ()), round_index)
    return replace(history, moves=moves)
