"""How many times fewer violations any assignment can have, by the risks that a paper prints."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from covey_papers.reproduce.federations import MEASURES, federations
from covey_papers.reproduce.record import Cell, Findings, RunCache
from covey_papers.reproduce.specification import Experiment, printed_table

THRESHOLDS = 0.5, 0.8
"""Between which clients' thresholds are uniform (section 5.2.2)."""

SHARES: Mapping[str, tuple[float, ...]] = {
    "MNIST": (0.1, 0.15, 0.3, 0.5),
    "FEMNIST": (0.1, 0.15, 0.3, 0.5),
    "CIFAR-10": (0.15, 0.2, 0.3, 0.5),
}
"""Shares of the minority that the paper plays."""

CLAIMED = 5.6
FACTOR = "IFCA's violations / the fewest possible"


def violating_share(risk: float) -> float:
    """Return the share of clients with a threshold below a risk.

    F(r) = clip((r - low) / (high - low), 0, 1), thresholds uniform in [low, high]
    """
    low, high = THRESHOLDS
    return min(1.0, max(0.0, (risk - low) / (high - low)))


def largest_factor(minor: float, major: float, share: float) -> float:
    """Return by how much violations can fall at most, if models keep their risks.

    [m F(r_minor) + (1 - m) F(r_major)] / F(min(r_minor, r_major))

    IFCA leaves a share m of the clients in the minority's model; at best all use the safer one.
    """
    ifca = share * violating_share(minor) + (1 - share) * violating_share(major)
    return ifca / violating_share(min(minor, major))


def violations(experiment: Experiment, cache: RunCache) -> Findings:
    """Play the experiment's runs, and put the arithmetic beside them.

    Violations by what clients were told compare only where the same red team told them.
    """
    runs = federations(experiment, cache)
    red_teams = {row.name: row.settings["risk"] for row in experiment.rows}
    same = {name for name, team in red_teams.items() if team == red_teams[experiment.against]}
    factor = f"{MEASURES['violations_measured'].title}:"
    cells = (c for c in runs.cells if c.row in same or not c.measure.startswith(factor))
    bounds = tuple(_bounds(experiment))
    largest = max(cell.known[0] for cell in bounds)
    note = (
        f"With the printed risks of IFCA's models and thresholds uniform in "
        f"{list(THRESHOLDS)}, no assignment of clients has {CLAIMED} times fewer violations "
        f"but where half of the clients are the minority: the largest factor is {largest:.1f}."
    )
    return replace(runs, cells=(*cells, *bounds), notes=(*runs.notes, note))


def _bounds(experiment: Experiment) -> Iterator[Cell]:
    table = printed_table(experiment.paper, "Table 2")
    for data, shares in SHARES.items():
        minor, major = (table[f"IFCA, {size}", data].value for size in ("Minor", "Major"))
        for share in shares:
            column, most = f"{data}, {share:.0%}", largest_factor(minor, major, share)
            says = "the claimed 5.6 is possible" if most >= CLAIMED else "below the claimed 5.6"
            yield Cell("no assignment has more", column, FACTOR, (most,), says=says)
