"""FedEraser's calibrated round: the old update's length, the new one's direction."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Params, Streams
from covey.algorithms.simulated import Simulated, rescale_to_norm
from covey.base.params import flatten, trained

STREAMS = Streams(0)

coordinates = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=2)


def of(*values: float) -> Params:
    return {"w": torch.tensor(values)}


def length(update: Params) -> float:
    return float(flatten(trained(update)).norm())


@given(coordinates, coordinates)
def test_the_length_is_the_old_one_and_the_direction_the_new_one(now, old):
    update = rescale_to_norm(of(*now), of(*old))
    if length(of(*now)) < 1e-3:  # no direction to speak of
        return
    assert length(update) == pytest.approx(length(of(*old)), rel=1e-4, abs=1e-6)
    along = float(update["w"] @ of(*now)["w"])
    assert along == pytest.approx(length(of(*old)) * length(of(*now)), rel=1e-3, abs=1e-4)


def test_who_found_nothing_then_or_now_sends_nothing():
    nothing, something = of(0.0, 0.0), of(1.0, 1.0)
    for pair in ((nothing, something), (something, nothing)):
        assert rescale_to_norm(*pair)["w"].tolist() == [0.0, 0.0]


def test_statistics_are_no_part_of_a_length_and_counters_stay():
    def model(weight: float, statistic: float) -> Params:
        return {
            "weight": torch.tensor([weight]),
            "running_mean": torch.tensor([statistic]),
            "num_batches_tracked": torch.tensor(4),
        }

    update = rescale_to_norm(model(2.0, 100.0), model(6.0, 7.0))
    assert float(update["weight"]) == pytest.approx(6.0)
    assert float(update["running_mean"]) == pytest.approx(300.0)  # scaled alike
    assert int(update["num_batches_tracked"]) == 4


def test_a_real_step_is_calibrated(steps, point, make_client):
    # A's step from w = 1 is 0.268941 (see test_by_hand); its old one was -0.5 long
    cohort = (point("a", 1, 1), point("b", 1, 0))
    stored = {"A": {"w": torch.tensor([-0.5])}}
    assert isinstance(steps.federation, Simulated)
    federation = replace(steps.federation, stored=stored)
    models = ({"w": torch.tensor([1.0])},)
    one, other = federation.train(models, cohort, {"A": 0, "B": 0}, STREAMS)
    assert float(one.update["w"]) == pytest.approx(0.5)
    assert float(other.update["w"]) == pytest.approx(-0.731059, abs=1e-6)
