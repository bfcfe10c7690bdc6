"""Noise of clients' own and individual exposure: from what is accepted to what is accounted."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import covey
from covey import Config
from covey.aggregation.mean import numbers_of_update
from covey.aggregation.privacy import Masks, PrivacyPlan
from covey.base.events import (
    BudgetSpent,
    ChoicesPerturbed,
    ClientsAssigned,
    ClusterWaited,
    Event,
    ExposuresLimited,
    ModelsMerged,
    RepresentativesPerturbed,
    RiskMeasured,
    RunEndedEarly,
    SharesPerturbed,
    SumPerturbed,
    UpdatesPerturbed,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.guarantee import NoGuarantee, Term
from covey.base.history import of_kinds
from covey.base.names import Handle
from covey.base.rng import Streams
from covey.data.examples import Client, Examples, Preference
from covey.dp.accountant import epsilon_bound, gaussian, gaussian_epsilon, shares
from covey.dp.budget import fits, released, rounds_within, weight_within
from covey.dp.exposure import exposure_within, individual_bounds, success_of
from covey.dp.run_guarantees import NoisePlan, forecast, guarantees, multiplier
from covey.membership.estimators import COUNTS_NORM, count_of_counts, numbers_of_counts, own_counts
from covey.secure_sums.noise import NoiseShares, discrete_gaussian
from covey.settings.clients import Overrides
from covey.settings.privacy import exposures_of
from covey.settings.run import BuiltRun, build_run

DELTA = 1e-5
SHARED = ClientsAssigned({"a": 0, "b": 0}, "shared")
MERGED = ModelsMerged("", (2,))
SUM = SharesPerturbed("updates", 0, 1.0, 2.0, 4)
RISK = RiskMeasured(0, RiskEstimate(Figure(0.6, error=0.1)))


def guarantees_of(facts: list[Event]):
    return guarantees(facts, DELTA, secret=True)


def test_shares_are_concentrated_and_hide_from_the_server():
    (held,) = guarantees_of([SHARED, SUM, MERGED] * 5)
    bound = epsilon_bound([shares(2.0)] * 5, DELTA)
    assert bound is not None
    assert held.epsilon is not None
    assert held.epsilon == bound.epsilon
    # what is concentrated costs more than what is known to be Gaussian, and not much more
    exact = gaussian_epsilon(math.sqrt(5) / 2, DELTA)
    assert exact < held.epsilon < 1.15 * exact
    assert held.adversary == Term.SEES_SUMS
    assert Term.SERVER not in held.does_not_cover
    assert Term.MASKS_HOLD in held.holds_if


def test_counts_under_noise_are_paid_for_and_bare_ones_are_named():
    counted = SharesPerturbed("counts", 0, math.sqrt(2), 1.0, 4)
    (bare,) = guarantees_of([RISK, SHARED, SUM, MERGED])
    (noisy,) = guarantees_of([counted, RISK, SHARED, SUM, MERGED])
    assert Term.RISKS in bare.does_not_cover
    assert Term.RISKS not in noisy.does_not_cover
    assert Term.EVERY_COUNT in noisy.covers
    bound = epsilon_bound([shares(2.0), shares(1.0)], DELTA)
    assert bound is not None
    assert noisy.epsilon == bound.epsilon
    (unhidden,) = guarantees_of([counted, RISK, SHARED, MERGED])  # counts hide no updates
    assert unhidden.reason_code == NoGuarantee.BARE


def test_noise_of_one_s_own_is_paid_by_who_added_it_in_both_relations():
    both = UpdatesPerturbed(1.0, 2.0, ("a", "b"))
    alone = UpdatesPerturbed(1.0, 2.0, ("a",))
    facts = [SHARED, both, MERGED, ClientsAssigned({"a": 0}, "shared"), alone, MERGED]
    counts, replaced = guarantees_of(facts)
    assert counts.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2) / 2, DELTA), abs=5e-3)
    assert replaced.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2), DELTA), abs=5e-3)
    assert (counts.adversary, replaced.relation) == (Term.SEES_UPDATES, Term.CLIENT_REPLACED)
    missing, _ = guarantees_of([SHARED, alone, MERGED])  # b's came without
    assert missing.reason_code == NoGuarantee.BARE_STEPS


def test_the_weakest_noise_decides_against_whom_it_holds():
    central = SumPerturbed(0, 1.0, 2.0, 1.0)
    (held,) = guarantees_of([SHARED, SUM, MERGED, SHARED, central, MERGED])
    assert held.adversary == Term.SEES_MODELS


def test_an_end_by_budgets_says_nothing_of_data_and_one_by_a_figure_does():
    by_budgets = RunEndedEarly(1, 5, "budgets", clients=1)
    by_figure = RunEndedEarly(1, 5, "figure", "accuracy", patience=1)
    facts = [SHARED, SUM, MERGED, BudgetSpent(("a",))]
    assert guarantees_of([*facts, by_budgets])[0].epsilon is not None
    assert guarantees_of([*facts, by_figure])[0].reason_code == NoGuarantee.UNKNOWN_EVENT


@pytest.mark.parametrize("noise", ["client", "distributed", "local"])
def test_the_noise_for_an_epsilon_delivers_it(noise):
    plan = NoisePlan(noise, 7, DELTA, clients=20, coordinates=10_000)
    held = forecast(plan, multiplier(plan, 3.0))
    assert held.epsilon is not None
    assert 2.98 < held.epsilon <= 3.0


@settings(max_examples=8)
@given(
    model=st.sampled_from(["central", "distributed", "local"]),
    multiplier=st.floats(2, 20),
    limit=st.floats(0.2, 6),
    counts=st.booleans(),
)
def test_a_budget_lasts_as_long_as_it_is_not_spent(model, multiplier, limit, *, counts):
    masks = Masks(5) if model == "distributed" else None
    noise = PrivacyPlan(noise=multiplier, by=model, masks=masks, rounds=5, delta=DELTA)
    plan, size = replace(noise, counts=80 if counts else 0, counts_every=3), 10_000
    lasting = rounds_within(plan, size, limit, 12)
    assert lasting == 0 or fits(released(plan, size, lasting), limit, DELTA)
    assert lasting == 12 or not fits(released(plan, size, lasting + 1), limit, DELTA)
    weight = weight_within(plan, size, limit)
    if lasting >= 5:
        assert weight == 1
    elif weight:
        assert fits(released(plan, size, 5, weight), limit, DELTA)
        assert not fits(released(plan, size, 5, weight + 0.001), limit, DELTA)
    assert fits((), limit, DELTA)
    assert not fits((gaussian(1e-4),), limit, DELTA)


LIMITED = {
    "rounds": 4,
    "population": {"clients": 12, "epsilon_limits": [0.5, 3.3, 50.0]},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "privacy": {"client_clip": 0.5, "client_noise": 2.0},
}


def test_shares_are_cut_for_who_may_drop_out_and_who_may_tell():
    """By hand: 20 of 200 may drop out and 10 tell, so 170 shares have to be enough."""
    privacy = {**LIMITED["privacy"], "noise_model": "distributed", "secure_sums": True}
    config = covey.Config.model_validate(
        {**LIMITED, "privacy": {**privacy, "min_cohort": 180, "colluders": 10}}
    )
    cut = config.privacy_plan.shares(0.5)
    assert cut is not None
    assert (cut.honest, cut.bound, cut.multiplier) == (170, 0.5, 2.0)
    assert cut.std(170) == pytest.approx(1.0)


def played(tmp_path, **privacy):
    limited = {**LIMITED, "privacy": {**LIMITED["privacy"], **privacy}}
    return covey.run(config=limited, out=tmp_path / "run", progress=False)


def test_simulated_clients_stop_when_their_budgets_are_spent(tmp_path):
    """By hand: releases of multiplier 2 cost 2.0, 3.0 and 3.7; so limits allow 0, 2 and all."""
    run = played(tmp_path)
    clients = build_run(covey.Config.model_validate(LIMITED)).population.clients
    limits = {c.handle: c.preference.epsilon_limit for c in clients}
    merged = [sum(f.participants) for f in run.history.all_events if isinstance(f, ModelsMerged)]
    often = {limit: sum((v or 0) >= limit for v in limits.values()) for limit in (3.3, 50.0)}
    assert merged == [often[3.3]] * 2 + [often[50.0]] * 2


def test_clients_that_count_less_last_to_the_end(tmp_path):
    run = played(tmp_path, weigh_by_budget=True)
    merged = [sum(f.participants) for f in run.history.all_events if isinstance(f, ModelsMerged)]
    assert merged == [12] * 4


EMPTY = Examples(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
accepted = st.floats(0.501, 0.999)
rounds = st.integers(1, 500)
multipliers = st.floats(0.05, 100)


def mu_of(exposure: float, n: int, z: float, rounding: float = 0.0) -> float:
    return math.sqrt(n) * (exposure / z + rounding) if exposure else 0.0


@given(accepted, rounds, multipliers, st.floats(0, 0.01))
def test_a_client_is_bounded_by_what_it_accepts_and_uses_what_it_may(tau, n, z, rounding):
    exposure = exposure_within(tau, n, z, rounding)

    assert 0 <= exposure <= 1
    assert success_of(mu_of(exposure, n, z, rounding)) <= tau
    more = exposure + 2.0**-18
    assert exposure == 1 or success_of(mu_of(more, n, z, rounding)) > tau


@given(accepted, rounds, multipliers)
def test_twice_the_noise_halves_mu_or_doubles_the_clip(tau, n, z):
    once, twice = exposure_within(tau, n, z), exposure_within(tau, n, 2 * z)
    assert twice == 1 or twice == pytest.approx(2 * once, abs=2.0**-18)
    assert mu_of(1.0, n, 2 * z) == pytest.approx(mu_of(1.0, n, z) / 2)
    assert exposure_within(tau, 4 * n, z) == pytest.approx(exposure_within(tau, n, z / 2), abs=2e-6)


@pytest.mark.parametrize(("tau", "expected"), [(0.5, 0.0), (0.3, 0.0), (1.0, 1.0)])
def test_who_accepts_nothing_adds_nothing(tau: float, expected: float):
    assert exposure_within(tau, 10, 2.0) == expected


@pytest.mark.parametrize(("z", "n"), [(4.6, 60), (2.0, 1), (10.0, 200)])
def test_the_account_is_that_of_dp_accounting(z: float, n: int):
    fact = SumPerturbed(0, 0.5, z, 1.0, "record")
    facts: list[Event] = [ClientsAssigned({"a": 0}, "shared"), fact, ModelsMerged("", (1,))] * n
    added, replaced = guarantees(facts, DELTA, secret=True)

    for guarantee, noise in ((added, z), (replaced, z / 2)):
        accountant = PLDAccountant(value_discretization_interval=1e-4)
        accountant.compose(SelfComposedDpEvent(GaussianDpEvent(noise), n))
        assert guarantee.unit == "record"
        assert guarantee.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)
        exact = gaussian_epsilon(math.sqrt(n) / noise, DELTA)
        assert exact == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-4 * max(1.0, exact))
    assert individual_bounds(facts, "record")["a"].mu == pytest.approx(math.sqrt(n) / z)


@given(st.lists(st.floats(0.5, 20), min_size=1, max_size=8), st.floats(0.01, 1))
def test_mu_adds_up_over_rounds_in_squares(noises: list[float], exposure: float):
    limited = (ExposuresLimited({"a": exposure}),) if exposure < 1 else ()
    facts = [
        fact
        for z in noises
        for fact in (
            ClientsAssigned({"a": 0, "b": 0}, "shared"),
            *limited,
            SumPerturbed(0, 1.0, z, 1.0, "client"),
            ModelsMerged("", (2,)),
        )
    ]
    bounds = individual_bounds(facts, "client")
    assert bounds["a"].mu == pytest.approx(math.hypot(*(exposure / z for z in noises)))
    assert bounds["b"].mu == pytest.approx(math.hypot(*(1 / z for z in noises)))
    assert bounds["a"].rounds == len(noises)


def test_what_is_bare_bounds_nothing_and_who_waits_releases_nothing():
    chosen, noisy = ClientsAssigned({"a": 0, "b": 1}, "shared"), SumPerturbed(0, 1.0, 2.0, 1.0)
    merged = ModelsMerged("", (1, 1))
    assert individual_bounds([chosen, noisy, merged], "client")["b"].mu == math.inf
    assert individual_bounds([chosen, noisy, merged], "record")["a"].mu == math.inf
    waiting = [chosen, noisy, ClusterWaited(1, 1, 3), merged]
    assert individual_bounds(waiting, "client").keys() == {"a"}
    assert individual_bounds([*waiting, ClientsAssigned({"b": 0}, "final")], "client").keys() == {
        "a"
    }


def test_choices_and_counts_under_noise_are_in_no_bound():
    facts: list[Event] = [
        ClientsAssigned({"a": 0}, "shared"),
        SumPerturbed(0, 1.0, 2.0, 1.0),
        ModelsMerged("", (1,)),
    ]
    assert individual_bounds(facts, "client")
    assert not individual_bounds([*facts, ChoicesPerturbed(1.0, ("a",))], "client")
    counts = SharesPerturbed("counts", 0, 1.0, 2.0, 4)
    assert not individual_bounds([*facts, counts], "client")


@given(st.integers(1, 10_000), st.integers(2, 50), st.floats(0.5, 20))
def test_shares_count_what_rounding_adds(coordinates: int, honest: int, z: float):
    """With a record more or less two numbers are rounded, each by half a step at most."""
    whole, parts = (NoiseShares(1.0, z, honest, unit) for unit in ("client", "record"))
    assert parts.rounding(coordinates) == 2 * whole.rounding(coordinates)
    rounding = parts.rounding(coordinates)
    effective = parts.effective_multiplier(coordinates)
    shared = SharesPerturbed("updates", 0, 1.0, effective, honest, "record", rounding)
    facts = [ClientsAssigned({"a": 0}, "shared"), shared, ModelsMerged("", (1,))]
    assert individual_bounds(facts, "record")["a"].mu == pytest.approx(1 / effective)


def test_under_masks_what_is_accepted_counts_the_rounding_of_records():
    settings = {
        "rounds": 50,
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "privacy": {
            "record_clip": 1.0,
            "record_noise": 10.0,
            "exposure": 0.6,
            "noise_model": "distributed",
            "secure_sums": True,
            "min_cohort": 4,
        },
    }
    client = Client("a", "a", 0, EMPTY, EMPTY, Preference(0.7, 1.0))
    coordinates = 10_000_000
    config = Config.of(settings)
    exposure = exposures_of(config.privacy_plan, [client], coordinates)["a"]
    rounding = NoiseShares(1.0, 10.0, 4, "record").rounding(coordinates)
    assert 0 < exposure < 1
    assert success_of(mu_of(exposure, 50, 10.0, rounding)) <= 0.6


def test_more_accepted_is_more_used():
    taus = [0.5 + i / 100 for i in range(50)]
    exposures = [exposure_within(tau, 60, 4.0) for tau in taus]
    assert all(a <= b for a, b in pairwise(exposures))


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
    all_clients = {client.handle: 0 for client in clients.cohort}
    updates = tuple(clients.train(state.clusters, all_clients, streams, state))
    bounded, *_ = clients.steps.post_processors  # what follows is a client's own noise
    arriving = tuple(map(bounded, updates))
    shares, lengths = run.config.privacy_plan.update_shares(10.0), dict[Handle, float]()
    for update in arriving:
        if shares is None:
            flat = torch.cat([value.reshape(-1).double() for value in update.update.values()])
            lengths[update.handle] = update.weight * float(flat.norm())
            continue
        assert update.streams is not None
        steps = numbers_of_update(update, len(arriving), shares)[1:]
        bare = steps - discrete_gaussian(len(steps), update.streams.draws())
        lengths[update.handle] = float(np.linalg.norm(shares.values(bare)))
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
    client = next(one for one in run.population.clients if one.name == CANARY)
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


@pytest.mark.parametrize("copies", [1, 60])
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
