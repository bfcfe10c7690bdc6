"""What is told of runs on disk: lists, copies, checks, heads and keys."""

from pydantic import ConfigDict
from typing_extensions import TypedDict

from covey.cli.outputs.run import DivergedModel, UnusedSetting
from covey.registry.entry import RunState
from covey.unlearning import Check

__all__ = [
    "Changed",
    "Checked",
    "Doctored",
    "DossierWritten",
    "Exported",
    "HeadSigned",
    "HeadWitnessed",
    "KeysListed",
    "Pruned",
    "ReportWritten",
    "RunTold",
    "RunsListed",
    "Swept",
]


class RunTold(TypedDict):
    """One run below a folder, as its ledger tells it.

    Attributes:
        place: its folder, or its ledger's URL without a password.
        name: its folder below the root that it was found under.
        state: running: a process writes it; waiting: not at its end; damaged: changed;
            unreadable: it cannot be looked at from here.
        reason: what the state rests on, where that is not plain.
        last_event: the kind of the newest event.
        last_event_at: when it was recorded, ISO 8601.
        clients: those that have not left.
        size_bytes: of all files in the folder.
        ledger_head: the newest hash, cut to 12 digits.
        open_requests: to leave.
        undelivered_answers: whose salt nobody has acknowledged.
        proofs: how many lie in the folder.
        guarantees: of differential privacy, a sentence each.
        is_verified: whether the ledger's whole chain was read.
    """

    place: str
    folder: str | None
    name: str
    state: RunState
    reason: str
    method: str
    rounds_played: int | None
    rounds_planned: int | None
    last_event: str
    last_event_at: str
    age_seconds: float | None
    clients: int | None
    size_bytes: int
    ledger_head: str
    open_requests: int | None
    undelivered_answers: int
    proofs: int
    guarantees: list[str]
    guarantee_reason: str
    is_verified: bool


class RunsListed(TypedDict):
    """All runs below some folders."""

    runs: list[RunTold]


class RunPruned(TypedDict):
    """What goes of one old run.

    Attributes:
        run: its place.
        what: states, or the whole run.
        lost: what can then no longer be done, a sentence each.
        kept: why nothing of it goes; empty: it goes.
    """

    run: str
    what: str
    paths: list[str]
    size_bytes: int
    lost: list[str]
    kept: str


class Pruned(TypedDict):
    """What old runs could spare, and what was deleted.

    Attributes:
        deleted: empty without `--yes`.
        size_bytes: of what was deleted, or would be.
    """

    older_than: str
    deleted: list[RunPruned]
    found: list[RunPruned]
    size_bytes: int


class DivergedInRun(DivergedModel):
    """A model that diverged, and in which run."""

    run: str


class ReportWritten(TypedDict):
    """A page that was written again, over one run or several.

    Attributes:
        report: its path.
    """

    report: str
    diverged: list[DivergedInRun]


class Exported(TypedDict):
    """A model that was written out of a run.

    Attributes:
        sha256: of the file.
        recipient: as it stands on record.
    """

    file: str
    cluster: int
    sha256: str
    recipient: str | None


class DossierWritten(TypedDict):
    """A dossier that was written.

    Attributes:
        dossier: its folder or archive.
    """

    dossier: str


class Damage(TypedDict):
    """Something in a run's folder that is not as covey left it.

    Attributes:
        found: what is wrong.
        recovery: what it can be recovered from.
        repairable: whether `--repair` mends it.
    """

    path: str
    what: str
    found: str
    recovery: str
    repairable: bool


class Doctored(TypedDict):
    """What is damaged in a run, and what was repaired."""

    damaged: list[Damage]
    repaired: list[Damage]


class Changed(TypedDict):
    """A client that came, or whose records are others now, where heads are solved.

    Attributes:
        examples: how many the client has now.
        sums_before: SHA-256 of its cluster's sums.
        sums_after: the same, now.
        model_before: SHA-256 of all models.
        model_hash: the same, now.
        exported: models on record that were solved with what was there before.
    """

    run: str
    client: str
    handle: str
    cluster: int
    examples: int
    sums_before: str | None
    sums_after: str | None
    model_before: str | None
    model_hash: str | None
    seconds: float
    exported: list[str]


class Checked(TypedDict):
    """Checks of a proof or a dossier.

    Attributes:
        valid: no check failed.
    """

    valid: bool
    checks: list[Check]


class HeadSigned(TypedDict):
    """The head of a run's ledger, signed by its operator.

    Attributes:
        size: events under it.
        checkpoint: the signed note.
    """

    run: str
    size: int
    checkpoint: str


class HeadWitnessed(TypedDict):
    """A head that a witness cosigned.

    Attributes:
        size: events under it.
        origin: which ledger it is of.
        checkpoint: the cosigned note.
    """

    size: int
    origin: str
    checkpoint: str


class KeyTold(TypedDict):
    """A key that signs proofs, or did; moments in ISO 8601."""

    fingerprint: str
    since: str | None
    until: str | None
    revoked: str | None


class KeysListed(TypedDict):
    """The keys that sign proofs.

    Attributes:
        file: of the public keys.
    """

    file: str
    keys: list[KeyTold]


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
        json_schema_extra={
            "patternProperties": {"^accuracy_": {"type": ["number", "null"]}}
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


class Swept(TypedDict):
    """A sweep: its runs, and settings side by side.

    Attributes:
        runs: folders.
        means: over seeds.
        unused_settings: that do nothing in any run.
        table: the CSV file.
    """

    runs: list[str]
    rows: list[RunCompared]
    means: list[SettingMean]
    diverged: list[DivergedInRun]
    unused_settings: list[UnusedSetting]
    report: str
    table: str
