"""A user's own attack with an option: how far the right class is ahead of the next."""

import numpy as np

import covey


class Margin(covey.Attack):
    """log p_y minus the `rank`-th highest log-probability of another class."""

    rank: int = 1

    def __call__(self, signals: covey.Signals) -> np.ndarray:
        rows = np.arange(len(signals.labels))
        others = signals.target.copy()
        others[rows, signals.labels] = -np.inf
        return signals.target[rows, signals.labels] - np.sort(others)[:, -self.rank]
