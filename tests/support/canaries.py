"""Canaries: does one release hide somebody's data as well as is accounted?

A release by covey's own code is played in a model of a few parameters, many times with a
canary far outside every bound and as often without it. If an observer of the releases
distinguishes them better than the accounted epsilon allows, the code adds too little noise,
or clips too little.

References:
    Jagielski, Ullman, Oprea, Auditing Differentially Private Machine Learning, 2020.
    Nasr et al., Tight Auditing of Differentially Private Machine Learning, 2023.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import root_scalar
from scipy.special import ndtri
from torch import Tensor, nn

from covey.aggregation.base import Aggregator, ClientUpdate
from covey.algorithms.releases import theta_alone
from covey.base.events import ClientsAssigned, Event, ModelsMerged, StepsPerturbed, SumPerturbed
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.dp.accountant import gaussian_epsilon
from covey.dp.run_guarantees import guarantees
from covey.engine.descent import private_gradients
from covey.engine.protocol import TrainingJob
from covey.engine.recipe import Recipe
from covey.membership.intervals import clopper_pearson
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_state import SumNoise
from covey.models.ridge_sums import FEATURE_STEPS, MAX_NORM, Rows, Sums, sums_of, target_norm
from covey.settings.aggregation import (
    anonymity_of,
    head_noise_of,
    sum_noise_of,
    transformed_aggregator_of,
)
from covey.settings.load import Config
from covey.settings.run import BuiltRun

COORDINATES = 10
CLASSES = 2
RECORDS = 50
CANARY_SCALE = 1e3
"""Times the bound: a canary that is not clipped gives itself away at once."""

CONFIDENCE = 0.999
"""Of a refutation: it accuses, and tests that often run would else accuse by chance."""
THRESHOLDS = 60
"""Guessing rules that are tried on the first half of the draws."""

Draws = Float[ndarray, " draws"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The epsilon of one release, as it is accounted for, and up to which all are refuted."""

    accounted: float
    refuted: float

    @property
    def holds(self) -> bool:
        """Whether that contradicts nothing."""
        return self.refuted <= self.accounted


def least_epsilon(with_canary: Draws, without: Draws, delta: float, *, is_gaussian: bool) -> float:
    """Return the largest epsilon that these draws refute, with 99.9% confidence.

    eps >= ln((TPR - delta) / FPR), for any mechanism;
    mu >= Phi^-1(TPR) - Phi^-1(FPR), for one that is Gaussian.

    TPR is taken at the lower and FPR at the upper end of its exact interval. The rule to
    guess by is chosen on the first half of the draws and judged on the second.

    Args:
        with_canary: what was released, as one number per draw that is larger with it.
        without: the same without it.
        delta: of the guarantee that is to be refuted.
        is_gaussian: whether one Gaussian release was drawn, and nothing was sampled.
    """

    def bound(tpr: float, fpr: float) -> float:
        if is_gaussian:
            return float(ndtri(tpr) - ndtri(fpr))
        return math.log((tpr - delta) / fpr) if tpr > delta else -math.inf

    least = max(0.0, _least(with_canary, without, bound))
    return gaussian_epsilon(least, delta) if is_gaussian else least


def least_success(with_canary: Draws, without: Draws) -> float:
    """Return what balanced accuracy these draws show at least, with 99.9% confidence."""
    return max(0.5, _least(with_canary, without, lambda tpr, fpr: (1 + tpr - fpr) / 2))


def _least(with_canary: Draws, without: Draws, bound: Callable[[float, float], float]) -> float:
    """Return a bound on the second half of the draws, by the best rule of the first."""
    half = len(with_canary) // 2
    pooled = np.concatenate([with_canary[:half], without[:half]])
    tried = np.quantile(pooled, np.linspace(0.002, 0.998, THRESHOLDS))

    def judged(part: slice, threshold: float) -> float:
        right, wrong = with_canary[part] > threshold, without[part] > threshold
        # the least TPR and the largest FPR that the guesses allow
        tpr, _ = clopper_pearson(int(right.sum()), len(right), CONFIDENCE)
        _, fpr = clopper_pearson(int(wrong.sum()), len(wrong), CONFIDENCE)
        return bound(tpr, fpr)

    best = max(tried, key=lambda threshold: judged(slice(half), threshold))
    return judged(slice(half, None), float(best))


