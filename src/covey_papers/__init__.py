"""What the papers behind covey measured, measured anew, and their parts that stand beside the core.

The entry points of the group `covey.commands` name `REPRODUCE` and `GAME`; the modules behind them
are imported when the commands are wanted.
"""

from covey.cli.commands import PRIVACY, Row

REPRODUCE = Row(
    "covey_papers.cli:reproduce",
    "Reproduce a table or figure of the papers, and update the overview page.",
)

GAME = Row(
    "covey_papers.cli:game",
    "Ask of whole clients whether a run's models show that they took part.",
    PRIVACY,
)
