"""The settings, section by section; names and defaults are stable.

Every setting says what it means: `covey config schema`, the file of `covey config init`
and docs/settings.md tell it from here.
"""

from types import MappingProxyType
from typing import Literal

from pydantic import Field, model_validator

from covey.components.section import (
    Count,
    NotNegative,
    Positive,
    Section,
    SettingsSection,
)
from covey.components.slots import ComponentSection, Options, options_table, slot
from covey.config.clients import DataConfig, GroupConfig, PopulationConfig
from covey.config.learning import MethodConfig, ModelConfig, TrainConfig
from covey.config.protection import (
    AuditConfig,
    MergeConfig,
    PrivacyConfig,
    RedteamConfig,
    SecretsConfig,
    UnlearningConfig,
)
from covey.config.trackers import TrackerNames, TrackerOptions, with_names

__all__ = [
    "AuditConfig",
    "CheckpointsConfig",
    "DataConfig",
    "EngineConfig",
    "Figure",
    "GroupConfig",
    "LedgerConfig",
    "MergeConfig",
    "MethodConfig",
    "ModelConfig",
    "PopulationConfig",
    "PrivacyConfig",
    "RedteamConfig",
    "SecretsConfig",
    "Section",
    "Sections",
    "StoppingConfig",
    "TrainConfig",
    "UnlearningConfig",
]


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
    rounds: Positive = Field(
        default=30, description="exchanges between server and clients"
    )
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
