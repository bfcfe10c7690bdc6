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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtri
from torch import nn

from covey.aggregation.base import AggregationResult, ClientUpdate
from covey.aggregation.server import Models
from covey.algorithms.round import RoundSteps
from covey.base.events import ClientsAssigned, Event, ModelsMerged, StepsPerturbed
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.dp.accountant import gaussian_epsilon
from covey.dp.run_guarantees import guarantees
from covey.engine.example_gradients import private_gradients
from covey.engine.protocol import TrainingJob
from covey.engine.recipe import Recipe
from covey.membership.intervals import clopper_pearson
from covey.settings.aggregation import aggregation_of, anonymity_of, post_processors_of
from covey.settings.load import Config
from covey.settings.run import BuiltRun
from support.aggregating import aggregated

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
    if privacy.record_noise > 0:
        return _verdict(*_gradient_draws(config, draws, streams), privacy.delta)
    begin = aggregation_of(config, len(run.population.clients), 1.0)
    aggregate = partial(_aggregated, RoundSteps(begin, post_processors_of(run.config.privacy_plan)))
    if terms is None:  # who hides alone is seen alone
        loud = CANARY_SCALE * privacy.client_clip
        played = _aggregation_draws(aggregate, (loud, 0.0), 2, draws, streams)
        return _verdict(*played, privacy.delta)
    loud = CANARY_SCALE * terms.radius
    played = _aggregation_draws(aggregate, (loud, -loud), terms.min_anonymity, draws, streams)
    return _verdict(*played, terms.delta, is_gaussian=False)


Aggregate = Callable[[Models, Iterable[ClientUpdate], Streams], AggregationResult]


def _aggregated(
    steps: RoundSteps, models: Models, updates: Iterable[ClientUpdate], streams: Streams
) -> AggregationResult:
    for process in steps.post_processors:
        updates = map(process, updates)
    return aggregated(steps.aggregation, models, updates, streams)


def _aggregation_draws(
    aggregate: Aggregate, canary: tuple[float, float], clients: int, draws: int, streams: Streams
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
