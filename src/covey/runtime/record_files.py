"""Records of clients that joined or changed theirs: in the run's folder, one file each.

Settings and data do not have them, so that a run is resumed with these files. They stand
under the client's handle. A newer version is written beside the older one, which is
deleted once the ledger says that it no longer counts.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import safetensors.torch

from covey.atomic_io import delete_whole, make_folder, replace_whole
from covey.bounded_io import check_regular, file_hash, read_bounded
from covey.build import BuiltRun
from covey.data import Client, Examples, Preference
from covey.errors import RunError
from covey.events import Event, RecordsChanged
from covey.ledger import Ledger
from covey.runtime.folder import RunFolder
from covey.types import Handle

__all__ = [
    "drop_old_records",
    "keep_records",
    "record_problems",
    "records_of",
    "with_changed_records",
]

Told = Iterable[tuple[int | None, Event]]


def keep_records(
    folder: RunFolder, ledger: Ledger, events: Told, client: Client
) -> None:
    """Write a client's records as the next version; the one in force stays."""
    version = len(_changes(events).get(client.handle, ()))
    parts = {"train": client.train, "holdout": client.holdout}
    tensors = {
        f"{part}.{what}": getattr(each, what).contiguous().clone()
        for part, each in parts.items()
        for what in ("inputs", "labels")
    }
    content = safetensors.torch.save(tensors)
    name = _name(client.handle, version)
    digest = hashlib.sha256(content).hexdigest()
    ledger.files.note(_noted(name), digest)
    make_folder(folder.records)
    replace_whole(folder.records / name, content, mode=0o600)
    ledger.files.settle(_noted(name), digest)


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
        client = known.get(name)
        accepts = client.preference if client else _accepted(joined)
        group = client.group if client else None
        known[name] = Client(name, handle, group, train, holdout, accepts)
    return run.with_clients(tuple(known.values()))


def drop_old_records(folder: RunFolder, ledger: Ledger, events: Told) -> None:
    """Delete the files of records that no longer count, and of clients that left."""
    if not folder.records.is_dir():
        return
    current = {name for _, name in _current(ledger, events)}
    for path in sorted(folder.records.iterdir()):
        if path.name not in current:
            ledger.files.settle(_noted(path.name), "")  # what was noted of it
            delete_whole(path)


def records_of(folder: RunFolder, handle: Handle) -> list[Path]:
    """Return the files that hold this client's records."""
    return sorted(folder.records.glob(f"{handle}-*.safetensors"))


def record_problems(folder: RunFolder, ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield the files of current records that are not what was written, and why."""
    for _, name in _current(ledger, folder.reader.read(ledger).events):
        path = folder.records / name
        if problem := _problem(path, ledger):
            yield path, problem


def _current(ledger: Ledger, events: Told) -> Iterator[tuple[Handle, str]]:
    """Yield who takes part with records from a file, and the file."""
    changes = _changes(events)
    names = ledger.names() if changes else {}
    for handle, changed in changes.items():
        if handle in names:
            yield handle, _name(handle, len(changed) - 1)


def _changes(events: Told) -> Mapping[Handle, Sequence[RecordsChanged]]:
    """Return every change of each client's records, in order."""
    found: dict[Handle, list[RecordsChanged]] = {}
    for _, event in events:
        if isinstance(event, RecordsChanged):
            found.setdefault(event.handle, []).append(event)
    return found


def _accepted(joined: RecordsChanged) -> Preference:
    tau, beta = joined.risk_threshold, joined.risk_weight
    return Preference(0.0 if beta is None else beta, 1.0 if tau is None else tau)


def _read(path: Path, ledger: Ledger) -> tuple[Examples, Examples]:
    if problem := _problem(path, ledger):
        raise RunError(
            f"{path} must hold a client's records as covey wrote them, but {problem}. "
            f"Restore it from a copy."
        )
    found = safetensors.torch.load(read_bounded(path, check_regular(path)))
    train, holdout = (
        Examples(found[f"{part}.inputs"], found[f"{part}.labels"])
        for part in ("train", "holdout")
    )
    return train, holdout


def _problem(path: Path, ledger: Ledger) -> str:
    try:
        digest = file_hash(path)
    except OSError as error:
        return f"it cannot be read ({error})"
    known = digest in ledger.files.of(_noted(path.name))
    return "" if known else "its bytes are not those that were written"


def _name(handle: Handle, version: int) -> str:
    return f"{handle}-{version}.safetensors"


def _noted(file: str) -> str:
    return f"records:{file}"
