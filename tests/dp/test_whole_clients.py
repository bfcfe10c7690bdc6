"""What a bound for a whole client rests on: it moves a sum by what is accounted, and no more.

The worst client is one all of whose records are copies of one: their gradients add up in one
direction, and its counts of losses are in one bin.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import covey
from covey.aggregation.mean import numbers_of_update
from covey.base.events import (
    Event,
    RepresentativesPerturbed,
    SharesPerturbed,
    SumPerturbed,
    UpdatesPerturbed,
)
from covey.base.history import of_kinds
from covey.base.names import Handle
from covey.base.rng import Streams
from covey.dp.exposure import individual_bounds
from covey.membership.estimators import COUNTS_NORM, count_of_counts, numbers_of_counts, own_counts
from covey.secure_sums.noise import discrete_gaussian
from covey.settings.clients import Overrides
from covey.settings.run import BuiltRun, build_run

CLIP, NOISE, CANARY = 0.5, 2.0, "client-3"


def network() -> nn.Module:
    return nn.Linear(4, 2)


def clients_with(copies: int, loud: float) -> Mapping[str, tuple[Tensor, Tensor]]:
    """Three clients, and one that has so many copies of one record."""
    draw = torch.Generator().manual_seed(0)
    records = {
        f"client-{i}": (torch.randn(12, 4, generator=draw), torch.arange(12) % 2) for i in range(3)
    }
    copied = (loud * torch.ones(1, 4)).repeat(copies, 1), torch.ones(copies).long()
    return {**records, CANARY: copied}


def built(
    clients: Mapping[str, tuple[Tensor, Tensor]],
    aggregation: Mapping[str, Any] = MappingProxyType({"name": "mean"}),
    **privacy: Any,
) -> BuiltRun:
    masked = privacy.get("noise_model") == "distributed"
    settings = {
        "rounds": 1,
        "train": {"learning_rate": 10.0, "local_epochs": 3, "batch_size": 4},
        "method": {"name": "fedavg"},
        "aggregation": dict(aggregation),
        "risk": {"name": "none"},
        "population": {"holdout": 0.0, "thresholds": [0.6, 0.6]},
        "privacy": {"secure_sums": masked, "min_cohort": 3, **privacy},
    }
    return build_run(covey.Config.of(settings), Overrides(model=network, clients=clients))


def moved(run: BuiltRun) -> tuple[Mapping[Handle, float], tuple[Event, ...]]:
    """How far each client moves the sum of a round, without the noise, and the round's events."""
    streams = Streams(0, secret=1).at("round", 0)
    clients = run.clients(run.population.clients, 0)
    state = run.algorithm.init(run.streams)
    played = run.algorithm.round(state, clients, streams)
    everybody = {client.handle: 0 for client in clients.cohort}
    updates = tuple(clients.train(state.clusters, everybody, streams, state))
    bounded, *_ = clients.steps.post_processors  # what follows is a client's own noise
    arriving = tuple(map(bounded, updates))
    shares, lengths = run.config.privacy_plan.update_shares(10.0), dict[Handle, float]()
    for each in arriving:
        if shares is None:
            flat = torch.cat([value.reshape(-1).double() for value in each.update.values()])
            lengths[each.handle] = each.weight * float(flat.norm())
            continue
        assert each.streams is not None
        steps = numbers_of_update(each, len(arriving), shares)[1:]
        bare = steps - discrete_gaussian(len(steps), each.streams.draws())
        lengths[each.handle] = float(np.linalg.norm(shares.values(bare)))
    return lengths, played.events


@pytest.mark.parametrize("copies", [1, 7, 60])
@pytest.mark.parametrize("loud", [1.0, 1e4])
@pytest.mark.parametrize(
    ("noise_model", "exposure"),
    [
        ("central", 1.0),
        ("central", "accepted"),
        ("distributed", 1.0),
        ("distributed", "accepted"),
        ("local", 1.0),  # exposures are of noise on sums
    ],
)
def test_a_client_of_copies_moves_a_sum_by_what_is_accounted(copies, loud, noise_model, exposure):
    terms = {"client_clip": CLIP, "client_noise": NOISE, "noise_model": noise_model}
    run = built(clients_with(copies, loud), **terms, exposure=exposure)
    lengths, events = moved(run)
    if noise_model == "local":
        (fact,) = of_kinds(events, UpdatesPerturbed)
        accounted = dict.fromkeys(lengths, fact.clip)
    else:
        (fact,) = of_kinds(events, SumPerturbed, SharesPerturbed)
        assert fact.unit == "client"
        bounds = individual_bounds(events, "client")
        accounted = {handle: bound.mu * NOISE * CLIP for handle, bound in bounds.items()}
    assert lengths.keys() == accounted.keys()
    for handle, length in lengths.items():
        assert length <= accounted[handle] * (1 + 1e-6)
    handles = {client.name: client.handle for client in run.population.clients}
    assert lengths[handles[CANARY]] > 0.99 * accounted[handles[CANARY]]  # and it is reached


@pytest.mark.parametrize("copies", [1, 7, 60])
def test_counts_of_a_client_of_copies_move_a_sum_by_what_is_accounted(copies):
    terms = {"client_clip": CLIP, "client_noise": NOISE, "noise_model": "distributed"}
    run = built(clients_with(copies, 1.0), **terms)
    client = next(each for each in run.population.clients if each.name == CANARY)
    client = replace(client, holdout=replace(client.train, inputs=client.train.inputs + 1))
    model, streams = run.algorithm.init(run.streams).clusters[0], Streams(0, secret=1)
    shares = run.config.privacy_plan.shares(COUNTS_NORM)
    assert shares is not None
    sides = own_counts(run.engine, model, client, streams)
    steps = numbers_of_counts(sides, shares, streams.draws)[1:]
    bare = steps - discrete_gaussian(len(steps), streams.draws())
    length = float(np.linalg.norm(shares.values(bare)))
    z = shares.effective_multiplier(count_of_counts(shares) - 1)
    assert length <= NOISE * COUNTS_NORM / z
    assert copies > 1 or length > 0.99 * COUNTS_NORM  # of more copies each is in some fold


@pytest.mark.parametrize("copies", [1, 7, 60])
def test_a_representative_of_copies_moves_a_model_by_what_is_accounted(copies):
    """One client is replaced by another; the same draws, so that noise and speakers are too."""
    sets = {
        "name": "anonymity-sets", "min_anonymity": 2, "deniability_threshold": 1,
        "partition": "public-random", "noise": "sound", "radius": CLIP, "epsilon": 4.0,
    }  # fmt: skip
    models, facts = list[Tensor](), list[RepresentativesPerturbed]()
    for sign in (1.0, -1.0):
        run = built(clients_with(copies, sign * 1e4), sets)
        reached = list[Tensor]()
        for secret in range(12):
            streams = Streams(0, secret=secret).at("round", 0)
            clients = run.clients(run.population.clients, 0)
            state = run.algorithm.init(run.streams)
            played = run.algorithm.round(state, clients, streams)
            facts += of_kinds(played.events, RepresentativesPerturbed)
            model = played.state.clusters[0]
            reached.append(torch.cat([value.reshape(-1) for value in model.values()]).double())
        models.append(torch.stack(reached))
    largest = float((models[0] - models[1]).norm(dim=1).max())
    share = max(facts[0].sizes) / sum(facts[0].sizes)
    std = share * 2 * facts[0].noise_multiplier * CLIP
    assert 0.4 * share * 2 * CLIP < largest <= share * 2 * CLIP + std / 8  # of the public grid
