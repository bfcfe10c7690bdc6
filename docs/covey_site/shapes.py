"""The shapes of JSON that is made of dicts: what no class holds."""

from collections.abc import Mapping
from typing import Any, NotRequired

from pydantic import ConfigDict
from typing_extensions import TypedDict

from covey.auditor.result import Control
from covey.base.figure import Figure
from covey.base.names import Basis
from covey.membership.audit import AttackFigures
from covey.membership.references import Attribution, ExposedCounts
from covey.report.summary import Summary
from covey.runtime.dp_audit import CanaryAudit
from covey.runtime.participation_game import Game
from covey.runtime.places import Place
from covey.unlearning.facts import Fate
from covey.unlearning.proof import Proof
from covey_papers.reproduce.record import Record


class DivergedInRun(TypedDict):
    """A cluster whose model is none now, and in which run.

    Attributes:
        round_index: since when.
    """

    run: str
    cluster: int
    round_index: int
    reason: str


class ReportWritten(TypedDict):
    """A page that was written again, over one run or several.

    Attributes:
        report: its path.
        signed: of the signed figures, with `--sign`.
    """

    report: str
    diverged: list[DivergedInRun]
    signed: NotRequired[str]


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


class CopyTold(TypedDict):
    """A copy that had been written out of the run.

    Attributes:
        what: a model, or a page.
        cluster: of a model.
        written: when, ISO 8601.
        fate: what became of it.
        notify: whether the recipient is to be told.
    """

    what: str
    cluster: int | None
    path: str
    sha256: str | None
    written: str
    recipient: str | None
    fate: Fate
    notify: bool


class SetTold(TypedDict):
    """An anonymity set that held the client.

    Attributes:
        diameter: the largest L2 distance between two of its updates.
    """

    round: int
    cluster: int
    members: int
    diameter: float | None


class RequestTold(TypedDict):
    """A request of the client's.

    Attributes:
        asked: when, ISO 8601.
    """

    wanted: str
    basis: Basis
    state: str
    asked: str


class Explanation(TypedDict):
    """What is held on one client, and where.

    Attributes:
        handle: by which the ledger's events name it.
        rounds_trained: in which its examples were used.
        risk_threshold: that it accepts; None: the client keeps it to itself.
        risk_figures_that_count_it: rounds.
        prices_that_count_it: rounds.
        states_that_depend_on_it: rounds.
        raw_updates_stored: rounds.
        not_searched: where covey could not look, a sentence each.
    """

    client: str
    handle: str
    rounds_trained: list[int]
    clusters_trained: list[int]
    risk_threshold: float | None
    anonymity_sets: list[SetTold]
    risk_figures_that_count_it: list[int]
    prices_that_count_it: list[int]
    states_that_depend_on_it: list[int]
    raw_updates_stored: list[int]
    requests: list[RequestTold]
    places: list[Place]
    not_searched: list[str]


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
        diverged: whether there is no model to attack.
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
    diverged: bool
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


class Served(TypedDict):
    """Pages on this machine.

    Attributes:
        link: for one browser.
    """

    link: str


FAILURE = Failed
"""What every command prints that could not answer."""

OUTPUTS: Mapping[str, Any] = {"report": ReportWritten, "serve": Served}
"""Of commands that print their answers themselves."""

DICTS: Mapping[str, Any] = {
    "Swept.rows": list[RunCompared],
    "Swept.means": list[SettingMean],
    "Swept.diverged": list[DivergedInRun],
    "RunAudited.audit": AuditFile,
    "ModelAudited.figures": ModelAuditFile,
    "GamePlayed.game": Game,
    "EpsilonTested.test": CanaryAudit,
    "Explained.held": Explanation,
    "ClientAnswered.copies": list[CopyTold],
}
"""What answers hold that is a dict in the library, by class and field."""

FILES: Mapping[str, Any] = {
    "audit/audit.json": AuditFile,
    "audit.json of a model": ModelAuditFile,
    "proofs/REQUEST.json": Proof,
    "receipts/REQUEST.json": ReceiptDocument,
    "report.json": SignedReport,
    "head.json": HeadUpdateFile,
    "Run.summary": Summary,
    "EXPERIMENT.json of covey reproduce": Record,
}
"""By file: those that a run's folder, an audit or a witness is given."""
