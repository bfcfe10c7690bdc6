"""The settings, section by section; names and defaults are stable.

Every setting says what it means: `covey config schema`, the file of `covey config init`
and docs/settings.md tell it from here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast, no_type_check

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from covey.base.errors import ConfigError
from covey.components.built_ins import described
from covey.components.registry import (
    Component,
    Count,
    NotNegative,
    Positive,
    SettingsSection,
    Share,
    is_known,
    known_names,
    options_of,
    reference,
)
from covey.components.slots import (
    READ,
    RECORDED,
    ComponentSection,
    Options,
    choice_of,
    options_table,
    slot,
)
from covey.config.learning import (
    DataConfig,
    MethodConfig,
    ModelConfig,
    PopulationConfig,
    TrainConfig,
)
from covey.trackers import tracker_of


class RedteamConfig(ComponentSection):
    """Where the risk that clients see comes from."""

    section = "redteam"
    slots = MappingProxyType({"source": "risk_estimator"})

    source: str = slot("risk_estimator")
    source_options: Options = options_table("source")
    every: Positive = Field(
        default=5, description="rounds between two measurements; a figure lives twice as long"
    )
    shadows: Positive = Field(default=3, description="shadow federations per cluster")
    pool: Count = Field(
        default=0,
        description="images that the server holds for shadows; 0: what is left. Too few "
        "to match a cluster: its figure is extrapolated from smaller shadows, and nobody "
        "acts on it",
    )


class MergeConfig(ComponentSection):
    """How updates become the next cluster models."""

    section = "merge"
    slots = MappingProxyType({"name": "aggregation", "server_optimizer": "server_optimizer"})

    name: str = slot("aggregation")
    options: Options = options_table("name")
    server_optimizer: str = slot("server_optimizer", "what the server makes of the result. ")
    server_optimizer_options: Options = options_table("server_optimizer")
    weights: Literal["equal", "examples"] = Field(
        default="equal", description="clients count `equal` (the paper) or by their `examples`"
    )
    min_anonymity: Positive = Field(
        default=6,
        description="the paper's k: anonymity sets have k to 2k - 1 members; a cluster "
        "with fewer clients waits, and after `redteam.every` rounds they take their next "
        "best",
    )
    deniability_threshold: Positive = Field(
        default=3,
        description="the paper's x, at most k: a client is denied while every set that "
        "held it keeps so many members",
    )
    min_organisations: Positive = Field(
        default=1,
        description="of how many different organisations the members of each anonymity set "
        "are, at most k (`population.organisations` says whose clients are whose); sets of "
        "fewer are joined, a cluster of fewer waits. Above 1, x counts organisations other "
        "than the leaver's. Against Sybils",
    )
    partition: Literal["mdav", "kmeans", "public-random"] = Field(
        default="mdav",
        description="or balanced `kmeans`, both of the clients' models; `public-random` "
        "looks at no data",
    )
    distance: Literal["l2", "cosine"] = Field(
        default="l2",
        description="or `cosine`: the angle between models, as in the paper's "
        "experiments; it bounds no L2 distance",
    )
    max_distance: NotNegative = Field(
        default=0.0,
        description="the paper's Delta: a member farther away (L2) does not count towards "
        "x; 0: all count",
    )
    noise: Literal["none", "released", "paper", "sound"] = Field(
        default="none",
        description="what is added to a representative: `released` (as the paper's "
        "published code, the set's largest mean row distance) or `paper` (standard "
        "deviation `radius`, the paper's sigma times Delta), which make no model "
        "differentially private by themselves; or `sound`: updates projected to norm "
        "`radius`, and as much noise as `epsilon` asks for. It needs `partition = "
        '"public-random"`, `distance = "l2"`, `weights = "equal"` and `max_distance = 0`',
    )
    radius: Annotated[float, Field(gt=0)] = Field(
        default=1.0, description='for `noise = "paper"` and `noise = "sound"`'
    )
    epsilon: NotNegative = Field(
        default=0.0,
        description='what `noise = "sound"` keeps to over all rounds, for one client '
        "replaced by another; above 0 there",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description='delta of what `noise = "sound"` keeps to'
    )


class PrivacyConfig(SettingsSection):
    """Differential privacy, and sums under masks; off by default."""

    client_clip: NotNegative = Field(
        default=0.0,
        description="largest L2 norm of a client's update; longer ones are shortened. "
        "Needed, and only allowed, with `client_noise`. Of a client's sums "
        '(`method.name = "solved"`), which have 1 at most: .3 is good',
    )
    client_noise: NotNegative = Field(
        default=0.0,
        description="z: Gaussian noise on each cluster's sum of updates, in units of the "
        'clip. For `merge.name = "mean"` with equal weights. With `train.participation` '
        "below 1 it is secret who came, which takes a method with one cluster. With "
        '`method.name = "solved"` on the sums of each cluster, once',
    )
    record_clip: NotNegative = Field(
        default=0.0,
        description="C: largest L2 norm of one example's gradient; above 0, clients train "
        "by DP-SGD (`docs/privacy.md`). By itself no guarantee. With "
        '`method.name = "solved"`: R, the largest residual of a record (`docs/solved.md`)',
    )
    record_noise: NotNegative = Field(
        default=0.0,
        description="z: noise on each step's sum of clipped gradients, in units of "
        '`record_clip`, which it needs. With `method.name = "solved"` on every head that '
        "is released, by the server (`docs/solved.md`)",
    )
    selection_noise: NotNegative = Field(
        default=0.0,
        description="b: clients choose by report-noisy-min, and one choice is 2 / b "
        "differentially private. For `ifca`, and `ifca-mir` by `loss` or `weighted`; "
        "without a warm start",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description="delta of what is promised"
    )
    secure_sums: bool = Field(
        default=False,
        description="clients send what is added up under masks that cancel, so that the "
        'server sees sums over clients only: the sums of `method.name = "solved"` (with '
        '`initialisation = "random"` or one cluster), the updates of `fedavg`, `fedprox` '
        'and `ditto` (with `merge.name = "mean"`, in steps of 2^-24), and the counts of '
        '`redteam.source = "federated"` (`docs/solved.md`)',
    )
    min_cohort: Annotated[int, Field(ge=3)] = Field(
        default=5,
        description="a sum under masks is over at least so many clients; who comes with "
        "fewer waits, and who was summed together moves together",
    )


class SecretsConfig(SettingsSection):
    """Where comes from what nobody may recompute, and with what proofs are signed."""

    source: Literal["seeded", "os"] = Field(
        default="seeded",
        description="`seeded`: everything can be recomputed from the seed, hidden "
        "draws too. `os`: from 32 random bytes outside the run folder, replaced after "
        "every round; runs are not repeatable then",
    )
    key_path: str = Field(
        default="",
        description="the key that signs proofs (PEM); else the user's own, made on first use",
    )


class AuditConfig(SettingsSection):
    """What the true audit compares members with."""

    non_members: Literal["matched", "pooled", "untransformed"] = Field(
        default="matched",
        description="`pooled` and `untransformed` are demonstrations: the audit then "
        "refuses its figure",
    )


class UnlearningConfig(SettingsSection):
    """Clients that leave while a run goes on, and what is kept to let them."""

    request_probability: Share = Field(
        default=0.0,
        description="chance after each round that a random client asks to leave (0.2 in the paper)",
    )
    store_updates: Count = Field(
        default=0,
        description="keep every client's raw update each so many rounds, to calibrate "
        "it when somebody leaves (`fedavg` only); nothing can be denied while they are "
        "there",
    )


@no_type_check  # a protocol that cannot be checked at run time
def _exists(name: str, info: ValidationInfo) -> str:
    """Refuse a name that nobody knows, but where a run recorded it."""
    if info.context in (READ, RECORDED) or is_known("tracker", name):
        return name
    known = ", ".join(known_names("tracker"))
    raise ValueError(f"must be one of {known} or package.module:name")


Name = Annotated[str, AfterValidator(_exists), Field(json_schema_extra=choice_of("tracker"))]
TrackerNames = Annotated[
    tuple[Name, ...],
    Field(
        strict=False,
        description="who else is told of every round (`docs/tracking.md`), and changes "
        f"no result: a list of trackers. {described('tracker')}",
    ),
]
TrackerOptions = Annotated[
    Options,
    Field(
        description="tables of options of trackers, by their names, such as `{mlflow = "
        '{uri = "http://localhost:5000"}}`'
    ),
]


def with_names(settings: object) -> object:
    """Return settings with the names of trackers that a program passes as objects."""
    if not isinstance(settings, Mapping):
        return settings
    named = dict(cast("Mapping[str, Any]", settings))
    given = named.get("tracking")
    if given is None:
        return named
    several = given if isinstance(given, list | tuple) else [given]
    trackers = cast("Sequence[object]", several)
    tables = named.get("tracking_options", {})
    if not isinstance(tables, Mapping):
        return named  # the field itself says what is wrong
    options = dict(cast("Mapping[str, Any]", tables))
    for each in trackers:
        if isinstance(each, Component):
            options[reference(each)] = options_of(each)
    names = [e if isinstance(e, str) else reference(e) for e in trackers]
    named["tracking"] = names
    named["tracking_options"] = {
        **{k: v for k, v in options.items() if not _is_part(k, names)},
        **{name: _options(options, name) for name in names if _options(options, name)},
    }
    return named


def _options(options: Mapping[str, Any], name: str) -> Options:
    """Return the options of a name, which a dict with dots in its keys has in parts."""
    found: Any = options.get(name)
    if found is None:
        found = options
        for part in name.split("."):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
    return cast("Options", found)


def _is_part(key: str, names: Sequence[str]) -> bool:
    return any(name.startswith(f"{key}.") for name in names)


def tracker_problems(config: "Sections") -> list[str]:
    """Return why the trackers cannot be made, and which options are of none of them."""
    problems = [
        f"tracking_options has options of {name!r}, which tracking does not name. Add it "
        f"to tracking, or remove them."
        for name in config.tracking_options
        if name not in config.tracking
    ]
    for name in config.tracking:
        try:
            tracker_of(name, config.tracking_options.get(name, {}))
        except ConfigError as error:
            problems.append(str(error))
    return problems


class EngineConfig(ComponentSection):
    """What runs the clients' training."""

    section = "engine"
    slots = MappingProxyType({"name": "engine"})

    name: str = slot("engine")
    options: Options = options_table("name")
    workers: Count = Field(
        default=0,
        description="threads, with `ray` on each node; 0: one per core. Changes no result",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="or `bfloat16`: faster training on CPUs and GPUs that have it",
    )


