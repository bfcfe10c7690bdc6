"""What every aggregation keeps to."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import Aggregation, ClientUpdate, Config, ConfigError, Params, Streams, mean_per_cluster
from covey.aggregation.base import FederationInfo
from covey.base.built_ins import built_ins
from covey.base.components import create
from support.aggregating import aggregated as all_of

NAMES = tuple(built_ins("aggregation"))
ROBUST = {"trimmed-mean", "median", "krum", "geometric-median", "norm-bounded"}
"""Those that one client cannot move far."""

seeds = st.integers(0, 2**31)


def component(name: str) -> Aggregation:
    return create("aggregation", name, "aggregation.name", Aggregation)


def drawn(seed: int, size: float = 1.0) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "weight": size * torch.randn(2, 3, generator=draws),
        "bn.running_var": size * torch.rand(3, generator=draws, dtype=torch.float64),
        "count": torch.randint(100, (), generator=draws),
        "mask": torch.tensor([True, False]),
    }


def updates_of(choices: Sequence[int], seed: int = 0) -> list[ClientUpdate]:
    return [ClientUpdate(f"C{i:02}", j, drawn(seed + i, 0.1), 1.0) for i, j in enumerate(choices)]


def aggregated(
    name: str, models: tuple[Params, ...], updates: Sequence[ClientUpdate]
) -> tuple[Params, ...]:
    begin = partial(component(name).begin, federation=FederationInfo(clients=len(updates)))
    return all_of(begin, models, updates, Streams(1)).clusters


def same(left: Params, right: Params) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


MODELS = tuple(drawn(1000 + j) for j in range(3))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(st.lists(st.integers(0, 2), max_size=20))
def test_a_cluster_without_clients_does_not_move_and_kinds_stay(name, choices):
    updates = updates_of(choices)
    after = aggregated(name, MODELS, updates)
    assert len(after) == len(MODELS)
    for j, (old, new) in enumerate(zip(MODELS, after, strict=True)):
        assert j in choices or same(old, new)
        assert list(old) == list(new)
        for key, value in old.items():
            assert (new[key].shape, new[key].dtype) == (value.shape, value.dtype)
    for model, untouched in zip(MODELS, (drawn(1000 + j) for j in range(3)), strict=True):
        assert same(model, untouched)  # nobody wrote into what was given
    for each, untouched in zip(updates, updates_of(choices), strict=True):
        assert same(each.update, untouched.update)


@pytest.mark.parametrize("name", ["mean", *sorted(ROBUST)])
@settings(max_examples=8)
@given(seeds, st.sampled_from([1e3, 1e6]))
def test_one_outlier_moves_a_robust_aggregation_by_little(name, seed, size):
    updates = updates_of([0] * 9, seed)
    huge = {
        key: value * size if value.is_floating_point() else value
        for key, value in updates[0].update.items()
    }
    attacked = [replace(updates[0], update=huge), *updates[1:]]
    before, after = (
        aggregated(name, MODELS[:1], each)[0]["weight"] for each in (updates, attacked)
    )
    assert (float((after - before).norm()) < 0.5) == (name in ROBUST)


@pytest.mark.parametrize("name", NAMES)
def test_noise_on_sums_is_for_aggregations_of_sums(name):
    noise = {"client_noise": 1.0, "client_clip": 1.0}
    if name == "mean":
        assert Config.of({"aggregation": {"name": name}, "privacy": noise})
        return
    with pytest.raises(ConfigError, match="to see single updates"):
        Config.of({"aggregation": {"name": name}, "privacy": noise})


# the mean, by hand


NO_DRAWS = Streams(0)


def test_three_clients_and_two_clusters_by_hand():
    # cluster 0 at 10: clients 1 and 3 with updates +2 (weight 1) and -1 (weight 3):
    #   10 + (1 * 2 + 3 * -1) / 4 = 9.75;  counter 5 + max(4, 7) = 12
    # cluster 1 at 20: client 2 with update +1 (weight 2): 21;  counter 0 + 3 = 3
    def model(value: float, count: int) -> Params:
        return {"w": torch.tensor([value]), "n": torch.tensor(count)}

    updates = [
        ClientUpdate("A", 0, model(2.0, 4), 1.0),
        ClientUpdate("B", 1, model(1.0, 3), 2.0),
        ClientUpdate("C", 0, model(-1.0, 7), 3.0),
    ]
    merged = mean_per_cluster((model(10.0, 5), model(20.0, 0)), iter(updates), NO_DRAWS)
    assert merged.events == ()
    assert [float(each["w"]) for each in merged.clusters] == [9.75, 21.0]
    assert [int(each["n"]) for each in merged.clusters] == [12, 3]


@pytest.mark.parametrize("size", [1, 2])
def test_a_counter_takes_the_largest_count_and_not_the_mean(size):
    start = {"n": torch.tensor(1), "w": torch.zeros(1)}
    updates = [
        ClientUpdate(f"C{i}", 0, {"n": torch.tensor(3 + i), "w": torch.ones(1)}, 1.0)
        for i in range(size)
    ]
    (moved,) = mean_per_cluster((start,), updates, NO_DRAWS).clusters
    assert moved["n"].dtype == torch.int64
    assert int(moved["n"]) == 1 + 3 + (size - 1)
