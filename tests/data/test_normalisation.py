"""Every example by itself, wherever examples come from."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import covey
from covey import Streams
from covey.data.data_hash import data_hash
from covey.data.examples import TrainTest, normalised
from covey.settings.clients import Overrides, population_and_notes
from covey_flower.client_runtime import client_runtime_of
from covey_flower.node_file import NodeFile

SMALL = {"clients": 4, "examples_per_client": 20, "audit_examples": 9, "holdout": 0.25}
FLOATS = npst.arrays(
    np.float32,
    npst.array_shapes(min_dims=2, max_dims=4, max_side=5),
    elements=st.floats(-100, 100, width=32),
)


def config_of(normalise: str = "image", **settings: object) -> covey.Config:
    sections = {"data": {"normalise": normalise}, "population": SMALL} | settings
    return covey.Config.of({"seed": 2, "rounds": 2, **sections})


def test_by_hand():
    images = torch.tensor([[[0, 255], [0, 255]], [[7, 7], [7, 7]]], dtype=torch.uint8)
    found = normalised(images)
    assert found.tolist() == [[[-1, 1], [-1, 1]], [[0, 0], [0, 0]]]
    assert found.dtype == torch.float32


@given(FLOATS)
def test_twice_is_once(drawn: np.ndarray):
    once = normalised(torch.from_numpy(drawn))
    # a mean is rounded to float32, which counts where numbers differ little from each other
    torch.testing.assert_close(normalised(once), once, atol=1e-2, rtol=0)
    for each in once.flatten(1).double():
        mean, deviation = float(each.mean()), float(each.std(correction=0))
        assert abs(mean) < 1e-2
        assert deviation == pytest.approx(1, abs=1e-2) or not each.any()


@given(FLOATS, st.integers(0, 4))
def test_no_other_example_has_a_part_in_it(drawn: np.ndarray, index: int):
    inputs, here = torch.from_numpy(drawn), index % len(drawn)
    one = normalised(inputs[here : here + 1])
    torch.testing.assert_close(one[0], normalised(inputs)[here], atol=1e-6, rtol=1e-6)


def test_clients_that_a_program_passes_are_treated_as_simulated_ones():
    raw, _ = population_and_notes(config_of("none"), None, Streams(2))
    simulated, _ = population_and_notes(config_of(), None, Streams(2))
    given_clients = {c.name: TrainTest(c.train, c.holdout) for c in raw.clients}
    passed, _ = population_and_notes(config_of(), given_clients, Streams(2))
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
    raw, _ = population_and_notes(config_of("none"), None, Streams(2))
    client = raw.clients[1]
    own = NodeFile(name=client.name, seed=7, holdout=0.0)
    settings = config_of(model={"name": "linear"}, risk={"name": "none"})
    data = {client.name: (client.train.inputs, client.train.labels)}
    node = client_runtime_of(settings, own, Overrides(clients=data), 10)
    found = node.client.train.inputs.flatten(1)
    expected = normalised(client.train.inputs).flatten(1)
    assert sorted(found.tolist()) == sorted(expected.tolist())