def verdict_on(run: BuiltRun, draws: int) -> Verdict:
    """Play one release of a run's mechanism again and again, with and without a canary.

    Everybody takes part, and the server adds the noise.

    Args:
        run: any run that adds noise; nothing of it is read but its settings.
        draws: of each of the two cases; 10,000 find noise that is half as much.
    """
    config, streams = run.config, run.streams.at("canaries")
    if config.secrets.source == "os":  # any secret is drawn from as the run's own is
        streams = replace(streams, secret=0)
    privacy, terms = config.privacy, anonymity_of(config)
    if (of_heads := head_noise_of(config, CLASSES)) is not None:
        alone = replace(of_heads, clip=target_norm(CLASSES))
        cases = head_draws(alone, partial(released_head, alone), draws, streams)
        return verdict_on_head(alone, cases, privacy.delta)
    if (noise := sum_noise_of(config)) is not None:
        return _verdict(*_release_draws(noise, draws, streams), privacy.delta)
    if privacy.record_noise > 0:
        return _verdict(*_gradient_draws(config, draws, streams), privacy.delta)
    aggregate = transformed_aggregator_of(config, len(run.population.clients))
    if terms is None:  # who hides alone is seen alone
        loud = CANARY_SCALE * privacy.client_clip
        played = _aggregation_draws(aggregate, (loud, 0.0), 2, draws, streams)
        return _verdict(*played, privacy.delta)
    loud = CANARY_SCALE * terms.radius
    played = _aggregation_draws(aggregate, (loud, -loud), terms.min_anonymity, draws, streams)
    return _verdict(*played, terms.delta, is_gaussian=False)


def _aggregation_draws(
    aggregate: Aggregator, canary: tuple[float, float], clients: int, draws: int, streams: Streams
) -> tuple[tuple[Draws, Draws], tuple[Event, ...]]:
    """Return how far merges moved along the canary's axis, in both cases.

    Args:
        aggregate: of a run.
        canary: the first coordinate of one client's update in the one case and the other.
        clients: in all; the others' updates are 0.
        draws: of each case.
        streams: every draw has its own.

    Returns:
        The draws, and what one aggregation records.
    """
    model = {"weight": torch.zeros(COORDINATES)}
    facts: tuple[Event, ...] = ()

    def moved(first: float, draw_streams: Streams) -> float:
        nonlocal facts
        loud = torch.zeros(COORDINATES)
        loud[0] = first
        others = [ClientUpdate(str(i), 0, model, 1.0) for i in range(1, clients)]
        updates = [ClientUpdate("0", 0, {"weight": loud}, 1.0), *others]
        merged = aggregate((model,), updates, draw_streams)
        facts = (*merged.events, ModelsMerged("", (clients,)))
        return float(merged.clusters[0]["weight"][0])

    return _cases(moved, canary, draws, streams), facts


def _release_draws(
    noise: SumNoise, draws: int, streams: Streams
) -> tuple[tuple[Draws, Draws], tuple[Event, ...]]:
    """Return how much of a canary's own sums is in noisy ones, with it and without.

    All its records are one, far outside every bound. A is symmetric, so the noise shows
    least along the sums themselves, each counted in what is drawn for it.
    """
    rows = noise.bounded(_loud(RECORDS), CLASSES)
    there = sums_of([rows], COORDINATES, CLASSES)
    absent = Sums.nothing(COORDINATES, CLASSES)
    gram, targets = there.matrices()
    scale = MAX_NORM**2 / target_norm(CLASSES) ** 2

    def found(present: float, draw_streams: Streams) -> float:
        own = noise.released(there if present else absent, draw_streams.draws()).matrices()
        return float((own[0] * gram).sum() + scale * (own[1] * targets).sum())

    facts = (SumPerturbed(0, noise.clip, noise.multiplier, 1.0), ModelsMerged("", (1,)))
    return _cases(found, (1.0, 0.0), draws, streams), facts


def _loud(records: int) -> Rows:
    """Return as many of one record, far outside every bound."""
    loud = torch.zeros(records, COORDINATES, dtype=torch.int16)
    loud[:, 0], loud[:, -1] = torch.iinfo(torch.int16).max, FEATURE_STEPS
    return Rows(loud, torch.zeros(records, dtype=torch.int64))


