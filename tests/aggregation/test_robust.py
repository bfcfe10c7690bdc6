"""Aggregations that few clients cannot move far, by hand."""

from functools import partial

import pytest
import torch

from covey import Aggregation, AggregationResult, ClientUpdate, ConfigError, Params, Streams
from covey.aggregation.anonymity import AnonymitySets
from covey.aggregation.base import FederationInfo
from covey.aggregation.robust import GeometricMedian, Krum, Median, NormBounded, TrimmedMean
from covey.base.events import AnonymitySetsFormed, ClusterWaited
from support.aggregating import aggregated as all_of


def point(*values: float, count: int = 0) -> Params:
    return {"w": torch.tensor(values), "n": torch.tensor(count)}


def aggregated(aggregation: Aggregation, start: Params, *updates: Params) -> AggregationResult:
    sent = [ClientUpdate(f"C{i}", 0, update, 1.0) for i, update in enumerate(updates)]
    begin = partial(aggregation.begin, federation=FederationInfo(clients=len(sent)))
    return all_of(begin, (start,), sent, Streams(0))


def moved(aggregation: Aggregation, *updates: Params) -> list[float]:
    start = {name: torch.zeros_like(value) for name, value in updates[0].items()}
    (model,) = aggregated(aggregation, start, *updates).clusters
    return model["w"].tolist()


def test_a_trimmed_mean_by_hand():
    # from 10; of five clients a fifth is left out at either end, in each coordinate:
    #   first:  -9 | 1, 2, 3 | 100 -> 2;   second:  -50 | 0, 0, 6 | 7 -> 2
    updates = [
        point(100.0, 0.0, count=4),
        point(1.0, -50.0),
        point(2.0, 6.0, count=2),
        point(3.0, 0.0),
        point(-9.0, 7.0),
    ]
    merged = aggregated(TrimmedMean(trim=0.2), point(10.0, 20.0, count=1), *updates)
    assert merged.clusters[0]["w"].tolist() == [12.0, 22.0]
    assert int(merged.clusters[0]["n"]) == 5  # counters take their maximum
    # 0.49 * 5 = 2.45: two at either end, and the median is left
    assert moved(TrimmedMean(trim=0.49), *updates) == [2.0, 0.0]


@pytest.mark.parametrize(("n", "left"), [(3, 1), (4, 2), (9, 7), (10, 8), (30, 24)])
def test_at_least_one_client_is_left_out_at_either_end(n, left):
    # of values 0, 1, ... n-1, of which the largest is made huge: k = max(1, n / 10)
    values = [float(i) for i in range(n - 1)] + [1e6]
    k = (n - left) // 2
    expected = sum(values[k : n - k]) / left
    assert moved(TrimmedMean(trim=0.1), *map(point, values)) == [expected]


def test_a_median_by_hand():
    # three clients: the middle value; four: the mean of the two in the middle
    assert moved(Median(), point(1.0), point(-5.0), point(9.0)) == [1.0]
    assert moved(Median(), point(1.0), point(-5.0), point(9.0), point(2.0)) == [1.5]
    assert moved(Median(), point(7.0)) == [7.0]


def test_krum_by_hand():
    # f = 1 of five clients: each one's n - f - 2 = 2 nearest, at squared distances
    #   0: 1 + 9 = 10;  1: 1 + 4 = 5;  3: 4 + 1 = 5;  4: 1 + 9 = 10;  100: 96^2 + 97^2
    values = (0.0, 1.0, 3.0, 4.0, 100.0)
    assert moved(Krum(), *map(point, values)) == [1.0]  # the first of two equal scores
    # with 2 nearest the scores are 5, 2, 5, 5, 10; with 3 of them 2 would be the best
    assert moved(Krum(), *map(point, (0.0, 1.0, 2.0, 4.0, 5.0))) == [1.0]
    # Multi-Krum: the mean of the two best; it takes m + f + 2 = 5 clients
    assert moved(Krum(chosen=2), *map(point, values)) == [2.0]


def test_updates_of_bounded_norm_by_hand():
    # |(3, 4)| = 5 is shortened to 2.5: (1.5, 2);  |(0, 1)| = 1 stays
    assert moved(NormBounded(max_norm=2.5), point(3.0, 4.0), point(0.0, 1.0)) == [0.75, 1.5]
    # statistics by themselves: 30 to 2.5
    update = {"w": torch.tensor([1.0]), "bn.running_var": torch.tensor([30.0])}
    start = {k: 0 * v for k, v in update.items()}
    (model,) = aggregated(NormBounded(max_norm=2.5), start, update).clusters
    assert (float(model["w"]), float(model["bn.running_var"])) == (1.0, 2.5)


@pytest.mark.parametrize(
    ("aggregation", "fewest"), [(TrimmedMean(), 3), (Krum(outliers=2), 7), (Krum(chosen=4), 7)]
)
def test_a_cluster_with_too_few_clients_waits(aggregation, fewest):
    start = point(10.0)
    updates = [point(float(i)) for i in range(1, fewest + 1)]
    waited = aggregated(aggregation, start, *updates[:-1])
    assert waited.clusters[0] is start
    assert waited.events == (ClusterWaited(0, fewest - 1, fewest),)
    assert aggregated(aggregation, start, *updates).events == ()


def test_a_geometric_median_by_hand():
    # on a line it is the median; of three in one place and two elsewhere, that place
    line = [point(0.0), point(1.0), point(10.0)]
    assert moved(GeometricMedian(steps=200), *line) == pytest.approx([1.0], abs=1e-4)
    most = [point(2.0, 3.0)] * 3 + [point(1e6, 0.0), point(0.0, -1e6)]
    assert moved(GeometricMedian(), *most) == pytest.approx([2.0, 3.0], abs=1e-3)
    # of a square's corners it is the middle, as far as the smoothing goes
    square = [point(x, y) for x in (-1.0, 1.0) for y in (-1.0, 1.0)]
    assert moved(GeometricMedian(), *square) == pytest.approx([0.0, 0.0], abs=1e-6)


def test_a_bound_by_the_median_norm_by_hand_and_of_updates_that_form_sets():
    # norms 1, 2 and 10: none is longer than 1.5 * 2 = 3; (1 + 2 + 3) / 3 = 2
    merge = NormBounded(max_norm=0.1, max_relative_norm=1.5)
    assert moved(merge, point(1.0), point(2.0), point(10.0)) == pytest.approx([2.0])
    # one of seven is far longer: unbounded, its set's diameter shows it
    points = [point(1.0 + i / 10, 0.0) for i in range(6)] + [point(0.0, 500.0)]
    sets = AnonymitySets(min_anonymity=3, deniability_threshold=2)
    bounded = sets.model_copy(update={"max_relative_norm": 1.0})
    raw, short = (aggregated(e, point(0.0, 0.0), *points).events[0] for e in (sets, bounded))
    assert isinstance(raw, AnonymitySetsFormed)
    assert isinstance(short, AnonymitySetsFormed)
    assert max(width or 0.0 for width in raw.diameters) > 499
    assert max(width or 0.0 for width in short.diameters) < 2.0
    assert {handle for members in short.sets for handle in members} == {f"C{i}" for i in range(7)}


def test_a_bound_by_others_updates_is_refused_beside_accounted_noise():
    with pytest.raises(ConfigError, match="max_relative_norm"):
        AnonymitySets(noise="sound", partition="public-random", epsilon=1.0, max_relative_norm=1.0)
