"""The settings of data and clients, of the model, of training, and of who shares a model."""

import re
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from covey.components.registry import (
    Count,
    NotNegative,
    Positive,
    Range,
    SettingsSection,
    Share,
    Shares,
    Texts,
)
from covey.components.slots import ComponentSection, Options, options_table, slot

Stated = Annotated[
    tuple[Annotated[tuple[str, Share, Share], Field(strict=False)], ...], Field(strict=False)
]


class DataConfig(ComponentSection):
    """Which examples there are."""

    section = "data"
    slots = MappingProxyType({"name": "data"})

    name: str = slot("data")
    options: Options = options_table("name")
    dir: str = Field(
        default="", description="folder with the files; else `$COVEY_DATA`, else the user cache"
    )
    label: str = Field(
        default="",
        description="the column of labels, where clients bring tables, dicts or data "
        "sets with columns; else the one that is called `label`, `labels`, `target` or "
        "`y`",
    )
    normalise: Literal["none", "image"] = Field(
        default="none",
        description="`image`: every example is normalised by itself, on its owner's "
        "side: its numbers, after the shift, less their mean and over their standard "
        "deviation, as float32; brightness and contrast are gone. Refused for ids",
    )
    dimension: Positive = Field(
        default=10, description="`linear-mixture`: d, of the inputs x ~ N(0, I)"
    )
    noise: NotNegative = Field(
        default=0.5, description="`linear-mixture`: standard deviation of y around `<x, theta*>`"
    )
    separation: Annotated[float, Field(gt=0)] = Field(
        default=2.0,
        description="`linear-mixture`: norm of every group's theta*, which are orthogonal "
        "for up to d groups",
    )
    condition: Annotated[float, Field(ge=1)] = Field(
        default=1.0,
        description="`linear-mixture`: largest over smallest variance of x along an axis; "
        "above 1, x is N(0, diag) with variances from 1 down",
    )


class GroupConfig(SettingsSection):
    """One group of clients that share a data distribution."""

    share: Annotated[float, Field(gt=0, le=1)] = Field(
        description="share of the clients; those of all groups add up to 1"
    )
    shift: Range = Field(description="[low, high], the range of the group's shift")
    examples_per_client: Positive = Field(description="the holdout included")


class PopulationConfig(ComponentSection):
    """Who holds which examples, and what each client accepts."""

    section = "population"
    slots = MappingProxyType({"shift": "shift", "partition": "partition"})

    clients: Positive = Field(default=40, description="how many clients share the data set")
    examples_per_client: Positive = Field(default=30, description="the holdout included")
    shift: str = slot("shift", "how groups differ. ")
    shift_options: Options = options_table("shift")
    shift_per: Literal["image", "client"] = Field(
        default="image", description="one draw per `image` or per `client`"
    )
    minority_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.15, description="share of the clients in the minority"
    )
    minority: Range = Field(
        default=(0.0, 25.0), description="range of the shift in the minority, [low, high]"
    )
    majority: Range = Field(
        default=(25.0, 50.0), description="range of the shift in the majority, [low, high]"
    )
    groups: Annotated[tuple[GroupConfig, ...], Field(strict=False)] = Field(
        default=(),
        description="instead of minority and majority: a list of `{share, shift, "
        "examples_per_client}`",
    )
    partition: str = slot(
        "partition",
        "how images are dealt inside a group. What is kept aside is a random part of all "
        "images with each; with all but the first, what is left for test images or the "
        "pool is halved, so that there is something to choose from. ",
    )
    partition_options: Options = options_table("partition")
    dirichlet_alpha: Annotated[float, Field(gt=0)] = Field(
        default=0.5,
        description="for `dirichlet`: small: few classes per client; large: all clients alike",
    )
    images: Literal["disjoint", "per-group"] = Field(
        default="disjoint",
        description="`disjoint`: no image belongs to two clients. `per-group`: all "
        "images that are not kept aside are dealt to every group anew, as in Ghosh et "
        "al. 2020, so that clients of different groups may hold one image in two "
        "transforms; no two clients of a group do. What is kept aside (the true "
        "audit's non-members, test images, pool) is nobody's in both. With a `shift` "
        "other than `none`",
    )
    holdout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.2, description="share of a client's examples that it never trains on"
    )
    audit_examples: Count = Field(
        default=400, description="non-members kept for the true audit, shifted like each group"
    )
    thresholds: Shares = Field(
        default=(0.5, 0.8), description="range of the risk thresholds, drawn per client"
    )
    preferences: str = Field(
        default="",
        description="a CSV or TOML file with `name`, `risk_threshold`, `risk_weight`; the "
        "last may be missing",
    )
    organisations: str = Field(
        default="",
        description="a CSV file with `name`, `organisation`, or a TOML file of `name = "
        '"organisation"`: whose client each one is, as whoever runs the federation attests '
        "it; on Flower for a key that is registered under this name",
    )
    preferences_by_handle: Stated = Field(
        default=(),
        description="written by `covey.run(thresholds=..., risk_weights=...)`: `[handle, "
        "risk_threshold, risk_weight]` of every client that they name, before the file "
        'and the draws. Handles follow from the seed; refused with `secrets.source = "os"`',
    )
    exclude: Texts = Field(
        default=(), description="names of clients that never take part; nobody else changes"
    )


OF_TORCH = re.compile(r"^[A-Z]\w*$")


