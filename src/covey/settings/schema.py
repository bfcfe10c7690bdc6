"""The settings, section by section: each is declared, checked and described here alone.

What a setting means stands in its section's docstring: `covey config schema`, the file of
`covey config init` and docs/settings.md take it from there. A section that is a component
(`covey.base.components`) is described by its own class.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field

from covey.aggregation.base import Aggregation, ClusterwiseAggregation
from covey.aggregation.mean import Mean
from covey.aggregation.privacy import PrivacyPlan
from covey.algorithms.algorithm import Algorithm
from covey.algorithms.ifca import IfcaMir
from covey.base.components import (
    AboveZero,
    ClientNames,
    Component,
    Count,
    NotNegative,
    Part,
    Positive,
    Range,
    SettingsSection,
    Share,
    Shares,
    UnloadedComponent,
    components_in,
)
from covey.base.errors import ConfigError
from covey.base.names import NoiseModel
from covey.data.examples import Rotation, Shift
from covey.data.partition import Iid, Partition
from covey.data.population import Population
from covey.data.sets import Digits
from covey.data.source import Augment, DataSource
from covey.engine.kinds import Auto
from covey.engine.metrics import Metric
from covey.engine.optimizers import Optimizer, Sgd
from covey.engine.protocol import EngineFactory
from covey.engine.recipe import Constant, CrossEntropy, Loss, Objective, Recipe, Schedule, TaskLoss
from covey.membership.estimators import FederatedEstimator, RiskEstimator
from covey.models.build import ModelFactory, ModelFunction
from covey.models.networks import MnistCnn
from covey.settings.privacy import plan_of

Figures = Mapping[str, float]
"""Figures by name, such as `accuracy`, `accuracy/GROUP`, `risk/cluster_0`.

Unknown figures are omitted.
"""

Delta = Annotated[float, Field(gt=0, lt=1)]
ByHandle = Annotated[
    tuple[Annotated[tuple[str, Share, Share], Field(strict=False)], ...], Field(strict=False)
]


FIGURES = ("none", "accuracy", "lowest-accuracy", "highest-risk", "over")
"""Figures by which rounds are compared, beside metrics: higher accuracies, lower risks."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run, as a tracker sees it. No client's name is in it, nor in any figure.

    Attributes:
        name: of its folder.
        folder: the tracker's own place, inside the run's folder.
        settings: those that are numbers, truths or one of several words, by
            `section.key`. Paths and other free texts stay where they are.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Tracker(Component):
    """Records the figures of a run's rounds somewhere else.

    Your own derives from this and writes `log`; what `begin` opens stands in fields whose names
    begin with an underscore. All is called in one thread, beside the run. An exception ends the
    tracking with a warning, and never the run.
    """

    def begin(self, run: TrackedRun) -> None:
        """Open what is needed: a run was started or resumed."""

    def log(self, round_index: int, figures: Figures) -> None:
        """Record a round, once it is played: a replay after a client left comes again."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what `begin` opened: the run ended or stopped."""


class GroupConfig(SettingsSection):
    """One group of clients that share a data distribution.

    Attributes:
        share: share of the clients; those of all groups add up to 1.
        shift: [low, high], the range of the group's shift.
        examples_per_client: the holdout included.
    """

    share: Annotated[float, Field(gt=0, le=1)]
    shift: Range
    examples_per_client: Positive


