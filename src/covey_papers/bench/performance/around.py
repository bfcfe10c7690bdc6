"""What a run takes beside its rounds: start, data, last audit, report, by the clock."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from covey.ledger import Ledger
from covey_papers.bench.performance.comparison import (
    Comparison,
    Limit,
    compared,
    unknown,
)
from covey_papers.bench.performance.timing import Effort

__all__ = ["AroundRounds", "Parts", "parts_of"]

CLIENTS = ("population.clients=200", "population.examples_per_client=250")
FEW = ("population.clients=8", "population.examples_per_client=50")
ROUNDS = 4
SETTINGS = (
    "data.name=mnist",
    "population.holdout=0.0",
    "population.audit_examples=2000",
    "population.minority_share=0.15",
    "population.majority=[25, 50]",
    "method.select_examples=25",
    "redteam.source=none",
    "method.initialisation=random",
    f"rounds={ROUNDS}",
)
"""The IFCA-MIR paper's MNIST runs, of few rounds that take as long as each other."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A command's seconds: until its first round begins, and after its last round."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class AroundRounds:
    """Seconds of `covey run` that are not of its rounds, against their limit.

    Attributes:
        method: `method.name`.
        limit: seconds.
        only_before: what passes before the first round begins, and nothing else.
    """

    method: str
    limit: float
    only_before: bool = False

    def __call__(self, figure: str, effort: Effort) -> Comparison:
        """Return the row; without the images, one that says so."""
        limit = Limit(1, at_most=True)
        found: list[Parts] = []
        for _ in range(effort.repeats):
            try:
                found.append(_parts(self.method, effort))
            except subprocess.CalledProcessError as error:
                said = str(error.stderr).strip().rsplit("\n", 1)[-1]
                return unknown(figure, "-", limit, f"the run stopped: {said}")
        taken = [
            each.before if self.only_before else each.before + each.after
            for each in found
        ]
        told = f"{median(taken):.1f} s", f"{self.limit:g} s"
        return compared(figure, told, [each / self.limit for each in taken], limit)


def _parts(method: str, effort: Effort) -> Parts:
    """Play a run in a process of its own, and tell its seconds apart by its ledger."""
    chosen = (f"method.name={method}", *SETTINGS, *(FEW if effort.quick else CLIENTS))
    with TemporaryDirectory() as place:
        folder = Path(place)
        settings = folder / "run.toml"
        settings.write_text("", encoding="utf-8")
        sets = [part for each in chosen for part in ("--set", each)]
        workers = ["--set", f"engine.workers={effort.workers}"]
        command = [sys.executable, "-m", "covey", "run", str(settings)]
        began = time.time()
        subprocess.run(  # noqa: S603 - covey itself
            [*command, *sets, *workers, "--out", str(folder / "run")],
            check=True,
            capture_output=True,
            text=True,
        )
        ended = time.time()
        written = _written(folder / "run")
    return parts_of(began, written, ended)


def parts_of(began: float, written: Sequence[float], ended: float) -> Parts:
    """Return what passed around the rounds.

    Args:
        began: when the command did.
        written: when the ledger's entries were: one as each round ends, and the last after
            the audit. The first round is taken to be as long as the others are.
        ended: when the command did.
    """
    ends = written[:-1]
    one = median(b - a for a, b in pairwise(ends))
    return Parts(ends[0] - one - began, ended - ends[-1])


def _written(run: Path) -> list[float]:
    """Return when the ledger's entries were written, in seconds since 1970."""
    with Ledger.read(run / "ledger.sqlite") as ledger:
        times = ledger.times().values()
    return [datetime.fromisoformat(each).timestamp() for each in times]
