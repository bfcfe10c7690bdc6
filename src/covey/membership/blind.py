"""The blind baseline: can members be told from non-members without any model?

If they can, the two sides do not match, and an attack's success would show the mismatch
and not what a model remembers.

References:
    Das, Zhang, Tramèr, Blind Baselines Beat Membership Inference Attacks, 2024.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from covey.membership.attacks import Rates, auc, rates_at

__all__ = ["blind_baseline"]


def blind_baseline(
    members: Float[ndarray, "members features"],
    non_members: Float[ndarray, "others features"],
    generator: np.random.Generator,
) -> tuple[Rates, float]:
    """Return how well a classifier of records tells the sides apart: its rates and AUC.

    Trained on one random half of each side and judged on the other: over cross-validation
    folds the errors would depend on each other, and the standard error would be too small.
    """
    from sklearn.ensemble import RandomForestClassifier

    halves = [_halves(side, generator) for side in (members, non_members)]
    learn, judge = zip(*halves, strict=True)
    forest = RandomForestClassifier(
        n_estimators=100,
        min_samples_leaf=2,
        class_weight="balanced",
        n_jobs=torch.get_num_threads(),  # each tree has a seed of its own
        random_state=int(generator.integers(2**31)),
    )
    forest.fit(np.concatenate(learn), np.repeat([1, 0], [len(side) for side in learn]))
    forest.n_jobs = 1  # several threads would add up the trees in any order
    inside, outside = (np.asarray(forest.predict_proba(side))[:, 1] for side in judge)
    return rates_at(0.5, inside, outside), auc(inside, outside)


def _halves(
    side: Float[ndarray, "records features"], generator: np.random.Generator
) -> tuple[ndarray, ndarray]:
    shuffled = generator.permutation(side)
    middle = len(side) // 2
    return shuffled[:middle], shuffled[middle:]
