"""The commands that this package adds to covey's command line.

Entry points of the group `covey.commands` name these rows; the modules behind them are
imported when a command is wanted.
"""

from covey.cli import Row

__all__ = ["BENCH", "REPRODUCE"]

BENCH = Row(
    "covey_papers.cli.benches",
    "Hold what covey measures to a truth that only a simulation knows.",
)
REPRODUCE = Row(
    "covey_papers.cli.reproducing",
    "Measure a table or figure of the papers anew, and write the page over them all.",
)
