"""The grammar of a ledger: what each event must come after, and must agree with.

A chain that holds proves only that nothing was changed since it was sealed; whoever seals it can
put anything there. So one fold goes once through all events, in order, with the settings at hand,
and refuses the first one that cannot stand where it does. What is written passes through it, too.

What no event shows is not decided here: that rounds were trained as they are recorded, that a
hash is the one of the models in use, whose handle it is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple, cast

from covey.base import events
from covey.base.errors import RunError
from covey.base.events import Event
from covey.base.history import FINAL, of_kinds
from covey.base.names import Handle
from covey.leaving.plan import AnswerRules, Option, check_basis, option_for, replay_kind
from covey.ledger.chain import Record, event_of, no_event
from covey.ledger.participation import participation_of
from covey.runs.round_grammar import (
    HIDING,
    JudgedRound,
    Problem,
    ReplayTerms,
    RoundFacts,
    RoundTerms,
    clusters_in,
    handles_in,
    missing,
    per_cluster,
)

_TAKES_PART = (
    *(events.AnonymitySetsFormed, events.ClientsAssigned, events.ClientsHandedOut),
    *(events.ClientLeft, events.RunRolledBack, events.HeadsSolved),
)
"""Kinds from which it follows who took part in what."""

_OF_ROUNDS = (
    *(events.CohortSampled, events.ModelsMerged, events.RoundMeasured, *HIDING),
    *(events.HeadsSolved, events.RunStarted),
)
"""Kinds that the end of a run has none of."""

_ABOUT_SUMS = (events.AnswersMissing, events.AnswerRefused, events.SumGivenUp)


class _Request(NamedTuple):
    """A request that is not answered, and the threshold x that was in force when it came."""

    event: events.LeaveRequested
    x: int | None


class Grammar:
    """What may be recorded next, after all that was read."""

    def __init__(self, terms: RoundTerms | None = None) -> None:
        """Begin before the first event.

        Args:
            terms: what the settings say; None: they are not at hand, and nothing is compared
                with them.
        """
        self.terms = terms
        self._is_remote = terms is None or terms.is_remote
        self._started: events.RunStarted | None = None
        self._x: int | None = None
        self._joined: frozenset[Handle] = frozenset()
        self._gone: Mapping[Handle, str] = {}
        self._requests: Mapping[str, _Request] = {}
        self._answered: frozenset[str] = frozenset()
        self._answers: tuple[tuple[events.ClientLeft, Option], ...] = ()
        self._rounds: tuple[JudgedRound, ...] = ()
        self._ended: int | None = None
        self._finished: events.RunFinished | None = None
        self._replay: ReplayTerms | None = None
        self._counted: tuple[tuple[int | None, Event], ...] = ()

    def read(self, records: Iterable[Record]) -> list[Event]:
        """Return the events that these records are; one that is refused leaves no trace.

        Rounds must be whole.

        Raises:
            LedgerError: of the first that is none, or cannot stand there; it names its position.
        """
        after, read = copy(self), list[Event]()
        for t, entry in groupby(records, key=lambda record: record.round_index):
            several = list(entry)
            for group in [several] if t is not None else ([one] for one in several):
                facts = [event_of(record) for record in group]
                for event, problem in after._problems(t, facts, group):
                    at = next(i for i, fact in enumerate(facts) if fact is event)
                    raise no_event(group[at].position, problem)
                after._counted += tuple((t, f) for f in facts if isinstance(f, _TAKES_PART))
                read += facts
        vars(self).update(vars(after))
        return read

    def check_whole(self, position: int) -> None:
        """Refuse to end here: an answer and the roll-back that it needs are recorded at once.

        Raises:
            LedgerError: rounds are to be played again, and no roll-back says so.
        """
        for event, _ in self._owed():
            raise no_event(position, f"no roll-back follows a {event.answer} that needs one")

    def _problems(
        self, t: int | None, facts: Sequence[Event], entry: Sequence[Record]
    ) -> Iterator[Problem]:
        """Yield what is wrong with what was recorded at once, and take it up."""
        for event, record in zip(facts, entry, strict=True):
            about = isinstance(event, events.LeaveRequested | events.ClientLeft)
            if self._gone and not about and (back := _texts(record.body) & self._gone.keys()):
                yield event, f"it names a client that has left: {min(back)!a}"
        if t is not None:
            yield from self._close_answers(facts[0])
            yield from self._in_round(t, facts)
            return
        (event,) = facts
        replay = self._replay
        match event:
            case events.ClientLeft():
                yield from self._left(event)
            case events.RunRolledBack():
                yield from self._rolled_back(event)
            case _ if (
                replay and replay.event.how == "subtracted" and isinstance(event, _ABOUT_SUMS)
            ):
                lacking = replay.lacking | missing([event])
                self._replay = replace(replay, lacking=lacking)
            case _:
                yield from self._close_answers(event)
                yield from self._between(event)

    # between rounds

    def _between(self, event: Event) -> Iterator[Problem]:
        began, sets = self._started, self.terms and self.terms.sets
        match event:
            case events.LeaveRequested(request=name):
                if name in self._requests or name in self._answered:
                    yield event, "there was a request of this number"
                self._requests = {**self._requests, name: _Request(event, self._x)}
            case events.ThresholdChanged(deniability_threshold=x):
                if self._x is None or x < 1 or (sets and x > sets.k):
                    yield event, f"x is 1 to k in a run with anonymity sets, not {x}"
                self._x = x
            case events.RunEndedEarly(rounds=rounds, planned=planned):
                fits = began and (rounds, planned) == (len(self._rounds), began.rounds)
                if not fits or self._ended or self._finished:
                    yield event, f"{len(self._rounds)} rounds were played, or the run has ended"
                self._ended = rounds
            case events.ModelAttacked(model_hash=attacked, client=client):
                if self._finished is None or attacked != self._finished.model_hash:
                    yield event, "its models are not those that the run ended with"
                if client and client not in self._joined:
                    yield event, f"it names a client that never joined: {client!a}"
            case events.ForeignEvent():
                pass
            case _:
                yield event, f"a {type(event).__name__} belongs to a round"

    def _left(self, event: events.ClientLeft) -> Iterator[Problem]:
        """Judge an answer by its request, and by what was recorded of the client."""
        handle, kind, before = event.handle, event.answer, self._gone.get(event.handle)
        request = self._requests.get(event.request)
        if request is None:
            again = event.request in self._answered
            yield event, "its request was answered before" if again else "no such request is open"
            return
        requested = request.event
        if requested.handle != handle or requested.subject not in ("", event.subject):
            yield event, "it is not the client that made the request"
        if requested.wanted not in ("auto", kind):
            yield event, f"{requested.wanted} was requested, and {kind} is the answer"
        try:
            check_basis(kind, requested.basis)
        except RunError:
            yield event, f"a request for {requested.basis} is never answered by {kind}"
        if self._rounds and handle not in self._joined:
            yield event, f"it names a client that never joined: {handle!a}"
        if self._replay and len(self._rounds) < self._replay.until:
            yield event, f"rounds up to {self._replay.until} were to be played again first"
        if before and kind in (("stop",) if before == "stop" else ("deny", "stop")):
            yield event, f"the client had left, and a {kind} is no stronger answer"
        if kind == "deny" and (request.x or 0) > (self._x or 0):
            yield event, f"x was {request.x} since the request, and is {self._x}"
        if kind == "calibrate" and self._started and not self._started.updates_stored:
            yield event, "a calibration takes stored updates, and the run stored none"
        if kind == "subtract" and self.terms and self.terms.subtracts is False:
            yield event, "models are not solved from sums"
        option = self._option(handle, kind)
        if kind in ("deny", "subtract") and not option.possible:
            yield event, f"it could not be answered so ({option.reason.removesuffix('.')})"
        self._answers += ((event, option),)
        self._gone = {**self._gone, handle: kind}
        self._answered = self._answered.union([event.request])
        self._requests = {k: v for k, v in self._requests.items() if k != event.request}

    def _option(self, handle: Handle, kind: str) -> Option:
        """Return an answer as it is possible now, had no client a share in earlier rounds."""
        played = len(self._rounds)
        rules = AnswerRules(
            deniability_threshold=self._x if self._started else 1,
            stored_updates=kind == "calibrate",
            restorable=tuple(range(played + 1)),
            next_round=played,
            subtracts=kind == "subtract",
        )
        return option_for(kind, participation_of(self._counted), handle, rules)

    def _owed(self) -> list[tuple[events.ClientLeft, Option]]:
        """Return the latest answers that need rounds to be played again."""
        return [answer for answer in self._answers if answer[1].first_affected_round is not None]

    def _close_answers(self, event: Event) -> Iterator[Problem]:
        for answer, _ in self._owed():
            yield event, f"no roll-back comes before it, which a {answer.answer} needs"
        self._answers = ()

    def _rolled_back(self, event: events.RunRolledBack) -> Iterator[Problem]:
        """Judge a roll-back by the answers that need it; a real server can lose rounds, too."""
        first, played, answers = event.round_index, len(self._rounds), self._owed()
        if event.until != played or first > played:
            yield event, f"{played} rounds had been played, not {first} to {event.until}"
        if answers:
            how = replay_kind([option for _, option in answers])
            affected = min(option.first_affected_round or 0 for _, option in answers)
            if event.how != how:
                yield event, f"for these answers rounds are played again {how}, not {event.how}"
            if first > affected or (how == "subtracted" and first != affected):
                yield event, f"it begins in round {first}, and round {affected} is to be taken back"
        elif not self._is_remote:
            yield event, "no answer needs a replay"
        elif self.terms and (event.how != "anew" or self._finished or first == played):
            yield event, "rounds whose state was lost are played anew, before the run's end"
        leavers = {answer.handle for answer, _ in self._answers}
        in_sums = _in_sums(self._counted, leavers) if event.how == "subtracted" else {}
        owed = self._replay.until if self._replay and not answers else 0
        before = dict(enumerate(self._rounds[first:], first))
        self._replay = ReplayTerms(event, before, max(event.until, owed), in_sums)
        self._rounds, self._finished, self._answers = self._rounds[:first], None, ()
        self._counted = tuple(e for e in self._counted if e[0] is None or e[0] < first)

    # rounds

    def _in_round(self, t: int, facts: Sequence[Event]) -> Iterator[Problem]:
        """Judge a round, or the end after the last one."""
        first, played = facts[0], len(self._rounds)
        starts = list(of_kinds(facts, events.RunStarted))
        if len(starts) != (t == 0):
            yield first, f"a run starts once, in round 0, and this is round {t}"
        if self._started is None and not starts:
            yield first, "no start of the run comes before it"
            return
        for start in starts:
            yield from self._start(start, facts)
        began = cast("events.RunStarted", self._started)
        rounds = self._ended or began.rounds
        if t != played or self._finished or t > rounds:
            yield first, f"it is of round {t}, and round {played} of {rounds} comes next"
        for joined in of_kinds(facts, events.ClientsJoined):
            known = {*joined.handles} & (self._joined | self._gone.keys())
            if known or not t or not self._is_remote:
                yield joined, "a client joins once, in a run that is going on"
            self._joined = self._joined.union(joined.handles)
        for event in facts:
            last = max(clusters_in(event), default=0)
            if not 0 <= last < began.num_clusters:
                yield event, f"it names cluster {last}, and there are 0 to {began.num_clusters - 1}"
            if any(len(said) != began.num_clusters for said in per_cluster(event)):
                yield event, f"it does not say something of each of {began.num_clusters} clusters"
            if strange := {*handles_in(event)} - self._joined:
                yield event, f"it names a client that never joined: {min(strange)!a}"
        if t == rounds:
            yield from self._end(facts)
            return
        present, replay = self._joined.difference(self._gone), self._replay
        again = replay if replay and t < replay.until else None
        whole = RoundFacts(t, facts, self.terms, present, self._gone, again, began.num_clusters)
        yield from whole.problems()
        self._rounds += (whole.played(),)

    def _start(self, began: events.RunStarted, facts: Sequence[Event]) -> Iterator[Problem]:
        """Judge the start by the settings; where round 0 is played again, by the first one."""
        present, terms = self._joined.difference(self._gone), self.terms
        if self._started is not None:
            added = began.groups.keys() - present if self._is_remote else frozenset[Handle]()
            if frozenset(began.groups) - added != present:
                yield began, "its clients are not those that had joined"
            if began.deniability_threshold != self._x:
                yield began, f"x was {self._x} before, and is {began.deniability_threshold}"
        self._started, self._x = began, began.deniability_threshold
        self._joined = self._joined.union(began.groups)
        if terms is None:
            return
        for name, value in terms.started.items():
            if (said := getattr(began, name)) != value:
                yield began, f"{name}: the settings say {value!a}, it says {said!a}"
        if not terms.own_sets:
            k = terms.sets.k if terms.sets else 0
            if (self._x is not None) != (k > 0) or not 0 <= (self._x or 0) <= k:
                yield began, f"x: the settings have sets of {k or 'no'} members, it says {self._x}"
        used = [*of_kinds(facts, events.ComponentsUsed)]
        recorded = used[0] if used else events.ComponentsUsed({})
        if len(used) > 1 or (recorded.mixes_clusters and not terms.mixes_clusters):
            yield used[-1], "its parts are recorded once, and as they are"
        yield from ((began, problem) for problem in _other_parts(recorded.components, terms))

    def _end(self, facts: Sequence[Event]) -> Iterator[Problem]:
        """Judge the end: its models are those of the last round."""
        *before, last = facts
        if not isinstance(last, events.RunFinished):
            yield last, "the last event of a run is a RunFinished"
            return
        for event in before:
            chosen = isinstance(event, events.ClientsAssigned) and event.by != FINAL
            if chosen or isinstance(event, (*_OF_ROUNDS, events.RunFinished)):
                yield event, f"a {type(event).__name__} does not belong to the end"
        yield from self._last_choices(facts)
        known = self._rounds[-1].model_hash if self._rounds else ""
        if known and last.model_hash != known:
            yield last, "its models are not those of the last round"
        self._finished, self._replay = last, None

    def _last_choices(self, facts: Sequence[Event]) -> Iterator[Problem]:
        """Judge who uses which model from now on; a user's own algorithm may say nothing."""
        last, finals = facts[-1], list(of_kinds(facts, events.ClientsAssigned))
        if self.terms is None or self.terms.own_rounds:
            return
        if len(finals) != 1:
            yield last, f"clients choose once for the last time, and not {len(finals)} times"
            return
        chosen, present = finals[0].clusters, self._joined.difference(self._gone)
        if strange := chosen.keys() - present:
            yield finals[0], f"it names a client that is not there: {min(strange)!a}"
        ends = {event.handle: event.cluster for event in of_kinds(facts, events.ClientExposed)}
        if (not self._is_remote and ends != chosen) or not chosen.items() <= ends.items():
            yield last, "clients end with other models than they chose"


