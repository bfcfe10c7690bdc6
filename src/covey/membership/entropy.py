"""Membership from the shape of one model's answer, without any reference.

References:
    Song, Mittal, Systematic Evaluation of Privacy Risks of Machine Learning Models, 2021.
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from covey.membership.attack_base import Attack, Needs, Scores
from covey.membership.signals import Signals, log_complement, of_label

__all__ = [
    "EntropyAttack",
    "PlainEntropyAttack",
    "entropy_score",
    "modified_entropy_score",
]


class EntropyAttack(Attack):
    """Whatever the model answers surely and rightly is a member."""

    needs: ClassVar[Needs] = "none"

    def __call__(self, signals: Signals) -> Scores:
        """Return minus the modified entropy."""
        return modified_entropy_score(signals.target, signals.labels)


class PlainEntropyAttack(Attack):
    """Whatever the model answers surely is a member."""

    needs: ClassVar[Needs] = "none"

    def __call__(self, signals: Signals) -> Scores:
        """Return minus the entropy."""
        return entropy_score(signals.target)


def entropy_score(
    log_probs: Float[ndarray, "records classes"],
) -> Float[ndarray, " records"]:
    """Return minus the entropy, sum_c p_c log p_c, in [-log C, 0]: blind to the label."""
    return (np.exp(log_probs) * log_probs).sum(axis=1)


def modified_entropy_score(
    log_probs: Float[ndarray, "records classes"], labels: Int[ndarray, " records"]
) -> Float[ndarray, " records"]:
    """Return minus the modified entropy, at most 0 (Eq. 8).

    (1 - p_y) log p_y + sum_{c != y} p_c log(1 - p_c)

    Being sure of a wrong class is as far from a member as can be; the plain entropy
    takes it for one.
    """
    others = log_complement(log_probs)
    wrong = np.exp(log_probs) * others
    right = np.exp(of_label(others, labels)) * of_label(log_probs, labels)
    return right + wrong.sum(axis=1) - of_label(wrong, labels)
