"""Clients that join a run, and clients whose records change, where models are solved.

First the records, and the state without the older ones, are written; then the ledger says
in one transaction what changed; then the last round is solved again. Whatever kills the
process before that transaction, nothing has happened; after it, resuming the run ends it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from covey.algorithms.state import Cohort, ServerState
from covey.base import events
from covey.base.errors import ConfigError, RunError
from covey.base.names import ClientName, Handle
from covey.data.examples import Client, Examples
from covey.data.population import weight_from_threshold
from covey.runtime.copies import copies_of
from covey.runtime.exports import exported_hashes
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import input_hashes, keep_records
from covey.runtime.ledger_record import LedgerRecord, records_of
from covey.runtime.loop import play
from covey.runtime.planning import unplayed_reason
from covey.runtime.reading import unknown_client
from covey.runtime.record_changes import keep_subtracted, owed_change
from covey.runtime.session import Session, reopened
from covey.runtime.states import kept_state, whole_models
from covey.settings.aggregation import sums_of
from covey.settings.run import BuiltRun, client_with_data
from covey.unlearning.participation import latest_models, latest_sums


@dataclass(frozen=True, slots=True)
class NewRecords:
    """A client's new records.

    Attributes:
        data: its examples, as `covey.data.clients.clients_of` takes one client's.
        add: whether it keeps those that it has.
        risk_threshold: what it accepts, if it joins; None: what the settings say.
        risk_weight: the same; None: what the settings say, or what follows from the
            threshold where they let it follow.
    """

    client: ClientName
    data: Any
    add: bool = False
    risk_threshold: float | None = None
    risk_weight: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A client with the records that it has from now on.

    Attributes:
        cluster: whose sums they enter.
        joins: whether it was never there.
        choice: what its choice recorded, if it had to choose.
    """

    client: Client
    cluster: int
    joins: bool = False
    choice: tuple[events.Event, ...] = ()

    def among(self, clients: Cohort) -> Cohort:
        """Return these clients, this one with its new records."""
        new = self.client
        if self.joins:
            return (*clients, new)
        return tuple(new if c.handle == new.handle else c for c in clients)


def joining_client(session: Session, state: ServerState, new_records: NewRecords) -> Change:
    """Return a client that was never there, with the cluster that it chooses.

    Raises:
        CoveyError: its name was there, or its data or what it accepts do not fit.
    """
    run, name = session.run, new_records.client
    if name in session.ledger.names().values():
        raise RunError(
            f"A client joins under a name of its own, but {name!r} takes part in "
            f"{session.folder.path} already. Change its records: covey clients update "
            f"{session.folder.path} {name}"
        )
    if session.secrets.tombstone(name) in session.ledger.tombstones():
        raise RunError(
            f"Who left {session.folder.path} stays out of it, and {name!r} did. Join "
            f"under another name."
        )
    client = _accepting(run, client_with_data(run, name, new_records.data), new_records)
    client = replace(client, handle=session.secrets.handle(client.handle))
    return _choosing(session, state, Change(client, 0, joins=True))


def _choosing(session: Session, state: ServerState, change: Change) -> Change:
    """Return the change with what a client chooses whose sums are in no model."""
    run, client = session.run, change.client
    there = change.among(run.population.clients)
    alone = run.with_clients(there).clients((client,), state.round_index)
    choice = run.algorithm.choose(state, alone, run.streams.at("join", client.name))
    (chosen,) = (each for each in choice.events if isinstance(each, events.ClientsAssigned))
    if client.handle not in chosen.clusters:
        raise RunError(
            "A new client chooses among models that others use, but none has chosen any yet "
            f"in {session.folder.path}. Play on first: covey resume {session.folder.path}"
        )
    noisy = tuple(each for each in choice.events if isinstance(each, events.ChoicesPerturbed))
    return replace(change, cluster=chosen.clusters[client.handle], choice=noisy)


def _accepting(run: BuiltRun, client: Client, new_records: NewRecords) -> Client:
    tau, beta = new_records.risk_threshold, new_records.risk_weight
    for each in (tau, beta):
        if each is not None and not 0 <= each <= 1:
            raise ConfigError(
                f"A client accepts a risk_threshold, and gives it a risk_weight, in "
                f"[0, 1], found {each:g} for {new_records.client}. Correct it."
            )
    usual = client.preference
    follows = tau is not None and run.config.population.risk_weight == "from-threshold"
    weight = weight_from_threshold(tau) if tau is not None and follows else None
    weight = usual.risk_weight if weight is None else weight
    accepts = replace(
        usual,
        risk_weight=weight if beta is None else beta,
        risk_threshold=usual.risk_threshold if tau is None else tau,
    )
    return replace(client, preference=accepts)


