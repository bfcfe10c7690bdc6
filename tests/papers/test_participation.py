import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples, Streams
from covey_papers.participation import client_scores, participation_game, reserved_clients

AT = Streams(0)

some = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12).map(np.array)
sides = st.dictionaries(st.integers(0, 2), some, min_size=1)


def images(count: int, first: int = 0) -> Examples:
    """Examples that say in their input which one they are."""
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    return Examples(numbers[:, None], torch.zeros(count, dtype=torch.int64))


def test_a_client_is_scored_by_the_model_that_suits_it():
    # means .2 and 2 under the first model, .5 and 1 under the second
    losses = np.array([[0.1, 0.3, 1.0, 2.0, 3.0], [0.5, 0.5, 1.0, 1.0, 1.0]])
    assert client_scores(losses, [2, 3]) == pytest.approx([-0.2, -1.0])
    diverged = np.array([[np.nan, 1.0, 1.0], [2.0, 2.0, np.inf]])
    assert client_scores(diverged, [1, 2]).tolist() == [-2.0, -1.0]
    assert client_scores(np.full((1, 2), np.nan), [2]).max() < -1e300


@given(inside=sides, reserved=sides)
def test_the_interval_holds_the_estimate(inside, reserved):
    found = participation_game(inside, reserved, AT)
    if not inside.keys() & reserved.keys():
        assert found is None
        return
    assert found is not None
    assert -1e-9 <= found.low <= found.auc <= found.high <= 1 + 1e-9
    assert found.clients == sum(len(inside[g]) for g in inside.keys() & reserved.keys())


def test_groups_are_not_compared_with_each_other():
    # 3/4 and 0, weighted by 2 and 1 clients; together they would say 14/18
    inside = {0: np.array([11.0, 13.0]), 1: np.array([0.0])}
    reserved = {0: np.array([10.0, 12.0]), 1: np.array([1.0])}
    found = participation_game(inside, reserved, AT)
    assert found is not None
    assert found.auc == pytest.approx((2 * 0.75 + 1 * 0.0) / 3)


def test_no_image_serves_two_reserved_clients_or_two_groups(make_client):
    clients = [
        make_client("a", images(3), group=0),
        make_client("b", images(5), group=0),
        make_client("c", images(4), group=1),
    ]
    # the same 60 images under two transforms: 1,000 apart
    shared = images(60), images(60, first=1000)
    made = reserved_clients(clients, 60, lambda group, own: shared[group].take(own), AT)
    assert [len(each) for each in made[0]] == [3, 5, 3, 5, 3, 5, 3]
    assert [len(each) for each in made[1]] == [4] * 7
    assert all((e.inputs < 1000).all() for e in made[0])
    assert all((e.inputs >= 1000).all() for e in made[1])
    everything = Examples.joined([*made[0], *made[1]]).inputs.flatten() % 1000
    assert len(everything.unique()) == len(everything)
    # a group with too few reserved clients is left out
    clients = [make_client("a", images(6), group=0), make_client("b", images(7), group=1)]
    made = reserved_clients(clients, 60, lambda _, own: images(60).take(own), AT)
    assert {g: len(s) for g, s in made.items()} == {0: 5}