class LedgerConfig(SettingsSection):
    """Where the record of the run is kept."""

    url: str = Field(
        default="",
        description="an SQLAlchemy URL such as `postgresql://USER@HOST/DATABASE?run=NAME`, "
        "or where one with a password stands: `env:NAME` or `file:PATH`; else SQLite in "
        "the run folder",
    )


Figure = Literal["none", "accuracy", "lowest-accuracy", "highest-risk", "over"]
"""A figure of a round by which rounds are compared: higher accuracies, lower risks."""


class StoppingConfig(SettingsSection):
    """Whether the run ends early: on figures that it records, never on training losses."""

    figure: Figure = Field(
        default="none",
        description="ends the run early once this gets no better: `accuracy`, "
        "`lowest-accuracy` of a group, `highest-risk` of a cluster, `over` (clients above "
        "what they accept)",
    )
    patience: Positive = Field(
        default=5,
        description="rounds in a row without a better figure; those in which it is unknown "
        "do not count",
    )
    min_change: NotNegative = Field(
        default=0.0, description="by how much more than this a better figure is better"
    )


class CheckpointsConfig(SettingsSection):
    """Which states are kept on disk."""

    every: Positive = Field(default=1, description="rounds between two checkpoints")
    keep: Literal["all", "thin"] = Field(
        default="all", description="or `thin`: powers of two and the last ten"
    )
    best: Figure = Field(
        default="none",
        description="keeps the state of the best round by a figure of `stopping.figure`, "
        "whatever `every` and `keep` say",
    )


class Sections(SettingsSection):
    """All settings of a run; the defaults are the embedded example on digits."""

    seed: Count = Field(default=0, description="the root of every random stream")
    rounds: Positive = Field(default=30, description="exchanges between server and clients")
    tracking: TrackerNames = ()
    tracking_options: TrackerOptions = Field(default={})
    data: DataConfig = DataConfig()
    population: PopulationConfig = PopulationConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    method: MethodConfig = MethodConfig()
    redteam: RedteamConfig = RedteamConfig()
    merge: MergeConfig = MergeConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    secrets: SecretsConfig = SecretsConfig()
    audit: AuditConfig = AuditConfig()
    stopping: StoppingConfig = StoppingConfig()
    unlearning: UnlearningConfig = UnlearningConfig()
    engine: EngineConfig = EngineConfig()
    ledger: LedgerConfig = LedgerConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()

    _named_trackers = model_validator(mode="before")(with_names)