def changing_client(session: Session, state: ServerState, new_records: NewRecords) -> Change:
    """Return a client that is there, with its new records.

    Raises:
        CoveyError: no client has this name, or the data do not fit.
    """
    run, name = session.run, new_records.client
    known = next((c for c in run.population.clients if c.name == name), None)
    if known is None:
        more = f"; a new client joins: covey clients join {session.folder.path} {name}"
        raise unknown_client(session.folder, name, more)
    new = client_with_data(run, name, new_records.data)
    train, holdout = new.train, new.holdout
    if new_records.add:
        train = Examples.joined((known.train, train))
        holdout = Examples.joined((known.holdout, holdout))
    client = replace(known, train=train, holdout=holdout)
    cluster = state.assignment.get(client.handle)
    if cluster is None:  # it has not come to a round yet
        return _choosing(session, state, Change(client, 0))
    return Change(client, cluster)


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """What came of new records.

    Attributes:
        cluster: whose sums they are in.
        examples: how many the client has now, beside those that it holds out.
        sums_before: SHA-256 of that cluster's sums; None: the ledger has none.
        sums_after: the same, now.
        model_before: hash of all models.
        model_hash: the same, now.
        seconds: from the call to the solved models.
        exported: models on record that were solved with what was there before.
    """

    client: ClientName
    handle: Handle
    cluster: int
    examples: int
    sums_before: str | None
    sums_after: str | None
    model_before: str | None
    model_hash: str | None
    seconds: float
    exported: tuple[str, ...] = ()


def change_records(session: Session, new: NewRecords, *, joins: bool = False) -> ChangedRecords:
    """Replace a client's records, or add to them, and solve the models with them.

    One that joins chooses among models that never met it; the others stay where they are.

    Raises:
        CoveyError: the run's models are not solved from sums, the client is not known, or
            was there before and joins, or the data do not fit.
    """
    state = _state(session)
    change = (joining_client if joins else changing_client)(session, state, new)
    before = session.record()
    _record(session, state, change)
    session = reopened(session)
    owed = owed_change(session)
    play(session, owed.event.until if owed else 0)
    after = session.record()
    return ChangedRecords(
        client=change.client.name,
        handle=change.client.handle,
        cluster=change.cluster,
        examples=len(change.client.train),
        sums_before=_sums(before, change.cluster),
        sums_after=_sums(after, change.cluster),
        model_before=latest_models(before.events),
        model_hash=latest_models(after.events),
        seconds=time.monotonic() - session.began,
        exported=_superseded(session),
    )


def _state(session: Session) -> ServerState:
    """Return the state after the last round, if records can change now.

    Raises:
        RunError: they cannot.
    """
    folder = session.folder
    for refusal in _refusals(session.run, folder):
        raise RunError(refusal)
    reason = "a change is not finished" if owed_change(session) else ""
    if reason := reason or unplayed_reason(session):
        raise RunError(
            f"Before a client's records change, what has begun in {folder.path} must be "
            f"finished, but {reason}. Finish it: covey resume {folder.path}"
        )
    return kept_state(folder, session.ledger)


def _refusals(run: BuiltRun, folder: RunFolder) -> Iterator[str]:
    """Yield why records never change in this run."""
    name = run.config.method.name
    anew = "Start a new run with the records as they are now"
    sums = sums_of(run.config)
    if sums == "none":
        yield (
            f"Clients join, and change their records, where models are solved from sums "
            f"over clients, as with method.name = 'solved'; found method.name = {name!r}, "
            f"which trains its models. {anew}. Who is to be out of this one can leave it: "
            f"covey forget {folder.path}"
        )
    if run.client_backend is not None:
        yield (
            f"Clients on machines of their own, as those of {folder.path}, bring their "
            f"records by starting their node. One whose records changed leaves, and comes "
            f"back under another name: covey forget {folder.path}"
        )
    if run.config.privacy.secure_sums:
        yield (
            f"Under privacy.secure_sums no client joins, or changes its records, by itself: "
            f"the sums after it, less those before, would be that client's. {anew}, or set "
            f"secure_sums = false in it."
        )
    if sums == "noisy":
        yield (
            f"Clients join, and change their records, where sums have no noise, but those "
            f"of {folder.path} are released under it, once: other sums would be a second "
            f"release. {anew}."
        )


def _record(session: Session, state: ServerState, change: Change) -> None:
    """Write what the change needs, and then record it in one transaction."""
    run, ledger, client = session.run, session.ledger, change.client
    now = run.with_clients(change.among(run.population.clients))
    keep_records(session.folder, ledger, session.record().events, client)
    keep_subtracted(session, state, () if change.joins else (client.handle,))
    ledger.files.note(input_hashes(now))
    t, accepts = state.round_index, client.preference if change.joins else None
    facts: list[events.Event] = [
        *change.choice,
        *((events.ClientsJoined((client.handle,)),) if change.joins else ()),
        events.RecordsChanged(
            handle=client.handle,
            cluster=change.cluster,
            examples=len(client.train),
            data_hash=now.data_hash or "",
            risk_threshold=accepts and accepts.risk_threshold,
            risk_weight=accepts and accepts.risk_weight,
        ),
        events.RunRolledBack(t - 1, t, "changed"),
    ]
    ledger.append_between(records_of(facts), {client.handle: client.name} if change.joins else None)


def _sums(record: LedgerRecord, cluster: int) -> str | None:
    latest = latest_sums(record.events)
    return None if latest is None else latest.sums[cluster]


def _superseded(session: Session) -> tuple[str, ...]:
    """Return the exported models on record that are none of today's."""
    state = kept_state(session.folder, session.ledger)
    models = whole_models(session.folder, session.ledger, state.clusters)
    current = exported_hashes(models)
    return tuple(
        each.path
        for each in copies_of(session.folder)
        if each.what == "model" and not each.deleted and each.sha256 not in current
    )
