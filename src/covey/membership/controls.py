"""Controls: what must hold before an attack's success is believed.

An attack must find what was learnt by heart, and nothing where there is nothing. The two
sides must be alike: if a classifier separates members from non-members without any model, or
non-members copy members, success shows the sides and not what a model remembers.

References:
    Das, Zhang, Tramèr, Blind Baselines Beat Membership Inference Attacks, 2024.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Params
from covey.base.rng import Streams
from covey.data.examples import Examples, hashes
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.attacks import cross_fitted, risk_at, scores_of

NO_BLIND = "too few records on a side for a classifier of their inputs"

MOST = 0.01
"""Share of the non-members that may be copies: a risk is then off by 0.005 at most."""


def negative_control(
    engine: Engine, params: Params, unseen: Examples, streams: Streams
) -> RiskEstimate:
    """Attack as if half of these examples were members, when none is.

    The risk must be 0.5 within 3 SE; anything above is the attack's own optimism.
    """
    halves = random_halves(unseen, streams.at("halves").generator())
    return attacked(engine, params, halves, streams)


def random_halves(examples: Examples, generator: np.random.Generator) -> tuple[Examples, Examples]:
    """Return the examples in two random halves."""
    order = torch.from_numpy(generator.permutation(len(examples)))
    middle = len(order) // 2
    return examples.take(order[:middle]), examples.take(order[middle:])


def attacked(
    engine: Engine, params: Params, sides: tuple[Examples, Examples], streams: Streams
) -> RiskEstimate:
    """Attack a model by its loss, of members and of others."""
    inside, outside = (
        scores_of(scored.losses.double().numpy())
        for scored in engine.score([ScoringJob(params, side) for side in sides])
    )
    return cross_fitted(inside, outside, streams.at("folds").generator())


def blind_baseline(
    members: Float[ndarray, "members features"],
    non_members: Float[ndarray, "others features"],
    generator: np.random.Generator,
) -> RiskEstimate:
    """Return how well a classifier of records separates the sides.

    Trained on one random half of each side and judged on the other: over cross-validation
    folds the errors would depend on each other, and the standard error would be too small.
    """
    from sklearn.ensemble import RandomForestClassifier

    halves = [_blind_halves(side, generator) for side in (members, non_members)]
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
    return risk_at(0.5, inside, outside)


def blind_figure(auc: float | None, reason: str = "") -> Figure:
    """Return the AUC of a classifier that never sees the model, or why it is unknown.

    It stands beside the figures of every audit: a shift between the sides that is too small to
    refuse them moves them all the same.
    """
    return Figure(auc, reason="" if auc is not None else reason or NO_BLIND)


def _blind_halves(
    side: Float[ndarray, "records features"], generator: np.random.Generator
) -> tuple[ndarray, ndarray]:
    shuffled = generator.permutation(side)
    middle = len(side) // 2
    return shuffled[:middle], shuffled[middle:]


def copied(members: Iterable[Examples], others: Iterable[Examples]) -> str:
    """Say that the others have inputs of the members; "" if hardly any has.

    Labels do not count: a member under another label is no non-member.
    """
    inside = {hash_value for examples in members for hash_value in hashes(examples.inputs)}
    is_member = [
        hash_value in inside for examples in others for hash_value in hashes(examples.inputs)
    ]
    if sum(is_member) <= MOST * len(is_member):
        return ""
    return (
        f"non-members must not be what clients train on, found {sum(is_member)} of "
        f"{len(is_member)} with the inputs of a member. Hold out other examples, and remove "
        f"duplicates before anything is held out"
    )
