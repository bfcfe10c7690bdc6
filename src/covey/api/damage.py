"""What is damaged in a run's folder, and what to do about it."""

import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from covey.base.errors import CoveyError, RunError
from covey.base.files import read_bounded
from covey.base.history import History
from covey.leaving.copies import copies_of
from covey.leaving.proof import check_proof, proof_page, read_proof
from covey.ledger.store import Ledger
from covey.runs.folder import (
    RunFolder,
    check_settings,
    checkpoint_path,
    checkpoint_paths,
    round_of,
    rounds_in,
)
from covey.runs.secrets import lost_secret, secret_remedy
from covey.runs.states import frozen_problem, missing_state, state_problem, updates_problem
from covey.settings.load import Config

COPY = "Nothing holds it a second time: restore it from a copy."
REPLAY = "`covey resume` plays the rounds since the last whole state again, and compares them."
HIDDEN = "Its hidden draws are forgotten (secrets.source = 'os'): restore it from a copy."
SIGNED = "The requester has a copy of it; a second one is not signed."


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a run's folder that is not as covey left it.

    Attributes:
        what: the thing, in words.
        problem: what is wrong with it.
        remedy: what to do, or that nothing can be done.
    """

    path: Path
    what: str
    problem: str
    remedy: str


def damages(folder: RunFolder) -> Iterator[Damage]:
    """Yield what is damaged; what rests on something damaged is not looked at."""
    for path in sorted(folder.path.rglob("*.unfinished")):
        remedy = "Delete it: the file itself is whole."
        yield Damage(path, "a file", "its writing was cut off", remedy)
    mode = stat.S_IMODE(folder.path.stat().st_mode)
    if sys.platform != "win32" and mode & 0o077:  # a folder that is closed covers what is in it
        problem = f"others may read it: its mode is {mode:04o}"
        yield Damage(folder.path, "the run's folder", problem, "Close it: `chmod 700`.")
    try:
        config = folder.config()
    except (CoveyError, ValueError, OSError) as error:
        yield Damage(folder.config_path, "the settings", _line(error), COPY)
        return
    try:
        copies_of(folder)
    except RunError as error:
        yield Damage(folder.copies, "the record of copies", _line(error), COPY)
    yield from proof_damages(folder)
    try:
        with Ledger.read(folder.ledger) as ledger:
            history = folder.reader.read(ledger).history
            ledger.check()
            yield from _of_ledger(folder, config, ledger, history)
    except CoveyError as error:
        yield Damage(folder.ledger_path, "the ledger", _line(error), COPY)


def _of_ledger(
    folder: RunFolder, config: Config, ledger: Ledger, history: History
) -> Iterator[Damage]:
    marker = folder.secret_marker
    try:
        check_settings(config, history, folder)
    except RunError:
        problem = "they are not those that began the run"
        yield Damage(folder.config_path, "the settings", problem, COPY)
    hidden = config.secrets.source == "os"
    if hidden and (problem := lost_secret(marker, ledger)):
        remedy = f"Nothing holds it a second time: {secret_remedy()}"
        yield Damage(marker, "the name of the run's secret", problem, remedy)
    yield from _states(folder, ledger, hidden=hidden)
    for t in rounds_in(folder.updates):
        if problem := updates_problem(folder.updates, t, ledger.files):
            path = checkpoint_path(folder.updates, t)
            remedy = "Delete it: from that round on, no client can be answered by calibration."
            yield Damage(path, f"the updates of round {t}", problem, remedy)
    used = history.components
    if used and used.frozen and (problem := frozen_problem(folder, used.frozen)):
        remedy = "`covey resume` writes it anew, where the run's model is at hand."
        yield Damage(folder.frozen, "the parameters that do not train", problem, remedy)
    for request in ledger.requests():
        path = folder.proofs / f"{request.id}.json"
        if request.state == "done" and not path.is_file():
            yield Damage(path, "a proof", "it is gone", SIGNED)


def _states(folder: RunFolder, ledger: Ledger, *, hidden: bool) -> Iterator[Damage]:
    paths, missing = checkpoint_paths(folder.checkpoints), missing_state(folder, ledger)
    problems = {round_of(path): state_problem(path, ledger) for path in paths}
    newest = max(problems, default=-1)
    if missing is not None:
        problems[missing] = "it is gone"
    for t, problem in problems.items():
        if not problem:
            continue
        if t not in (newest, missing):
            remedy = "Delete it: a replay that needs it starts from an earlier one."
        elif hidden:
            remedy = HIDDEN
        else:
            remedy = REPLAY if t == missing else f"Delete it: {REPLAY}"
        path = checkpoint_path(folder.checkpoints, t)
        yield Damage(path, f"the state after round {t}", problem, remedy)


def proof_damages(folder: RunFolder) -> Iterator[Damage]:
    """Yield the proofs whose own signature does not hold, and pages that are others."""
    for path in sorted(folder.proofs.glob("*.json")):
        try:
            _, checks = check_proof(read_bounded(path))
            problem = next((check.detail for check in checks if check.ok is False), "")
        except OSError as error:
            problem = str(error)
        if problem:
            yield Damage(path, "a proof", problem, SIGNED)
            continue
        page, whole = path.with_suffix(".html"), proof_page(read_proof(read_bounded(path))).encode()
        if not page.is_file() or read_bounded(page) != whole:
            problem = "it is gone, or is another page than the proof makes"
            remedy = "Restore it from a copy; `covey serve` shows the signed proof beside it."
            yield Damage(page, "a proof's page", problem, remedy)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Examination:
    """What is damaged in a run's folder."""

    damaged: tuple[Damage, ...]


def examine(path: Path) -> Examination:
    """Look at every file that a run reads again; nothing is written.

    Raises:
        RunError: there is no run.
    """
    return Examination(tuple(damages(RunFolder.existing(path))))
