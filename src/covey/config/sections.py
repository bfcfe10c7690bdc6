"""The settings, section by section; names and defaults are stable.

Every setting says what it means: `covey config schema`, the file of `covey config init`
and docs/settings.md tell it from here.
"""

from types import MappingProxyType
from typing import Literal

from pydantic import Field

from covey.components.section import Count, Positive, Section, SettingsSection
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

__all__ = [
    "AuditConfig",
    "CheckpointsConfig",
    "DataConfig",
    "EngineConfig",
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
        default=0, description="threads; 0: one per core. Changes no result"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="or `bfloat16`: faster training on CPUs that have it",
    )


class LedgerConfig(SettingsSection):
    """Where the record of the run is kept."""

    url: str = Field(
        default="",
        description="an SQLAlchemy URL such as `postgresql://USER@HOST/DATABASE?run=NAME`, "
        "or where one with a password stands: `env:NAME` or `file:PATH`; else SQLite in "
        "the run folder",
    )


class CheckpointsConfig(SettingsSection):
    """Which states are kept on disk."""

    every: Positive = Field(default=1, description="rounds between two checkpoints")
    keep: Literal["all", "thin"] = Field(
        default="all", description="or `thin`: powers of two and the last ten"
    )


class Sections(SettingsSection):
    """All settings of a run; the defaults are the embedded example on digits."""

    seed: Count = Field(default=0, description="the root of every random stream")
    rounds: Positive = Field(
        default=30, description="exchanges between server and clients"
    )
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
    unlearning: UnlearningConfig = UnlearningConfig()
    engine: EngineConfig = EngineConfig()
    ledger: LedgerConfig = LedgerConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
