"""Runs under what they are: found again, carried on, shared."""

import hashlib
from contextlib import contextmanager

import pytest

from covey import Config, DataError, load
from covey.base.components import Section
from covey_papers.reproduce.federations import federations
from covey_papers.reproduce.record import Shelf, digest, sources
from reproduce.tiny import FEDAVG, IFCA, column, experiment, full, shelf, times


def of(**settings) -> Config:
    return Config.of({"seed": 1, **settings})


def test_a_digest_is_the_hash_of_what_is_not_the_default():
    written = b'{"method.name": "ifca-mir", "seed": 1}'
    assert digest(of()) == hashlib.sha256(written).hexdigest()[:16]


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


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("fedavg", {"num_clusters": 4, "selection": "threshold"}),
        ("ifca", {"selection": "threshold"}),
        ("local", {"initialisation": "random"}),
    ],
)
def test_what_another_method_was_set_to_changes_no_digest(name, others):
    assert digest(of(method=others).naming(method=name)) == digest(of(method={"name": name}))


def test_a_newer_versions_default_changes_no_digest():
    class Newer(Section):
        key: int = 0

    class ConfigOfTomorrow(Config):
        tomorrow: Newer = Newer()

    same, other = ({"seed": 1}, {"seed": 1, "tomorrow": {"key": 2}})
    assert digest(ConfigOfTomorrow.of(same)) == digest(of())
    assert digest(ConfigOfTomorrow.of(other)) != digest(of())


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


def test_two_experiments_share_a_run(played):
    asked = experiment(
        title="Another",
        measures=("accuracy_majority",),
        rows=(
            FEDAVG.model_copy(update={"name": "one model for all"}),
            IFCA.model_copy(
                update={"settings": {**IFCA.settings, "population": {"risk_weight": 1}}}
            ),
        ),
        columns=(column("the same data", engine={"workers": 1}),),
    )
    found = federations(asked, full(played.folder), quick=False)
    assert [cell.mean is not None for cell in found.cells] == [True, True]
    assert found.commits == played.found.commits


def test_data_that_are_missing_leave_nothing_behind(played, tmp_path):
    """Or the next try would look where the first one did."""
    wrong = {**config(played, FEDAVG).model_dump(), "data": {"name": "mnist"}}
    wrong["data"]["dir"] = str(tmp_path)
    with pytest.raises(DataError, match="mnist needs the file"):
        shelf(tmp_path / "runs").run(Config.of(wrong), "nothing to play")
    assert not (tmp_path / "runs").exists()


def test_sources_add_up_and_name_every_commit_once(tmp_path):
    for name, commit, seconds in (("a", "c1", 2.5), ("b", "c0", 1.0), ("c", "c1", 0.5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "played.json").write_text(
            f'{{"commit": "{commit}", "seconds": {seconds}}}'
        )
    (tmp_path / "d").mkdir()  # played before that was noted
    paths = [tmp_path / name for name in "abcda"]
    assert sources(paths) == {"commits": ("c0", "c1"), "seconds": 4.0}
