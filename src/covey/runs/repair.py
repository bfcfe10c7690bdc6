"""What is damaged in a run's folder, and what can be recovered from what."""

import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from covey.base import as_json
from covey.base.errors import CoveyError, RunError
from covey.base.files import delete_whole, read_bounded, replace_whole
from covey.base.history import History
from covey.ledger.store import Ledger
from covey.runs.parts import playable
from covey.runtime.copies import copies_of
from covey.runtime.folder import (
    RunFolder,
    check_settings,
    checkpoint_path,
    checkpoint_paths,
    now,
    round_of,
    rounds_in,
)
from covey.runtime.loop import play
from covey.runtime.secrets import lost_secret, restored_marker
from covey.runtime.session import open_session
from covey.runtime.states import frozen_problem, missing_state, state_problem, updates_problem
from covey.settings.clients import Overrides
from covey.settings.load import Config
from covey.unlearning.proof import check_proof, read_proof
from covey.unlearning.proof_text import proof_page

COPY = "Nothing holds it a second time: restore it from a copy."
REPLAY = "It is deleted; the rounds since the last whole state are played again and compared."
HIDDEN = "Its hidden draws are forgotten (secrets.source = 'os'): restore it from a copy."
SIGNED = "The requester has a copy of it; a second one is not signed."


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a run's folder that is not as covey left it.

    Attributes:
        what: the thing, in words.
        problem: what is wrong with it.
        recovery: what it can be recovered from, or that it cannot.
        repair: mends it, but for rounds that have to be played again; None: a person has
            to.
        repairable: whether `--repair` mends it.
    """

    path: Path
    what: str
    problem: str
    recovery: str
    repair: Callable[[], object] | None = field(
        default=None, compare=False, repr=False, metadata=as_json.HIDDEN
    )
    repairable: bool = field(default=False, compare=False)  # follows from `repair`

    def __post_init__(self) -> None:
        """Say whether there is a repair."""
        object.__setattr__(self, "repairable", self.repair is not None)


def damages(folder: RunFolder) -> Iterator[Damage]:
    """Yield what is damaged; what rests on something damaged is not looked at."""
    for path in sorted(folder.path.rglob("*.unfinished")):
        how, repair = "It is deleted: the file itself is whole.", partial(delete_whole, path)
        yield Damage(path, "a file", "its writing was cut off", how, repair)
    mode = stat.S_IMODE(folder.path.stat().st_mode)
    if sys.platform != "win32" and mode & 0o077:  # a folder that is closed covers what is in it
        problem = f"others may read it: its mode is {mode:04o}"
        close = partial(folder.path.chmod, 0o700)
        yield Damage(folder.path, "the run's folder", problem, "It is made 0700.", close)
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
        how = "The ledger shows which of your secrets it named, if that is still there."
        repair = partial(restored_marker, marker, ledger)
        yield Damage(marker, "the name of the run's secret", problem, how, repair)
    yield from _states(folder, ledger, hidden=hidden)
    for t in rounds_in(folder.updates):
        if problem := updates_problem(folder.updates, t, ledger.files):
            path = checkpoint_path(folder.updates, t)
            how = "It is deleted: from that round on, no client can be answered by calibration."
            repair = partial(delete_whole, path)
            yield Damage(path, f"the updates of round {t}", problem, how, repair)
    used = history.components
    if used and used.frozen and (problem := frozen_problem(folder, used.frozen)):
        how = "`covey resume` writes it anew, where the run's model is at hand."
        yield Damage(folder.frozen, "the parameters that do not train", problem, how)
    for request in ledger.requests():
        path = folder.proofs / f"{request.id}.json"
        if request.state == "done" and not path.is_file():
            yield Damage(path, "a proof", "it is gone", SIGNED)


def _states(folder: RunFolder, ledger: Ledger, *, hidden: bool) -> Iterator[Damage]:
    paths, missing = checkpoint_paths(folder.checkpoints), missing_state(folder, ledger)
    lost = {round_of(path): state_problem(path, ledger) for path in paths}
    newest = max(lost, default=-1)
    if missing is not None:
        lost[missing] = "it is gone"
    for t, problem in lost.items():
        if not problem:
            continue
        path, last = checkpoint_path(folder.checkpoints, t), t in (newest, missing)
        how = REPLAY if last else "It is deleted: a later one is whole."
        repair = partial(delete_whole, path)
        if hidden and last:
            how, repair = HIDDEN, None
        yield Damage(path, f"the state after round {t}", problem, how, repair)


def proof_damages(folder: RunFolder) -> Iterator[Damage]:
    """Yield the proofs whose own signature does not hold, and pages that are others."""
    for path in sorted(folder.proofs.glob("*.json")):
        try:
            _, checks = check_proof(read_bounded(path))
            problem = next((each.detail for each in checks if each.ok is False), "")
        except OSError as error:
            problem = str(error)
        if problem:
            yield Damage(path, "a proof", problem, SIGNED)
            continue
        page, whole = path.with_suffix(".html"), proof_page(read_proof(read_bounded(path))).encode()
        if not page.is_file() or read_bounded(page) != whole:
            problem = "it is gone, or is another page than the proof makes"
            how = "It is written anew from the signed proof beside it."
            repair = partial(replace_whole, page, whole, mode=0o600)
            yield Damage(page, "a proof's page", problem, how, repair)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Examination:
    """What is damaged in a run's folder, and what was repaired.

    Attributes:
        damaged: now.
        repaired: was damaged before.
    """

    damaged: tuple[Damage, ...]
    repaired: tuple[Damage, ...] = ()


def examine(path: Path) -> Examination:
    """Look at every file that a run reads again; nothing is written.

    Raises:
        RunError: there is no run.
    """
    return Examination(tuple(damages(RunFolder.existing(path))))


def repair(path: Path) -> Examination:
    """Recover what can be recovered: rounds without a state are played again.

    Raises:
        CoveyError: another process is playing the run, or its rounds cannot be played
            here.
    """
    folder = RunFolder.existing(path)
    before = tuple(damages(folder))
    mendable = [each.repair for each in before if each.repair is not None]
    if mendable and any(each.path == folder.ledger_path for each in before):
        raise RunError(
            f"{folder.ledger_path} must be whole before anything is repaired by it: "
            f"restore it from a copy first."
        )
    if mendable:
        with Ledger.open(folder.ledger, now):  # so no one else writes the run
            for mend in mendable:
                mend()
    with Ledger.read(folder.ledger) as ledger:
        lost, last = missing_state(folder, ledger), ledger.last_round()
        waiting = any(each.is_open for each in ledger.requests())
    if lost is not None and last is not None:  # these rounds are played, and no other
        run = playable(folder, Overrides(), "resume()")
        if run.client_backend is not None or waiting:
            raise RunError(
                f"The rounds after the last whole state are played by `covey resume "
                f"{folder.path}`: its clients are apart, or requests to leave wait for an "
                f"answer. Everything else is repaired."
            )
        with open_session(run, folder) as session:
            play(session, min(last + 1, run.config.rounds))
    after = tuple(damages(folder))
    return Examination(after, tuple(each for each in before if each not in after))
