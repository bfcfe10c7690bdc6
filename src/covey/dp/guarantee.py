"""A guarantee: an epsilon that never travels without what it is about."""

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["UNITS", "Guarantee", "Unit"]

Unit = Literal["client", "record"]
"""Whose presence is hidden: all of a client's examples, or one of them."""
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How much the releases of a run tell about one client, or about one record.

    Whatever an adversary does with them, no event becomes more than exp(epsilon) times as
    likely by that client or record, plus delta.

    Attributes:
        epsilon: None where nothing is guaranteed; `reason` says why.
        delta: the slack that is added to every probability.
        unit: what is hidden: a client or a record.
        relation: how two neighbouring sets of data differ.
        adversary: who sees what.
        covers: releases that are paid for in epsilon.
        does_not_cover: releases and adversaries that are not.
        holds_if: what must be true, and what nothing here enforces.
        accountant: what added up the cost.
        noise_multiplier: the smallest z of all releases.
    """

    epsilon: float | None
    reason: str
    delta: float
    unit: Unit
    relation: str
    adversary: str
    covers: tuple[str, ...]
    does_not_cover: tuple[str, ...]
    holds_if: tuple[str, ...]
    accountant: str | None
    noise_multiplier: float | None
