"""The plainest attack: whatever has a low loss is a member."""

from typing import ClassVar

from covey.membership.attack_base import Attack, Needs, Scores
from covey.membership.signals import Signals, of_label

__all__ = ["LossAttack"]


class LossAttack(Attack):
    """Minus the loss under the attacked model."""

    needs: ClassVar[Needs] = "none"

    def __call__(self, signals: Signals) -> Scores:
        """Return log p_y."""
        return of_label(signals.target, signals.labels)
