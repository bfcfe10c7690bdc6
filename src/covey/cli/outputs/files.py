"""The signed JSON files beside a run: receipts, heads for a witness, and dossiers."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from covey.cli.outputs.run import (
    Accuracy,
    Budget,
    FairnessGap,
    MeasuredRisk,
    ViolationCounts,
)
from covey.dp.guarantee import Guarantee
from covey.types import Basis

__all__ = ["DossierDocument", "HeadUpdateFile", "ReceiptDocument"]


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


class DossierRun(TypedDict):
    """Which run it is of.

    Attributes:
        config_hash: SHA-256 of the settings.
        data_hash: SHA-256 of the data; None: they never left the clients.
        clients: that have not left.
    """

    method: str | None
    covey_version: str | None
    config_hash: str | None
    data_hash: str | None
    model_hash: str | None
    rounds_planned: int | None
    rounds_played: int
    finished: bool
    ended_early: str
    clients: int
    components: dict[str, Mapping[str, Any]]
    notes: list[str]


class DossierModel(MeasuredRisk):
    """One model, with how many clients it depends on."""

    trained_by: int
    left_in_it: int
    reached_by_pooling: int


class DossierFacts(TypedDict):
    """Every figure that follows from the ledger."""

    run: DossierRun
    models: list[DossierModel]
    accuracy: Accuracy
    squared_error: Accuracy
    violations: ViolationCounts
    fairness: dict[str, FairnessGap] | None
    fairness_reason: str
    guarantees: list[Guarantee]
    guarantee_reason: str
    budget: Budget | None
    budget_reason: str
    answers: dict[str, int]


class TraceTold(TypedDict):
    """Which events a figure is folded from.

    Attributes:
        figure: its name in the facts.
        positions: of events, counted from 1.
        hashes: of these events.
    """

    figure: str
    positions: list[int]
    hashes: list[str]


class AuditRow(TypedDict):
    """One attack on one model, in words."""

    cluster: str
    attack: str
    balanced_accuracy: str
    auc: str
    tpr_at_1_percent: str
    tpr_at_01_percent: str


class Likelihood(TypedDict):
    """What was measured, and what is unknown, a sentence each."""

    measured: list[str]
    unknown: list[str]


class Likelihoods(TypedDict):
    """The two that EDPB's opinion 28/2024 asks for."""

    extraction: Likelihood
    queries: Likelihood


class LineageRow(TypedDict):
    """Something in the run's folder that data went into.

    Attributes:
        depends_on_clients: None: on everybody who took part before it.
    """

    what: str
    count: int
    depends_on_clients: int | None


class DossierProof(TypedDict):
    """An answer to somebody who left, without a name."""

    sha256: str
    answer: str
    answered: str


class AnnexHeading(TypedDict):
    """A heading of the AI Act's Annex IV.

    Attributes:
        known: what the run knows; empty: nothing.
    """

    number: str
    heading: str
    known: str


class DossierDocument(TypedDict):
    """What a run's models may give away, for an authority: `dossier.json`.

    Attributes:
        says: what the document says, and what it does not.
        written: when, ISO 8601.
        ledger_head: hash of the newest event.
        audits: of `audit.json` beside it.
        files: SHA-256 by name, of the files beside it.
    """

    format: str
    version: int
    says: str
    name: str
    written: str
    ledger_events: int
    ledger_head: str
    facts: DossierFacts
    traces: list[TraceTold]
    audits: list[AuditRow]
    likelihoods: Likelihoods
    lineage: list[LineageRow]
    proofs: list[DossierProof]
    annex_iv: list[AnnexHeading]
    files: dict[str, str]
    signature: SignatureBlock
