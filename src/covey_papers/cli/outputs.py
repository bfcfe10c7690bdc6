"""What `covey reproduce` prints with `--json`, and what it keeps.

The site writes a JSON schema for each of these types, and tests hold what is really
printed and written to it. No command imports them when it runs.
"""

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from covey_papers.reproduce.record import Record


class RowInWords(TypedDict):
    """A figure beside the paper's, as its table shows it."""

    measure: str
    row: str
    column: str
    paper: str
    covey: str
    interval: str
    verdict: str


class ExperimentTold(TypedDict):
    """One table or figure of a paper.

    Attributes:
        quick: whether it is the scaled-down form.
    """

    name: str
    quick: bool
    rows: list[RowInWords]
    notes: list[str]


class Reproduced(TypedDict):
    """What was measured anew.

    Attributes:
        page: over all records of the folder.
    """

    experiments: list[ExperimentTold]
    page: str


class ExperimentListed(TypedDict):
    """A table or figure that can be measured.

    Attributes:
        minutes_quick: with `--quick`, about.
        minutes: in full, about.
    """

    name: str
    title: str
    minutes_quick: float
    minutes: float


class ExperimentsListed(TypedDict):
    """The papers' tables and figures."""

    experiments: list[ExperimentListed]


OUTPUTS: Mapping[str, Any] = {"reproduce": Reproduced, "reproduce --list": ExperimentsListed}
"""By command, as in `covey.cli.outputs`."""

FILES: Mapping[str, Any] = {"EXPERIMENT.json of covey reproduce": Record}
"""By file."""