class PopulationConfig(SettingsSection):
    """Who holds which examples, and what each client accepts.

    Attributes:
        clients: how many clients share the data set.
        examples_per_client: the holdout included.
        shift: how groups differ.
        shift_per: one draw per `image` or per `client`.
        minority_share: share of the clients in the minority.
        minority: range of the shift in the minority, [low, high].
        majority: range of the shift in the majority, [low, high].
        groups: instead of minority and majority: a list of `{share, shift,
            examples_per_client}`.
        partition: how images are dealt inside a group. What is kept aside is a random part
            of all images with each; with all but the first, what is left for test images or
            the pool is halved, so that there is something to choose from.
        images: `disjoint`: no image belongs to two clients. `per-group`: all images that are
            not kept aside are dealt to every group anew, as in Ghosh et al. 2020, so that
            clients of different groups may hold one image in two transforms; no two clients
            of a group do. What is kept aside (the true audit's non-members, test images,
            pool) is no client's in both. With a `shift` other than `none`.
        holdout: share of a client's examples that it never trains on.
        audit_examples: non-members kept for the true audit, shifted like each group.
        pool: how many images the server holds to train shadow models on (the paper's
            D_shadow), for a `risk.name` that needs some. `rest`: all that is left once
            clients, audit and test have theirs.
        thresholds: range of the risk thresholds, drawn per client.
        epsilon_limits: budgets of which each client draws one, at `privacy.delta`: once it is
            spent, the client takes part no more. []: nobody has a budget.
        risk_weight: beta = clip((0.8 - tau) / 0.3, 0, 1), or one number for everybody.
        preferences: a CSV or TOML file with `name`, `risk_threshold`, `risk_weight`; the
            last may be missing.
        preferences_by_handle: written by `covey.run(thresholds=..., risk_weights=...)`:
            `[handle, risk_threshold, risk_weight]` of every client that they name, before
            the file and the draws. Handles follow from the seed; refused with
            `secrets.source = "os"`.
        exclude: names of clients that never take part; no other client changes.
        min_clients: the fewest clients of a round; 0: two in a deployment, else one. With fewer a
            deployment waits, as long as for an answer, and then stops, for `covey resume`. Once
            fewer have any budget left (`epsilon_limits`, or `epsilon_limit` in a node.toml) the
            run ends; under masks `privacy.min_cohort` does that too.
    """

    clients: Positive = 40
    examples_per_client: Positive = 30
    shift: Annotated[Shift, Part("shift")] = Rotation()
    shift_per: Literal["image", "client"] = "image"
    minority_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    minority: Range = (0.0, 25.0)
    majority: Range = (25.0, 50.0)
    groups: Annotated[tuple[GroupConfig, ...], Field(strict=False)] = ()
    partition: Annotated[Partition, Part("partition")] = Iid()
    images: Literal["disjoint", "per-group"] = "disjoint"
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    audit_examples: Count = 400
    pool: Literal["rest"] | Positive = "rest"
    thresholds: Shares = (0.5, 0.8)
    epsilon_limits: Annotated[tuple[AboveZero, ...], Field(strict=False)] = ()
    risk_weight: Literal["from-threshold"] | Share = "from-threshold"
    preferences: str = ""
    preferences_by_handle: ByHandle = ()
    exclude: ClientNames = ()
    min_clients: Count = 0


class TrainConfig(SettingsSection):
    """What a client does in a round.

    Attributes:
        local_epochs: passes over a client's examples per round.
        local_steps: if positive, gradient steps instead of epochs.
        batch_size: examples per gradient step.
        drop_last: every epoch leaves out its last batch where that is short and not the only
            one: BatchNorm cannot train on a batch of one example. Nothing changes with
            DP-SGD, which draws its batches.
        learning_rate: step of the clients' gradient descent.
        optimizer: begins anew in every round; a class of `torch.optim` goes by its name
            there, such as `RMSprop`.
        schedule: the learning rate over the rounds.
        loss: what clients minimise; scores are the task's.
        objective: what they minimise beside it.
        max_gradient_norm: if positive, the largest L2 norm of a step's gradient; a larger
            one is scaled down.
        participation: chance of each client in each round.
        cohort_size: if positive, so many clients take part in each round, drawn uniformly
            without replacement, or all where fewer are there. Not with `participation` below
            1, `privacy.client_noise` or `aggregation.name = "anonymity-sets"`, which are accounted
            for by independent draws, nor where who leaves is taken out of recorded rounds
            (`method.name = "ridge"`, `leaving.store_updates`).
    """

    local_epochs: Positive = 1
    local_steps: Count = 0
    batch_size: Positive = 25
    drop_last: bool = False
    learning_rate: AboveZero = 0.05
    optimizer: Annotated[Optimizer, Part("optimizer")] = Sgd()
    schedule: Annotated[Schedule, Part("schedule")] = Constant()
    loss: Annotated[Loss, Part("loss")] = TaskLoss()
    objective: Annotated[Objective, Part("objective")] = Objective()
    max_gradient_norm: NotNegative = 0.0
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    cohort_size: Count = 0

    def takes_part(self, draws: Sequence[float]) -> list[bool]:
        """Return who takes part in a round, from a uniform draw in [0, 1) of each client.

        Everybody below `participation`, or the `cohort_size` smallest draws, of equal ones
        the first. A client that was not drawn changes no cohort by leaving.
        """
        if not self.cohort_size:
            return [draw < self.participation for draw in draws]
        drawn = set(sorted(range(len(draws)), key=draws.__getitem__)[: self.cohort_size])
        return [place in drawn for place in range(len(draws))]


