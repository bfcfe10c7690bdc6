"""Features scaled by every example itself or by each client's own rows."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import covey
from covey import ConfigError, DataError, Streams
from covey.base.guarantee import Term
from covey.data.examples import TrainTest, normalised, standardised
from covey.data.population import data_hash
from covey.settings.clients import Overrides, population_and_notes
from covey_flower.client_runtime import client_runtime_of
from covey_flower.node_file import NodeFile

TABLES = npst.arrays(
    np.float32,
    npst.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
    elements=st.floats(-100, 100, width=32),
)
ONE = {"a": [1.0, 3.0, 1.0, 3.0], "b": [5.0, 5.0, 5.0, 5.0], "label": [0, 1, 0, 1]}
UNSEEN = {"b": [5.0, 7.0], "label": [1, 0], "a": [2.0, 5.0]}
OTHER = {"a": [10.0, 30.0, 50.0], "b": [0.0, 2.0, 4.0], "label": [1, 0, 1]}
CLIENTS = {"ada": (ONE, UNSEEN), "bob": OTHER}


def config_of(**data: Any) -> covey.Config:
    sections = {"model": {"name": "linear"}, "method": {"name": "fedavg"}, "risk": {"name": "none"}}
    population = {"holdout": 0.0}
    return covey.Config.of({"rounds": 1, "data": data, "population": population, **sections})


def clients_of(clients: object = CLIENTS, **data: Any):
    return population_and_notes(config_of(**data), clients, Streams(0))[0].clients


def test_by_hand():
    ada, bob = clients_of(standardise="client")
    assert ada.train.inputs.tolist() == [[-1, 0], [1, 0], [-1, 0], [1, 0]]
    # what it holds out by the figures of what it trains on: mean 2, deviation 1
    assert ada.holdout.inputs.tolist() == [[0, 0], [3, 0]]
    third = 1.5**0.5
    for row, expected in zip(sorted(bob.train.inputs.tolist()), (-third, 0, third), strict=True):
        assert row == pytest.approx([expected, expected])
    assert ada.train.inputs.dtype == torch.float32
    assert ada.train.columns == ("a", "b")


@given(TABLES)
def test_its_own_rows_have_mean_zero_and_deviation_one(drawn: np.ndarray):
    table = torch.from_numpy(drawn)
    columns = standardised(table, table).double()
    for column in columns.T:
        assert abs(float(column.mean())) < 1e-3
        deviation = float(column.std(correction=0))
        assert deviation == pytest.approx(1, abs=1e-3) or not column.any()


@given(TABLES, st.floats(0.1, 10), st.floats(-10, 10))
def test_units_of_a_hospital_do_not_count(drawn: np.ndarray, factor: float, shift: float):
    table = torch.from_numpy(drawn).round()
    other = (table.double() * factor + shift).float()
    torch.testing.assert_close(
        standardised(table, table), standardised(other, other), atol=1e-2, rtol=1e-2
    )


def test_a_node_of_its_own_standardises_on_its_side():
    own = NodeFile(name="bob", seed=7, holdout=0.0)
    settings = config_of(standardise="client")
    node = client_runtime_of(settings, own, Overrides(clients={"bob": OTHER}), 2)
    expected = clients_of(standardise="client")[1].train.inputs
    assert sorted(node.client.train.inputs.tolist()) == sorted(expected.tolist())


def test_a_column_per_client_is_one_in_its_own_rows():
    ada, bob = clients_of(standardise="client", client_columns=True)
    assert ada.train.inputs[:, 2:].tolist() == [[1, 0]] * 4
    assert ada.holdout.inputs.tolist() == [[0, 0, 1, 0], [3, 0, 1, 0]]
    assert bob.train.inputs[:, 2:].tolist() == [[0, 1]] * 3
    assert ada.train.columns == ("a", "b", "client 0", "client 1")


def test_columns_stay_where_a_client_is_left_out():
    excluded = config_of(client_columns=True).model_dump()
    excluded["population"]["exclude"] = ["ada"]
    population, _ = population_and_notes(covey.Config.of(excluded), CLIENTS, Streams(0))
    (bob,) = population.clients
    assert bob.train.inputs[:, 2:].tolist() == [[0, 1]] * 3


IMAGES = (np.zeros((4, 1, 8, 8), dtype=np.uint8), [0, 1, 0, 1])
SEVERAL = ({"x": np.zeros((4, 2)), "z": np.zeros((4, 3))}, [0, 1, 0, 1])
CUBES = (np.zeros((4, 2, 2, 2), dtype=np.float32), [0, 1, 0, 1])


@pytest.mark.parametrize("data", [{"standardise": "client"}, {"client_columns": True}])
@pytest.mark.parametrize(
    ("clients", "table"),
    [(IMAGES, "uint8 images"), (SEVERAL, r"x \(2,\)"), (CUBES, r"shape \(2, 2, 2\)")],
)
def test_what_is_no_table_is_refused(clients: object, table: str, data: dict[str, Any]):
    (setting,) = data
    with pytest.raises(DataError, match=rf"data.{setting}.* tables of numbers, found .*{table}"):
        clients_of([clients], **data)


def test_ids_are_refused():
    config = covey.Config.of({"data": {"standardise": "client"}, "risk": {"name": "none"}})
    passed = config.model_dump()
    passed["model"] = {"name": "python"}
    table = (np.arange(8).reshape(4, 2), [0, 1, 0, 1])
    with pytest.raises(DataError, match=r"found whole numbers of shape \(2,\)"):
        population_and_notes(covey.Config.of(passed), [table], Streams(0))


def test_simulated_clients_of_one_data_set_are_refused():
    with pytest.raises(DataError, match=r"and examples that are no client's"):
        clients_of(None, standardise="client")


def test_remote_clients_do_not_know_each_other():
    settings = config_of(client_columns=True).model_dump()
    settings["engine"] = {"name": "flower"}
    with pytest.raises(ConfigError, match=r"data.client_columns = True needs .*know all clients"):
        covey.Config.of(settings)


@pytest.mark.parametrize("standardise", ["none", "client"])
def test_a_guarantee_for_a_record_names_what_scales_it(tmp_path, monkeypatch, standardise):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = config_of(standardise=standardise).model_dump()
    settings["privacy"] = {"record_clip": 1.0, "record_noise": 1.0}
    settings["secrets"] = {"source": "os"}
    run = covey.run(
        config=covey.Config.of(settings), clients=CLIENTS, out=tmp_path / "run", progress=False
    )
    record = next(guarantee for guarantee in run.guarantee.guarantees if guarantee.unit == "record")
    assert (Term.OWN_SCALES in record.does_not_cover) == (standardise == "client")
    notes = [note for note in run.summary.notes if "mean and the deviation" in note]
    assert bool(notes) == (standardise == "client")


SMALL = {"clients": 4, "examples_per_client": 20, "audit_examples": 9, "holdout": 0.25}
FLOATS = npst.arrays(
    np.float32,
    npst.array_shapes(min_dims=2, max_dims=4, max_side=5),
    elements=st.floats(-100, 100, width=32),
)


def normalised_config(normalise: str = "image", **settings: object) -> covey.Config:
    sections = {"data": {"normalise": normalise}, "population": SMALL} | settings
    return covey.Config.of({"seed": 2, "rounds": 2, **sections})


def test_normalisation_by_hand():
    images = torch.tensor([[[0, 255], [0, 255]], [[7, 7], [7, 7]]], dtype=torch.uint8)
    normal = normalised(images)
    assert normal.tolist() == [[[-1, 1], [-1, 1]], [[0, 0], [0, 0]]]
    assert normal.dtype == torch.float32


@given(FLOATS)
def test_twice_is_once(drawn: np.ndarray):
    once = normalised(torch.from_numpy(drawn))
    # a mean is rounded to float32, which counts where numbers differ little from each other
    torch.testing.assert_close(normalised(once), once, atol=1e-2, rtol=0)
    for image in once.flatten(1).double():
        mean, deviation = float(image.mean()), float(image.std(correction=0))
        assert abs(mean) < 1e-2
        assert deviation == pytest.approx(1, abs=1e-2) or not image.any()


@given(FLOATS, st.integers(0, 4))
def test_no_other_example_has_a_part_in_it(drawn: np.ndarray, index: int):
    inputs, here = torch.from_numpy(drawn), index % len(drawn)
    one = normalised(inputs[here : here + 1])
    torch.testing.assert_close(one[0], normalised(inputs)[here], atol=1e-6, rtol=1e-6)


def test_clients_that_a_program_passes_are_treated_as_simulated_ones():
    raw, _ = population_and_notes(normalised_config("none"), None, Streams(2))
    simulated, _ = population_and_notes(normalised_config(), None, Streams(2))
    own_clients = {c.name: TrainTest(c.train, c.holdout) for c in raw.clients}
    passed, _ = population_and_notes(normalised_config(), own_clients, Streams(2))
    sets = zip(raw.clients, simulated.clients, passed.clients, strict=True)
    for before, ours, theirs in sets:
        expected = normalised(before.train.inputs)
        for client in (ours, theirs):
            assert torch.equal(client.train.inputs, expected)
            assert torch.equal(client.holdout.inputs, normalised(before.holdout.inputs))
    assert data_hash(simulated) == data_hash(passed) != data_hash(raw)
    for was, now in ((raw.test, simulated.test), (raw.non_members, simulated.non_members)):
        for before, after in zip(was, now, strict=True):
            assert torch.equal(after.inputs, normalised(before.inputs))


def test_a_node_of_its_own_normalises_on_its_side():
    raw, _ = population_and_notes(normalised_config("none"), None, Streams(2))
    client = raw.clients[1]
    own = NodeFile(name=client.name, seed=7, holdout=0.0)
    settings = normalised_config(model={"name": "linear"}, risk={"name": "none"})
    data = {client.name: (client.train.inputs, client.train.labels)}
    node = client_runtime_of(settings, own, Overrides(clients=data), 10)
    images = node.client.train.inputs.flatten(1)
    expected = normalised(client.train.inputs).flatten(1)
    assert sorted(images.tolist()) == sorted(expected.tolist())
