"""What a run's own folder, its ledger and its secret hold of a client."""

from collections.abc import Iterator
from pathlib import Path

from covey.checkpoints import checkpointed_rounds
from covey.errors import CoveyError
from covey.ledger import Ledger
from covey.runtime.copies import Copy, copies_of
from covey.runtime.folder import RunFolder
from covey.runtime.places.found import COVEY, YOU, Findings, Place, Sought
from covey.runtime.places.walk import mentions_below
from covey.runtime.secrets import secret_path
from covey.runtime.settling import BASELINE, RENDERED, unrecorded
from covey.runtime.updates import stored_rounds

__all__ = ["in_the_run"]


def in_the_run(sought: Sought) -> Findings:
    """Yield what is in the run's folder, and in its ledger wherever that is."""
    yield from _ledger(sought)
    yield from _asked(sought)
    yield from _trained(sought)
    yield from _rendered(sought)
    yield from _copied(sought)
    yield from _secret(sought)
    yield from _mentioned(sought)


def _ledger(sought: Sought) -> Findings:
    try:
        with Ledger.read(sought.folder.ledger) as ledger:
            where, names = ledger.where, ledger.names()
    except CoveyError as error:
        yield f"The run's own ledger: {error}"
        return
    path = where if "://" in where else sought.shown(Path(where), sought.folder.path)
    if sought.name in names.values():
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


def _asked(sought: Sought) -> Findings:
    if any(word.client == sought.name for word in sought.folder.words()):
        path = sought.shown(sought.folder.asking, sought.folder.path)
        how = "Whoever plays the run takes it away, and answers."
        yield Place(path, "its name, in a request to leave", "request", COVEY, how)


def _trained(sought: Sought) -> Findings:
    folder, first = sought.folder, sought.first_round
    if first is None:
        return
    replaced = (
        "A retraining deletes them and plays the rounds again; a roll back only the later "
        "ones, and a denial nothing."
    )
    for inner in (folder.checkpoints, folder.superseded):
        states = [t for t in checkpointed_rounds(inner) if t >= first]
        if states:
            what = f"{len(states)} states of models that trained on its data"
            shown = sought.shown(inner, folder.path)
            yield Place(shown, what, "model", COVEY, replaced)
    if kept := [t for t in stored_rounds(folder.updates) if t >= first]:
        what = f"updates that clients sent, in {len(kept)} rounds since it came"
        how = "Every answer takes its own ones out."
        shown = sought.shown(folder.updates, folder.path)
        yield Place(shown, what, "updates", COVEY, how)


def _rendered(sought: Sought) -> Findings:
    folder = sought.folder
    how = "Every answer deletes it; it can be made again, without the client."
    for name in RENDERED:
        path = folder.path / name
        if not path.exists():
            continue
        run = name == BASELINE
        what = "a run on the same data" if run else "what shows the run with it"
        shown = sought.shown(path, folder.path)
        yield Place(shown, what, "run" if run else "page", COVEY, how)


def _copied(sought: Sought) -> Findings:
    folder = sought.folder
    for copy in (*copies_of(folder), *unrecorded(folder)):
        if _depends(copy, sought):
            yield _place_of(copy, sought, folder)
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        if not copy.is_inside and not copy.deleted:
            yield _place_of(copy, sought, inner)


def _depends(copy: Copy, sought: Sought) -> bool:
    if copy.deleted or copy.subject not in ("", sought.handle):
        return False
    first = sought.first_round
    if copy.what != "model" or copy.round_index is None:
        return True
    return first is not None and copy.round_index > first


def _place_of(copy: Copy, sought: Sought, folder: RunFolder) -> Place:
    root = folder.path if copy.is_inside else None
    path = sought.shown(copy.place(folder), root)
    model = copy.what == "model"
    what = "an exported model" if model else f"a page: {copy.what}"
    if copy.recipient:
        what += ", given to a recipient on record"
    if copy.is_inside:
        when = "An answer that changes the model" if model else "Every answer"
        return Place(path, what, "copy", COVEY, f"{when} deletes it.")
    how = "Delete it; `covey forget` lists it, with the recipient who is to be told."
    return Place(path, what, "copy", YOU, how)


def _secret(sought: Sought) -> Findings:
    if sought.config.secrets.source == "seeded":
        yield Place(
            sought.shown(sought.folder.config_path, sought.folder.path),
            "the seed: with it, who guesses the name computes its handle",
            "secret",
            YOU,
            "Delete the whole run; for real clients set secrets.source = 'os'.",
        )
    elif (path := secret_path(sought.folder.secret_marker)) is not None:
        yield Place(
            sought.shown(path, path.parent),
            "the key by which covey knows the name again after it left",
            "secret",
            YOU,
            "Delete it together with the run, which cannot go on without it.",
        )


def _mentioned(sought: Sought) -> Findings:
    folder = sought.folder
    record = Place("", "its name", "copy", COVEY, "Every answer takes it out.")
    if folder.copies.is_dir():
        yield from mentions_below(sought, folder.copies, record)
    found = Place("", "its name", "file", YOU, "Take it out, or delete the file.")
    yield from mentions_below(sought, folder.path, found, list(_searched(folder)))


def _searched(folder: RunFolder) -> Iterator[Path]:
    yield from (folder.asking, folder.copies)
    yield from (folder.path / name for name in RENDERED)
    if isinstance(folder.ledger, Path):
        yield folder.ledger
        for more in ("-journal", "-wal", "-shm"):
            yield folder.ledger.with_name(folder.ledger.name + more)
