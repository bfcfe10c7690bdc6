"""The settings, section by section; names and defaults are stable."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
Range = tuple[float, float]
Dotted = Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]


class Section(BaseModel):
    """Frozen, and knows no other names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataConfig(Section):
    """Which examples there are."""

    name: (
        Literal[
            "digits",
            "mnist",
            "fashion-mnist",
            "cifar10",
            "emnist",
            "femnist",
            "celeba",
            "npz",
            "python",
            "linear-mixture",
        ]
        | Dotted
    ) = "digits"
    dir: str = ""
    dimension: Positive = 10
    noise: NotNegative = 0.5
    separation: Annotated[float, Field(gt=0)] = 2.0
    condition: Annotated[float, Field(ge=1)] = 1.0


class GroupConfig(Section):
    """One group of clients that share a data distribution."""

    share: Annotated[float, Field(gt=0, le=1)]
    shift: Range
    examples_per_client: Positive


class PopulationConfig(Section):
    """Who holds which examples, and what each client accepts."""

    clients: Positive = 40
    examples_per_client: Positive = 30
    shift: Literal["rotation", "brightness", "none"] = "rotation"
    shift_per: Literal["image", "client"] = "image"
    minority_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    minority: Range = (0.0, 25.0)
    majority: Range = (25.0, 50.0)
    groups: tuple[GroupConfig, ...] = ()
    partition: Literal["iid", "dirichlet", "by-writer"] = "iid"
    dirichlet_alpha: Annotated[float, Field(gt=0)] = 0.5
    images: Literal["disjoint", "per-group"] = "disjoint"
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    audit_examples: Count = 400
    thresholds: tuple[Share, Share] = (0.5, 0.8)
    preferences: str = ""
    exclude: tuple[str, ...] = ()


class ModelConfig(Section):
    """What is trained."""

    name: (
        Literal[
            "mnist-cnn",
            "femnist-cnn",
            "vgg",
            "convnet",
            "lenet5",
            "resnet-mini",
            "mlp",
            "linear",
            "linear-map",
        ]
        | Literal["python"]
        | Dotted
    ) = "mnist-cnn"
    task: Literal["multiclass", "multilabel", "regression"] = "multiclass"


class TrainConfig(Section):
    """What a client does in a round."""

    local_epochs: Positive = 1
    local_steps: Count = 0
    batch_size: Positive = 25
    optimizer: Literal["sgd"] = "sgd"
    learning_rate: Annotated[float, Field(gt=0)] = 0.05
    schedule: Literal["constant"] = "constant"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0


class MethodConfig(Section):
    """How clients come to share models."""

    name: Literal["fedavg", "ifca", "ifca-mir", "isolated", "local"] = "ifca-mir"
    num_clusters: Positive = 2
    initialisation: Literal["random", "warm", "groups"] = "warm"
    selection: (
        Literal["loss", "weighted", "threshold", "priced", "rebalanced", "menu"]
        | Dotted
    ) = "weighted"
    select_on: Literal["train", "holdout"] = "train"
    select_examples: Count = 0
    risk_scale: Literal["accuracy", "advantage"] = "accuracy"
    risk_weight: Literal["from-threshold"] | Share = "from-threshold"
    pooling: Literal["risk"] | Share = 0.0
    pooling_order: Literal["head-first", "uniform"] = "head-first"
    hysteresis: Count = 0
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_share: Share = 0.0


class RedteamConfig(Section):
    """Where the risk that clients see comes from."""

    source: Literal["federated", "shadow", "client", "oracle", "none"] = "federated"
    every: Positive = 5
    shadows: Positive = 3
    pool: Count = 0
    profile: Literal["reported", "inferred"] = "reported"


class MergeConfig(Section):
    """How updates become the next cluster models."""

    name: Literal["mean", "anonymity-sets"] | Dotted = "mean"
    weights: Literal["equal", "examples"] = "equal"
    min_anonymity: Positive = 6
    deniability_threshold: Positive = 3
    partition: Literal["mdav", "kmeans", "public-random"] = "mdav"
    distance: Literal["l2", "cosine"] = "l2"
    max_distance: NotNegative = 0.0
    noise: Literal["none", "released", "paper", "sound"] = "none"
    sigma: NotNegative = 1.0
    radius: Annotated[float, Field(gt=0)] = 1.0
    epsilon: NotNegative = 0.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class PrivacyConfig(Section):
    """Differential privacy of clients, records and choices; off by default."""

    client_clip: NotNegative = 0.0
    client_noise: NotNegative = 0.0
    adaptive_clip: bool = False
    record_clip: NotNegative = 0.0
    record_noise: NotNegative = 0.0
    selection_noise: NotNegative = 0.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class SecretsConfig(Section):
    """Where comes from what nobody may recompute, and with what proofs are signed."""

    source: Literal["seeded", "os"] = "seeded"
    key_path: str = ""


class AuditConfig(Section):
    """What the true audit compares members with."""

    non_members: Literal["matched", "pooled", "untransformed"] = "matched"


class UnlearningConfig(Section):
    """Clients that leave while a run goes on, and what is kept to let them."""

    request_probability: Share = 0.0
    store_updates: Count = 0


class EngineConfig(Section):
    """What runs the clients' training."""

    name: Literal["auto", "reference", "parallel", "vmap", "flower"] = "auto"
    workers: Count = 0
    precision: Literal["float32", "bfloat16"] = "float32"


class LedgerConfig(Section):
    """Where the record of the run is kept."""

    url: str = ""


class CheckpointsConfig(Section):
    """Which states are kept on disk."""

    every: Positive = 1
    keep: Literal["all", "thin"] = "all"


class Sections(Section):
    """All settings of a run; the defaults are the embedded example on digits."""

    seed: Count = 0
    rounds: Positive = 30
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
