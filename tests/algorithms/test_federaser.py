"""FedEraser's calibrated round: the old update's length, the new one's direction."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import ClientUpdate, Params, Streams
from covey.algorithms.local_clients import Train
from covey.algorithms.round_steps import Steps, calibrated_by
from covey.base.params import flatten, trained
from covey.data.examples import Client

STREAMS = Streams(0)
START = ({"w": torch.zeros(2)},)

coordinates = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=2)


def of(*values: float) -> Params:
    return {"w": torch.tensor(values)}


def found(*updates: ClientUpdate) -> Train:
    """A training step that finds what it is told to, for whoever is in the cohort."""
    return lambda *_: iter(updates)


def calibrated(now: Params, old: Params) -> ClientUpdate:
    train = calibrated_by(found(ClientUpdate("A", 0, now, 2.0)), {"A": old})
    (each,) = train(START, (), {}, STREAMS)
    return each


def length(update: Params) -> float:
    return float(flatten(trained(update)).norm())


def test_by_hand():
    # |(0, 10)| = 10 along (3, 4) / 5 is (6, 8)
    each = calibrated(of(3.0, 4.0), old=of(0.0, 10.0))
    assert each.update["w"].tolist() == pytest.approx([6.0, 8.0])
    assert (each.handle, each.cluster, each.weight) == ("A", 0, 2.0)


@given(coordinates, coordinates)
def test_the_length_is_the_old_one_and_the_direction_the_new_one(now, old):
    update = calibrated(of(*now), of(*old)).update
    if length(of(*now)) < 1e-3:  # no direction to speak of
        return
    assert length(update) == pytest.approx(length(of(*old)), rel=1e-4, abs=1e-6)
    along = float(update["w"] @ of(*now)["w"])
    assert along == pytest.approx(length(of(*old)) * length(of(*now)), rel=1e-3, abs=1e-4)


def test_who_finds_nothing_sends_nothing():
    assert calibrated(of(0.0, 0.0), of(1.0, 1.0)).update["w"].tolist() == [0.0, 0.0]


def test_who_sent_nothing_then_sends_nothing_now():
    assert calibrated(of(1.0, 1.0), of(0.0, 0.0)).update["w"].tolist() == [0.0, 0.0]


def test_without_a_stored_update_the_new_one_counts_as_it_is():
    updates = [ClientUpdate(h, 0, of(3.0, 4.0), 1.0) for h in ("A", "B")]
    train = calibrated_by(found(*updates), {"A": of(1.0, 0.0)})
    one, other = train(START, (), {}, STREAMS)
    assert length(one.update) == pytest.approx(1.0)
    assert other is updates[1]


def test_statistics_are_no_part_of_a_length_and_counters_stay():
    def model(weight: float, statistic: float) -> Params:
        return {
            "weight": torch.tensor([weight]),
            "running_mean": torch.tensor([statistic]),
            "num_batches_tracked": torch.tensor(4),
        }

    update = calibrated(model(2.0, 100.0), model(6.0, 7.0)).update
    assert float(update["weight"]) == pytest.approx(6.0)
    assert float(update["running_mean"]) == pytest.approx(300.0)  # scaled alike
    assert int(update["num_batches_tracked"]) == 4


def test_a_real_step_is_calibrated(
    steps: Steps, point: Callable[..., Client], make_client: Callable[..., Client]
):
    # A's step from w = 1 is 0.268941 (see test_by_hand); its old one was -0.5 long
    cohort = (point("a", 1, 1), point("b", 1, 0))
    stored = {"A": {"w": torch.tensor([-0.5])}}
    train = calibrated_by(steps.train, stored)
    models = ({"w": torch.tensor([1.0])},)
    one, other = train(models, cohort, {"A": 0, "B": 0}, STREAMS)
    assert float(one.update["w"]) == pytest.approx(0.5)
    assert float(other.update["w"]) == pytest.approx(-0.731059, abs=1e-6)
