"""The command that this package adds to covey's command line.

The entry point of the group `covey.commands` names this row; the module behind it is
imported when the command is wanted.
"""

from covey.cli.commands import Row

__all__ = ["REPRODUCE"]

REPRODUCE = Row(
    "covey_papers.cli.reproducing",
    "Measure a table or figure of the papers anew, and write the page over them all.",
)
