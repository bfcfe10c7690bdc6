"""A run's noise put to the test: does one release hide a canary as well as is accounted?

The run's own code is played in a model of a few parameters, thousands of times with a
canary far outside every bound and as often without it. If an observer of the releases
distinguishes them better than the accounted epsilon allows, the code adds too little noise,
or clips too little.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from covey.aggregation.base import Aggregator, ClientUpdate
from covey.aggregation.mean import masked_mean
from covey.algorithms.releases import theta_alone
from covey.algorithms.sums import masked_sums
from covey.base.errors import RunError
from covey.base.events import (
    ClientsAssigned,
    Event,
    ModelsMerged,
    SharesPerturbed,
    StepsPerturbed,
    SumPerturbed,
)
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.dp.accountant import RefutedEpsilon, least_epsilon, least_success
from covey.dp.run_guarantees import guarantees
from covey.engine.descent import private_gradients
from covey.engine.protocol import TrainingJob
from covey.engine.recipe import Recipe
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_state import SumNoise
from covey.models.ridge_sums import FEATURE_STEPS, MAX_NORM, Rows, Sums, sums_of, target_norm
from covey.settings.aggregation import (
    after_transforms,
    anonymity_of,
    head_noise_of,
    shares_of,
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

Draws = Float[ndarray, " draws"]


@dataclass(frozen=True, slots=True)
class CanaryAudit:
    """One release of a run's mechanism, as it is accounted for and as it was caught.

    Attributes:
        mechanism: whose epsilon: of anonymity sets ("sound"), a client's or a record's.
        accounted: epsilon of one release.
        refuted: every smaller epsilon is refuted, with 99.9% confidence.
        holds: whether that contradicts nothing.
    """

    mechanism: Literal["sound", "client", "record"]
    delta: float
    accounted: float
    refuted: RefutedEpsilon
    holds: bool


def audit_noise(run: BuiltRun, draws: int) -> CanaryAudit:
    """Play one release of a run's mechanism again and again, with and without a canary.

    Everybody takes part: the coins of `train.participation` are not put to the test.

    Args:
        run: any run that adds noise; nothing of it is read but its settings.
        draws: of each of the two cases; 10,000 find noise that is half as much.

    Raises:
        RunError: the run adds no noise that is accounted for.
    """
    config, streams = run.config, run.streams.at("canaries")
    if config.secrets.source == "os":  # any secret is drawn from as the run's own is
        streams = replace(streams, secret=0)
    if (of_heads := head_noise_of(config, CLASSES)) is not None:
        alone = replace(of_heads, clip=target_norm(CLASSES))
        cases = head_draws(alone, partial(released_head, alone), draws, streams)
        return audited_head(alone, cases, config.privacy.delta)
    privacy, clients = config.privacy, len(run.population.clients)
    if (noise := sum_noise_of(config)) is not None:
        return _audited("client", *release_draws(noise, draws, streams), privacy.delta)
    if privacy.client_noise > 0:
        settings = config.model_dump()
        settings["train"] |= {"participation": 1.0, "cohort_size": 0}  # everybody takes part
        everybody, least = Config.of(settings), privacy.min_cohort
        merge = transformed_aggregator_of(everybody, clients)
        there = 1 if privacy.clients_add_noise else 2  # who hides alone is seen alone
        if shares := shares_of(everybody, privacy.client_clip):
            merge, there = after_transforms(everybody, masked_mean(least, shares)), least
        loud = CANARY_SCALE * privacy.client_clip
        played = aggregation_draws(merge, (loud, 0.0), there, draws, streams)
        return _audited("client", *played, privacy.delta)
    terms = anonymity_of(config)
    if terms and terms.accounted:
        merge = transformed_aggregator_of(config, clients)
        loud = CANARY_SCALE * terms.radius
        played = aggregation_draws(merge, (loud, -loud), terms.min_anonymity, draws, streams)
        return _audited("sound", *played, terms.delta)
    if privacy.record_noise > 0:
        return _audited("record", *gradient_draws(config, draws, streams), privacy.delta)
    raise RunError(
        "covey audit --epsilon puts noise to the test that is accounted for, and this run "
        "adds none (privacy.client_noise, privacy.record_noise, aggregation.noise = 'sound'). "
        "Audit a run that does."
    )


def aggregation_draws(
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
        updates = [
            ClientUpdate(str(i), 0, model, 1.0, streams=draw_streams.at("own noise", str(i)))
            for i in range(clients)
        ]
        loud = torch.zeros(COORDINATES)
        loud[0] = first
        updates[0] = replace(updates[0], update={"weight": loud})
        merged = aggregate((model,), updates, draw_streams)
        facts = (*merged.events, ModelsMerged("", (clients,)))
        return float(merged.clusters[0]["weight"][0])

    return _cases(moved, canary, draws, streams), facts


def release_draws(
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

    def released(sums: Sums, draw_streams: Streams) -> Sums:
        if not noise.honest:
            return noise.released(sums, draw_streams.draws())
        others = {str(i): lambda: absent for i in range(1, max(3, noise.honest))}
        return masked_sums(
            {"0": lambda: sums, **others},
            (COORDINATES, CLASSES),
            minimum=3,
            noise=noise,
            draws=lambda handle: draw_streams.at("own noise", handle).draws(),
        )

    def found(present: float, draw_streams: Streams) -> float:
        own = released(there if present else absent, draw_streams).matrices()
        return float((own[0] * gram).sum() + scale * (own[1] * targets).sum())

    z = noise.multiplier
    fact: Event = SumPerturbed(0, noise.clip, z, 1.0)
    if noise.honest:
        z = noise.shares.effective_multiplier(len(there.gram) + there.targets.numel())
        fact = SharesPerturbed("sums", 0, noise.clip, z, noise.honest)
    facts = (fact, ModelsMerged("", (1,)))
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


def audited_head(noise: HeadNoise, cases: tuple[Draws, Draws], delta: float) -> CanaryAudit:
    """Hold the draws to the bound on success, and to the epsilon of the same curve."""
    accounted = noise.epsilon(delta, 1.0)
    shown = least_success(*cases)
    refuted = noise.epsilon(delta, noise.least_weight(shown))
    refutation = RefutedEpsilon(refuted, None, len(cases[0]))
    return CanaryAudit("record", delta, accounted, refutation, refutation.epsilon <= accounted)


def gradient_draws(
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


def _audited(
    mechanism: Literal["sound", "client", "record"],
    cases: tuple[Draws, Draws],
    facts: tuple[Event, ...],
    delta: float,
) -> CanaryAudit:
    """Hold the draws to the account of the same facts."""
    (guarantee, *_) = guarantees(facts, delta, secret=True)
    refutation = least_epsilon(*cases, delta, is_gaussian=mechanism != "sound")
    accounted = guarantee.epsilon if guarantee.epsilon is not None else math.inf
    return CanaryAudit(mechanism, delta, accounted, refutation, refutation.epsilon <= accounted)
