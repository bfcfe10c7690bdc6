"""The facts of a run, as frozen records: the only thing that a ledger holds.

A fact never changes its meaning; a new meaning is a new class. Clients appear by handle,
never by name. Rounds count from 0; the last entry of a run has round index `rounds`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from covey.base.arguments import must_be
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Distance, Handle, Unit

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


FEATURES = "model.features"
"""The setting under which fixed features are recorded."""

FROZEN = "model.frozen"
"""Under this key stands what a run's module holds for all of its models."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fact of a run."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run began, on these data, with these settings.

    Attributes:
        config_hash: SHA-256 of the resolved settings.
        data_hash: SHA-256 over every client's examples, or with secrets "os" an HMAC of it.
        groups: each client's group, where a simulation has it.
        risk_thresholds: tau of each client, where a simulation has it.
        risk_lifetime: rounds for which a risk figure counts.
        num_clusters: the models that clients choose among.
        deniability_threshold: the paper's x, where updates are hidden in anonymity sets.
        updates_stored: whether raw updates are kept too, beside which nothing can be
            denied.
        secrets: "os" if no one can recompute what was drawn; "seeded": from the seed.
        delta: at which an epsilon of this run is reported.
        notes: what a reader must know of the data or the settings (oracles in use).
    """

    covey_version: str
    method: str
    config_hash: str
    data_hash: str
    num_clusters: Annotated[int, Field(ge=1)]
    rounds: Annotated[int, Field(ge=1)]
    group_names: tuple[str, ...]
    groups: Mapping[Handle, int | None]
    risk_thresholds: Mapping[Handle, float]
    risk_lifetime: Count
    notes: tuple[str, ...]
    deniability_threshold: int | None = None
    updates_stored: bool = False
    secrets: Annotated[str, Field(pattern="^(os|seeded)$")] = "seeded"
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


@dataclass(frozen=True, slots=True)
class ComponentsUsed(Event):
    """Which components of a run are a user's own, or have options of their own.

    Attributes:
        components: by setting, such as `method.name`: its name, its options, and the
            SHA-256 of its own source, or "unknown"; "" for covey's own. For fixed
            features also the SHA-256 of their tensors, and of the public examples by which
            they are whitened, if there are any (`public`); under `FROZEN` that of the model's
            parameters that do not train.
        mixes_clusters: whether a user's algorithm, aggregation or server optimizer may
            bring what one cluster's clients sent into another cluster's model.
    """

    components: Mapping[str, Mapping[str, Any]]
    mixes_clusters: bool = False

    @property
    def frozen(self) -> str:
        """The hash of the parameters that do not train (`model_hash`); "": all do."""
        return str(self.components.get(FROZEN, {}).get("tensors", ""))


@dataclass(frozen=True, slots=True)
class ForeignEvent(Event):
    """A fact of a kind that is not known here: of a user's component that is not loaded."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CohortSampled(Event):
    """These clients take part in the round; an empty cohort moves nothing but noise."""

    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class ClientsAssigned(Event):
    """Each client of the cohort works on this cluster's model.

    Attributes:
        by: who decided: "clients", "groups" (an oracle), "shared" (warm start: one model
            for everybody), "split" (warm start: the server's guess), "chance" (once, for
            good), "algorithm" (a user's own, which named no client: the run saw who trained)
            or "final".
    """

    clusters: Mapping[Handle, Count]
    by: str


@dataclass(frozen=True, slots=True)
class ClientsHandedOut(Event):
    """A user's own algorithm was handed these clients: all it did may depend on them.

    The run writes it, whatever the algorithm makes of them: it may train, evaluate, count
    or sum them, or do nothing. Each of them has taken part in the round.
    """

    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class GroupsSought(Event):
    """The warm start split the cohort by the candidate whose gap is largest.

    Attributes:
        gaps: per candidate, the standardised gap statistic of its split; above about 2
            the clients fall into groups, below they hardly do.
        sent: what each client sent for it beyond its update.
    """

    gaps: Mapping[str, float]
    chosen: str
    sent: str


