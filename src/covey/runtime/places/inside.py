"""What a run's own folder, its ledger and its secret hold of a client."""

from collections.abc import Iterator
from pathlib import Path

from covey.checkpoints import checkpointed_rounds
from covey.errors import CoveyError
from covey.ledger import Ledger
from covey.runtime.copies import Copy, copies_of
from covey.runtime.folder import RunFolder
from covey.runtime.places.found import COVEY, YOU, Findings, Place, SearchTarget
from covey.runtime.places.walk import mentions_below
from covey.runtime.record_files import records_of
from covey.runtime.secrets import secret_path
from covey.runtime.settling import BASELINE, RENDERED, unrecorded
from covey.runtime.updates import stored_rounds

__all__ = ["inside_run"]


def inside_run(target: SearchTarget) -> Findings:
    """Yield what is in the run's folder, and in its ledger wherever that is."""
    yield from _ledger(target)
    yield from _queued(target)
    yield from _records(target)
    yield from _trained(target)
    yield from _rendered(target)
    yield from _copied(target)
    yield from _secret(target)
    yield from _mentioned(target)


def _ledger(target: SearchTarget) -> Findings:
    try:
        with Ledger.read(target.folder.ledger) as ledger:
            where, names = ledger.location, ledger.names()
    except CoveyError as error:
        yield f"The run's own ledger: {error}"
        return
    path = (
        where
        if "://" in where
        else target.display_path(Path(where), target.folder.path)
    )
    if target.name in names.values():
        how = "Every answer deletes the row, and overwrites what is left of it."
        yield Place(path, "its name, in the table of names", "ledger", COVEY, how)
    yield Place(
        path,
        "what it did, in events under its handle",
        "ledger",
        YOU,
        "No answer deletes an event, and the handle then leads to no name. Delete the "
        "whole run to delete them.",
    )


def _queued(target: SearchTarget) -> Findings:
    if any(word.client == target.name for word in target.folder.queued_requests()):
        path = target.display_path(target.folder.request_queue, target.folder.path)
        how = "Whoever plays the run takes it away, and answers."
        yield Place(path, "its name, in a request to leave", "request", COVEY, how)


def _records(target: SearchTarget) -> Findings:
    for path in records_of(target.folder, target.handle):
        shown = target.display_path(path, target.folder.path)
        how = "Every answer deletes it."
        yield Place(shown, "its records, as it brought them", "data", COVEY, how)


def _trained(target: SearchTarget) -> Findings:
    folder, first = target.folder, target.first_round
    if first is None:
        return
    replaced = (
        "A retraining deletes them and plays the rounds again, a subtraction solves the "
        "newest one again; a roll back deletes only the later ones, and a denial nothing."
    )
    for inner in (folder.checkpoints, folder.superseded):
        states = [t for t in checkpointed_rounds(inner) if t >= first]
        if states:
            what = f"{len(states)} states of models that trained on its data"
            shown = target.display_path(inner, folder.path)
            yield Place(shown, what, "model", COVEY, replaced)
    if kept := [t for t in stored_rounds(folder.updates) if t >= first]:
        what = f"updates that clients sent, in {len(kept)} rounds since it came"
        how = "Every answer takes its own ones out."
        shown = target.display_path(folder.updates, folder.path)
        yield Place(shown, what, "updates", COVEY, how)


def _rendered(target: SearchTarget) -> Findings:
    folder = target.folder
    how = "Every answer deletes it; it can be made again, without the client."
    for name in RENDERED:
        path = folder.path / name
        if not path.exists():
            continue
        run = name == BASELINE
        what = "a run on the same data" if run else "what shows the run with it"
        shown = target.display_path(path, folder.path)
        yield Place(shown, what, "run" if run else "page", COVEY, how)


def _copied(target: SearchTarget) -> Findings:
    folder = target.folder
    for copy in (*copies_of(folder), *unrecorded(folder)):
        if _depends(copy, target):
            yield _copy_place(copy, target, folder)
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        if not copy.is_inside and not copy.deleted:
            yield _copy_place(copy, target, inner)


def _depends(copy: Copy, target: SearchTarget) -> bool:
    if copy.deleted or copy.subject not in ("", target.handle):
        return False
    first = target.first_round
    if copy.what != "model" or copy.round_index is None:
        return True
    return first is not None and copy.round_index > first


def _copy_place(copy: Copy, target: SearchTarget, folder: RunFolder) -> Place:
    root = folder.path if copy.is_inside else None
    path = target.display_path(copy.location(folder), root)
    model = copy.what == "model"
    what = "an exported model" if model else f"a page: {copy.what}"
    if copy.recipient:
        what += ", given to a recipient on record"
    if copy.is_inside:
        when = "An answer that changes the model" if model else "Every answer"
        return Place(path, what, "copy", COVEY, f"{when} deletes it.")
    how = "Delete it; `covey forget` lists it, with the recipient who is to be told."
    return Place(path, what, "copy", YOU, how)


def _secret(target: SearchTarget) -> Findings:
    if target.config.secrets.source == "seeded":
        yield Place(
            target.display_path(target.folder.config_path, target.folder.path),
            "the seed: with it, who guesses the name computes its handle",
            "secret",
            YOU,
            "Delete the whole run; for real clients set secrets.source = 'os'.",
        )
    elif (path := secret_path(target.folder.secret_marker)) is not None:
        yield Place(
            target.display_path(path, path.parent),
            "the key by which covey knows the name again after it left",
            "secret",
            YOU,
            "Delete it together with the run, which cannot go on without it.",
        )


def _mentioned(target: SearchTarget) -> Findings:
    folder = target.folder
    record = Place("", "its name", "copy", COVEY, "Every answer takes it out.")
    if folder.copies.is_dir():
        yield from mentions_below(target, folder.copies, record)
    found = Place("", "its name", "file", YOU, "Take it out, or delete the file.")
    yield from mentions_below(target, folder.path, found, list(_searched(folder)))


def _searched(folder: RunFolder) -> Iterator[Path]:
    yield from (folder.request_queue, folder.copies)
    yield from (folder.path / name for name in RENDERED)
    if isinstance(folder.ledger, Path):
        yield folder.ledger
        for more in ("-journal", "-wal", "-shm"):
            yield folder.ledger.with_name(folder.ledger.name + more)
