"""Rounds that were rolled back, and how they are played again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from covey.build import BuiltRun, ReplayOptions
from covey.events import ClientsAssigned, RunRolledBack
from covey.ledger import REWIND, Record, current_records
from covey.runtime.ledger_record import by_entry
from covey.runtime.record_changes import change_of
from covey.runtime.session import Session
from covey.types import Handle

__all__ = ["Replay", "replay_of", "waits_for_records"]


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Rounds that were rolled back, and how they are played again.

    Attributes:
        until: the first round that is played for the first time.
        calibrating: whether clients calibrate stored updates instead of training.
        run: the run with the choices that were recorded, if they are to be kept.
        chosen: where sums were subtracted, the choices of the last round: it alone is
            played again, and nobody is asked.
        changed: whether a client's own records changed; its choice is in `chosen`.
    """

    until: int
    calibrating: bool
    run: BuiltRun
    chosen: ClientsAssigned | None = None
    changed: bool = False

    def solves(self, t: int) -> ClientsAssigned | None:
        """Return the choices by which this round is solved again; None: it is played."""
        return self.chosen if t == self.until - 1 else None


def replay_of(session: Session) -> Replay | None:
    """Return what the newest roll back left to be played again; None: nothing was."""
    records = session.record().records
    rewinds = [i for i, record in enumerate(records) if record.kind == REWIND]
    if not rewinds:
        return None
    rewind = RunRolledBack(**records[rewinds[-1]].body)
    if rewind.how in ("subtracted", "changed"):
        chosen = _last_choices(records[: rewinds[-1]], rewind.round_index)
        if (change := change_of(records)) is not None:
            _, handle, cluster = change
            chosen = replace(chosen, clusters={**chosen.clusters, handle: cluster})
        return Replay(
            until=rewind.until,
            calibrating=False,
            run=session.run,
            chosen=chosen,
            changed=change is not None,
        )
    recorded = (
        _choices(records[: rewinds[-1]], rewind.round_index)
        if rewind.how == "recorded"
        else {}
    )
    replayed = session.run.for_replay(ReplayOptions(recorded=recorded))
    return Replay(rewind.until, rewind.how == "calibrated", replayed)


def waits_for_records(replay: Replay | None, t: int) -> bool:
    """Say whether the models of this round wait for a client's new records."""
    return replay is not None and replay.changed and t < replay.until


def _choices(records: list[Record], first: int) -> dict[int, Mapping[Handle, int]]:
    """Return which cluster each client took in every round from the first one on."""
    return {
        t: event.clusters
        for t, events in by_entry(current_records(records))
        for event in events
        if t is not None and t >= first and isinstance(event, ClientsAssigned)
    }


def _last_choices(records: list[Record], t: int) -> ClientsAssigned:
    """Return which clusters clients took in a round; nobody, if none were there."""
    found = (
        event
        for at, events in by_entry(current_records(records))
        for event in events
        if at == t and isinstance(event, ClientsAssigned)
    )
    return next(found, ClientsAssigned({}, "clients"))
