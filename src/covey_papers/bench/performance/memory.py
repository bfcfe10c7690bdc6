"""The figures of `covey bench memory`: peaks of fresh processes against their limit."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from types import MappingProxyType

from covey.errors import RunError
from covey_papers.bench.performance.comparison import Comparison, Limit, compared
from covey_papers.bench.performance.large import streamed_mean
from covey_papers.bench.performance.memory_probe import MemoryCase, MemoryFound
from covey_papers.bench.performance.speed import Measure
from covey_papers.bench.performance.timing import Effort

__all__ = ["MEMORY", "bound_of"]

LIMIT = Limit(1, at_most=True)
COPIES = 3


def bound_of(case: MemoryCase, found: MemoryFound) -> int:
    """Return data + 3 (workers + clusters) model, in bytes."""
    return found.data + COPIES * (case.workers + case.clusters) * found.model


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The peak of rounds, less the process itself, against the bound.

    Attributes:
        clients, images, hidden, clusters: as `MemoryCase` has them.
        small: the same of the quick version.
    """

    clients: int
    images: int
    hidden: int = 0
    clusters: int = 1
    small: tuple[int, int, int] = (4, 50, 0)

    def __call__(self, figure: str, effort: Effort) -> Comparison:
        """Return the row."""
        sizes = (self.clients, self.images, self.hidden)
        clients, images, hidden = self.small if effort.quick else sizes
        case = MemoryCase(clients, images, hidden, effort.workers, self.clusters)
        repeats = min(effort.repeats, 3)  # peaks hardly differ
        found = [_found(case) for _ in range(repeats)]
        ratios = [(each.peak - each.start) / bound_of(case, each) for each in found]
        grown = median(each.peak - each.start for each in found)
        told = (
            f"{grown / 1e6:,.0f} MB",
            f"bound {bound_of(case, found[0]) / 1e6:,.0f} MB",
        )
        return compared(figure, told, ratios, LIMIT)


def _found(case: MemoryCase) -> MemoryFound:
    module = "covey_papers.bench.performance.memory_probe"
    command = [sys.executable, "-m", module, json.dumps(asdict(case))]
    done = subprocess.run(  # noqa: S603 - this package
        command, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RunError(
            f"A process that measures memory must end by itself, found exit code "
            f"{done.returncode}: {said[-1] if said else 'it said nothing'}. Where it was "
            f"killed, there was too little memory: name the other figures with --only."
        )
    return MemoryFound(**json.loads(done.stdout))


MEMORY: Mapping[str, Measure] = MappingProxyType(
    {
        "mnist": PeakMemory(clients=200, images=250),
        "mnist-ifca": PeakMemory(clients=200, images=250, clusters=2),
        "large-model": PeakMemory(
            clients=60, images=25, hidden=6_300, small=(6, 25, 500)
        ),
        "streamed-mean": streamed_mean,
    }
)
"""What is measured, by name; the large model has 5,008,510 parameters."""
