"""How the time of a round and memory grow over very many rounds of a tiny run.

    python -m covey_papers.bench.performance.many_rounds 20000

plays so many rounds of 20 clients with 60 parameters, with ledger and checkpoints, and
then resumes the run. Prints JSON: per quarter of the rounds the median time of a round,
in seconds of the processor, and the bytes that the process takes at its end.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from covey.runtime import RunFolder, continue_run, open_session
from covey_papers.bench.performance.scale import round_seconds, tiny_run
from covey_papers.bench.performance.timing import Effort

__all__ = ["Grown", "grown"]

CLIENTS, QUARTERS = 20, 4
EFFORT = Effort(workers=1, processor_time=True)


@dataclass(frozen=True, slots=True)
class Grown:
    """What rounds took, quarter by quarter.

    Attributes:
        seconds: of the processor, the median round of each quarter.
        resident: bytes of the process at the end of each quarter.
        resumed: seconds of the processor until the run goes on, once it is opened anew.
    """

    rounds: int
    seconds: tuple[float, ...]
    resident: tuple[int, ...]
    resumed: float


def grown(rounds: int) -> Grown:
    """Play so many rounds, and resume the run after them."""
    ends = {rounds * (i + 1) // QUARTERS - 1 for i in range(QUARTERS)}
    resident: list[int] = []

    def after(t: int) -> None:
        if t in ends:
            resident.append(_resident())

    with TemporaryDirectory() as name:
        folder = Path(name)
        seconds = round_seconds(folder, CLIENTS, rounds + 1, EFFORT, after)
        began = time.process_time()
        run = tiny_run(folder, CLIENTS, rounds + 1, EFFORT)
        with open_session(run, RunFolder.existing(folder / "run")) as session:
            continue_run(session, rounds)
        resumed = time.process_time() - began
    return Grown(rounds, tuple(_medians(seconds)), tuple(resident), resumed)


def _medians(seconds: Sequence[float]) -> list[float]:
    quarter = len(seconds) // QUARTERS
    return [median(seconds[i * quarter :][:quarter]) for i in range(QUARTERS)]


def _resident() -> int:
    """Return how many bytes the process takes now; Linux tells it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


if __name__ == "__main__":
    print(json.dumps(asdict(grown(int(sys.argv[1])))))  # noqa: T201
