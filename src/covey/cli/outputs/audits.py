"""What audits find: of a run, of any model, of whole clients, and of noise."""

from collections.abc import Mapping
from typing import NotRequired

from typing_extensions import TypedDict

from covey.auditor import Control
from covey.dp.empirical import RefutedEpsilon
from covey.membership.intervals import Estimate
from covey.membership.record_exposure import ExposedCounts
from covey.membership.source_inference import Attribution
from covey.membership.subgroups import AttackFigures
from covey.runs import ExposedRecord
from covey.runtime.participation_inference import Game

__all__ = [
    "AuditFile",
    "EpsilonTested",
    "GamePlayed",
    "ModelAuditFile",
    "ModelAudited",
    "RecordsTold",
    "RunAudited",
]


class ClusterAudited(TypedDict):
    """The attacks on one cluster model.

    Attributes:
        clients: those that use it and trained it: their records are the members.
        members: how many are judged.
        non_members: how many are judged.
        background: members that no attack is judged by.
        blind_auc: of a classifier that never sees the model.
        reason: why there are no figures, or what is missing.
        accuracies: of the model and of its references, on what they met and on the rest.
        attacks: by name.
        exposed: where the most exposed members are; None: too few references.
        unknown: why single figures are.
    """

    cluster: int
    clients: int
    members: int
    non_members: int
    background: int
    blind_auc: float | None
    reason: str
    accuracies: Mapping[str, float]
    attacks: Mapping[str, AttackFigures]
    exposed: ExposedCounts | None
    unknown: list[str]


class AuditFile(TypedDict):
    """An audit of a run's final models, as `audit/audit.json` holds it.

    Attributes:
        view: who could find this, in words.
        references: federations that were played again per cluster.
        source: how often a member's own cluster model knows it best.
        source_reason: why that is not known.
    """

    view: str
    references: int
    clusters: list[ClusterAudited]
    source: Attribution | None
    source_reason: str


class RunAudited(AuditFile):
    """An audit of a run's final models.

    Attributes:
        report: the page.
    """

    run: str
    seconds: float
    report: str


class EstimateWithError(TypedDict):
    """A figure, its 95% interval and its standard error.

    Attributes:
        value: None: `reason` says why.
        low: of the interval.
        high: of the interval.
    """

    value: float | None
    low: float | None
    high: float | None
    reason: str
    standard_error: float | None


class MetricsWithError(TypedDict):
    """How well one attack tells members from non-members.

    Attributes:
        advantage: TPR - FPR.
        tpr_at_1_percent: share of members found while 1% of non-members are accused.
        tpr_at_01_percent: the same at 0.1%.
    """

    balanced_accuracy: EstimateWithError
    auc: EstimateWithError
    advantage: EstimateWithError
    tpr_at_1_percent: Estimate
    tpr_at_01_percent: Estimate
    members: int
    non_members: int


class PartMetrics(TypedDict):
    """The same of some of the records."""

    balanced_accuracy: Estimate
    auc: Estimate
    tpr_at_1_percent: Estimate
    tpr_at_01_percent: Estimate
    members: int
    non_members: int


class AttackOnModel(TypedDict):
    """One attack's figures, overall and in parts.

    Attributes:
        by_class: per label.
        by_difficulty: per quarter of the records.
        roc: FPR and TPR.
    """

    overall: MetricsWithError
    by_class: dict[str, PartMetrics]
    by_difficulty: dict[str, PartMetrics]
    roc: list[tuple[float, float]]


class MostExposed(TypedDict):
    """The most exposed 1% of the members, in counts.

    Attributes:
        exposure: the mean chance that an attack is right on them.
        everybody: the same of all members.
    """

    records: int
    exposure: float
    everybody: float


class ModelAuditFile(TypedDict):
    """An audit of any classifier, as `ModelAudit.to_dict` and `audit.json` have it.

    Attributes:
        view: who could find this, in words.
        verdict: in one sentence.
        refused: whether there are no figures at all; `reason` says why.
        background: members that no attack is judged by.
        shared: records left out because both sides hold them.
        references: how many models there were to compare with.
        withheld: why single attacks have no figures.
        unknown: why single figures are.
        controls: that must find nothing.
        accuracies: of the model and its references, on what they met and on the rest.
        exposed: None: too few references.
    """

    view: str
    verdict: str
    refused: bool
    reason: str
    members: int
    non_members: int
    background: int
    shared: int
    references: int
    withheld: dict[str, str]
    unknown: list[str]
    controls: dict[str, Control]
    accuracies: dict[str, float]
    exposed: MostExposed | None
    attacks: dict[str, AttackOnModel]


class ModelAudited(ModelAuditFile):
    """An audit of any classifier of torch.

    Attributes:
        model: as it was named.
        report: the page; None: none was wanted.
    """

    model: str
    seconds: float
    report: str | None


class GamePlayed(TypedDict):
    """The participation game on a finished run.

    Attributes:
        view: what the adversary knows, in words.
    """

    run: str
    view: str
    game: Game
    seconds: float


class EpsilonTested(TypedDict):
    """A run's noise, put to the test.

    Attributes:
        mechanism: whose epsilon: of anonymity sets (`sound`), a client's or a record's.
        accounted: epsilon of one release.
        refuted: every smaller epsilon is refuted.
        holds: whether that contradicts nothing.
    """

    run: str
    mechanism: str
    delta: float
    accounted: float
    refuted: RefutedEpsilon
    holds: bool
    seconds: float


class RecordsTold(TypedDict):
    """A client's most exposed records, the most exposed first.

    Attributes:
        held: how many records it trains on.
        rounds: of which the losses are known.
        score_told: what the score is, in words.
        median_score: of all its records.
        kept_in: where the losses lie, and who can read them there.
        rows_known: whether it is known which rows of a data file the records are.
        page: with `--page`: where the page was written.
    """

    client: str
    held: int
    rounds: int
    score_told: str
    median_score: float
    kept_in: str
    records: list[ExposedRecord]
    rows_known: bool
    page: NotRequired[str]
