"""What a run reads beside its clients' data, and what it keeps of remote and new clients.

What a run reads beside its clients' data: hashed at the start, and compared since.

The clients' own examples are in `RunStarted.data_hash`, the source of a user's components
in `ComponentsUsed`. Here is the rest: what clients accept, and the examples of no client.

Records of clients that joined or changed theirs: in the run's folder, one file each.

Settings and data do not have them, so that a run is resumed with these files. They stand
under the client's handle. A newer version is written beside the older one, which is
deleted once the ledger says that it no longer counts.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import safetensors.torch

from covey.algorithms.client_requests import ClientRequest, ClientResponse
from covey.algorithms.state import Cohort
from covey.base.errors import RunError
from covey.base.events import Event, RecordsChanged
from covey.base.files import check_regular, delete_whole, read_bounded
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.data.examples import Client, Examples, Preference
from covey.data.source import DataProfile
from covey.ledger.store import Ledger
from covey.runtime.folder import FederationMetadata, RunFolder
from covey.settings.clients import ClientReports, Overrides
from covey.settings.run import BuiltRun, build_run

PREFERENCES = "input:preferences"


def check_inputs(run: BuiltRun, history: History, ledger: Ledger) -> Mapping[str, str]:
    """Refuse other inputs than those that the run last knew.

    A client that left while no data were at hand left no hash of what the others accept:
    their thresholds are then compared with those that began the run.

    Args:
        run: with the clients that have not left, under their handles.
        history: the run's.
        ledger: the same.

    Returns:
        Their hashes.

    Raises:
        RunError: naming what changed.
    """
    began, hashes = history.started, input_hashes(run)
    if began is None:
        return hashes
    others = {name for name, digest in hashes.items() if digest not in ledger.files.of(name)}
    if history.left and history.left[-1].data_hash is None:
        known = began.risk_thresholds
        accepted = {c.handle: c.preference.risk_threshold for c in run.population.clients}
        if all(known.get(handle, tau) == tau for handle, tau in accepted.items()):
            others -= {PREFERENCES}
    for name in sorted(others):
        what = "The data of which no client has any (the non-members)"
        if name == PREFERENCES:
            path = run.config.population.preferences
            what = f"The file {path} of population.preferences" if path else "What clients accept"
        raise RunError(
            f"{what} must be what began the run in {ledger.location}, but it was changed since. "
            f"Put it back, or start a new run."
        )
    return hashes


def input_hashes(run: BuiltRun) -> Mapping[str, str]:
    """Return a hash of every input that is at hand."""
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
    return {
        PREFERENCES: hashlib.sha256(json.dumps(accepted).encode()).hexdigest(),
        "input:others": others.hexdigest(),
    }


class Unreachable:
    """A federation of which no node is there: enough to read its run, and to deny.

    Args:
        profile: what the clients' data look like.
        names: the clients of the run.
    """

    def __init__(self, profile: DataProfile, names: Collection[ClientName]) -> None:
        self.profile = profile
        self._names = names

    def available_clients(self) -> Collection[ClientName]:
        """Return the clients of the run; none of them gets a request."""
        return self._names

    def ask(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Refuse.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"To {request.task}, {len(cohort)} clients must be reached through their "
            f"nodes, and here is no way to them. Carry the run on with `covey resume`."
        )

    def reports(self) -> ClientReports:
        """Return nothing."""
        return ClientReports()

    def keys(self) -> None:
        """Say that nothing is known of their keys here."""


def rebuilt_run(folder: RunFolder, overrides: Overrides | None = None) -> BuiltRun:
    """Return a run's parts again; the clients of a federation are out of reach.

    `overrides` is what a program passes again that the settings do not name.

    Raises:
        CoveyError: some part does not fit.
    """
    roster = FederationMetadata.of(folder)
    if roster is None or roster.profile is None:
        return build_run(folder.checked_config(), overrides)
    names: Collection[ClientName] = ()
    if Ledger.exists(folder.ledger):
        with Ledger.read(folder.ledger) as ledger:
            names = tuple(ledger.names().values())
    if not names:
        raise RunError(
            f"{folder.path} must know its clients before anything is known about them, and "
            f"none has taken part yet. Start the nodes, and play the run."
        )
    unreachable = Unreachable(roster.profile, names)
    model = overrides.model if overrides else None
    return build_run(folder.checked_config(), Overrides(model=model, client_backend=unreachable))


RoundEvents = Iterable[tuple[int | None, Event]]


def keep_records(folder: RunFolder, ledger: Ledger, events: RoundEvents, client: Client) -> None:
    """Write a client's records as the next version; the one in force stays."""
    version = len(_changes(events).get(client.handle, ()))
    parts = {"train": client.train, "holdout": client.holdout}
    tensors = {
        f"{part}.{what}": getattr(each, what).contiguous().clone()
        for part, each in parts.items()
        for what in ("inputs", "labels")
    }
    name = _name(client.handle, version)
    content = safetensors.torch.save(tensors)
    ledger.files.write(f"records:{name}", folder.records / name, content)


