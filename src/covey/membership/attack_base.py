"""What an attack on single records is."""

from collections.abc import Callable

from jaxtyping import Float
from numpy import ndarray

from covey.components.component import Component
from covey.membership.signals import Signals

__all__ = ["Attack", "Scorer", "Scores"]

Scores = Float[ndarray, " records"]

Scorer = Callable[[Signals], Scores]
"""Returns a score per record; higher is more member-like. An attack is one."""


class Attack(Component):
    """Scores records by what models say of them; higher is more member-like.

    Your own is a subclass with options, or a plain function of `Signals`: name it in
    `covey audit RUN --attack package.module:name`, or pass it to `Run.audit`.
    """

    def __call__(self, signals: Signals) -> Scores:
        """Return one finite score per record."""
        raise NotImplementedError
