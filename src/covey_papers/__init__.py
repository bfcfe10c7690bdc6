"""What the papers behind covey measured, measured anew with covey's public names.

The entry point of the group `covey.commands` names `REPRODUCE`; the module behind it is
imported when the command is wanted.
"""

from covey.cli.commands import Row

REPRODUCE = Row(
    "covey_papers.cli:reproduce",
    "Reproduce a table or figure of the papers, and update the overview page.",
)
