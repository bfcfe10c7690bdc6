"""From what a client accepts to its clip, and back to a bound on every attack."""

import math
from itertools import pairwise

import pytest
import torch
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st

from covey import Config
from covey.base.events import (
    ChoicesPerturbed,
    ClientsAssigned,
    ClusterWaited,
    Event,
    ExposuresLimited,
    ModelsMerged,
    SharesPerturbed,
    SumPerturbed,
)
from covey.data.examples import Client, Examples, Preference
from covey.dp.accountant import gaussian_epsilon
from covey.dp.exposure import exposure_within, individual_bounds, success_of
from covey.dp.run_guarantees import guarantees
from covey.secure_sums.noise import NoiseShares
from covey.settings.privacy import exposures_of

DELTA = 1e-5
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


@pytest.mark.parametrize(("z", "n"), [(4.6, 60), (2.0, 1), (10.0, 200), (1.0, 3)])
def test_the_account_is_that_of_dp_accounting(z: float, n: int):
    fact = SumPerturbed(0, 0.5, z, 1.0, "record")
    facts: list[Event] = [ClientsAssigned({"a": 0}, "shared"), fact, ModelsMerged("", (1,))] * n
    added, replaced = guarantees(facts, DELTA, secret=True)

    for found, multiplier in ((added, z), (replaced, z / 2)):
        accountant = PLDAccountant(value_discretization_interval=1e-4)
        accountant.compose(SelfComposedDpEvent(GaussianDpEvent(multiplier), n))
        assert found.unit == "record"
        assert found.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)
        exact = gaussian_epsilon(math.sqrt(n) / multiplier, DELTA)
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
