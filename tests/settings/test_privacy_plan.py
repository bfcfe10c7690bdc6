"""From settings to one plan: who adds how much noise to what."""

import pytest

import covey
from covey.aggregation.privacy import Masks, PrivacyPlan

FEDAVG = {"method": {"name": "fedavg"}, "risk": {"name": "none"}, "rounds": 4}
MASKED = {"secure_sums": True, "min_cohort": 6, "colluders": 1, "noise_model": "distributed"}


def planned(**privacy: object) -> PrivacyPlan:
    return covey.Config.of({**FEDAVG, "privacy": privacy}).privacy_plan


def test_nothing_is_hidden_by_default():
    plan = planned()
    assert plan.hides_nothing
    assert (plan.server_adds_noise, plan.clients_add_noise) == (False, False)
    assert (plan.min_cohort, plan.shares()) == (0, None)


@pytest.mark.parametrize(
    ("privacy", "by_server", "by_clients", "honest"),
    [
        ({}, True, False, None),
        ({"noise_model": "local"}, False, True, None),
        (MASKED, False, True, 5),
    ],
)
def test_noise_on_updates_hides_clients(privacy, by_server, by_clients, honest):
    plan = planned(client_clip=0.5, client_noise=2.0, **privacy)
    assert (plan.unit, plan.noise, plan.clip, plan.bound(7.0)) == ("client", 2.0, 0.5, 0.5)
    assert (plan.server_adds_noise, plan.clients_add_noise) == (by_server, by_clients)
    shares = plan.update_shares(7.0)
    assert (shares.honest if shares else None) == honest
    assert not plan.hides_nothing


@pytest.mark.parametrize(("privacy", "honest"), [({}, None), (MASKED, 5)])
def test_noise_on_sums_of_gradients_hides_records_in_units_of_a_step(privacy, honest):
    plan = planned(record_clip=0.5, record_noise=3.0, **privacy)
    assert (plan.unit, plan.noise, plan.step_noise, plan.bound(7.0)) == ("record", 3.0, 0.0, 3.5)
    shares = plan.update_shares(7.0)
    assert (shares and (shares.honest, shares.bound, shares.unit)) == (
        honest and (honest, 3.5, "record")
    )


def test_noise_in_steps_of_their_own_is_on_no_update():
    plan = planned(record_clip=0.5, record_noise=3.0, noise_model="local")
    assert (plan.unit, plan.noise, plan.step_noise) == ("client", 0.0, 3.0)
    assert not plan.sums_gradients
    both = planned(
        record_clip=0.5, record_noise=3.0, client_clip=1.0, client_noise=2.0, noise_model="local"
    )
    assert (both.noise, both.clip, both.step_noise) == (2.0, 1.0, 3.0)


def test_masks_by_themselves_add_no_noise():
    plan = planned(secure_sums=True, min_cohort=6)
    assert (plan.masks, plan.min_cohort) == (Masks(6), 6)
    assert plan.update_shares() is None
    assert not plan.hides_nothing


@pytest.mark.parametrize(("risk", "numbers"), [("federated", True), ("none", False)])
def test_counts_are_under_noise_where_clients_add_it(risk, numbers):
    settings = {**FEDAVG, "risk": {"name": risk, "every": 2}}
    privacy = {"client_clip": 0.5, "client_noise": 2.0}
    shared = covey.Config.of({**settings, "privacy": {**privacy, **MASKED}}).privacy_plan
    assert (shared.counts > 0, shared.counts_every) == (numbers, 2 if numbers else 1)
    assert covey.Config.of({**settings, "privacy": privacy}).privacy_plan.counts == 0


def test_rounds_that_are_played_again_release_too():
    plan = planned(record_clip=0.5, record_noise=3.0, exposure=0.7, releases=3)
    assert (plan.exposure, plan.releases, plan.rounds) == (0.7, 12, 4)
