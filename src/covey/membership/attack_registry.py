"""The attacks by name, each a function of `Signals`; a user's own is one, too."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jaxtyping import Float
from numpy import ndarray

from covey.membership.entropy import entropy_score, modified_entropy_score
from covey.membership.lira import lira_offline, lira_online
from covey.membership.rmia import (
    likelihood_ratio_offline,
    likelihood_ratio_online,
    rmia,
)
from covey.membership.shokri import shokri
from covey.membership.signals import Signals, logit, of_label

__all__ = ["ATTACKS", "Attack"]

Scores = Float[ndarray, " records"]

Attack = Callable[[Signals], Scores]
"""Returns a score per record; higher is more member-like."""


def _loss(seen: Signals) -> Scores:
    return of_label(seen.target, seen.labels)


def _entropy(seen: Signals) -> Scores:
    return modified_entropy_score(seen.target, seen.labels)


def _plain_entropy(seen: Signals) -> Scores:
    return entropy_score(seen.target)


def _lira(seen: Signals) -> Scores:
    return lira_online(*_logits(seen), seen.inside)


def _lira_offline(seen: Signals) -> Scores:
    return lira_offline(*_logits(seen), seen.inside)


def _rmia(seen: Signals) -> Scores:
    ratios = likelihood_ratio_online(*_confidences(seen), seen.inside)
    return rmia(ratios, population=ratios)


def _rmia_offline(seen: Signals) -> Scores:
    ratios = likelihood_ratio_offline(*_confidences(seen), seen.inside)
    return rmia(ratios, population=ratios)


def _logits(seen: Signals) -> tuple[ndarray, ndarray]:
    return logit(seen.target, seen.labels), logit(seen.references, seen.labels)


def _confidences(seen: Signals) -> tuple[ndarray, ndarray]:
    return of_label(seen.target, seen.labels), of_label(seen.references, seen.labels)


ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "loss": _loss,
        "shokri": shokri,
        "lira": _lira,
        "rmia": _rmia,
        "entropy": _entropy,
        "plain-entropy": _plain_entropy,
        "lira-offline": _lira_offline,
        "rmia-offline": _rmia_offline,
    }
)
"""For RMIA the audited records stand in for the population: each is compared with all."""
