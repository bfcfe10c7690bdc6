"""Reference federations: what a cluster's model would be, with half of the records.

The auditor's view in a simulation. Each reference replays the run's own recipe on the
members themselves and on matched non-members, a random half of both, so that every
record has models that learnt it and models that did not. A server, which holds neither
side, could not do this.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from numpy import ndarray

from covey.data.examples import Examples
from covey.engine.protocol import Recipe
from covey.membership.audit_set import Candidates, Stratum
from covey.rng import Streams
from covey.types import Params

__all__ = ["PlayRound", "RetrainRecipe", "halves", "reference_sets", "train_references"]

PlayRound = Callable[[int, Params, tuple[Examples, ...], Streams], Params]
"""Plays the round of this index from a model, over these data sets."""


@dataclass(frozen=True, slots=True, eq=False)
class RetrainRecipe:
    """How to play a run's own recipe again, on other records.

    Attributes:
        init: a fresh model.
        play_round: by the run's own steps.
        recipe: what one client does in a round.
        rounds: how many rounds the run played.
    """

    init: Callable[[Streams], Params]
    play_round: PlayRound
    recipe: Recipe
    rounds: int


def halves(
    candidates: Candidates, references: int, streams: Streams
) -> Bool[ndarray, "records models"]:
    """Return which candidates each reference trains on: exactly half of every group's.

    References come in pairs that take opposite halves, so that no candidate is left
    without a model that learnt it, nor without one that did not.
    """
    columns: list[ndarray] = []
    for index in range(0, references, 2):
        parts = [
            _half(stratum, streams.at("half", index, place))
            for place, stratum in enumerate(candidates.strata)
        ]
        half = np.concatenate(parts)
        columns += [half, ~half]
    return np.stack(columns[:references], axis=1)


def reference_sets(
    candidates: Candidates, inside: Bool[ndarray, " records"], streams: Streams
) -> tuple[Examples, ...]:
    """Deal one reference's records to pseudo-clients with the sizes of the cluster's."""
    sets: list[Examples] = []
    for place, stratum in enumerate(candidates.strata):
        own = np.flatnonzero(inside[candidates.stratum == place])
        taken = stratum.candidates.take(torch.from_numpy(own))
        records = Examples.joined([taken, stratum.background])
        order = streams.at("dealt", place).generator().permutation(len(records))
        blocks = torch.from_numpy(order).split(list(stratum.sizes))
        sets += [records.take(block) for block in blocks]
    return tuple(sets)


def train_references(
    retrain_recipe: RetrainRecipe,
    candidates: Candidates,
    inside: Bool[ndarray, "records models"],
    streams: Streams,
) -> Iterator[Params]:
    """Play each reference from a fresh model, on the candidates inside it."""
    for index, column in enumerate(inside.T):
        at = streams.at("reference", index)
        sets = reference_sets(candidates, column, at)
        params = retrain_recipe.init(at.at("initial model"))
        for round_index in range(retrain_recipe.rounds):
            now = at.at("round", round_index)
            params = retrain_recipe.play_round(round_index, params, sets, now)
        yield params


def _half(stratum: Stratum, streams: Streams) -> Bool[ndarray, " candidates"]:
    half = np.zeros(len(stratum.candidates), dtype=bool)
    half[streams.generator().permutation(len(half))[: stratum.pairs]] = True
    return half
