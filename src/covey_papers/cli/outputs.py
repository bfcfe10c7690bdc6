"""What `covey bench` and `covey reproduce` print with `--json`, and what they keep.

The site writes a JSON schema for each of these types, and tests hold what is really
printed and written to it. No command imports them when it runs.
"""

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from covey_papers import bench as benches
from covey_papers.reproduce import Record

__all__ = ["FILES", "OUTPUTS"]


class ControlFigure(TypedDict):
    """A risk of models that leak all, or nothing, as a control.

    Attributes:
        set: the federation.
        inside: whether it is where it has to be.
        attack: which one it is of; "": an estimate.
    """

    set: str
    control: str
    attack: str
    risk: float | None
    standard_error: float | None
    auc: float | None
    members: int
    non_members: int
    calibrated: bool
    reason: str
    source: str
    round_index: int
    inside: bool


class RedTeamBench(TypedDict):
    """Measured risks beside true ones.

    Attributes:
        rows: one per cluster model and round.
        sources: what each source's figures are worth.
        controls: models that leak all, or nothing.
        checks: figures against their limits.
    """

    rows: list[benches.Row]
    sources: dict[str, benches.Knowledge]
    cost: benches.Costs
    controls: list[ControlFigure]
    checks: list[benches.Check]


class LeavingSetting(TypedDict):
    """How one way to answer ended.

    Attributes:
        k: of anonymity sets; None: there are none.
        x: of anonymity sets.
        answers: requests by their answer.
        seconds: per request.
        server_bytes: states, stored updates and ledger at the end.
        shared_with: the setting whose run it is, where both answered alike.
        mean_seconds: None: nobody asked.
    """

    name: str
    k: int | None
    x: int | None
    accuracy: float | None
    answers: dict[str, int]
    seconds: list[float]
    server_bytes: int
    shared_with: str
    mean_seconds: float | None


class LeavingBench(TypedDict):
    """What answers to leavers cost."""

    experiment: str
    seed: int
    settings: list[LeavingSetting]


class ForgettingBench(TypedDict):
    """What answers take out of models, and what they tell.

    Attributes:
        models: on either side.
    """

    models: int
    federations: list[benches.Forgotten]
    checks: list[benches.Check]


class PoisoningBench(TypedDict):
    """Which merges hold against clients that collude."""

    rounds: int
    merges: dict[str, benches.Merge]
    rows: list[benches.Suffered]


class RecordRiskBench(TypedDict):
    """Scores of single records against LiRA.

    Attributes:
        settings: the file's name.
        references: models that were trained.
        members: records of each.
    """

    settings: str
    references: int
    members: int
    rows: list[benches.RecordPrecision]
    seconds_to_train: float
    seconds_to_ask_for_losses: float


class RecordChoicesBench(TypedDict):
    """Violations, by whose figure clients choose."""

    runs: list[benches.ChoiceOutcome]
    means: list[benches.ChoiceMeans]


class HowTaken(TypedDict):
    """Where and how ratios were measured.

    Attributes:
        commit: of the source; `+`: files differ from it.
        load_before: processes that wanted a core in the last minute; null: not told here.
        quick: whether sizes were small.
        repeats: pairs measured in turn.
        workers: threads of both sides.
        processor_time: whether seconds are the processor's, where both sides run in one
            process.
    """

    commit: str
    machine: str
    load_before: float | None
    load_after: float | None
    quick: bool
    repeats: int
    workers: int
    processor_time: bool


class PerformanceBench(TypedDict):
    """Ratios within one run, with their limits.

    Attributes:
        changes: against an earlier run; empty without one.
    """

    taken: HowTaken
    rows: list[benches.Comparison]
    changes: list[benches.Change]


class SecureSumsBench(TypedDict):
    """A round under masks."""

    size: benches.SecureRoundSize
    cost: benches.SecureRoundCost


class SubtractBench(TypedDict):
    """Seconds from a request to its proof.

    Attributes:
        failed: checks of proofs.
    """

    size: benches.SubtractionSize
    answers: list[benches.Waited]
    median_seconds: float
    median_process_seconds: float
    failed: list[str]


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


OUTPUTS: Mapping[str, Any] = {
    "bench redteam": RedTeamBench,
    "bench unlearning": LeavingBench,
    "bench forgetting": ForgettingBench,
    "bench poisoning": PoisoningBench,
    "bench record-risk": RecordRiskBench,
    "bench record-choices": RecordChoicesBench,
    "bench secure-sums": SecureSumsBench,
    "bench subtract": SubtractBench,
    "bench speed": PerformanceBench,
    "bench scale": PerformanceBench,
    "bench memory": PerformanceBench,
    "reproduce": Reproduced,
    "reproduce --list": ExperimentsListed,
}
"""By command, as in `covey.cli.outputs`."""

FILES: Mapping[str, Any] = {"EXPERIMENT.json of covey reproduce": Record}
"""By file."""
