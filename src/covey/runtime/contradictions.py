"""What a ledger holds, or lacks, that contradicts an answer: a signer may record it and go on.

    every round that is said to be played again is recorded, once
    no event after the answer holds the requester, nor does the table of names
    after a retraining or a calibration no round that counts holds it
    sums lost those who left, and no one else

That rounds were trained as they are recorded, no event shows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

from covey.base import events
from covey.base.errors import RunError
from covey.base.events import kind_and_body
from covey.base.names import ClientName, Handle
from covey.runtime.facts import Answer, Events
from covey.settings.load import Config
from covey.unlearning.facts import Facts
from covey.unlearning.participation import latest_sums, participation_of
from covey.unlearning.plan import check_basis
from covey.unlearning.signature import instant

_OF_REQUESTS = (events.LeaveRequested, events.ClientLeft)
_PLAYED = (events.CohortSampled, events.RoundMeasured)
"""What a run records of every round, whatever its algorithm is."""


def contradictions(
    answer: Answer,
    recorded: Events,
    names: Mapping[Handle, ClientName],
    times: Mapping[int, str],
    config: Config,
    facts: Facts,
) -> Iterator[str]:
    """Yield what contradicts an answer, before and after it, by the settings and by the clock.

    Args:
        answer: as it was recorded.
        recorded: all of the ledger's events, those after the proof was signed too.
        names: that the ledger has.
        times: when each entry was written, by the position of its last event.
        config: the settings that began the run.
        facts: those of the proof.
    """
    handle, kind, rewind = answer.event.handle, answer.event.answer, answer.rewind
    yield from _request(answer)
    yield from _held_afterwards(answer, recorded, names)
    if rewind is not None:
        yield from _replays(answer, rewind)
        if kind == "subtract":
            yield from _sums(answer, rewind.round_index)
    yield from _moments(answer, facts, times)
    if kind == "calibrate" and answer.began and not answer.began.updates_stored:
        yield "answer: a calibration takes stored updates, and the run stored none"
    held = participation_of(answer.now).first_round(handle)
    if kind in ("retrain", "calibrate") and held is not None:
        yield f"rounds that count: round {held} holds the requester"
    if kind == "deny" and answer.began and not config.risk.is_own:
        option = answer.option(prefix_independent=True)
        if not option.possible:
            yield f"answer: it could not be denied. {option.reason}"
    if kind == "subtract":
        if rewind is None and participation_of(answer.before).first_trace(handle) is not None:
            yield "replays: the requester's records were in sums, and none were changed"
        if not config.method.is_own and not config.method.subtracts:
            yield f"answer: nothing can be subtracted with method.name = {config.method.name!r}"
    if rewind and kind != "deny" and (facts.first_affected_round or 0) > rewind.until:
        yield "first_affected_round: no round that had been played"
    most = rewind.until - rewind.round_index + 1 if rewind else 0
    if rewind and kind == "subtract":
        most = rewind.until  # no state of any round may stay
    if any(facts.superseded_deleted.get(what, 0) > most for what in ("states", "updates")):
        yield "superseded_deleted: more than the replayed rounds had"


def _held_afterwards(
    answer: Answer, facts: Events, names: Mapping[Handle, ClientName]
) -> Iterator[str]:
    """Look for the requester in what came later, whether that counts or not."""
    handle = answer.event.handle
    if handle in names and answer.event.answer != "stop":
        yield "names: the table still names the requester"
    for at, (_, event) in enumerate(facts[answer.end :], answer.end + 1):
        if not isinstance(event, _OF_REQUESTS) and _holds(kind_and_body(event)[1], handle):
            yield f"later events: event {at}, after the answer, holds the requester"
            break
    left = {event.handle for _, event in facts if isinstance(event, events.ClientLeft)}
    for t, event in facts[answer.end :]:
        if isinstance(event, events.CohortSampled) and {*event.handles} - names.keys() - left:
            yield (
                f"names: in round {t} somebody takes part whom the table does not name, and "
                f"who has not left"
            )
            return


def _holds(value: object, handle: Handle) -> bool:
    """Say whether a handle stands anywhere in an event's body."""
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return value == handle
    inside = chain.from_iterable(value.items()) if isinstance(value, Mapping) else value
    return any(_holds(each, handle) for each in cast("Iterable[object]", inside))


def _replays(answer: Answer, rewind: events.RunRolledBack) -> Iterator[str]:
    rounds = [t for t, _ in answer.before if t is not None]
    until = max(rounds, default=-1) + 1
    until = min(until, answer.began.rounds) if answer.began else until
    if rewind.until != until:
        yield f"replays: {until} rounds had been played, not {rewind.until}"
    counted = Counter((t, type(event)) for t, event in answer.now)
    for t in range(rewind.round_index, rewind.until):
        if any(counted[t, kind] != 1 for kind in _PLAYED):
            yield f"replays: round {t} is said to be played again, and is not recorded"
            return