@dataclass(frozen=True, slots=True)
class AnonymitySetsFormed(Event):
    """The updates of one cluster were hidden, set by set, behind one of them.

    Which one it was is recorded nowhere. Handles stand in their own order, which says
    nothing about it.

    Attributes:
        diameters: per set, the largest L2 distance between two of its updates; None
            where nothing that depends on the updates may be recorded.
        near: per set and member, the members within `aggregation.max_distance` of it; empty
            where there is no such limit.
        distance: by which they are near: L2 between updates, or cosine between models.
    """

    cluster: Count
    sets: tuple[tuple[Handle, ...], ...]
    diameters: tuple[Amount | None, ...]
    near: tuple[tuple[tuple[Handle, ...], ...], ...] = ()
    distance: Distance = "l2"


@dataclass(frozen=True, slots=True)
class ClientsOutsideSets(Event):
    """No anonymity set within `aggregation.max_distance` was found for these clients.

    Their updates were thrown away: they took no part in the round's models.
    """

    cluster: Count
    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class DistancesSketched(Event):
    """The sets that were just formed compare sketches of updates, not the updates.

    There were too many of them to be held. `AnonymitySetsFormed.near` then names members
    that are as near as that with a probability of 99.5% at least, and no others.

    Attributes:
        numbers: of a sketch.
        standard_error: of a squared distance, as a share of it, at most.
        diameters: per set, the largest L2 distance between two of its updates, estimated;
            None where nothing that depends on the updates may be recorded.
    """

    cluster: Count
    numbers: Annotated[int, Field(ge=1)]
    standard_error: Amount
    diameters: tuple[Amount | None, ...]


@dataclass(frozen=True, slots=True)
class ClusterWaited(Event):
    """Too few clients for the aggregation, or too few that are near: it used no update.

    Attributes:
        clients: how many came.
        min_anonymity: how many hide together, or how many a robust aggregation needs.
    """

    cluster: Count
    clients: Count
    min_anonymity: Count


@dataclass(frozen=True, slots=True)
class ClientsWaited(Event):
    """Clients whose sums are in none under masks yet: they are too few for one.

    Attributes:
        clients: who.
        min_cohort: the fewest clients that a sum may be over.
    """

    clients: tuple[Handle, ...]
    min_cohort: Count


