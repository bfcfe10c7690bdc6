"""What is told beside runs: settings, data files, federations, and errors."""

from typing import Any

from typing_extensions import TypedDict

from covey.cli.outputs.run import UnusedSetting
from covey.deploy.diagnostics import Finding
from covey.deploy.status import Node, Run

__all__ = [
    "ConfigChecked",
    "ConfigTemplate",
    "DataFiles",
    "Failed",
    "FederationChecked",
    "FederationStatus",
    "FederationWritten",
    "Served",
    "Written",
]


class ErrorTold(TypedDict):
    """Why nothing was answered.

    Attributes:
        type: the error's class; `UsageError` for options, `Stopped` for signals.
        message: a sentence, or a few.
    """

    type: str
    message: str
    exit_code: int


class Failed(TypedDict):
    """What every command prints that could not answer."""

    error: ErrorTold


class ProblemTold(TypedDict):
    """One mistake in settings.

    Attributes:
        key: None: settings that are fine one by one disagree.
        value: what was found.
        expected: what it may be, in words.
        did_you_mean: the name or the value that was probably meant.
    """

    key: str | None
    value: Any
    expected: str | None
    did_you_mean: str | None
    message: str


class ConfigChecked(TypedDict):
    """Every mistake in a file of settings, and what in it does nothing.

    Attributes:
        unused_settings: None: there are mistakes.
    """

    file: str
    valid: bool
    problems: list[ProblemTold]
    unused_settings: list[UnusedSetting] | None


class ConfigTemplate(TypedDict):
    """A file of all settings.

    Attributes:
        file: None: it was not written.
        toml: its text.
    """

    file: str | None
    toml: str


class Written(TypedDict):
    """A file that was written."""

    file: str


class DataFile(TypedDict):
    """A file of a data set.

    Attributes:
        source: which data set.
        state: whether it is there, and whole.
        url: where to get it.
    """

    source: str
    file: str
    state: str
    url: str
    md5: str | None


class DataFiles(TypedDict):
    """The data files that covey can read."""

    folder: str
    files: list[DataFile]


class Served(TypedDict):
    """Pages on this machine.

    Attributes:
        link: for one browser.
    """

    link: str


class FederationWritten(TypedDict):
    """A federation's folder.

    Attributes:
        address: of the server, as nodes see it.
        nodes: folders by name.
    """

    folder: str
    address: str
    insecure: bool
    nodes: dict[str, str]


class FederationChecked(TypedDict):
    """What is missing, wrong or risky in a federation's folder.

    Attributes:
        valid: no finding is an error.
    """

    valid: bool
    findings: list[Finding]


class FederationStatus(TypedDict):
    """Which nodes are online, and how the runs are.

    Attributes:
        answers: whether the server did.
        problem: why not.
    """

    folder: str
    answers: bool
    address: str
    problem: str
    nodes: list[Node]
    runs: list[Run]
