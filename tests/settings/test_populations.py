"""Populations from settings, of data sets that the tests write."""

import pytest

from covey import Config, DataError, Streams
from covey.settings.clients import population_and_notes
from data.layouts import write_celeba, write_leaf, written


def settings(folder, name, **population):
    own = {"clients": 4, "examples_per_client": 5, "audit_examples": 3, **population}
    return Config.of({"data": {"name": name, "dir": str(folder)}, "population": own})


def test_the_settings_reach_the_deal(tmp_path):
    # Each writer writes one character only, so labels tell the writers.
    users = {f"writer_{number}": written(*[number] * 8) for number in range(12)}
    write_leaf(tmp_path / "femnist" / "train" / "a.json", **users)
    write_leaf(tmp_path / "femnist" / "test" / "a.json", writer_0=written(0))
    config = settings(tmp_path, "femnist", partition="by-writer", images="per-group")
    population, notes = population_and_notes(config, None, Streams(0))
    assert notes == ()
    for client in population.clients:
        assert len({*client.train.labels.tolist(), *client.holdout.labels.tolist()}) == 1
    assert [len(each) for each in population.non_members] == [3, 3]


def test_alpha_reaches_the_deal():
    config = Config.of(
        {"population": {"clients": 4, "partition": {"name": "dirichlet", "alpha": 1e-9}}}
    )
    population, _ = population_and_notes(config, None, Streams(0))
    assert all(len(set(c.train.labels.tolist())) == 1 for c in population.clients)


def test_several_labels_per_image_are_not_for_one_class_each(tmp_path):
    write_celeba(tmp_path / "celeba")
    with pytest.raises(DataError, match=r"celeba: model.task = .multiclass.*multilabel"):
        population_and_notes(settings(tmp_path, "celeba"), None, Streams(0))
