"""Runs under what they are: found again, carried on, shared."""

from contextlib import contextmanager

import pytest

from covey import Config, DataError, load
from covey_papers.reproduce.record import Shelf, digest, sources
from reproduce.tiny import FEDAVG, IFCA, full, shelf, times


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
    settings = played.experiment.settings_of(played.experiment.columns[0], row, quick=False)
    return Config.of({**settings, "seed": seed})


def test_a_run_that_is_there_is_not_played_again(played):
    wanted = config(played, IFCA)
    path = played.folder / digest(wanted)
    before, head = times(path), load(path).ledger_head
    assert full(played.folder).run(wanted, "again") == path
    assert times(path) == before
    assert load(path).ledger_head == head


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
        Shelf(tmp_path, until_the_power_goes).run(wanted, "stopped")
    path = tmp_path / digest(wanted)
    assert load(path).history.finished is None
    assert not (path / "played.json").exists()

    assert shelf(tmp_path).run(wanted, "carried on") == path
    whole = played.folder / digest(wanted)
    assert load(path).ledger_head == load(whole).ledger_head
    assert sources([path])["seconds"] > 0


def test_data_that_are_missing_leave_nothing_behind(played, tmp_path):
    """Or the next try would look where the first one did."""
    wrong = {**config(played, FEDAVG).model_dump(), "data": {"name": "mnist"}}
    wrong["data"]["dir"] = str(tmp_path)
    with pytest.raises(DataError, match="mnist needs the file"):
        shelf(tmp_path / "runs").run(Config.of(wrong), "nothing to play")
    assert not (tmp_path / "runs").exists()
