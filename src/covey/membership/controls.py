"""Controls: what an attack must find, and what it must not, before it is believed."""

from dataclasses import replace

import numpy as np
import torch

from covey.data.examples import Examples
from covey.engine.protocol import Engine, Recipe, ScoringJob, TrainingJob
from covey.membership.attacks import auc, cross_fitted, scores_of
from covey.membership.estimates import RiskEstimate, estimate_of
from covey.rng import Streams
from covey.types import Params

__all__ = ["negative_control", "positive_control"]


def positive_control(
    engine: Engine, start: Params, recipe: Recipe, examples: Examples, streams: Streams
) -> RiskEstimate:
    """Attack a model that learnt random labels of half of the examples by heart.

    Nothing but memory helps with random labels, so the risk must be well above 0.5 if
    the recipe trains for long enough to fit them; an attack that misses it is broken.
    """
    generator = streams.at("labels").generator()
    labels = torch.from_numpy(generator.permutation(examples.labels.numpy()))
    members, others = _halves(replace(examples, labels=labels), generator)
    job = TrainingJob(start, members, streams.at("training"), recipe)
    (trained,) = engine.train([job])
    return _attacked(engine, trained, (members, others), streams)


def negative_control(
    engine: Engine, params: Params, unseen: Examples, streams: Streams
) -> RiskEstimate:
    """Attack as if half of these examples were members, when none is.

    The risk must be 0.5 within 3 SE; anything above is the attack's own optimism.
    """
    halves = _halves(unseen, streams.at("halves").generator())
    return _attacked(engine, params, halves, streams)


def _halves(
    examples: Examples, generator: np.random.Generator
) -> tuple[Examples, Examples]:
    order = torch.from_numpy(generator.permutation(len(examples)))
    middle = len(order) // 2
    return examples.take(order[:middle]), examples.take(order[middle:])


def _attacked(
    engine: Engine,
    params: Params,
    sides: tuple[Examples, Examples],
    streams: Streams,
) -> RiskEstimate:
    inside, outside = (
        scores_of(each.losses.double().numpy())
        for each in engine.score([ScoringJob(params, side) for side in sides])
    )
    rates = cross_fitted(inside, outside, streams.at("folds").generator())
    return estimate_of(rates, auc(inside, outside))