@dataclass(frozen=True, slots=True)
class SumGivenUp(Event):
    """Clients whose sums under masks came to nothing: they get a request again later.

    Attributes:
        clients: who.
        reason: why, in words of a closed set.
    """

    clients: tuple[Handle, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RepresentativesPerturbed(Event):
    """Each anonymity set of one cluster spoke through one projected, noisy update.

    The partition looked at no data, and updates were projected into a public ball.

    Attributes:
        sizes: of the sets; a set weighs as much as it has members.
        radius: Delta, the ball's radius in L2.
        noise_multiplier: z; the noise per coordinate has standard deviation 2 z Delta.
    """

    cluster: Count
    sizes: tuple[Count, ...]
    radius: Amount
    noise_multiplier: Amount


@dataclass(frozen=True, slots=True)
class SumPerturbed(Event):
    """Gaussian noise was added to a cluster's sum of clipped updates, or clipped gradients.

    Attributes:
        clip: C, the largest L2 norm of what a client, or one of its records, adds.
        noise_multiplier: z; the sum has noise of standard deviation z C per coordinate.
        sampling: chance that a client took part, by a secret coin of its own; 1: all did.
        unit: what hides in it: a client, or a record.
    """

    cluster: Count
    clip: Amount
    noise_multiplier: Amount
    sampling: Share
    unit: Unit = "client"


@dataclass(frozen=True, slots=True)
class SharesPerturbed(Event):
    """Clients added noise to what was summed under masks (`secure_sums.noise`).

    Attributes:
        of: what was added up: updates, or counts of losses.
        clip: C, the largest L2 norm of what a client, or one of its records, adds.
        noise_multiplier: z' of the noise that `honest` clients add together: what they
            round to the grid is taken off.
        honest: how many clients of the sum are counted on.
        unit: what hides in it: a client, or a record.
        rounding: what rounding has added to 1 / z'.
    """

    of: Literal["updates", "counts"]
    cluster: Count
    clip: Amount
    noise_multiplier: Amount
    honest: Count
    unit: Unit = "client"
    rounding: Amount = 0.0


@dataclass(frozen=True, slots=True)
class ExposuresLimited(Event):
    """Clients whose clip in a sum under noise was below everybody's.

    Attributes:
        exposures: C_i / C, in [0, 1), of each of them.
    """

    exposures: Mapping[Handle, Share]


@dataclass(frozen=True, slots=True)
class UpdatesPerturbed(Event):
    """Clients clipped their updates, and added Gaussian noise, before they sent them.

    Attributes:
        clip: C, the largest L2 norm of an update.
        noise_multiplier: z; the noise per coordinate has standard deviation z C.
        clients: whose updates came.
    """

    clip: Amount
    noise_multiplier: Amount
    clients: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class StepsPerturbed(Event):
    """Clients clipped each example's gradient and added noise to the sum (DP-SGD).

    Attributes:
        noise_multiplier: standard deviation of the noise on a sum of clipped gradients,
            in units of their largest L2 norm.
        steps: gradient steps of each client in this round.
        sampling: each client's chance, per step, that one of its examples is in the batch.
    """

    noise_multiplier: Amount
    steps: Mapping[Handle, Count]
    sampling: Mapping[Handle, Share]


@dataclass(frozen=True, slots=True)
class ChoicesPerturbed(Event):
    """Clients chose their clusters by report-noisy-min.

    Attributes:
        epsilon: of one choice, whatever a client's examples are.
        handles: the clients that chose.
    """

    epsilon: Amount
    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class ModelsMerged(Event):
    """The cluster models after the round.

    Attributes:
        model_hash: SHA-256 of their safetensors bytes.
        participants: clients merged, per cluster.
    """

    model_hash: str
    participants: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class HeadsSolved(Event):
    """Every cluster's head was solved from the sums over its clients' records.

    Attributes:
        sums: SHA-256 of each cluster's sums, which are whole numbers, or with secrets "os" an
            HMAC of it.
        clients: how many clients are in each cluster's.
        pooling: per cluster, how much of the other clusters' sums enters.
        regularisation: per cluster, in units of the mean diagonal of everybody's sums.
    """

    sums: tuple[str, ...]
    clients: tuple[Count, ...]
    pooling: tuple[float, ...]
    regularisation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ModelDiverged(Event):
    """A cluster model is none: whatever an attack shows of it says nothing of privacy.

    Attributes:
        round_index: the round that ended in this model, or before which a red team
            looked at it; of the last entry of a run, `rounds`.
        reason: numbers that are not finite, a training of which nothing was accepted, or
            answers that are no better than guessing.
    """

    cluster: Count
    round_index: Count
    reason: str


@dataclass(frozen=True, slots=True)
class ModelsPooled(Event):
    """After merging, every cluster model was pulled towards the shared one.

    Attributes:
        shares: per cluster, 0 (left alone) to 1 (the shared model itself).
        model_hash: SHA-256 of the cluster models' safetensors bytes afterwards.
    """

    shares: tuple[Share, ...]
    model_hash: str


@dataclass(frozen=True, slots=True)
class ClusterAbandoned(Event):
    """The latest choice of no client is this cluster: frozen, and offered no more."""

    cluster: Count


@dataclass(frozen=True, slots=True)
class ClustersCollapsed(Event):
    """Every client sits in this one cluster: there is nothing personalised left."""

    cluster: Count


@dataclass(frozen=True, slots=True)
class NewcomersWaited(Event):
    """More clients entered a cluster in a round than it lets in; some sit out.

    Attributes:
        initial_members: clients that chose it and were in it from the start.
        newcomers: all others that chose it.
        waiting: how many of these do not train.
    """

    cluster: int
    initial_members: int
    newcomers: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PricesSet(Event):
    """The server published the next round's subsidy of every cluster.

    Attributes:
        prices: per cluster, from now on; in the units of the priced cost, 0 or more.
        desired: share of the clients that wanted each cluster at the prices before.
        target_share: the share below which a price rises.
    """

    prices: tuple[float, ...]
    desired: tuple[Share, ...]
    target_share: float


@dataclass(frozen=True, slots=True)
class RiskMeasured(Event):
    """A red team looked at one cluster model."""

    cluster: Count
    estimate: RiskEstimate


@dataclass(frozen=True, slots=True)
class RiskUnknown(Event):
    """Clients chose among these offered clusters and knew no valid risk of them."""

    clusters: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class RoundMeasured(Event):
    """How the models do on unseen data, each client under the model it last chose.

    Attributes:
        accuracy: None where models answer a number, which is not simply right or wrong.
        squared_error: the mean over clients of their mean squared error; of such models.
    """

    accuracy: float | None
    accuracy_by_group: Mapping[str, float]
    clients: tuple[Count, ...]
    squared_error: float | None = None
    squared_error_by_group: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class ClusterAudited(Event):
    """The truth about one final cluster model, which only a simulation can know.

    Attributes:
        truth: loss-threshold attack with a cross-fitted threshold, all trained records of
            the clients assigned at the end against matched non-members; unknown where
            the figure is refused.
        exposed: the same over every client that ever trained this model.
        traced: the same over the clients whose examples reached this model by pooling
            alone.
        blind_auc: of a classifier that sees the inputs and never the model; well above
            0.5 it shows that members and non-members do not match.
    """

    cluster: Count
    truth: RiskEstimate
    exposed: Figure
    traced: Figure
    blind_auc: float | None = None


@dataclass(frozen=True, slots=True)
class ModelAttacked(Event):
    """What one more attack achieves on a final model, beside that of `ClusterAudited`.

    At the end of a run, or between rounds after it, by an audit.

    Attributes:
        estimate: with the attack as its source.
        model_hash: of the models that a run ended with; of others it says nothing.
        client: whose records alone it is about: the worst of them; "": all in the cluster.
    """

    cluster: int
    estimate: RiskEstimate
    model_hash: str
    client: Handle = ""


@dataclass(frozen=True, slots=True)
class FairnessMeasured(Event):
    """One gap between groups, one-vs-rest over the classes.

    Attributes:
        gap: "demographic_parity", "equal_opportunity" or "equalized_odds".
        mean: over the classes, what the papers print; its interval: other clients, other
            examples.
        maximum: over the classes; biased upwards by chance.
        p_value: share of relabelled groups whose mean gap is at least as large.
    """

    gap: str
    mean: Figure
    maximum: float | None
    p_value: float | None


@dataclass(frozen=True, slots=True)
class ClientExposed(Event):
    """What one client ends with.

    Attributes:
        exposure: the highest risk among all cluster models that its examples ever reached;
            unknown as soon as one of them is.
    """

    handle: Handle
    cluster: Count
    accuracy: float | None
    exposure: Figure
    squared_error: float | None = None


Table = tuple[tuple[Count, ...], ...]
"""A confusion matrix: how many examples of a class, its row, are taken for which one."""


@dataclass(frozen=True, slots=True)
class MetricMeasured(Event):
    """What a metric of the settings says of the models of a round, or at the end.

    Attributes:
        metric: its name, and settings that are not its defaults.
        value: of all clients' unseen examples together, if it is `pooled`; else the mean over
            the clients that have a figure, each weighted by how many examples it was
            measured on. None: some model's is not finite, or there is none.
        by_group, by_cluster: the same over the clients of each.
        clients: at the end, of a mean, the figure of each client's model; None: it has
            none. A client without unseen examples is not there.
        counts: of a confusion matrix, in place of the figures: of whose examples by whom.
    """

    metric: str
    value: float | None
    by_group: Mapping[str, float | None]
    clients: Mapping[Handle, float | None]
    by_cluster: tuple[float | None, ...] = ()
    pooled: bool = False
    higher_is_better: bool = True
    counts: Mapping[str, Table] = field(default_factory=dict[str, Table])


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The last fact of a run; figures as of `RoundMeasured`."""

    model_hash: str
    accuracy: float | None
    accuracy_by_group: Mapping[str, float]
    adjusted_rand_index: float | None
    squared_error: float | None = None
    squared_error_by_group: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class LeaveRequested(Event):
    """Between rounds, a client asks to leave; nothing is answered yet.

    Attributes:
        request: the request's identifier.
        wanted: the answer that it asks for, or "auto".
        basis: what it rests on.
        subject: the requester's mark (`covey.leaving.proof.subject_mark`), which its
            name and salt together make again; "": no one received a salt.
    """

    request: str
    handle: Handle
    wanted: str
    basis: str
    subject: str


@dataclass(frozen=True, slots=True)
class ClientLeft(Event):
    """Between rounds, a client requested to leave, and this was the answer.

    Attributes:
        answer: "deny", "subtract", "roll_back", "retrain", "calibrate" or "stop".
        data_hash: of the remaining clients' examples, as `RunStarted` has it; None: they were
            not at hand when this was answered.
        request: the request's identifier.
        subject: the requester's mark, as `LeaveRequested` has it.
    """

    handle: Handle
    answer: Annotated[str, Field(pattern="^(deny|subtract|roll_back|retrain|calibrate|stop)$")]
    data_hash: str | None
    request: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class RunRolledBack(Event):
    """Between rounds: what was recorded from this round on no longer holds.

    The rounds are played again without the client that left just before.

    Attributes:
        round_index: the first round to play again.
        until: the first round that had not been played yet.
        how: the others keep the clusters that are "recorded", choose "anew", or only
            calibrate their stored updates ("calibrated"); or no client trains, and models
            are solved again from sums without those who left ("subtracted").
    """

    round_index: Count
    until: Count
    how: str


@dataclass(frozen=True, slots=True)
class BudgetSpent(Event):
    """From now on these clients take part in no round: their own budgets allow no more."""

    clients: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class RunEndedEarly(Event):
    """Between rounds: no further round is played, also if clients leave afterwards.

    Attributes:
        rounds: how many there are: the end is recorded with this index.
        planned: how many there were to be.
        reason: a figure got no better, the accuracy reached its target, clients' budgets are
            spent, or nobody took part.
        figure: which figure; see `stopping.figure` in the settings.
        patience: in how many rounds it got no better while it was known, or nobody took part.
        clients: how many have any budget left.
        accuracy: that the last round reached.
        target: that it had to reach.
    """

    rounds: Annotated[int, Field(ge=1)]
    planned: Annotated[int, Field(ge=1)]
    reason: Literal["figure", "target", "budgets", "participants"]
    figure: str = ""
    patience: Count = 0
    clients: Count = 0
    accuracy: float = 0.0
    target: float = 0.0


@dataclass(frozen=True, slots=True)
class ThresholdChanged(Event):
    """Between rounds: from now on denials are judged by this x."""

    deniability_threshold: int


@dataclass(frozen=True, slots=True)
class ClientsJoined(Event):
    """These clients took part in nothing before, and may from now on."""

    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class AnswersMissing(Event):
    """Remote clients got a request, and no answer came in time.

    Attributes:
        task: of the request.
    """

    task: str
    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class AnswerRefused(Event):
    """A client's answer was not in order, and was thrown away.

    In a simulation, too: an update that is not finite. Where the noise on updates is
    accounted for, the client counts as one that sent 0, and keeps its place.

    Attributes:
        handle: None where it is unknown whose it was.
        reason: what was expected and found.
    """

    handle: Handle | None
    reason: str


@dataclass(frozen=True, slots=True)
class WeightReduced(Event):
    """A client that is apart has far more examples than most, and counts as having fewer.

    Attributes:
        weight: what it sent, in examples.
        counted: what it counted as in the mean.
    """

    handle: Handle
    weight: Amount
    counted: Amount


@dataclass(frozen=True, slots=True)
class ClientsReported(Event):
    """What remote clients chose to report about the model that they chose.

    In a round it is the model as it was sent, before anybody trained it.

    Attributes:
        accuracy: on the client's own holdout.
        above: whether the model's risk is above what the client accepts.
    """

    accuracy: Mapping[Handle, float]
    above: Mapping[Handle, bool]


def kind_and_body(event: Event) -> tuple[str, dict[str, Any]]:
    """Return an event as its class name and plain JSON values."""
    if isinstance(event, ForeignEvent):
        return event.kind, dict(event.body)
    return type(event).__name__, _adapter(type(event)).dump_python(event, warnings=False)


def event_from(kind: str, body: Mapping[str, Any]) -> Event:
    """Undo `kind_and_body`; a `ForeignEvent` where the kind is unknown.

    Raises:
        ValueError: it is no such event; one line that names the field.
    """
    try:
        return _event(kind, body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place!a} of {kind} {must_be(first)}") from error


def _event(kind: str, body: Mapping[str, Any]) -> Event:
    classes = {cls.__name__: cls for cls in Event.__subclasses__()}
    if kind not in classes:
        return ForeignEvent(kind, dict(body))
    if missing := {known.name for known in fields(classes[kind])} - body.keys():
        raise ValueError(f"{min(missing)!a} of {kind} must be there, found none")
    return _adapter(classes[kind]).validate_python(body)


_adapter = cache(TypeAdapter)