def released_head(noise: HeadNoise, rows: Sequence[Rows], streams: Streams) -> Tensor:
    """Return a head over these records, as a run releases it."""
    inside = [noise.bounded(each, CLASSES) for each in rows]
    sums = sums_of(inside, COORDINATES, CLASSES)
    return theta_alone(sums, noise, streams, sums.digest())


def head_draws(
    noise: HeadNoise,
    release: Callable[[Sequence[Rows], Streams], Tensor],
    draws: int,
    streams: Streams,
) -> tuple[Draws, Draws]:
    """Return what the likelihood ratio says of heads with a canary alone, and without.

        y = lambda theta,    log p/q = -|a^T y - c|^2 + ...

    a is the direction of the canary's features, c as in `covey.models.ridge_noise`.
    """
    canary = _loud(1)
    phi = noise.bounded(canary, CLASSES).features[0].double()
    target = torch.tensor([0.5, -0.5], dtype=torch.float64)
    sigma, scale = noise.clip * noise.multiplier, noise.regularisation
    s = scale / (scale + 1)
    centre = s * target / (1 - s**2)

    def ratio(present: float, draw_streams: Streams) -> float:
        theta = release([canary] if present else [], draw_streams)
        along = scale * MAX_NORM * (phi / phi.norm()) @ theta
        return -float((along - centre).square().sum()) / sigma**2

    return _cases(ratio, (1.0, 0.0), draws, streams)


def verdict_on_head(noise: HeadNoise, cases: tuple[Draws, Draws], delta: float) -> Verdict:
    """Hold the draws to the bound on success, and to the epsilon of the same curve."""
    refuted = noise.epsilon(delta, _least_weight(noise, least_success(*cases)))
    return Verdict(noise.epsilon(delta, 1.0), refuted)


def _least_weight(noise: HeadNoise, success: float) -> float:
    """Return the weight at which somebody may be right so often, and no smaller."""
    if success <= 0.5:
        return 0.0
    most = 1.0
    while noise.success(most) < success:
        most *= 2
    return float(root_scalar(lambda w: noise.success(w) - success, bracket=(0.0, most)).root)


def _gradient_draws(
    config: Config, draws: int, streams: Streams
) -> tuple[tuple[Draws, Draws], tuple[Event, ...]]:
    """Return how far one noisy gradient pointed along the canary's, in both cases."""
    privacy = config.privacy
    recipe = Recipe(
        local_steps=1,
        batch_size=1,
        record_clip=privacy.record_clip,
        record_noise=privacy.record_noise,
    )
    module = nn.Linear(COORDINATES // 2, 2, bias=False)
    nn.init.zeros_(module.weight)

    def pointed(size: float, draw_streams: Streams) -> float:
        inputs = torch.zeros(1, COORDINATES // 2)
        inputs[0, 0] = size
        examples = Examples(inputs, torch.zeros(1, dtype=torch.int64))
        job = TrainingJob(dict(module.state_dict()), examples, draw_streams, recipe)
        (gradient,) = next(private_gradients(module, job))
        return float(gradient[1, 0] - gradient[0, 0]) / math.sqrt(2)

    facts = (
        ClientsAssigned({"": 0}, "shared"),
        StepsPerturbed(privacy.record_noise, {"": 1}, {"": 1.0}),
        ModelsMerged("", (1,)),
    )
    return _cases(pointed, (CANARY_SCALE, 0.0), draws, streams), facts


def _cases(
    play: Callable[[float, Streams], float],
    canary: tuple[float, float],
    draws: int,
    streams: Streams,
) -> tuple[Draws, Draws]:
    present, absent = (
        np.array([play(size, streams.at(case, i)) for i in range(draws)])
        for case, size in zip(("there", "absent"), canary, strict=True)
    )
    return present, absent


def _verdict(
    cases: tuple[Draws, Draws], facts: tuple[Event, ...], delta: float, *, is_gaussian: bool = True
) -> Verdict:
    """Hold the draws to the account of the same facts."""
    (guarantee, *_) = guarantees(facts, delta, secret=True)
    assert guarantee.epsilon is not None
    return Verdict(guarantee.epsilon, least_epsilon(*cases, delta, is_gaussian=is_gaussian))
