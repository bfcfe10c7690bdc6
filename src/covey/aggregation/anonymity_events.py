"""What a ledger remembers of anonymity sets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from covey.aggregation.microaggregation import Sets
from covey.aggregation.sketches import sketch_error
from covey.events import (
    AnonymitySetsFormed,
    DistancesSketched,
    OrganisationsAttested,
)
from covey.types import Handle

__all__ = ["organisation_events", "sets_event", "sketched_events"]


def sets_event(
    cluster: int,
    handles: Sequence[Handle],
    sets: Sets,
    widths: Sequence[float | None],
    close: tuple[Sets, ...],
) -> AnonymitySetsFormed:
    """Return which sets were formed, each in the order of its handles.

    Args:
        cluster: whose clients they hide.
        handles: of all these clients.
        sets: as indices of them.
        widths: the sets' diameters.
        close: per set and member, who is near; empty where nobody asks.
    """
    rows: list[
        tuple[tuple[Handle, ...], float | None, tuple[tuple[Handle, ...], ...]]
    ] = []
    for c, members in enumerate(sets):
        order = sorted(range(len(members)), key=lambda i: handles[members[i]])
        near = [sorted(handles[n] for n in close[c][i]) for i in order] if close else []
        rows.append(
            (
                tuple(handles[members[i]] for i in order),
                widths[c],
                tuple(tuple(each) for each in near),
            )
        )
    rows.sort()
    return AnonymitySetsFormed(
        cluster=cluster,
        sets=tuple(each[0] for each in rows),
        diameters=tuple(each[1] for each in rows),
        near=tuple(each[2] for each in rows) if close else (),
    )


def sketched_events(
    numbers: int, formed: AnonymitySetsFormed
) -> tuple[AnonymitySetsFormed, DistancesSketched]:
    """Return the sets without diameters, as nobody has measured these, and estimates."""
    estimates = DistancesSketched(
        formed.cluster, numbers, sketch_error(numbers), tuple(formed.diameters)
    )
    unknown = (None,) * len(formed.diameters)
    return replace(formed, diameters=unknown), estimates


def organisation_events(
    organisations: Mapping[Handle, str], formed: AnonymitySetsFormed
) -> tuple[OrganisationsAttested, ...]:
    """Return who shares an organisation in each set, but not which one it is."""
    if not organisations:
        return ()

    def numbered(members: Sequence[Handle]) -> tuple[int | None, ...]:
        numbers: dict[str, int] = {}
        found = map(organisations.get, members)
        return tuple(
            None if each is None else numbers.setdefault(each, len(numbers))
            for each in found
        )

    return (OrganisationsAttested(formed.cluster, tuple(map(numbered, formed.sets))),)
