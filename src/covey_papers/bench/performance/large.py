"""Large federations held against what they may take: anonymity sets, a ledger, a mean."""

from covey_papers.bench.anonymity_scale import SetsSize, sets_cost_apart
from covey_papers.bench.large_ledger import LedgerSize, ledger_cost
from covey_papers.bench.performance.comparison import Comparison, Limit, compared
from covey_papers.bench.performance.timing import Effort
from covey_papers.bench.streamed_memory import StreamedSize, streamed_memory_apart

__all__ = ["anonymity_sets", "large_ledger", "streamed_mean"]

WITHIN = Limit(1, at_most=True)
SETS_SECONDS, SETS_BYTES = 60, 6e9
PLAN, APPEND, OPEN, ROW = 0.010, 0.150, 20, 60
"""Seconds of a denial's plan, of a round's append and of opening; bytes of a row."""


def anonymity_sets(figure: str, effort: Effort) -> Comparison:
    """Return the time and the memory of the sets of a round, against their limits.

    10,000 updates of 1,000,000 parameters pass by; making them is not counted.
    """
    clients, parameters = (100, 1_000) if effort.quick else (10_000, 1_000_000)
    cost = sets_cost_apart(SetsSize(clients, parameters))
    told = f"{cost.wall_seconds:.3g} s, {cost.peak_bytes / 1e9:.1f} GB"
    limits = f"{SETS_SECONDS} s, {SETS_BYTES / 1e9:.0f} GB"
    most = max(cost.wall_seconds / SETS_SECONDS, cost.peak_bytes / SETS_BYTES)
    return compared(figure, (told, limits), [most], WITHIN)


def large_ledger(figure: str, effort: Effort) -> Comparison:
    """Return what a ledger takes of its limits: the worst of four.

    1,000 rounds of 10,000 of 1,000,000 clients: the plan of a denial, the append of one
    of the last rounds, opening with verification, and the bytes of one participation.
    """
    size = LedgerSize(5, 200, 400) if effort.quick else LedgerSize(1_000, 10_000, 10**6)
    cost = ledger_cost(size)
    plan, last = cost.opened.planned.seconds, cost.appended.last.seconds
    opened, row = cost.opened.opened.seconds, cost.bytes_per_row
    told = f"{1e3 * plan:.2g} ms, {1e3 * last:.0f} ms, {opened:.3g} s, {row:.0f} bytes"
    limits = f"{1e3 * PLAN:.0f} ms, {1e3 * APPEND:.0f} ms, {OPEN} s, {ROW} bytes"
    most = max(plan / PLAN, last / APPEND, opened / OPEN, row / ROW)
    return compared(figure, (told, limits), [most], WITHIN)


def streamed_mean(figure: str, effort: Effort) -> Comparison:
    """Return how many models a round of FedAvg holds, against 3 x (workers + clusters)."""
    clients, parameters = (3, 10_000) if effort.quick else (40, 25_000_000)
    found = streamed_memory_apart(StreamedSize(clients, parameters, effort.workers))
    told = f"{found.models:.1f} models", f"{found.limit} models"
    return compared(figure, told, [found.models / found.limit], WITHIN)