class PrivacyConfig(SettingsSection):
    """Differential privacy, and sums under masks; off by default (`docs/guides/privacy.md`).

    Attributes:
        client_clip: C: largest L2 norm of a client's update; longer ones are shortened.
            Needed, and only allowed, with `client_noise`.
        client_noise: z: Gaussian noise on each cluster's sum of updates, in units of the
            clip; it hides whole clients. For `aggregation.name = "mean"` with equal weights.
            With `train.participation` below 1 it is secret who came, which takes a method
            with one cluster.
        noise_model: who adds the noise on a sum: the server (`central`), or each client a
            share of it, under `secure_sums`, of which the server sees the sum
            (`distributed`). `local`: each client hides its update by itself, and records by
            DP-SGD in its own steps.
        weigh_by_budget: a client counts with the weight with which its budget lasts all rounds,
            instead of 1 until it is spent.
        colluders: with `distributed`: how many clients of a sum may help the server, and
            still no other is less hidden.
        record_clip: C: largest L2 norm of one record's gradient. Above 0 clients make one
            step a round, on all their records: they send the sum of the clipped gradients
            times `train.learning_rate`. With `noise_model = "local"`: DP-SGD. By itself no
            guarantee.
        record_noise: z: Gaussian noise on each cluster's sum of clipped gradients, in units
            of `record_clip`, which it needs; it hides single records.
        exposure: tau: no attack on the models of all rounds is right more often than that
            about a record, or with `client_noise` about a client: "accepted": what each
            client accepts (`population.thresholds`); or one number for all; 1: all use the
            whole clip. It lowers the clip of a client to C_i.
        releases: how many times the rounds may be played for that to hold: replays for those
            who leave release models of their own.
        expected_records: of all clients together, by which a sum of gradients is divided: a
            public number; 0: how many there are, to two digits.
        selection_noise: b: clients choose by report-noisy-min, and one choice is 2 / b
            differentially private. For `ifca`, and `ifca-mir` by `loss` or `weighted`;
            without a warm start.
        delta: delta of what is promised.
        secure_sums: clients send what is added up under masks that cancel, so that the
            server sees sums over clients only: the sums of `method.name = "ridge"` with
            one cluster, the updates of `fedavg`, `fedprox`
            and `ditto` (with `aggregation.name = "mean"`, in steps of 2^-24), and the counts of
            `risk.name = "federated"` (`docs/concepts/threat-model.md`).
        min_cohort: a sum under masks is over at least so many clients; who comes with fewer
            waits. As many clients as come beyond it may drop out: shares of noise are large
            enough for that.
    """

    client_clip: NotNegative = 0.0
    client_noise: NotNegative = 0.0
    noise_model: NoiseModel = "central"
    weigh_by_budget: bool = False
    colluders: Count = 0
    record_clip: NotNegative = 0.0
    record_noise: NotNegative = 0.0
    exposure: Literal["accepted"] | Annotated[float, Field(gt=0.5, le=1)] = 1.0
    releases: Positive = 1
    expected_records: Count = 0
    selection_noise: NotNegative = 0.0
    delta: Delta = 1e-5
    secure_sums: bool = False
    min_cohort: Annotated[int, Field(ge=3)] = 5


class SecretsConfig(SettingsSection):
    """Where comes from what no one may recompute, and with what proofs are signed.

    Attributes:
        source: `seeded`: everything can be recomputed from the seed, hidden draws too. `os`:
            from 32 random bytes outside the run folder, replaced after every round; runs are
            not repeatable then.
        key_path: the key that signs proofs (PEM); else the user's own, made on first use.
    """

    source: Literal["seeded", "os"] = "seeded"
    key_path: str = ""


class AuditConfig(SettingsSection):
    """What the true audit compares members with.

    Attributes:
        non_members: `matched`; `pooled` and `untransformed` are demonstrations: the audit
            then refuses its figure.
    """

    non_members: Literal["matched", "pooled", "untransformed"] = "matched"


