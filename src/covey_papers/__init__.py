"""What the papers behind covey measured, measured anew with covey's public names.

The entry point of the group `covey.commands` names `REPRODUCE`; the module behind it is
imported when the command is wanted.
"""

from covey.cli.commands import Row

REPRODUCE = Row(
    "covey_papers.cli",
    "Measure a table or figure of the papers anew, and write the page over them all.",
)
