"""The shapes of JSON that is made of dicts: what no class holds."""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict
from typing_extensions import TypedDict

from covey.auditor.result import Control
from covey.base.names import Basis
from covey.dp.current_guarantee import Guarantee
from covey.membership.intervals import Estimate
from covey.runtime.auditing import Audit
from covey.unlearning.proof import Proof
from covey_papers.reproduce.record import Record


class Accuracy(TypedDict):
    """Of the models that clients chose, on unseen examples of their own group.

    Attributes:
        overall: None: the run has not finished, or models answer a number and have a
            `squared_error` in place of an accuracy.
        by_group: only of groups that are known.
    """

    overall: float | None
    by_group: dict[str, float]


class MetricTold(TypedDict):
    """A metric of the models at the end, on unseen examples.

    Attributes:
        overall: the mean over clients, each by how many examples it was measured on; None:
            `reason` says why.
        lowest, highest: of a client; None: of no client it is known.
    """

    overall: float | None
    by_group: dict[str, float | None]
    lowest: float | None
    highest: float | None
    reason: str


class StrongestAttack(TypedDict):
    """An attack on a final model, by its name."""

    attack: str
    risk: float
    standard_error: float
    tpr_at_1: float | None
    worst_client: float | None


class MeasuredRisk(TypedDict):
    """The red team's figure of one cluster model.

    Attributes:
        cluster: its number, from 0.
        clients: how many use the model.
        risk: MIA accuracy, 0.5 a coin toss; None: `reason` says why.
        risk_round: in which it was measured.
        source: which risk source measured it.
        calibrated: whether clients may act on it.
        reason: what the figure rests on, or why there is none.
        true_risk: a loss threshold at the end, on real members; None: `true_risk_reason`.
        true_risk_tpr_at_1: share of members found while 1% of non-members are accused.
        true_risk_worst_client: balanced accuracy on the client that is told best, which
            of few records is large by chance alone.
        strongest_attack: of all attacks on this model at the end or since, the one that
            succeeds most often; None: no attack has a figure.
    """

    cluster: int
    clients: int
    risk: float | None
    risk_standard_error: float | None
    risk_round: int | None
    source: str | None
    calibrated: bool
    reason: str
    true_risk: float | None
    true_risk_standard_error: float | None
    true_risk_reason: str
    true_risk_tpr_at_1: float | None
    true_risk_worst_client: float | None
    strongest_attack: StrongestAttack | None


class ClusterTold(MeasuredRisk):
    """One cluster model and its risk, as measured and as it truly is.

    Attributes:
        groups: how many clients of each known group use it.
        auc: of the attack behind `true_risk`.
        blind_auc: of a classifier that never sees the model.
        exposed_risk: the true risk, as it was highest for examples that this model met.
        traced_risk: the true risk on all whose examples ever reached the model.
        pooling: how far the model is drawn to the others' mean, from 0 to 1.
        abandoned: nobody uses it.
    """

    groups: dict[str, int]
    auc: float | None
    blind_auc: float | None
    exposed_risk: float | None
    traced_risk: float | None
    pooling: float
    abandoned: bool


class DivergedModel(TypedDict):
    """A cluster whose model is none now.

    Attributes:
        round: since when.
    """

    cluster: int
    round: int
    reason: str


class ViolationCounts(TypedDict):
    """How many clients end in a model that is riskier than they accept.

    Attributes:
        count: by point estimate; None: `reason` says why.
        count_lower: only where the 95% lower bound is above.
        count_exposed: by the highest risk of all models that their examples reached.
        by_group: of `count`.
        attacks: those that these figures are of, the strongest on each model.
        unknown: of how many clients it is not known.
    """

    count: int | None
    count_lower: int | None
    count_exposed: int | None
    by_group: dict[str, int] | None
    attacks: list[str]
    unknown: int
    reason: str


class Violations(ViolationCounts):
    """Who is counted, too.

    Attributes:
        clients: their handles.
    """

    clients: list[str] | None


