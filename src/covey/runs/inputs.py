"""What a run reads, hashed at the start and compared since.

The clients' own examples are in `RunStarted.data_hash`, the source of a user's components
in `ComponentsUsed`; what clients accept, and the examples of no client, in the ledger's files.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, takewhile

from covey.base.errors import RunError
from covey.base.events import ComponentsUsed, Event, HeadsSolved, RunStarted
from covey.base.history import History
from covey.data.population import data_hash
from covey.ledger.requests import ClientRoster
from covey.ledger.store import Ledger
from covey.runs.secrets import Secrets
from covey.settings.run import BuiltRun

log = logging.getLogger(__name__)

PREFERENCES = "input:preferences"


def with_keyed_digests(event: Event, secrets: Secrets) -> Event:
    """Return an event as it is recorded: its hashes of clients' data are under the secret."""
    if isinstance(event, RunStarted):
        return replace(event, data_hash=secrets.keyed(event.data_hash))
    if isinstance(event, HeadsSolved):
        return replace(event, sums=tuple(map(secrets.keyed, event.sums)))
    return event


def check_inputs(
    whole: BuiltRun,
    active: BuiltRun,
    history: History,
    ledger: Ledger,
    roster: ClientRoster,
    secrets: Secrets,
) -> Mapping[str, str]:
    """Refuse other data, components or preferences than those that the run last knew.

    Without the run's secret it is unknown whether the data are the same, and a warning says so.

    Args:
        whole: the run with the clients that its settings or a program bring.
        active: the same, with the clients that have not left, under their handles.
        history: the run's.
        ledger: the same.
        roster: the same.
        secrets: under which hashes of data are recorded.

    Returns:
        The hashes of what is beside the clients' data.

    Raises:
        RunError: naming what changed.
    """
    if secrets.is_lost and history.started:
        log.warning(
            "It is unknown whether the data are those that began the run: their hashes are under "
            "its secret, which is not on this machine."
        )
        hashes, of_data = dict[str, str](), iter(())
    else:
        hashes = input_hashes(active, secrets)
        of_data = chain(
            _other_data(whole, active, history, roster, secrets),
            _other_inputs(active, history, ledger, hashes),
        )
    changed = chain(_other_sources(active, history), of_data)
    for what in changed if history.started else ():
        raise RunError(
            f"{what} must be what began the run in {ledger.location}, found it changed: put it "
            f"back, or start a new run."
        )
    return hashes


def _other_sources(run: BuiltRun, history: History) -> Iterator[str]:
    recorded, now = map(_sources, (history.components, next(iter(run.components_used), None)))
    yield from (f"The {what}" for what in now if recorded.get(what) != now[what])


def _sources(used: ComponentsUsed | None) -> dict[str, str]:
    """Return the hash of each component's source, and of what fixed ones are made of."""
    components = {} if used is None else used.components
    kinds = (
        ("source", "source"),
        ("tensors", "content of the tensors"),
        ("public", "public examples"),
    )
    return {
        f"{what} of {setting}": str(component[kind])
        for setting, component in components.items()
        for kind, what in kinds
        if kind in component
    }


def _other_data(
    whole: BuiltRun, active: BuiltRun, history: History, roster: ClientRoster, secrets: Secrets
) -> Iterator[str]:
    """Yield what is other of the clients' data.

    A client that left while no data were at hand left no hash of the others' data. Those are
    then compared together with the leavers' own, where somebody still has these, and
    by the clients' names where no one does.
    """
    before = history.started.data_hash if history.started else None
    if active.data_hash is None or secrets.keyed(active.data_hash) == before:
        return
    unknown = takewhile(lambda leaver: leaver.data_hash is None, reversed(history.left))
    left = {leaver.handle for leaver in unknown}
    back = [c for c in whole.population.clients if c.handle in left]
    present = {client.name: client for client in active.population.clients}
    if len(back) == len(left):
        clients = tuple(
            present.get(client.name, client)
            for client in whole.population.clients
            if client.name in present or client.handle in left
        )
        if secrets.keyed(data_hash(replace(whole.population, clients=clients))) != before:
            yield "The clients' data"
    elif odd := sorted(present.keys() ^ (set(roster.names.values()) - roster.stopped.keys())):
        yield f"The names of the clients with data ({odd[0]!r} is missing on one side)"


def _other_inputs(
    run: BuiltRun, history: History, ledger: Ledger, hashes: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is other beside the clients' data.

    A client that left while no data were at hand left no hash of what the others accept:
    their thresholds are then compared with those that began the run.
    """
    others = {name for name, digest in hashes.items() if digest not in ledger.files.of(name)}
    if history.started and history.left and history.left[-1].data_hash is None:
        known = history.started.risk_thresholds
        accepted = {c.handle: c.preference.risk_threshold for c in run.population.clients}
        if all(known.get(handle, tau) == tau for handle, tau in accepted.items()):
            others -= {PREFERENCES}
    for name in sorted(others):
        path = run.config.population.preferences
        accepted_by = (
            f"The file {path} of population.preferences" if path else "What clients accept"
        )
        non_members = "The data of which no client has any (the non-members)"
        yield accepted_by if name == PREFERENCES else non_members


def input_hashes(run: BuiltRun, secrets: Secrets) -> Mapping[str, str]:
    """Return a hash of every input that is at hand, as it is recorded."""
    if run.client_backend is not None or run.data_hash is None:
        return {}
    accepted = [
        (c.handle, c.preference.risk_threshold, c.preference.risk_weight)
        for c in run.population.clients
    ]
    others = hashlib.sha256()
    for examples in (*run.population.non_members, *run.population.test):
        others.update(examples.inputs.numpy().tobytes())
        others.update(examples.labels.numpy().tobytes())
    preferences = hashlib.sha256(json.dumps(accepted).encode())
    hashed = {PREFERENCES: preferences, "input:others": others}
    return {name: secrets.keyed(hasher.hexdigest()) for name, hasher in hashed.items()}