def _sums(answer: Answer, t: int) -> Iterator[str]:
    """Compare who left with what the sums lost, cluster by cluster."""
    gone = {*answer.leavers, *participation_of(answer.before).stopped}
    again = [event for at, event in answer.now if at == t]
    before = latest_sums(answer.before)
    after = next((each for each in again if isinstance(each, events.HeadsSolved)), None)
    if before is None or after is None or len(before.sums) != len(after.sums):
        yield f"replays: no heads are recorded as solved again in round {t}"
        return
    lacking = _lacking(chain(answer.together, again)) - gone
    old, new = _chosen(answer.before, t), _chosen(answer.now, t)
    stay = {h: j for h, j in old.items() if h not in gone | lacking}
    if stay != {h: j for h, j in new.items() if h not in lacking}:
        yield f"subtracted: in round {t} others are not in the clusters that are recorded"
    clusters = _counted(answer.before)
    inside = Counter(clusters.values())
    for j in range(len(before.sums)):
        if inside[j] != before.clients[j]:
            yield (
                f"subtracted: {before.clients[j]} clients are said to be in cluster {j}, "
                f"and {inside[j]} chose it"
            )
            return
        least = sum(clusters.get(h) == j for h in gone)
        most = least + sum(clusters.get(h) == j for h in lacking)
        lost = before.clients[j] - after.clients[j]
        if not least <= lost <= most:
            yield f"subtracted: {least} left cluster {j}, and its sums lost {lost}"
        if least and before.sums[j] == after.sums[j]:
            yield f"subtracted: {least} left cluster {j}, and its sums did not change"


def _lacking(facts: Iterator[events.Event]) -> set[Handle]:
    """Return those who stay and gave no sums when these were made anew."""
    lacking: set[Handle] = set()
    for event in facts:
        match event:
            case (
                events.AnswersMissing(handles=some)
                | events.SumGivenUp(clients=some)
                | events.ClientsWaited(clients=some)
            ):
                lacking |= {*some}
            case events.AnswerRefused(handle=str(one)):
                lacking.add(one)
            case _:
                pass
    return lacking


def _chosen(counted: Events, t: int) -> dict[Handle, int]:
    return {
        handle: j
        for at, event in counted
        if at == t and isinstance(event, events.ClientsAssigned)
        for handle, j in event.clusters.items()
    }


def _counted(current: Events) -> dict[Handle, int]:
    """Return in which cluster's sums each client is."""
    counted: dict[Handle, int] = {}
    stopped: set[Handle] = set()
    for _, event in current:
        match event:
            case events.ClientsAssigned(clusters, by) if by != "final":
                counted |= clusters
            case events.ClientLeft(handle=handle, answer="stop"):
                stopped.add(handle)  # whose records stay in the sums until the next round
            case events.HeadsSolved():
                counted = {handle: j for handle, j in counted.items() if handle not in stopped}
            case events.ClientLeft(handle=handle):
                counted.pop(handle, None)
            case _:
                pass
    return counted


def _request(answer: Answer) -> Iterator[str]:
    """Compare the request in the table, the request in the chain, and the answer."""
    row, requested, event = answer.request, answer.requested, answer.event
    if requested.wanted not in ("auto", event.answer):
        yield f"answer: {requested.wanted} was requested, and {event.answer} was recorded"
    for name in ("handle", "wanted", "basis"):
        if getattr(row, name) != getattr(requested, name):
            yield f"{name}: the table of requests has another one than the chain"
    if (requested.handle, requested.subject or event.subject) != (event.handle, event.subject):
        yield "subject: the requester is not the client that is said to have left"
    try:
        check_basis(event.answer, requested.basis)
    except RunError as error:
        yield f"basis: {error}"


def _moments(answer: Answer, facts: Facts, times: Mapping[int, str]) -> Iterator[str]:
    """Compare when it was answered with when the ledger was written before and after."""
    moment = instant(facts.answered)
    if moment is None:
        return  # its own check says so
    later = [when for position, when in times.items() if position > answer.at]
    earlier = [when for position, when in times.items() if position <= answer.at]
    if any(moment < then for then in map(instant, earlier[-1:]) if then):
        yield "answered: before the ledger was written as the proof saw it"
    after = map(instant, (*later[:1], answer.request.answered_at))
    if any(moment > then for then in after if then):
        yield "answered: after the ledger went on, or the request was closed"
