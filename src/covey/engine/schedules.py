"""Schedules: the learning rate over the rounds."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field

from covey.components.component import Component
from covey.components.section import NotNegative, Positive, Share
from covey.errors import ConfigError

__all__ = [
    "Constant",
    "Cosine",
    "OwnSchedule",
    "Schedule",
    "Stepwise",
    "WarmUp",
]


class Schedule(Component):
    """What the learning rate is multiplied by in a round.

    A subclass says it with one method; its fields are its options::

        class Halving(covey.Schedule):
            every: int = 10

            def factor(self, round_index, rounds):
                return 0.5 ** (round_index // self.every)
    """

    kind: ClassVar[str] = "schedule"

    def factor(self, round_index: int, rounds: int) -> float:
        """Return the factor of a round, counted from 0, in a run of so many rounds."""
        raise ConfigError(
            f"The schedule {type(self).__name__} must have a method factor(round_index, "
            f"rounds) that returns a number, also for round {round_index} of {rounds}. "
            f"Add it."
        )


class Constant(Schedule):
    """The same rate in every round."""

    def factor(self, round_index: int, rounds: int) -> float:  # noqa: ARG002 - none matters
        """Return 1."""
        return 1.0


class Stepwise(Schedule):
    """A rate that falls at once, and stays.

    factor(t) = gamma ^ floor(t / every)
    """

    every: Positive = 10
    gamma: NotNegative = 0.1

    def factor(self, round_index: int, rounds: int) -> float:  # noqa: ARG002
        """Return gamma, once for every so many rounds that are over."""
        return self.gamma ** (round_index // self.every)


class Cosine(Schedule):
    """A rate that falls along half a period of the cosine.

    factor(t) = final + (1 - final) (1 + cos(pi t / T)) / 2, of T rounds

    References:
        Loshchilov, Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.
    """

    final: Share = 0.0

    def factor(self, round_index: int, rounds: int) -> float:
        """Return 1 at first, and nearly `final` in the last round."""
        wave = (1 + math.cos(math.pi * round_index / rounds)) / 2
        return self.final + (1 - self.final) * wave


class WarmUp(Schedule):
    """A rate that rises along a line, and stays.

    factor(t) = min(1, first + (1 - first) t / over)

    References:
        Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
    """

    over: Positive = 5
    first: Annotated[float, Field(gt=0, le=1)] = 0.1

    def factor(self, round_index: int, rounds: int) -> float:  # noqa: ARG002
        """Return `first` in round 0, and 1 from round `over` on."""
        return min(1.0, self.first + (1 - self.first) * round_index / self.over)


class OwnSchedule(Schedule):
    """A user's function of round and rounds."""

    function: Callable[..., float]

    def factor(self, round_index: int, rounds: int) -> float:
        """Return what the function says."""
        return self.function(round_index, rounds)
