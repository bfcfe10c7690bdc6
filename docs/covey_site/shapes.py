"""The shapes of JSON that is made of dicts: what no class holds."""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict
from typing_extensions import TypedDict

from covey.auditor.result import Control
from covey.base.figure import Figure
from covey.base.names import Basis
from covey.leaving.proof import Proof
from covey.report.summary import Summary
from covey.runs.auditing import Audit
from covey_papers.reproduce.record import ExperimentRecord, MeasuredRun


class DivergedInRun(TypedDict):
    """A cluster whose model is none now, and in which run.

    Attributes:
        round_index: since when.
    """

    run: str
    cluster: int
    round_index: int
    reason: str


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
    """One run of a comparison; `accuracy_GROUP` and `metric_NAME` stand once for each.

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
        json_schema_extra={
            "patternProperties": {"^(accuracy|metric)_": {"type": ["number", "null"]}}
        }
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


class MetricsWithError(TypedDict):
    """How well one attack tells members from non-members.

    Attributes:
        advantage: TPR - FPR.
        tpr_at_1_percent: share of members found while 1% of non-members are accused.
        tpr_at_01_percent: the same at 0.1%.
    """

    balanced_accuracy: Figure
    auc: Figure
    advantage: Figure
    tpr_at_1_percent: Figure
    tpr_at_01_percent: Figure
    members: int
    non_members: int


class PartMetrics(TypedDict):
    """The same of some of the records."""

    balanced_accuracy: Figure
    auc: Figure
    tpr_at_1_percent: Figure
    tpr_at_01_percent: Figure
    members: int
    non_members: int


class AttackOnModel(TypedDict):
    """One attack's figures, overall and in parts.

    Attributes:
        by_group: per group that was named.
        by_class: per label.
        by_difficulty: per quarter of the records.
        roc: FPR and TPR.
    """

    overall: MetricsWithError
    by_group: dict[str, PartMetrics]
    by_class: dict[str, PartMetrics]
    by_difficulty: dict[str, PartMetrics]
    roc: list[tuple[float, float]]
    knows: str


class MostExposed(TypedDict):
    """The most exposed 1% of the members, in counts.

    Attributes:
        exposure: the mean chance that an attack is right on them.
        everybody: the same of all members.
    """

    records: int
    exposure: float
    everybody: float


class WorstPart(TypedDict):
    """A part of the records.

    Attributes:
        kind: `class` or `group`.
    """

    kind: str
    name: str
    balanced_accuracy: Figure


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
        knowledge: what the attackers that the verdict is about have at most.
        blind_auc: of a classifier that never sees the model.
        controls: that must find nothing.
        accuracies: of the model and its references, on what they met and on the rest.
        exposed: None: too few references.
        tail: the share of non-members with a higher loss than 99% of the members.
        least_fpr: the lowest rate of false accusations that so many non-members show.
        worst: the class or group that the strongest attack surely finds most of.
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
    knowledge: str
    blind_auc: Figure
    controls: dict[str, Control]
    accuracies: dict[str, float]
    exposed: MostExposed | None
    tail: Figure
    least_fpr: float
    worst: WorstPart | None
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
        requested: when, ISO 8601.
        signed: when, ISO 8601.
        wanted: the answer that was requested.
        subject: HMAC-SHA256 of the requester's name under its salt.
        checkpoint: the signed head of the ledger.
    """

    format: str
    version: int
    request: str
    run: str
    requested: str
    signed: str
    wanted: str
    basis: Basis
    subject: str
    checkpoint: str
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
    "Swept.rows": list[RunCompared],
    "Swept.means": list[SettingMean],
    "Swept.diverged": list[DivergedInRun],
    "ReportWritten.diverged": list[DivergedInRun],
    "ModelAudited.figures": ModelAuditFile,
}
"""What answers hold that is a dict in the library, by class and field."""

FILES: Mapping[str, Any] = {
    "audit/audit.json": Audit,
    "audit.json of a model": ModelAuditFile,
    "proofs/REQUEST.json": Proof,
    "receipts/REQUEST.json": ReceiptDocument,
    "Run.summary": Summary,
    "EXPERIMENT.json of covey reproduce": ExperimentRecord,
    "measured/RUN.json of covey reproduce": MeasuredRun,
}
"""By file: those that a run's folder or an audit is given."""