def with_changed_records(run: BuiltRun, folder: RunFolder, ledger: Ledger) -> BuiltRun:
    """Return the run with the records that its clients have now, and who joined.

    Raises:
        RunError: a file of records is gone, or is not what was written.
    """
    if run.client_backend is not None or run.data_hash is None:
        return run
    events = folder.reader.read(ledger).events
    current = list(_current(ledger, events))
    if not current:
        return run
    changes, names = _changes(events), ledger.names()
    known = {client.name: client for client in run.population.clients}
    for handle, file in current:
        name, joined = names[handle], changes[handle][0]
        train, holdout = _read(folder.records / file, ledger)
        tau, beta = joined.risk_threshold, joined.risk_weight
        accepted = Preference(0.0 if beta is None else beta, 1.0 if tau is None else tau)
        client = known.get(name) or Client(name, handle, None, train, holdout, accepted)
        known[name] = replace(client, handle=handle, train=train, holdout=holdout)
    return run.with_clients(tuple(known.values()))


def drop_old_records(folder: RunFolder, ledger: Ledger, events: RoundEvents) -> None:
    """Delete the files of records that no longer count, and of clients that left."""
    if not folder.records.is_dir():
        return
    current = {name for _, name in _current(ledger, events)}
    for path in sorted(folder.records.iterdir()):
        if path.name not in current:
            ledger.files.keep_only(f"records:{path.name}", "")  # its hashes
            delete_whole(path)


def record_problems(folder: RunFolder, ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield the files of current records that are not what was written, and why."""
    for _, name in _current(ledger, folder.reader.read(ledger).events):
        path = folder.records / name
        if problem := ledger.files.problem(f"records:{name}", path):
            yield path, problem


def _current(ledger: Ledger, events: RoundEvents) -> Iterator[tuple[Handle, str]]:
    """Yield who takes part with records from a file, and the file."""
    changes = _changes(events)
    names = ledger.names() if changes else {}
    for handle, changed in changes.items():
        if handle in names:
            yield handle, _name(handle, len(changed) - 1)


def _changes(events: RoundEvents) -> Mapping[Handle, Sequence[RecordsChanged]]:
    """Return every change of each client's records, in order."""
    changes: dict[Handle, list[RecordsChanged]] = {}
    for _, event in events:
        if isinstance(event, RecordsChanged):
            changes.setdefault(event.handle, []).append(event)
    return changes


def _read(path: Path, ledger: Ledger) -> tuple[Examples, Examples]:
    if problem := ledger.files.problem(f"records:{path.name}", path):
        raise RunError(
            f"{path} must hold a client's records as covey wrote them, but {problem}. "
            f"Restore it from a copy."
        )
    tensors = safetensors.torch.load(read_bounded(path, check_regular(path)))
    train, holdout = (
        Examples(tensors[f"{part}.inputs"], tensors[f"{part}.labels"])
        for part in ("train", "holdout")
    )
    return train, holdout


def _name(handle: Handle, version: int) -> str:
    return f"{handle}-{version}.safetensors"