class Exposure(TypedDict):
    """The highest risk of all models that a client's examples reached.

    Attributes:
        mean: over clients; None: `reason` says why.
    """

    mean: float | None
    maximum: float | None
    reason: str


class FairnessGap(TypedDict):
    """One gap between groups.

    Attributes:
        p_value: of a permutation test.
        low: of the 95% interval.
        high: of the 95% interval.
    """

    mean: float
    maximum: float
    p_value: float
    low: float
    high: float


class Budget(TypedDict):
    """How many more clients can be denied.

    Attributes:
        denials_left: at worst, whoever asks.
        next_forces_rollback: the probability that the next request does.
    """

    denials_left: int | None
    next_forces_rollback: float | None


class RunSummary(TypedDict):
    """A run, with every figure and what it rests on: `covey.Run.summary`.

    Attributes:
        run: its folder.
        rounds: how many were played.
        ended_early: why; empty: it did not.
        model_hash: SHA-256 of all final models; None: not finished.
        diverged: clusters without a model; figures that rest on one are unknown.
        moves_after_round_5: changes of cluster by all clients.
        moved_clients: how many made them.
        moved_and_exposed: clients that once trained a riskier model than their last one.
        prices: of the clusters, with `method.selection = "priced"`.
        fairness: by gap; None: `fairness_reason` says why.
        metrics: those that the settings name, by what they are called.
        adjusted_rand_index: of clusters against groups, 1 the same; None: not known.
        guarantee: the strongest that holds; None: `guarantee_reason` says why.
        guarantees: all that noise was added for.
        budget: None: `budget_reason` says why.
        components: by setting, those that are your own or have options.
        left: how many clients, by the answer that they were given.
        notes: what a reader has to know.
        ledger_head: hash of the newest event.
    """

    run: str
    method: str | None
    rounds: int
    finished: bool
    ended_early: str
    model_hash: str | None
    accuracy: Accuracy
    squared_error: Accuracy
    clusters: list[ClusterTold]
    diverged: list[DivergedModel]
    violations: Violations
    exposure: Exposure
    moves_after_round_5: int
    moved_clients: int
    most_moves_of_one_client: int
    moved_and_exposed: int | None
    prices: list[float] | None
    fairness: dict[str, FairnessGap] | None
    fairness_reason: str
    metrics: dict[str, MetricTold]
    adjusted_rand_index: float | None
    guarantee: Guarantee | None
    guarantee_reason: str
    guarantees: list[Guarantee]
    budget: Budget | None
    budget_reason: str
    components: dict[str, Mapping[str, Any]]
    left: dict[str, int]
    notes: list[str]
    ledger_head: str | None


class DivergedInRun(DivergedModel):
    """A model that diverged, and in which run."""

    run: str


class Spread(TypedDict):
    """A mean over seeds.

    Attributes:
        mean: None: unknown in a run, as `reason` says.
        deviation: standard deviation over runs.
    """

    mean: float | None
    deviation: float | None
    runs: int
    reason: str


class Spreads(TypedDict):
    """The figures that sweeps compare."""

    accuracy: Spread
    minority_accuracy: Spread
    violations: Spread


class SettingMean(Spreads):
    """One setting over its seeds.

    Attributes:
        runs: how many seeds.
        diverged: in how many runs a model diverged.
        minus_fedavg: differences to FedAvg on the same data and seed, pair by pair.
        minus_ifca: the same to IFCA.
    """

    setting: str
    runs: int
    diverged: int
    minus_fedavg: Spreads | None
    minus_ifca: Spreads | None


