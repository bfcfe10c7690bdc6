"""What may be deleted of old runs, what can then no longer be done, and deleting it."""

import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from covey.api.listing import PRUNED, RunEntry, find_runs
from covey.base.as_json import HIDDEN
from covey.base.errors import LedgerLocked, RunError
from covey.base.files import delete_whole, flush_folder, move
from covey.base.own_code import Consent
from covey.ledger.backends import backend_of
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, checkpoint_paths

What = Literal["states", "whole"]
"""`states`: all states but the newest, and stored updates; `whole`: the run's folder."""


ELSEWHERE = "it has no folder here: its database's administrator drops its schema"


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
    folder: Path | None = field(metadata=HIDDEN)
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
) -> tuple[Retention, ...]:
    """Return what would be deleted of the runs whose last event is that old.

    Args:
        entries: as `find_runs` returned them.
        older_than: how old.
        what: the states, or the whole run.
        with_proofs: whether a whole run goes although there are proofs in it.
    """
    old = [entry for entry in entries if (_age(entry) or 0) >= older_than.total_seconds()]
    return tuple(
        _states(entry) if what == "states" else _whole(entry, entries, with_proofs=with_proofs)
        for entry in old
    )


def prune(candidates: Sequence[Retention]) -> tuple[Retention, ...]:
    """Delete it, run by run, and return what was deleted; begun deletions are ended.

    A run that another process began to write meanwhile, or that holds requests now, is
    left as it is.
    """
    done: list[Retention] = []
    for candidate in candidates:
        if candidate.kept or not candidate.paths or candidate.folder is None:
            continue
        if not candidate.folder.is_dir():  # it went with the run around it
            done.append(candidate)
            continue
        try:
            _delete(candidate, candidate.folder)
        except LedgerLocked:
            continue
        done.append(candidate)
    return tuple(done)


def delete_run(path: Path) -> None:
    """Delete the run in this folder, whole; nothing, if there is none.

    Raises:
        RunError: somebody still needs it, or it cannot go with its folder.
    """
    if not RunFolder(path).config_path.is_file():
        return
    (run,) = (
        entry
        for entry in retention(find_runs([path]), timedelta.min, "whole")
        if entry.folder and entry.folder.resolve() == path.resolve()
    )
    kept = run.kept
    if not kept and not RunFolder(path).ledger_path.is_file():
        kept = "its ledger is not in the folder, and would stay"
    if kept or not prune([run]):
        raise RunError(
            f"{path} must not be overwritten, found that {kept or 'it is being written'}: give "
            f"another folder, or finish that."
        )


def _needed(entry: RunEntry) -> str:
    """Say why a run must stay as it is; "": it need not."""
    if entry.state == "running":
        return "a process is writing it"
    if entry.state in ("damaged", "unreadable"):
        return f"what it holds is not known: {entry.reason}"
    if entry.open_requests:
        return f"{entry.open_requests} requests to leave wait for an answer"
    if entry.undelivered_answers:
        remedy = f"`covey forget {entry.place} --again` shows them"
        return f"{entry.undelivered_answers} answers were not acknowledged: {remedy}"
    return ""


def _states(entry: RunEntry) -> Retention:
    kept = _needed(entry)
    if kept or entry.folder is None:
        return Retention(entry.place, entry.folder, "states", kept=kept or ELSEWHERE)
    folder = RunFolder(entry.folder)
    states = checkpoint_paths(folder.checkpoints)[:-1]
    updates = checkpoint_paths(folder.updates)
    lost: list[str] = []
    if states:
        lost.append("roll_back and retrain play all rounds again, from the first one")
        lost.append("the models of earlier rounds are gone; the newest ones stay")
    if updates:
        lost.append("calibrate can no longer be answered: it needs the stored updates")
    paths = (*states, *updates)
    size = sum(path.stat().st_size for path in paths)
    kept = "" if paths else "only its newest state is there, which its models are in"
    return Retention(entry.place, folder.path, "states", paths, size, tuple(lost), kept)


def _whole(entry: RunEntry, entries: Sequence[RunEntry], *, with_proofs: bool) -> Retention:
    folder = entry.folder
    here = folder and folder.resolve()
    # the run, and those inside its folder, its baseline for example
    gone = [entry, *(e for e in entries if e.folder and here in e.folder.resolve().parents)]
    proofs = sum(entry.proofs for entry in gone)
    kept = next(filter(None, (_needed(entry) for entry in gone)), "")
    if not kept and folder and proofs and not with_proofs:
        kept = f"{proofs} proofs would go too: copy them elsewhere, and say --with-proofs"
    if kept or folder is None:
        return Retention(entry.place, folder, "whole", kept=kept or ELSEWHERE)
    lost = [
        f"no request of its {entry.clients or 0} clients can be answered or proved any more",
        "its models, its exports and the record of who has copies elsewhere are gone",
    ]
    if proofs:
        lost.append(f"{proofs} proofs are gone: who has a copy can verify it, without the ledger")
    if not RunFolder(folder).ledger_path.exists():
        lost.append("its ledger lies in a database, and stays there: drop its schema")
    size = sum(entry.size_bytes for entry in gone)
    return Retention(entry.place, folder, "whole", (folder,), size, tuple(lost))


def _delete(candidate: Retention, folder: Path) -> None:
    """Delete while holding the right to write, once nothing has changed since.

    Raises:
        LedgerLocked: another process writes the run.
        RunError: it is needed now.
    """
    run = RunFolder(folder)
    location = run.ledger if run.config_path.exists() else run.ledger_path
    lock = backend_of(location).lock() if Ledger.exists(location) else None
    try:
        (now,) = find_runs([folder], depth=0)
        if now.state == "running":  # by this process: it holds the lock
            now = replace(now, state="waiting")
        if blocked := _needed(now):
            raise RunError(
                f"{folder} must not be needed to be deleted, found that {blocked}: look again with "
                f"`covey runs prune`."
            )
        if candidate.what == "whole":
            _delete_folder(folder)
        else:
            for path in candidate.paths:
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
    Consent(str(folder)).write()
    for path in folder.parent.iterdir():  # of a deletion that was cut off too
        ours = re.fullmatch(rf"{re.escape(PRUNED)}[0-9a-f]{{8}}", path.name)
        if ours and not path.is_symlink():
            shutil.rmtree(path)
    flush_folder(folder.parent)


def _age(entry: RunEntry) -> float | None:
    """Return how old a run is: without an event, as old as its settings."""
    if entry.age_seconds is not None or entry.folder is None:
        return entry.age_seconds
    path = RunFolder(entry.folder).config_path
    if not path.exists():
        return None
    return datetime.now(UTC).timestamp() - path.stat().st_mtime
