"""What a run reads, hashed at the start and compared since, and records that came later.

The clients' own examples are in `RunStarted.data_hash`, the source of a user's components
in `ComponentsUsed`; what clients accept, and the examples of no client, in the ledger's files.

Records of clients that joined or changed theirs lie in the run's folder, one file each.
Settings and data do not have them, so that a run is resumed with these files. They stand
under the client's handle. A newer version is written beside the older one, which is
deleted once the ledger says that it no longer counts.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import Path

import safetensors.torch

from covey.base.errors import RunError
from covey.base.events import ComponentsUsed, Event, RecordsChanged
from covey.base.files import check_regular, delete_whole, read_bounded
from covey.base.history import History
from covey.base.names import Handle
from covey.data.data_hash import data_hash
from covey.data.examples import Client, Examples, Preference
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.settings.run import BuiltRun

PREFERENCES = "input:preferences"


def check_inputs(
    whole: BuiltRun, active: BuiltRun, history: History, ledger: Ledger
) -> Mapping[str, str]:
    """Refuse other data, components or preferences than those that the run last knew.

    Args:
        whole: the run with the clients that its settings or a program bring.
        active: the same, with the clients that have not left, under their handles.
        history: the run's.
        ledger: the same.

    Returns:
        The hashes of what is beside the clients' data.

    Raises:
        RunError: naming what changed.
    """
    hashes = input_hashes(active)
    changed = chain(
        _other_sources(active, history),
        _other_data(whole, active, history, ledger),
        _other_inputs(active, history, ledger, hashes),
    )
    for what in changed if history.started else ():
        raise RunError(
            f"{what} must be what began the run in {ledger.location}, but it was changed since. "
            f"Put it back, or start a new run."
        )
    return hashes


def _other_sources(run: BuiltRun, history: History) -> Iterator[str]:
    recorded, now = map(_sources, (history.components, next(iter(run.components_used), None)))
    yield from (f"The {what}" for what in now if recorded.get(what, now[what]) != now[what])


def _sources(used: ComponentsUsed | None) -> dict[str, str]:
    """Return the hash of each component's source, and of the tensors of fixed ones."""
    components = {} if used is None else used.components
    kinds = (("source", "source"), ("tensors", "content of the tensors"))
    return {
        f"{what} of {setting}": str(each[kind])
        for setting, each in components.items()
        for kind, what in kinds
        if kind in each
    }


def _other_data(
    whole: BuiltRun, active: BuiltRun, history: History, ledger: Ledger
) -> Iterator[str]:
    """Yield what is other of the clients' data.

    A client that left while no data were at hand left no hash of the others' data. Those are
    then compared together with the leavers' own, where somebody still has these, and
    by the clients' names where no one does.
    """
    before = history.started.data_hash if history.started else None
    if active.data_hash in (None, before):
        return
    unknown = takewhile(lambda each: each.data_hash is None, reversed(history.left))
    left = {each.handle for each in unknown}
    back = [c for c in whole.population.clients if c.handle in left]
    present = {client.name: client for client in active.population.clients}
    if len(back) == len(left):
        clients = tuple(
            present.get(client.name, client)
            for client in whole.population.clients
            if client.name in present or client.handle in left
        )
        if data_hash(replace(whole.population, clients=clients)) != before:
            yield "The clients' data"
    elif odd := sorted(present.keys() ^ (set(ledger.names().values()) - ledger.stopped().keys())):
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
