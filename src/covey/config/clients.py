"""The settings of the data, and of the clients that hold them."""

from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from covey.components.section import (
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

__all__ = ["DataConfig", "GroupConfig", "PopulationConfig"]


Stated = Annotated[
    tuple[Annotated[tuple[str, Share, Share], Field(strict=False)], ...],
    Field(strict=False),
]


class DataConfig(ComponentSection):
    """Which examples there are."""

    section = "data"
    slots = MappingProxyType({"name": "data"})

    name: str = slot("data")
    options: Options = options_table("name")
    dir: str = Field(
        default="",
        description="folder with the files; else `$COVEY_DATA`, else the user cache",
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
        default=0.5,
        description="`linear-mixture`: standard deviation of y around `<x, theta*>`",
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

    clients: Positive = Field(
        default=40, description="how many clients share the data set"
    )
    examples_per_client: Positive = Field(
        default=30, description="the holdout included"
    )
    shift: str = slot("shift", "how groups differ. ")
    shift_options: Options = options_table("shift")
    shift_per: Literal["image", "client"] = Field(
        default="image", description="one draw per `image` or per `client`"
    )
    minority_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.15, description="share of the clients in the minority"
    )
    minority: Range = Field(
        default=(0.0, 25.0),
        description="range of the shift in the minority, [low, high]",
    )
    majority: Range = Field(
        default=(25.0, 50.0),
        description="range of the shift in the majority, [low, high]",
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
        description="for `dirichlet`: small: few classes per client; large: all clients "
        "alike",
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
        default=400,
        description="non-members kept for the true audit, shifted like each group",
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
        default=(),
        description="names of clients that never take part; nobody else changes",
    )
