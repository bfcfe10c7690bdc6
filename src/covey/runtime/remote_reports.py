"""What is told of remote clients' answers, beside the answers."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from covey.build import ClientReports
from covey.events import AnswerRefused, AnswersMissing, ClientsReported, Event
from covey.types import Handle

__all__ = ["told_of_others"]


def told_of_others(
    reports: ClientReports, leavers: Collection[Handle]
) -> tuple[Event, ...]:
    """Return what has to be recorded, with nothing in it of clients that leave."""
    return tuple(_of_others(reports, frozenset(leavers)))


def _of_others(reports: ClientReports, leavers: frozenset[Handle]) -> Iterator[Event]:
    for event in reports.events:
        match event:
            case AnswersMissing(handles=handles):
                if stay := tuple(h for h in handles if h not in leavers):
                    yield replace(event, handles=stay)
            case AnswerRefused(handle=handle):
                if handle not in leavers:
                    yield event
            case ClientsReported():  # of no round, and said again in the next answer
                pass
            case _:
                yield event
