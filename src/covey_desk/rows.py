"""The commands that entry points of the group `covey.commands` name, for help and completion."""

from covey.cli.commands import LEAVING, OPERATION, Row

REQUESTS = Row(
    "covey_desk.cli:requests",
    "Answer people who ask about their data, over all runs that know them.",
    LEAVING,
)
SERVE = Row(
    "covey_desk.cli:serve",
    "Show runs in a browser on this machine, live; nothing is written.",
    OPERATION,
)