class LeavingConfig(SettingsSection):
    """Clients that leave while a run goes on, and what is kept to let them.

    Attributes:
        request_probability: chance after each round that a random client asks to leave (0.2
            in the paper).
        store_updates: keep every client's raw update each so many rounds, to calibrate it
            when somebody leaves (`fedavg` only); nothing can be denied while they are there.
    """

    request_probability: Share = 0.0
    store_updates: Count = 0


class LedgerConfig(SettingsSection):
    """Where the record of the run is kept.

    Attributes:
        url: an SQLAlchemy URL such as `postgresql://USER@HOST/DATABASE?run=NAME`, or where
            one with a password stands: `env:NAME` or `file:PATH`; else SQLite in the run
            folder.
    """

    url: str = ""


class StoppingConfig(SettingsSection):
    """Whether the run ends early: on figures that it records, never on training losses.

    Attributes:
        figure: ends the run early once this gets no better: `accuracy`, `lowest-accuracy` of
            a group, `highest-risk` of a cluster, `over` (clients above what they accept), or
            the name of one of `metrics`.
        patience: rounds in a row without a better figure; those in which it is unknown do
            not count.
        min_change: by how much more than this a better figure is better.
        target: ends the run after the first round of at least this recorded accuracy, whatever
            `figure` says; 0: none is aimed at.
        empty_rounds: ends the run after so many rounds in a row in which clients were drawn and
            none took part: it has failed then (exit code 1).
    """

    figure: str = "none"
    patience: Positive = 5
    min_change: NotNegative = 0.0
    target: Share = 0.0
    empty_rounds: Positive = 3


class CheckpointsConfig(SettingsSection):
    """Which states are kept on disk.

    Attributes:
        every: rounds between two checkpoints.
        keep: `all`, or `thin`: powers of two and the last ten.
        best: keeps the state of the best round by a figure of `stopping.figure`, whatever
            `every` and `keep` say.
    """

    every: Positive = 1
    keep: Literal["all", "thin"] = "all"
    best: str = "none"


def _several(named: object) -> object:
    return named if isinstance(named, list | tuple) else [named]


Metrics = Annotated[
    tuple[Annotated[Metric, Part("metric")], ...], Field(strict=False), BeforeValidator(_several)
]


Trackers = Annotated[
    tuple[Annotated[Tracker, Part("tracker")], ...], Field(strict=False), BeforeValidator(_several)
]


class Sections(SettingsSection):
    """All settings of a run; the defaults are the embedded example on digits.

    Attributes:
        seed: the root of every random stream.
        rounds: exchanges between server and clients.
        tracking: what else records every round (`docs/guides/runs.md`), and changes no
            result: a list of trackers, each by its name or as a table such as `{name =
            "mlflow", uri = "http://localhost:5000"}`.
        metrics: what else is measured of the clients' models after every round, on examples
            that these never trained on: a list of metrics, each by its name (`f1`, `auroc`,
            `average-precision`, `confusion`, `mean-squared-error`, `top-k`, or
            `package.module:name`) or as a table such as `{name = "top-k", k = 5}`. The first
            four are of all clients' examples together, or with `pooled = false` means over
            clients. They change no model, and show of a client as much as its accuracy does.
        data: which examples there are.
        model: what is trained.
        method: how clients come to share models.
        risk: where the risk that clients see comes from.
        aggregation: how updates become the next cluster models.
        engine: what runs the clients' training.
    """

    seed: Count = 0
    rounds: Positive = 30
    tracking: Trackers = ()
    metrics: Metrics = ()
    data: Annotated[DataSource, Part("data")] = Digits()
    population: PopulationConfig = PopulationConfig()
    model: Annotated[ModelFactory, Part("model")] = ModelFunction(function=MnistCnn)
    train: TrainConfig = TrainConfig()
    method: Annotated[Algorithm, Part("algorithm")] = IfcaMir()
    risk: Annotated[RiskEstimator, Part("risk_estimator")] = FederatedEstimator()
    aggregation: Annotated[Aggregation, Part("aggregation")] = Mean()
    privacy: PrivacyConfig = PrivacyConfig()
    secrets: SecretsConfig = SecretsConfig()
    audit: AuditConfig = AuditConfig()
    stopping: StoppingConfig = StoppingConfig()
    leaving: LeavingConfig = LeavingConfig()
    engine: Annotated[EngineFactory, Part("engine")] = Auto()
    ledger: LedgerConfig = LedgerConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()

    @property
    def privacy_plan(self) -> PrivacyPlan:
        """How clients, or records, are hidden."""
        return plan_of(self)

    @property
    def has_own_data(self) -> bool:
        """Whether clients come with their own examples, and are not simulated.

        Of a user's own source that was not imported it is taken to be so.
        """
        return isinstance(self.data, UnloadedComponent) or not self.data.simulates

    @property
    def min_clients(self) -> int:
        """How many clients a round is played with at least."""
        return self.population.min_clients or (2 if self.engine.is_remote else 1)

    @property
    def is_unread(self) -> bool:
        """Whether a user's own code that it names was not imported, to be read alone."""
        return any(isinstance(component, UnloadedComponent) for _, component in components_in(self))


