"""Examining a run's folder, and repairing it on request."""

from dataclasses import dataclass
from pathlib import Path

from covey.build import Overrides
from covey.errors import RunError
from covey.ledger import Ledger
from covey.runs.parts import playable
from covey.runtime import RunFolder, continue_run, open_session
from covey.runtime.damage import Damage, damages
from covey.runtime.folder import now
from covey.runtime.state_checks import missing_state

__all__ = ["Examination", "examine", "repair"]


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found in a run's folder.

    Attributes:
        damages: what is damaged now.
        repaired: what was damaged before.
    """

    damages: tuple[Damage, ...]
    repaired: tuple[Damage, ...] = ()


def examine(path: Path) -> Examination:
    """Look at every file that a run reads again; nothing is written.

    Raises:
        RunError: there is no run.
    """
    return Examination(tuple(damages(RunFolder.existing(path))))


def repair(path: Path, overrides: Overrides | None = None) -> Examination:
    """Recover what can be recovered: rounds without a state are played again.

    Args:
        path: the run's folder.
        overrides: the model and the clients, if a program has them.

    Raises:
        CoveyError: another process is playing the run, or its rounds cannot be played
            here.
    """
    folder = RunFolder.existing(path)
    before = tuple(damages(folder))
    _mend(folder, before)
    _play_again(folder, overrides or Overrides())
    after = tuple(damages(folder))
    return Examination(after, tuple(each for each in before if each not in after))


def _mend(folder: RunFolder, found: tuple[Damage, ...]) -> None:
    """Repair every file by itself, while nobody else writes the run."""
    mendable = [each.repair for each in found if each.repair is not None]
    if not mendable:
        return
    if any(each.path == folder.ledger_path for each in found):
        raise RunError(
            f"{folder.ledger_path} must be whole before anything is repaired by it: "
            f"restore it from a copy first."
        )
    with Ledger.open(folder.ledger, now):
        for mend in mendable:
            mend()


def _play_again(folder: RunFolder, overrides: Overrides) -> None:
    """Play the rounds whose state was lost, and no other."""
    with Ledger.read(folder.ledger) as ledger:
        lost, last = missing_state(folder, ledger), ledger.last_round()
        waiting = any(r.state in ("pending", "serving") for r in ledger.requests())
    if lost is None or last is None:
        return
    run = playable(folder, overrides, "resume()")
    if run.client_backend is not None or waiting:
        raise RunError(
            f"The rounds after the last whole state are played by `covey resume "
            f"{folder.path}`: its clients are apart, or requests to leave wait for an "
            f"answer. Everything else is repaired."
        )
    with open_session(run, folder) as session:
        continue_run(session, min(last + 1, run.config.rounds))
