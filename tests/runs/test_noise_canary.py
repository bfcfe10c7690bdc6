"""Noise put to the test: what is right passes, and planted bugs are caught."""

import pytest

from covey.aggregation import mean as private
from covey.base import rng
from covey.settings.run import build_run
from support.canaries import verdict_on

DRAWS = 2_000
CLIENT = {"privacy": {"client_clip": 1.0, "client_noise": 2.0}}
RECORD = {"privacy": {"record_clip": 1.0, "record_noise": 2.0, "noise_model": "local"}}
SOUND = {
    "aggregation": {
        "name": "anonymity-sets",
        "min_anonymity": 2,
        "deniability_threshold": 2,
        "partition": "public-random",
        "noise": "sound",
        "epsilon": 2.0,
    },
    "train": {"participation": 0.9},  # cohorts differ: one set alone keeps to epsilon
}


@pytest.fixture
def audited(settings):
    def played(draws: int, **sections):
        quiet = {"risk": {"name": "none"}, "method": {"name": "fedavg"}}
        run = build_run(settings(**{"rounds": 1, **quiet, **sections}))
        return verdict_on(run, draws)

    return played


@pytest.mark.parametrize(
    "sections", [CLIENT, *(pytest.param(each, marks=pytest.mark.slow) for each in (RECORD, SOUND))]
)
def test_what_a_secret_draws_is_delivered(audited, monkeypatch, sections):
    asked: list[bytes] = []
    right = rng.SecretDraws
    monkeypatch.setattr(rng, "SecretDraws", lambda key: asked.append(key) or right(key))
    found = audited(500, **sections, secrets={"source": "os"})
    assert found.holds
    assert len(asked) == len(set(asked)) >= 1_000  # no key is used twice


@pytest.mark.parametrize("draws", [DRAWS, pytest.param(10_000, marks=pytest.mark.slow)])
def test_noise_that_is_halved_is_caught(audited, monkeypatch, draws):
    right = private.noisy
    monkeypatch.setattr(private, "noisy", lambda u, std, g: right(u, std / 2, g))
    found = audited(draws, **CLIENT)
    assert found.accounted < 2 < found.refuted
    assert not found.holds


def test_clipping_that_is_skipped_is_caught(audited, monkeypatch):
    monkeypatch.setattr(private, "projected", lambda update, _: update)
    found = audited(500, **CLIENT)
    assert not found.holds


@pytest.mark.slow
def test_the_noise_of_representatives_is_delivered_and_its_lack_is_caught(audited, monkeypatch):
    found = audited(500, **SOUND)
    assert found.accounted < 2
    assert found.holds
    monkeypatch.setattr("covey.aggregation.anonymity.projected", lambda u, _: u)
    assert not audited(1_000, **SOUND).holds
