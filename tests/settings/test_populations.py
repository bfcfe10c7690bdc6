"""Populations from settings, of data sets that the tests write."""

import pytest
import torch

from covey import Config, DataError, Streams
from covey.settings.clients import population_and_notes
from data.layouts import write_leaf, written


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


def test_the_server_holds_as_many_images_as_the_settings_say():
    def dealt(risk, **population):
        config = Config.of({"risk": {"name": risk}, "population": population})
        return population_and_notes(config, None, Streams(0))[0]

    # of 1,797 digits 1,200 are the clients' and 400 the audit's; half of the others test
    rest, fifty = dealt("shadow"), dealt("shadow", pool=50)
    assert [len(each.pool) for each in (rest, fifty)] == [98, 50]
    assert [len(each.test[0]) for each in (rest, fifty)] == [99, 147]
    assert not len(dealt("federated").pool)
    for usual, other in zip(rest.clients, fifty.clients, strict=True):
        assert torch.equal(usual.train.inputs, other.train.inputs)
    with pytest.raises(DataError, match=r"198 for the pool.*or \.pool"):
        dealt("shadow", pool=198)
