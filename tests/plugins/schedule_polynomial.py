"""A schedule of a user's own: a rate that falls along a power of what is left."""

from covey import Schedule


class Polynomial(Schedule):
    """factor(t) = (1 - t / T)^power, of T rounds."""

    power: float = 1.0

    def factor(self, round_index: int, rounds: int) -> float:
        return (1 - round_index / rounds) ** self.power
