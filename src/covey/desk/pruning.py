"""What may be deleted of old runs, what can then no longer be done, and deleting it."""

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from covey.base.errors import LedgerLocked, RunError
from covey.base.files import delete_whole, flush_folder, move
from covey.desk.runs import PRUNED, RunEntry, found_runs, reader_url, size_of
from covey.ledger.backends import backend_of
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder, checkpoint_paths

What = Literal["states", "whole"]
"""`states`: all states but the newest, and stored updates; `whole`: the run's folder."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What would go of one run, or why nothing does.

    Attributes:
        run: its place.
        folder: None where it has none here.
        paths: what is deleted; none: nothing is.
        size_bytes: of all of it.
        lost: what can then no longer be done, or takes longer; each a sentence.
        kept: why it stays, although it is old enough; "": it goes.
    """

    run: str
    folder: Path | None = field(metadata={"json": "hidden"})
    what: What
    paths: tuple[Path, ...] = ()
    size_bytes: int = 0
    lost: tuple[str, ...] = ()
    kept: str = ""


def retention(
    entries: Sequence[RunEntry],
    older_than: timedelta,
    what: What = "states",
    *,
    with_proofs: bool = False,
    needed: Mapping[str, str] | None = None,
) -> tuple[Retention, ...]:
    """Return what would be deleted of the runs whose last event is that old.

    Args:
        entries: as `found_runs` returned them.
        older_than: how old.
        what: the states, or the whole run.
        with_proofs: whether a whole run goes although there are proofs in it.
        needed: by a run's place, why it is needed elsewhere: by a request that is open.
    """
    old = [each for each in entries if (_age(each) or 0) >= older_than.total_seconds()]
    return tuple(
        _retention(each, entries, what, needed or {}, with_proofs=with_proofs) for each in old
    )


def prune(found: Sequence[Retention]) -> tuple[Retention, ...]:
    """Delete it, run by run, and return what was deleted; begun deletions are ended.

    A run that another process began to write meanwhile, or that holds requests now, is
    left as it is.
    """
    done: list[Retention] = []
    for each in found:
        if each.kept or not each.paths or each.folder is None:
            continue
        if not each.folder.is_dir():  # it went with the run around it
            done.append(each)
            continue
        try:
            _delete(each, each.folder)
        except LedgerLocked:
            continue
        done.append(each)
    return tuple(done)


def _retention(
    entry: RunEntry,
    entries: Sequence[RunEntry],
    what: What,
    needed: Mapping[str, str],
    *,
    with_proofs: bool,
) -> Retention:
    inner = _inner(entry, entries) if what == "whole" else ()
    proofs = sum(each.proofs for each in (entry, *inner))
    kept = next(filter(None, (_needed(e, needed) for e in (entry, *inner))), "")
    if not kept and entry.folder is None:
        kept = "it has no folder here: its database's administrator drops its schema"
    elif not kept and what == "whole" and proofs and not with_proofs:
        kept = (
            f"{proofs} proofs of answers lie in it, and they would go too: copy them "
            f"elsewhere, and say --with-proofs"
        )
    if kept or entry.folder is None:
        return Retention(entry.place, entry.folder, what, kept=kept)
    if what == "states":
        return _states(entry, RunFolder(entry.folder))
    size = sum(size_of(e.folder) for e in (entry, *inner) if e.folder is not None)
    lost = tuple(_lost_with_all(entry, proofs))
    return Retention(entry.place, entry.folder, what, (entry.folder,), size, lost)


def _inner(entry: RunEntry, entries: Sequence[RunEntry]) -> tuple[RunEntry, ...]:
    """Return the runs that lie inside this one's folder, its baseline for example."""
    if entry.folder is None:
        return ()
    here = entry.folder.resolve()
    folders = ((e, e.folder.resolve()) for e in entries if e.folder is not None)
    return tuple(e for e, path in folders if path != here and here in path.parents)


def _needed(entry: RunEntry, needed: Mapping[str, str]) -> str:
    """Say why a run must stay as it is; "": it need not."""
    if entry.state == "running":
        return "a process is writing it"
    if entry.state in ("damaged", "unreadable"):
        return f"what it holds is not known: {entry.reason}"
    if entry.open_requests:
        return f"{entry.open_requests} requests to leave wait for an answer"
    if entry.undelivered_answers:
        return (
            f"{entry.undelivered_answers} answers were not acknowledged: `covey forget "
            f"{entry.place} --again` shows them"
        )
    return needed.get(entry.place, "")


def _states(entry: RunEntry, folder: RunFolder) -> Retention:
    states = checkpoint_paths(folder.checkpoints)[:-1]
    updates = sorted(each for each in folder.updates.rglob("*") if each.is_file())
    paths = (*states, *updates)
    size = sum(each.stat().st_size for each in paths)
    lost: list[str] = []
    if states:
        lost.append(
            "roll_back and retrain are still possible, and play all rounds again from the "
            "first one: no later state is left to begin with"
        )
        lost.append("the models of earlier rounds are gone; the newest ones stay")
    if updates:
        lost.append("calibrate can no longer be answered: it needs the stored updates")
    kept = "" if paths else "only its newest state is there, which its models are in"
    return Retention(entry.place, folder.path, "states", paths, size, tuple(lost), kept)


def _lost_with_all(entry: RunEntry, proofs: int) -> Iterator[str]:
    yield (
        f"no request of its {entry.clients or 0} clients can be answered or proved any "
        f"more: deny, subtract, roll_back, retrain and calibrate all need the ledger"
    )
    yield (
        "its models, its record and what was exported into its folder are gone; copies "
        "elsewhere are not, and the record of who has them is"
    )
    if proofs:
        yield f"{proofs} proofs are gone: who has a copy can verify it, without the ledger"
    if entry.folder is not None and not RunFolder(entry.folder).ledger_path.exists():
        yield "its ledger lies in a database, and stays there: drop its schema"


def _delete(found: Retention, folder: Path) -> None:
    """Delete while holding the right to write, once nothing has changed since.

    Raises:
        LedgerLocked: another process writes the run.
        RunError: it is needed now.
    """
    run = RunFolder(folder)
    location = reader_url(run.ledger) if run.config_path.exists() else run.ledger_path
    lock = backend_of(location).lock() if Ledger.exists(location) else None
    try:
        (now,) = found_runs([folder], depth=0)
        if now.state == "running":  # by this process: it holds the lock
            now = replace(now, state="waiting")
        if blocked := _needed(now, {}):
            raise RunError(
                f"{folder} was to be deleted and is needed now: {blocked}. Look again "
                f"with `covey runs prune`."
            )
        if found.what == "whole":
            _delete_folder(folder)
        else:
            for path in found.paths:
                delete_whole(path)
    finally:
        if lock is not None:
            lock.close()


def _delete_folder(folder: Path) -> None:
    """Delete a run at once: half of one would be a damaged run."""
    folder = folder.resolve()
    aside = folder.with_name(f"{PRUNED}{secrets.token_hex(4)}")
    move(folder, aside)
    flush_folder(folder.parent)
    for each in folder.parent.glob(f"{PRUNED}*"):  # of a deletion that was cut off too
        shutil.rmtree(each)
    flush_folder(folder.parent)


def _age(entry: RunEntry) -> float | None:
    """Return how old a run is: without an event, as old as its settings."""
    if entry.age_seconds is not None or entry.folder is None:
        return entry.age_seconds
    path = RunFolder(entry.folder).config_path
    if not path.exists():
        return None
    return datetime.now(UTC).timestamp() - path.stat().st_mtime
