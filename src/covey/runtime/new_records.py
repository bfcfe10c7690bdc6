"""A client with the records that it brings, and whose sums they enter."""

from dataclasses import dataclass, replace
from typing import Any

from covey.algorithms import Cohort, ServerState
from covey.build import BuiltRun, brought_client
from covey.data import Client, Examples, weight_from_threshold
from covey.errors import ConfigError, RunError
from covey.events import ChoicesPerturbed, ClientsAssigned, Event
from covey.runtime.session import Session
from covey.types import ClientName

__all__ = ["Change", "NewRecords", "changing_client", "joining_client"]


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What a client brings.

    Attributes:
        data: its examples, as `covey.data.clients_of` takes one client's.
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
        choice: what its choice told, if it had to choose.
    """

    client: Client
    cluster: int
    joins: bool = False
    choice: tuple[Event, ...] = ()

    def among(self, clients: Cohort) -> Cohort:
        """Return these clients, this one with its new records."""
        new = self.client
        if self.joins:
            return (*clients, new)
        return tuple(new if c.handle == new.handle else c for c in clients)


def joining_client(session: Session, state: ServerState, brought: NewRecords) -> Change:
    """Return a client that was never there, with the cluster that it chooses.

    Raises:
        CoveyError: its name was there, or its data or what it accepts do not fit.
    """
    run, name = session.run, brought.client
    if name in session.ledger.names().values():
        raise RunError(
            f"A client joins under a name of its own, but {name!r} takes part in "
            f"{session.folder.path} already. Change its records: covey update "
            f"{session.folder.path} {name}"
        )
    if session.secrets.tombstone(name) in session.ledger.tombstones():
        raise RunError(
            f"Who left {session.folder.path} stays out of it, and {name!r} did. Join "
            f"under another name."
        )
    client = _accepting(run, brought_client(run, name, brought.data), brought)
    client = replace(client, handle=session.secrets.handle(client.handle))
    return _choosing(session, state, Change(client, 0, joins=True))


def _choosing(session: Session, state: ServerState, change: Change) -> Change:
    """Return the change with what a client chooses whose sums are in no model."""
    run, client = session.run, change.client
    choose = run.strategy.subtraction and run.strategy.subtraction.choose
    if choose is None:
        raise RunError(
            f"Whoever is new chooses among models that never met it, but method.name = "
            f"{run.config.method.name!r} does not say how. Give its `Subtraction` a "
            f"`choose`, or start a new run."
        )
    there = change.among(run.population.clients)
    alone = run.with_clients(there).clients((client,), state.round_index)
    found = choose(state, alone, run.streams.at("join", client.name))
    (chosen,) = (each for each in found.events if isinstance(each, ClientsAssigned))
    if client.handle not in chosen.clusters:
        raise RunError(
            f"Whoever is new chooses among models that somebody has, but nobody has "
            f"chosen any yet in {session.folder.path}. Play on first: covey resume "
            f"{session.folder.path}"
        )
    noisy = tuple(each for each in found.events if isinstance(each, ChoicesPerturbed))
    return replace(change, cluster=chosen.clusters[client.handle], choice=noisy)


def _accepting(run: BuiltRun, client: Client, brought: NewRecords) -> Client:
    tau, beta = brought.risk_threshold, brought.risk_weight
    for each in (tau, beta):
        if each is not None and not 0 <= each <= 1:
            raise ConfigError(
                f"A client accepts a risk_threshold, and gives it a risk_weight, in "
                f"[0, 1], found {each:g} for {brought.client}. Correct it."
            )
    usual = client.preference
    follows = tau is not None and run.config.method.risk_weight == "from-threshold"
    weight = weight_from_threshold(tau) if tau is not None and follows else None
    weight = usual.risk_weight if weight is None else weight
    accepts = replace(
        usual,
        risk_weight=weight if beta is None else beta,
        risk_threshold=usual.risk_threshold if tau is None else tau,
    )
    return replace(client, preference=accepts)


def changing_client(
    session: Session, state: ServerState, brought: NewRecords
) -> Change:
    """Return a client that is there, with its new records.

    Raises:
        CoveyError: nobody has this name, or the data do not fit.
    """
    run, name = session.run, brought.client
    known = next((c for c in run.population.clients if c.name == name), None)
    if known is None:
        raise RunError(
            f"Records are changed of clients that {session.folder.path} knows, but it "
            f"knows no client {name!r}: it never did, or not any more. Check the "
            f"spelling; who is new joins: covey join {session.folder.path} {name}"
        )
    new = brought_client(run, name, brought.data)
    train, holdout = new.train, new.holdout
    if brought.add:
        train = Examples.joined((known.train, train))
        holdout = Examples.joined((known.holdout, holdout))
    client = replace(known, train=train, holdout=holdout)
    cluster = state.assignment.get(client.handle)
    if cluster is None:  # it has not come to a round yet
        return _choosing(session, state, Change(client, 0))
    return Change(client, cluster)