class RunCompared(TypedDict):
    """One run of a comparison; `accuracy_GROUP` stands once for every group.

    Attributes:
        seed: None: the run's settings name none.
        squared_error: the mean; None where models have an accuracy instead.
        violations: by the loss threshold, by point estimate.
        violations_lower: by the 95% lower bound.
        violations_unknown: of how many clients it is not known.
        true_risk_minority: of the cluster that holds most of the smallest group.
        true_risk_majority: of the cluster that holds most of the largest group.
        diverged: clusters.
        epsilon: that holds; None: none does.
        unit: whom the epsilon protects.
        noise: whose noise the settings ask for.
        reason: why a figure is None.
    """

    __pydantic_config__ = ConfigDict(  # pyright: ignore
        json_schema_extra={"patternProperties": {"^accuracy_": {"type": ["number", "null"]}}}
    )

    name: str
    method: str
    selection: str
    seed: int | None
    accuracy: float | None
    squared_error: float | None
    violations: int | None
    violations_lower: int | None
    violations_unknown: int
    true_risk_minority: float | None
    true_risk_minority_standard_error: float | None
    true_risk_majority: float | None
    true_risk_majority_standard_error: float | None
    adjusted_rand_index: float | None
    diverged: list[int]
    epsilon: float | None
    unit: str | None
    noise: str
    reason: str


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


class SignatureBlock(TypedDict):
    """A signature of everything else in its document.

    Attributes:
        algorithm: `Ed25519`.
        public_key: of the signer, base64.
        fingerprint: of that key.
        value: base64.
    """

    algorithm: str
    public_key: str
    fingerprint: str
    value: str


class ReceiptDocument(TypedDict):
    """What a requester is given when it asks, before it is answered.

    Attributes:
        format: `covey-receipt`.
        run: the first 16 digits of the ledger's first hash.
        asked: when, ISO 8601.
        signed: when, ISO 8601.
        wanted: the answer that was asked for.
        subject: HMAC-SHA256 of the requester's name under its salt.
        checkpoint: the signed head of the ledger.
    """

    format: str
    version: int
    request: str
    run: str
    asked: str
    signed: str
    wanted: str
    basis: Basis
    subject: str
    checkpoint: str
    signature: SignatureBlock


class HeadUpdateFile(TypedDict):
    """What an operator hands to a witness.

    Attributes:
        checkpoint: the signed head.
        since: events that the witness knows.
        consistency: hashes that show that the ledger only grew.
    """

    checkpoint: str
    since: int
    consistency: list[str]


class SignedRun(TypedDict):
    """Which run it is of.

    Attributes:
        config_hash: SHA-256 of the settings.
        data_hash: SHA-256 of the data; None: they never left the clients.
        clients: that have not left.
    """

    covey_version: str | None
    config_hash: str | None
    data_hash: str | None
    clients: int


class SignedReport(TypedDict):
    """A run's figures, signed: `report.json`.

    Attributes:
        says: what the document says, and what it does not.
        written: when, ISO 8601.
        ledger_events: how many events the figures follow from.
        ledger_head: hash of the last of these.
        summary: as of `covey.Run.summary`, without clients, folder and head.
        files: SHA-256 of the page beside it, by its name.
    """

    format: str
    version: int
    says: str
    name: str
    written: str
    ledger_events: int
    ledger_head: str
    run: SignedRun
    summary: Mapping[str, Any]
    files: dict[str, str]
    signature: SignatureBlock


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


FAILURE = Failed
"""What every command prints that could not answer."""

DICTS: Mapping[str, Any] = {
    "RunConcluded.summary": RunSummary,
    "Swept.rows": list[RunCompared],
    "Swept.means": list[SettingMean],
    "Swept.diverged": list[DivergedInRun],
    "ReportWritten.diverged": list[DivergedInRun],
    "ModelAudited.figures": ModelAuditFile,
    "Forgotten.budget": Budget | None,
}
"""What answers hold that is a dict in the library, by class and field."""

FILES: Mapping[str, Any] = {
    "audit/audit.json": Audit,
    "audit.json of a model": ModelAuditFile,
    "proofs/REQUEST.json": Proof,
    "receipts/REQUEST.json": ReceiptDocument,
    "report.json": SignedReport,
    "head.json": HeadUpdateFile,
    "Run.summary": RunSummary,
    "EXPERIMENT.json of covey reproduce": Record,
}
"""By file: those that a run's folder, an audit or a witness is given."""
