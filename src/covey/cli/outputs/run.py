"""What is told of one run: `covey run`, `covey resume`, and `Run.summary`."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from covey.dp.guarantee import Guarantee

__all__ = [
    "Accuracy",
    "Budget",
    "ClusterTold",
    "DivergedModel",
    "FairnessGap",
    "MeasuredRisk",
    "RunConcluded",
    "RunSummary",
    "UnusedSetting",
    "ViolationCounts",
    "Violations",
]


class Accuracy(TypedDict):
    """Of the models that clients chose, on unseen examples of their own group.

    Attributes:
        overall: None: the run has not finished, or models answer a number and have a
            `squared_error` in place of an accuracy.
        by_group: only of groups that are known.
    """

    overall: float | None
    by_group: dict[str, float]


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


class UnusedSetting(TypedDict):
    """A setting that is not at its default, and does nothing.

    Attributes:
        key: its section and name.
        reason: what makes it do nothing.
    """

    key: str
    value: Any
    reason: str


class RunConcluded(RunSummary):
    """A run that was played: its summary, and what playing it took.

    Attributes:
        seconds: of this command.
        report: the page that was written.
    """

    unused_settings: list[UnusedSetting]
    seconds: float
    report: str