def check_times(times: Mapping[int, str], events: int) -> str:
    """Say what is wrong with when entries were written, by their last positions; "": nothing."""
    moments = [when for _, when in sorted(times.items())]
    if max(times, default=0) != events:
        return "it is not known when the last event was written"
    if any(later < earlier for earlier, later in pairwise(moments)):
        return "an entry was written before the one that it follows"
    return ""


def _in_sums(
    counted: Iterable[tuple[int | None, Event]], leavers: Collection[Handle]
) -> dict[Handle, int]:
    """Return in which cluster's sums each client was before these left."""
    inside: dict[Handle, int] = {}
    stopped: set[Handle] = set()
    for _, event in counted:
        match event:
            case events.ClientsAssigned(clusters, by) if by != FINAL:
                inside |= clusters
            case events.ClientLeft(handle=handle) if handle in leavers:
                pass
            case events.ClientLeft(handle=handle, answer="stop"):
                stopped.add(handle)  # whose records stay in the sums until the next round
            case events.HeadsSolved():
                inside = {handle: j for handle, j in inside.items() if handle not in stopped}
            case events.ClientLeft(handle=handle):
                inside.pop(handle, None)
            case _:
                pass
    return inside


def _texts(value: object) -> set[str]:
    """Return all texts in a table of JSON's values, keys too."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return set[str](table).union(*map(_texts, table.values()))
    if isinstance(value, Sequence):
        return set[str]().union(*map(_texts, cast("Sequence[object]", value)))
    return set()


def _other_parts(recorded: Mapping[str, Mapping[str, Any]], terms: RoundTerms) -> Iterator[str]:
    """Yield which parts are not recorded as the settings say, or not by their numbers."""
    for setting, part in terms.parts.items():
        said = recorded.get(setting, {})
        # a source of nothing is covey's own
        if not part.items() <= said.items() or not (said.get("source") or "source" in part):
            yield f"{setting}: the settings say {part['name']!a}, it is recorded otherwise"
    of_models = {setting for setting in recorded if setting.startswith("model.")}
    if extra := recorded.keys() - terms.parts.keys() - of_models:
        yield f"{min(extra)}: its settings have no such part"
    fixed = {part for part in of_models if part not in terms.parts}
    if terms.subtracts:  # heads are solved on nothing else
        fixed |= of_models & {events.FEATURES}
    if unknown := {setting for setting in fixed if "tensors" not in recorded[setting]}:
        yield f"{min(unknown)}: it must say what its numbers hash to, found nothing"
