"""What an attack on single records is."""

from collections.abc import Callable
from typing import ClassVar, Literal

from jaxtyping import Float
from numpy import ndarray

from covey.components.component import Component
from covey.membership.signals import Signals

__all__ = ["Attack", "Needs", "Scorer", "Scores"]

Needs = Literal["none", "outside", "both"]
"""Of which references an attack learns: none, models without a record, with and without."""

Scores = Float[ndarray, " records"]

Scorer = Callable[[Signals], Scores]
"""Returns a score per record; higher is more member-like. An attack is one."""


class Attack(Component):
    """Scores records by what models say of them; higher is more member-like.

    Your own is a subclass with options, or a plain function of `Signals`: name it in
    `covey audit RUN --attack package.module:name`, or pass it to `Run.audit`.

    Attributes:
        needs: the references without which it has nothing to say.
    """

    needs: ClassVar[Needs] = "both"

    def __call__(self, signals: Signals) -> Scores:
        """Return one finite score per record."""
        raise NotImplementedError