def balances_classes(config: Sections) -> bool:
    """Say whether losses are weighted by how many examples of each class clients announce."""
    loss = config.train.loss
    return isinstance(loss, CrossEntropy) and loss.class_weights == "balanced"


def recipe_for(config: Sections, population: Population) -> Recipe:
    """Return how these clients train, with the weights that follow from their classes.

    Raises:
        ConfigError: there are not as many weights as classes.
    """
    recipe, classes = recipe_of(config), population.num_classes
    loss = recipe.loss
    if not isinstance(loss, CrossEntropy) or not loss.class_weights:
        return recipe
    if loss.class_weights == "balanced":
        labels = [client.train.labels for client in population.clients]
        loss = loss.balanced(torch.bincount(torch.cat(labels), minlength=classes))
    if len(loss.class_weights) != classes:
        raise ConfigError(
            f"train.loss.class_weights must be {classes} numbers, one per class, found "
            f"{len(loss.class_weights)}: correct it."
        )
    return replace(recipe, loss=loss)


def recipe_of(config: Sections) -> Recipe:
    """Return how clients train; `Recipe.at` is how they do in one round."""
    train, plan = config.train, config.privacy_plan
    return Recipe(
        local_epochs=train.local_epochs,
        local_steps=train.local_steps,
        batch_size=train.batch_size,
        learning_rate=train.learning_rate,
        drop_last=train.drop_last,
        record_clip=plan.record_clip,
        record_noise=plan.step_noise,
        sums_gradients=plan.sums_gradients,
        optimizer=train.optimizer,
        schedule=train.schedule,
        loss=train.loss,
        objective=config.method.objective or train.objective,
        augment=Augment() if isinstance(config.data, UnloadedComponent) else config.data.augment,
        personal=config.method.personal,
        max_gradient_norm=train.max_gradient_norm,
        own_layers=bool(config.model.personal),
    )


def cohort_needs(config: Sections) -> Iterator[tuple[str, object, int]]:
    """Yield settings with which no model moves in a round of fewer clients, values, and these."""
    aggregation = config.aggregation
    if least := config.privacy_plan.min_cohort:
        yield "privacy.min_cohort", least, least
    if terms := aggregation.anonymity():
        yield "aggregation.min_anonymity", terms.min_anonymity, terms.min_anonymity
    if isinstance(aggregation, ClusterwiseAggregation):
        yield "aggregation.name", aggregation.name, aggregation.fewest


def check_enough(config: Sections, clients: int, noun: str = "clients") -> None:
    """Refuse settings that need more clients than there are.

    Raises:
        ConfigError: naming the settings, how many they need, and how many there are.
    """
    least, newcomers = config.population.min_clients, getattr(config.method, "max_newcomers", 0.0)
    needed = [*cohort_needs(config), ("population.min_clients", least, least)]
    if (
        newcomers and config.method.num_models != 1
    ):  # initial members for whom one may come, and that one
        needed.append(("method.max_newcomers", newcomers, ceil(1 / newcomers - 1e-9) + 1))
    lacking = [
        f"{key} = {value!r} needs {count}" for key, value, count in needed if count > clients
    ]
    if lacking:
        raise ConfigError(
            f"There must be as many {noun} as the settings need, found {clients} "
            f"({', '.join(lacking)}): add some, or change the settings."
        )
