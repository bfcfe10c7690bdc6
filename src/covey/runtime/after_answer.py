"""What must stand in a ledger after an answer, since a signer may record it and go on.

    every round that is said to be played again is recorded, once
    no event after the answer holds the requester, nor does the table of names
    after a retraining or a calibration no round that counts holds it
    sums lost those who left, and nobody else

That rounds were trained as they are recorded, no event shows.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

from covey.columns import Column, HandleColumn, HandleMap, Lists
from covey.events import (
    AnswerRefused,
    AnswersMissing,
    ClientLeft,
    ClientsAssigned,
    CohortSampled,
    Event,
    HeadsSolved,
    LeaveRequested,
    MovesWaited,
    RecordsChanged,
    RoundMeasured,
    SumGivenUp,
)
from covey.ledger import Record, current_records
from covey.runtime.answer_events import AnswerEvents
from covey.runtime.ledger_record import by_entry
from covey.types import ClientName, Handle
from covey.unlearning import latest_sums, participation_of

__all__ = ["problems_after"]

OF_REQUESTS = (LeaveRequested.__name__, ClientLeft.__name__)
PLAYED = (CohortSampled, RoundMeasured)
"""What a run records of every round, whatever its algorithm is."""

Story = Sequence[tuple[int | None, Event]]


def problems_after(
    answer: AnswerEvents,
    records: Sequence[Record],
    position: int,
    names: Mapping[Handle, ClientName],
) -> Iterator[str]:
    """Say what the ledger holds, or lacks, that contradicts an answer.

    Args:
        answer: as it was recorded.
        records: all of the ledger's, those after the proof was signed too.
        position: of the event that the proof was signed at.
        names: that the ledger knows.
    """
    yield from _held_afterwards(answer, records, names)
    entries = by_entry(current_records(records[:position]))
    now = [(t, event) for t, events in entries for event in events]
    yield from _replays(answer, now)
    yield from _counted_rounds(answer, now)
    if answer.given.answer == "subtract" and answer.rewind:
        yield from _sums(answer, now)


def _held_afterwards(
    answer: AnswerEvents, records: Sequence[Record], names: Mapping[Handle, ClientName]
) -> Iterator[str]:
    """Look for the requester in what came later, whether that counts or not."""
    handle = answer.given.handle
    if handle in names:
        yield "names: the table still names the requester"
    later = enumerate(records[answer.end :], answer.end + 1)
    held = (
        at for at, r in later if r.kind not in OF_REQUESTS and _holds(r.body, handle)
    )
    if (at := next(held, None)) is not None:
        yield f"later events: event {at}, after the answer, holds the requester"
    left = {r.body["handle"] for r in records if r.kind == ClientLeft.__name__}
    for record in records[answer.end :]:
        if record.kind == CohortSampled.__name__:
            unknown = set(record.body["handles"]) - names.keys() - left
            if unknown:
                yield (
                    f"names: in round {record.round_index} somebody takes part whom the "
                    f"table does not name, and who has not left"
                )
                return


def _replays(answer: AnswerEvents, now: Story) -> Iterator[str]:
    rewind = answer.rewind
    if rewind is None:
        return
    rounds = [t for t, _ in answer.before if t is not None]
    until = min(max(rounds, default=-1) + 1, answer.began.rounds)
    if rewind.until != until:
        yield f"replays: {until} rounds had been played, not {rewind.until}"
    counted = Counter((t, type(event)) for t, event in now)
    for t in range(rewind.round_index, rewind.until):
        if any(counted[t, kind] != 1 for kind in PLAYED):
            yield f"replays: round {t} is said to be played again, and is not recorded"
            return


def _counted_rounds(answer: AnswerEvents, now: Story) -> Iterator[str]:
    handle, given = answer.given.handle, answer.given.answer
    held = participation_of(now).first_round(handle)
    if given in ("retrain", "calibrate") and held is not None:
        yield f"rounds that count: round {held} holds the requester"
    if given == "calibrate" and not answer.began.updates_stored:
        yield "answer: a calibration takes stored updates, and the run stored none"
    first = participation_of(answer.before).first_trace(handle)
    if given == "subtract" and first is not None and answer.rewind is None:
        yield "replays: the requester's records were in sums, and none were changed"


def _sums(answer: AnswerEvents, now: Story) -> Iterator[str]:
    """Compare who left with what the sums lost, cluster by cluster."""
    t, gone = answer.began.rounds - 1, {each.handle for each in answer.batch}
    if answer.rewind is not None:
        t = answer.rewind.round_index
    again = [event for at, event in now if at == t]
    before = latest_sums(answer.before)
    after = next((each for each in again if isinstance(each, HeadsSolved)), None)
    if before is None or after is None or len(before.sums) != len(after.sums):
        yield f"replays: no heads are recorded as solved again in round {t}"
        return
    lacking = _lacking(chain(answer.facts, again)) - gone
    old, new = _chosen(answer.before, t), _chosen(now, t)
    stay = {h: j for h, j in old.items() if h not in gone | lacking}
    if stay != {h: j for h, j in new.items() if h not in lacking}:
        yield f"subtracted: in round {t} others are not in the clusters that are recorded"
    yield from _lost(answer, (before, after), gone, lacking)


def _lost(
    answer: AnswerEvents,
    solved: tuple[HeadsSolved, HeadsSolved],
    gone: Collection[Handle],
    lacking: Collection[Handle],
) -> Iterator[str]:
    before, after = solved
    places = _counted(answer.before)
    inside = Counter(places.values())
    for j in range(len(before.sums)):
        if inside[j] != before.clients[j]:
            yield (
                f"subtracted: {before.clients[j]} clients are said to be in cluster {j}, "
                f"and {inside[j]} chose it"
            )
            return
        left = {h for h in gone if places.get(h) == j}
        least, most = len(left), len(left) + sum(places.get(h) == j for h in lacking)
        lost = before.clients[j] - after.clients[j]
        if not least <= lost <= most:
            yield f"subtracted: {least} left cluster {j}, and its sums lost {lost}"
        if left and before.sums[j] == after.sums[j]:
            yield f"subtracted: {least} left cluster {j}, and its sums did not change"


def _lacking(events: Iterator[Event]) -> set[Handle]:
    """Return those who stay and gave no sums when these were made anew."""
    found: set[Handle] = set()
    for event in events:
        match event:
            case AnswersMissing(handles=some):
                found |= {*some}
            case SumGivenUp(clients=some) | MovesWaited(clients=some):
                found |= {*some}
            case AnswerRefused(handle=str(one)):
                found.add(one)
            case _:
                pass
    return found


def _chosen(story: Story, t: int) -> dict[Handle, int]:
    return {
        handle: j
        for at, event in story
        if at == t and isinstance(event, ClientsAssigned)
        for handle, j in event.clusters.items()
    }


def _counted(story: Story) -> dict[Handle, int]:
    """Return in which cluster's sums each client is."""
    places: dict[Handle, int] = {}
    for _, event in story:
        match event:
            case ClientsAssigned(clusters, by) if by != "final":
                places |= clusters
            case RecordsChanged(handle=handle, cluster=j):
                places[handle] = j
            case ClientLeft(handle=handle):
                places.pop(handle, None)
            case _:
                pass
    return places


def _holds(value: object, handle: Handle) -> bool:
    """Say whether a handle stands anywhere in an event's body."""
    inside: Iterable[object] = ()
    match value:
        case HandleMap():
            some = cast("HandleMap[object]", value)
            inside = (some.handles, some.cells)
        case Mapping():
            inside = chain.from_iterable(cast("Mapping[str, object]", value).items())
        case Lists():
            inside = (cast("Lists[object]", value).flat,)
        case Column():
            cells = cast("Column[object]", value).cells
            inside = () if isinstance(cells, array) else cells
        case HandleColumn() | list() | tuple():
            inside = cast("Iterable[object]", value)
        case _:
            return value == handle
    return any(_holds(each, handle) for each in inside)
