"""Reference federations, which learnt one half of the records, and what they show.

The auditor's view in a simulation. Each reference replays the run's own recipe on the members
themselves and on matched non-members, a random half of both, so that every record has models that
learnt it and models that did not. A server has neither side, and could not do this. From the
references follow how exposed every record is, and how well its client can be identified; of whose
records they are, only counts are returned.

References:
    Hu, Salcic, Sun, Dobbie, Zhang, Source Inference Attacks in Federated Learning, 2021.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.base.names import Params
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.engine.recipe import Recipe
from covey.membership.attacks import Signals, check_references, logit
from covey.membership.truth import Candidates

PlayRound = Callable[[int, Params, tuple[Examples, ...], Streams], Params]
"""Plays the round of this index from a model, over these data sets."""


SHARE = 0.01

PAIR = 2
"""References come in pairs that learnt opposite halves of the records."""


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
    inside = np.zeros((len(candidates.stratum), references), dtype=bool)
    for index in range(0, references, 2):
        for place, stratum in enumerate(candidates.strata):
            own = np.flatnonzero(candidates.stratum == place)
            order = streams.at("half", index, place).generator().permutation(len(own))
            inside[own[order[: stratum.pairs]], index] = True
    inside[:, 1::2] = ~inside[:, : references - 1 : 2]
    return inside


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
        for r in range(retrain_recipe.rounds):
            params = retrain_recipe.play_round(r, params, sets, at.at("round", r))
        yield params


@dataclass(frozen=True, slots=True)
class Attribution:
    """How often the guessed source is the true one.

    Attributes:
        standard_error: of `accuracy`, which is moved half a record inwards for it.
        prior_accuracy: of always guessing the source that holds most of the records.
    """

    accuracy: float
    standard_error: float
    prior_accuracy: float
    records: int


def source_of(losses: Float[ndarray, "sources records"]) -> Int[ndarray, " records"]:
    """Return argmin_j loss(theta_j, x): whose model fits the record best."""
    return losses.argmin(axis=0)


def attribution(guessed: Int[ndarray, " records"], truth: Int[ndarray, " records"]) -> Attribution:
    """Compare guesses with the truth; SE^2 = accuracy (1 - accuracy) / n."""
    n = len(truth)
    accuracy = float(np.mean(guessed == truth))
    inner = np.clip(accuracy, 0.5 / n, 1 - 0.5 / n)
    return Attribution(
        accuracy=accuracy,
        standard_error=float(np.sqrt(inner * (1 - inner) / n)),
        prior_accuracy=float(np.bincount(truth).max() / n),
        records=n,
    )


def top_share(scores: Float[ndarray, " records"], share: float) -> Bool[ndarray, " records"]:
    """Return the records with the highest scores: this share of them, one at the least.

    Records without a score (NaN) are the last; of equal ones the first are taken.
    """
    count = max(1, round(share * len(scores)))
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[order[:count]] = True
    return chosen


@dataclass(frozen=True, slots=True)
class ExposedCounts:
    """Where the most exposed 1% of a cluster's members are; no record is named.

    Half of the references say which these are, and the others how exposed they are: the
    highest of many figures by few references are the highest by chance as well.

    Attributes:
        records: how many these are.
        exposure: their mean chance that an attack with a record's reference models
            says rightly whether it was learnt.
        everybody: the same of all members.
        held: how many of them each client holds that holds any, the largest first: no
            client is named, either.
    """

    records: int
    exposure: float
    everybody: float
    held: tuple[int, ...]


def record_exposures(signals: Signals, spread: float | None = None) -> Float[ndarray, " records"]:
    """Return Phi((mu_in - mu_out) / 2 sigma) of each record's logit-scaled confidences.

    The chance that LiRA is right on one model, a coin having decided whether it learnt the
    record; one variance for all records, as few references know none of their own.
    Below .5 it would be right by saying the opposite of what it says.

    Args:
        signals: of the references.
        spread: sigma; None: as these references have it, at least two pairs.
    """
    from scipy.special import ndtr

    check_references(signals.inside)
    inside, outside, sigma = _means(signals)
    return ndtr((inside - outside) / (2 * (sigma if spread is None else spread)))


def _means(signals: Signals) -> tuple[ndarray, ndarray, float]:
    """Return each record's mean confidence over those that learnt it or not, and sigma."""
    phi = logit(signals.references, signals.labels)
    inside, outside = (phi.mean(axis=1, where=side) for side in (signals.inside, ~signals.inside))
    left = phi - np.where(signals.inside, inside[:, None], outside[:, None])
    # each side's mean takes one degree of freedom, and few references have few of them
    freedom = max(1, phi.size - 2 * len(phi))
    return inside, outside, max(float(np.sqrt((left**2).sum() / freedom)), 1e-6)


def exposed_counts(
    signals: Signals, member: Bool[ndarray, " records"], owner: Int[ndarray, " records"]
) -> ExposedCounts | None:
    """Return who holds the most exposed 1% of the members, in counts.

    One half of the references ranks the members, the other half says how exposed those on top
    are: judged by the half that ranked them, they would be exposed by chance alone.

    None with fewer references than two pairs, each of which learnt opposite halves.

    Args:
        signals: of members and non-members.
        member: which records are members.
        owner: a number of each record's client.
    """
    models = signals.inside.shape[1]
    if models < 2 * PAIR:
        return None
    pair, (_, _, sigma) = np.arange(models) // PAIR, _means(signals)

    def exposures(half: int) -> Float[ndarray, " members"]:
        chosen = pair % 2 == half
        references, inside = signals.references[:, chosen], signals.inside[:, chosen]
        own = replace(signals, references=references, inside=inside)
        return record_exposures(own, sigma)[member]

    ranked, judged = exposures(0), exposures(1)
    top = top_share(ranked, SHARE)
    held = Counter(owner[member][top].tolist())
    return ExposedCounts(
        records=int(top.sum()),
        exposure=float(judged[top].mean()),
        everybody=float(judged.mean()),
        held=tuple(sorted(held.values(), reverse=True)),
    )