class ModelConfig(ComponentSection):
    """What is trained."""

    section = "model"
    slots = MappingProxyType({"name": "model"})

    name: str = slot("model")
    options: Options = options_table("name")
    task: Literal["multiclass", "multilabel", "regression"] = Field(
        default="multiclass",
        description="`multilabel`: several labels of 0 or 1 per example, the loss is "
        "their mean binary cross-entropy, accuracy the share of labels that are right; "
        "the attacks of `covey audit` are withheld. `regression`: labels are numbers, the "
        "loss is half the squared error, and there is no accuracy; also no `shadow`, "
        '`pooling = "risk"` or `selection_noise`. Neither with `engine.name = "flower"`. '
        "Your own model returns a logit per label, or one output",
    )


class TrainConfig(ComponentSection):
    """What a client does in a round."""

    section = "train"
    slots = MappingProxyType(
        {each: each for each in ("optimizer", "schedule", "loss", "objective")}
    )

    local_epochs: Positive = Field(
        default=1, description="passes over a client's examples per round"
    )
    local_steps: Count = Field(
        default=0, description="if positive, gradient steps instead of epochs"
    )
    batch_size: Positive = Field(default=25, description="examples per gradient step")
    drop_last: bool = Field(
        default=False,
        description="every epoch leaves out its last batch where that is short and not the "
        "only one: BatchNorm cannot train on a batch of one example. Nothing changes with "
        "DP-SGD, which draws its batches",
    )
    optimizer: str = slot(
        "optimizer",
        "begins anew in every round; a class of `torch.optim` goes by its name there, "
        "such as `RMSprop`. ",
        also=OF_TORCH.pattern,
    )
    optimizer_options: Options = options_table("optimizer")
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        default=0.05, description="step of the clients' gradient descent"
    )
    schedule: str = slot("schedule", "the learning rate over the rounds. ")
    schedule_options: Options = options_table("schedule")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="weight of the past in a client's gradient steps"
    )
    loss: str = slot("loss", "what clients minimise; scores are the task's. ")
    loss_options: Options = options_table("loss")
    objective: str = slot("objective", "what they minimise beside it. ")
    objective_options: Options = options_table("objective")
    max_gradient_norm: NotNegative = Field(
        default=0.0,
        description="if positive, the largest L2 norm of a step's gradient; a larger one "
        "is scaled down",
    )
    participation: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="chance of each client in each round"
    )
    keep_losses: bool = Field(
        default=False,
        description="every client keeps, on its own side, the loss of each of its records "
        "in every round, as training computes it anyway; which are the most exposed, "
        "`covey records` tells from it (`docs/record_risk.md`). No model changes by it. "
        'Not with DP-SGD, `method.name = "solved"` or the `vmap` engine',
    )

    @model_validator(mode="before")
    @classmethod
    def _placed(cls, settings: object) -> object:
        """Take a component that stands for the section by what kind it is."""
        kind = getattr(settings, "kind", None)
        return {kind: settings} if kind in cls.slots else settings

    @field_validator("optimizer", mode="before")
    @classmethod
    def _of_torch(cls, name: object) -> object:
        """Find a class of torch's where torch has it."""
        if isinstance(name, str) and OF_TORCH.match(name):
            return f"torch.optim:{name}"
        return name


class MethodConfig(ComponentSection):
    """How clients come to share models."""

    section = "method"
    slots = MappingProxyType({"name": "algorithm", "selection": "selection"})

    name: str = slot("algorithm")
    options: Options = options_table("name")
    num_clusters: Positive = Field(
        default=2, description="how many models clients choose among, or are divided over"
    )
    initialisation: Literal["random", "warm", "groups"] = Field(
        default="warm", description="`random` (the papers), `warm`, `groups` (an oracle, marked so)"
    )
    selection: str = slot("selection", "how a client takes its cluster. ")
    selection_options: Options = options_table("selection")
    select_on: Literal["train", "holdout"] = Field(
        default="train", description="compare the models on `train` or `holdout` examples"
    )
    select_examples: Count = Field(default=0, description="on so many of them; 0: all")
    risk_weight: Literal["from-threshold"] | Share = Field(
        default="from-threshold",
        description="beta = clip((0.8 - tau) / 0.3, 0, 1), or one number for everybody",
    )
    pooling: Literal["risk"] | Share = Field(
        default=0.0,
        description="share of the model that clusters have in common after every round, "
        "the last layers first: 0 is IFCA, 1 is FedAvg; `risk`: per cluster, a third (the "
        "head) and more while its clients refuse its measured risk; nothing for a cluster "
        "that holds over 9 in 10 examples. Above 0 it is refused with `client_noise` and "
        '`noise = "sound"`: they do not hide how many examples a client holds, which '
        "weighs it",
    )
    max_newcomers: Share = Field(
        default=0.0,
        description="newcomers per founder: of the clients that began in another cluster, "
        "or came later, so many train a cluster in a round for each of its own that is "
        "there, at least one, drawn anew every round; the others sit out, honest ones that "
        "move late too. 0: no bound. Against clients that choose a small cluster to be its "
        "majority (`benchmarks/results/poisoning.md`)",
    )
    target_share: Share = Field(
        default=0.0,
        description="share of the clients that every cluster keeps, at most 1 / "
        "`num_clusters`: by a subsidy (`priced`), or at random (`rebalanced`, after "
        'choices by `threshold`; with `redteam.source = "none"` these are by `loss`, and '
        "it is the paper's RR-Cluster, see `docs/privacy.md`)",
    )
