"""What a source may say of its clients' groups, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from covey import ClientData, DataError, PopulationRequest, Streams
from covey.data.clients import population_of_clients
from covey.data.examples import Preference
from covey.data.population import PopulationSpec


def pair(count, *, ids=False):
    x = np.arange(2 * count).reshape(count, 2)
    return x if ids else x.astype(np.float32), np.arange(count) % 2


def request(*, keeps_ids=False, holdout=0.5):
    spec = PopulationSpec(1, (), "image", holdout, 0, -1, "matched")
    return PopulationRequest(
        folder=Path(),
        label="",
        spec=spec,
        streams=Streams(0),
        preference=lambda _: Preference(0.0, 1.0),
        outputs=lambda labels, _: 1 + int(labels.max()),
        keeps_ids=keeps_ids,
    )


def brought(**more):
    clients = {"a": pair(4), "b": pair(6), "c": pair(8)}
    return population_of_clients(ClientData(clients=clients, **more), request())[0]


def test_a_client_holds_out_a_share_that_is_drawn_or_its_own_test_examples():
    x, y = pair(8)
    found, notes = population_of_clients({"bob": (x, y), "ada": ((x, y), pair(3))}, request())
    ada, bob = found.clients
    assert (ada.name, len(ada.train), len(ada.holdout)) == ("ada", 8, 3)
    assert (bob.name, len(bob.train), len(bob.holdout)) == ("bob", 4, 4)
    drawn = torch.cat([bob.train.inputs, bob.holdout.inputs]).tolist()
    assert drawn != x.tolist()  # 1 in 8! by chance
    assert sorted(drawn) == x.tolist()
    assert "1 of 2 clients have test examples of their own" in notes[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"groups": {"a": "x", "b": "x"}}, "groups must .* found 'c' missing"),
        ({"groups": dict.fromkeys("abc", "x")}, "test must .* found 'x' missing"),
        (
            {"groups": dict.fromkeys("abc", "x"), "test": {"x": 0, "y": 0}},
            "test must .* found 'y' only there",
        ),
    ],
)
def test_groups_of_which_not_all_is_known_are_refused(more, message):
    with pytest.raises(DataError, match=message):
        brought(**more)
