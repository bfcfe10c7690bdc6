"""Runs under what they are: found again, carried on, shared."""

from contextlib import contextmanager

import pytest

from covey import Config, load
from covey_papers.reproduce.record import RunCache, digest, sources
from reproduce.tiny import IFCA, cache


def of(**settings) -> Config:
    return Config.of({"seed": 1, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 29},
        {"seed": 2},
        {"population": {"clients": 41}},
        {"method": {"name": "fedavg"}},
        {"method": {"num_clusters": 3}},
        {"aggregation": {"name": "anonymity-sets"}},
        {"audit": {"non_members": "pooled"}},
    ],
    ids=str,
)
def test_another_result_has_another_digest(settings):
    assert digest(of(**settings)) != digest(of())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"engine": {"workers": 3}}),
        ({}, {"checkpoints": {"every": 7, "keep": "thin"}}),
        ({}, {"data": {"dir": "/elsewhere"}}),
        (
            {"method": {"name": "ifca"}},
            {"method": {"name": "ifca"}, "population": {"risk_weight": 0.3}},
        ),
    ],
    ids=str,
)
def test_the_same_result_has_the_same_digest(one, other):
    assert digest(of(**one)) == digest(of(**other))


def config(played, row, seed: int = 0) -> Config:
    settings = played.experiment.settings_of(played.experiment.columns[0], row)
    return Config.of({**settings, "seed": seed})


class PowerCutError(Exception):
    pass


@contextmanager
def until_the_power_goes(title):
    def observe(history):
        if len(history.rounds) == 1:
            raise PowerCutError

    yield observe


def test_a_run_that_was_stopped_is_carried_on_to_the_same_end(played, tmp_path):
    wanted = config(played, IFCA, seed=1)
    with pytest.raises(PowerCutError):
        RunCache(tmp_path, until_the_power_goes).run(wanted, "stopped")
    path = tmp_path / digest(wanted)
    assert load(path).history.finished is None
    assert not (path / "played.json").exists()

    assert cache(tmp_path).run(wanted, "carried on") == path
    whole = played.folder / digest(wanted)
    assert load(path).ledger_head == load(whole).ledger_head
    assert sources([path])["seconds"] > 0
