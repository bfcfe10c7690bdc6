import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import ClientUpdate, Params, Streams, mean_per_cluster

NO_DRAWS = Streams(0)

seeds = st.integers(0, 2**32 - 1)
clusters_of = st.lists(st.integers(0, 2), max_size=8)
weights = st.floats(0.125, 100)


def drawn(seed: int) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(2, 3, generator=draws),
        "bias": torch.randn(3, generator=draws, dtype=torch.float64),
        "count": torch.randint(100, (), generator=draws),
    }


def updates_of(choices: list[int], shares: list[float] | None = None) -> list[ClientUpdate]:
    shares = shares or [1.0] * len(choices)
    return [
        ClientUpdate(f"C{i}", j, drawn(100 + i), share)
        for i, (j, share) in enumerate(zip(choices, shares, strict=True))
    ]


THREE_MODELS = tuple(drawn(seed) for seed in range(3))


def assert_close(left: Params, right: Params, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=tolerance)


def test_three_clients_and_two_clusters_by_hand():
    # cluster 0 at 10: clients 1 and 3 with updates +2 (weight 1) and -1 (weight 3):
    #   10 + (1 * 2 + 3 * -1) / 4 = 9.75;  counter 5 + max(4, 7) = 12
    # cluster 1 at 20: client 2 with update +1 (weight 2): 21;  counter 0 + 3 = 3
    def model(value: float, count: int) -> Params:
        return {"w": torch.tensor([value]), "n": torch.tensor(count)}

    merged = mean_per_cluster(
        (model(10.0, 5), model(20.0, 0)),
        iter(
            [
                ClientUpdate("A", 0, model(2.0, 4), 1.0),
                ClientUpdate("B", 1, model(1.0, 3), 2.0),
                ClientUpdate("C", 0, model(-1.0, 7), 3.0),
            ]
        ),
        NO_DRAWS,
    )
    assert merged.events == ()
    assert [float(each["w"]) for each in merged.clusters] == [9.75, 21.0]
    assert [int(each["n"]) for each in merged.clusters] == [12, 3]


@given(seeds, st.lists(weights, min_size=1, max_size=6))
def test_the_mean_of_equal_updates_is_that_update(seed: int, shares: list[float]):
    start, update = drawn(seed), drawn(seed + 1)
    updates = [ClientUpdate(f"C{i}", 0, update, w) for i, w in enumerate(shares)]
    (moved,) = mean_per_cluster((start,), updates, NO_DRAWS).clusters
    assert_close(moved, {name: start[name] + update[name] for name in start})


@given(clusters_of, st.data(), st.sampled_from([0.25, 3.0, 1000.0]))
def test_the_unit_of_the_weights_does_not_matter(
    choices: list[int], data: st.DataObject, unit: float
):
    size = len(choices)
    shares = data.draw(st.lists(weights, min_size=size, max_size=size))
    once = mean_per_cluster(THREE_MODELS, updates_of(choices, shares), NO_DRAWS)
    scaled = updates_of(choices, [unit * share for share in shares])
    for left, right in zip(
        once.clusters, mean_per_cluster(THREE_MODELS, scaled, NO_DRAWS).clusters, strict=True
    ):
        assert_close(left, right)


@given(clusters_of, st.data())
def test_the_order_of_the_updates_does_not_matter(choices: list[int], data: st.DataObject):
    updates = updates_of(choices)
    shuffled = data.draw(st.permutations(updates))
    for left, right in zip(
        mean_per_cluster(THREE_MODELS, updates, NO_DRAWS).clusters,
        mean_per_cluster(THREE_MODELS, shuffled, NO_DRAWS).clusters,
        strict=True,
    ):
        assert_close(left, right, 1e-6)


@given(clusters_of)
def test_an_empty_cluster_does_not_move_by_a_bit(choices: list[int]):
    merged = mean_per_cluster(THREE_MODELS, updates_of(choices), NO_DRAWS).clusters
    for j, (before, after) in enumerate(zip(THREE_MODELS, merged, strict=True)):
        same = all(torch.equal(before[name], after[name]) for name in before)
        assert same == (j not in choices)


@given(clusters_of)
def test_equal_weights_give_the_mean_of_the_clients_models(choices: list[int]):
    updates = updates_of(choices)
    merged = mean_per_cluster(THREE_MODELS, updates, NO_DRAWS).clusters
    for j in set(choices):
        for name in ("weight", "bias"):
            models = [
                THREE_MODELS[j][name] + each.update[name] for each in updates if each.cluster == j
            ]
            torch.testing.assert_close(merged[j][name], torch.stack(models).mean(dim=0))


@given(clusters_of.filter(bool))
def test_names_shapes_dtypes_and_the_callers_tensors_stay_as_they_are(choices: list[int]):
    updates = updates_of(choices)
    merged = mean_per_cluster(THREE_MODELS, updates, NO_DRAWS).clusters
    for before, after in zip(THREE_MODELS, merged, strict=True):
        assert list(before) == list(after)
        for name, value in before.items():
            assert after[name].shape == value.shape
            assert after[name].dtype == value.dtype
    for value in (value for j in set(choices) for value in merged[j].values()):
        value.zero_()
    for model, untouched in zip(THREE_MODELS, map(drawn, range(3)), strict=True):
        assert_close(model, untouched, 0)
    for each, untouched in zip(updates, updates_of(choices), strict=True):
        assert_close(each.update, untouched.update, 0)


@pytest.mark.parametrize("size", [1, 2])
def test_a_counter_takes_the_largest_count_and_not_the_mean(size: int):
    start = {"n": torch.tensor(1), "w": torch.zeros(1)}
    updates = [
        ClientUpdate(f"C{i}", 0, {"n": torch.tensor(3 + i), "w": torch.ones(1)}, 1.0)
        for i in range(size)
    ]
    (moved,) = mean_per_cluster((start,), updates, NO_DRAWS).clusters
    assert moved["n"].dtype == torch.int64
    assert int(moved["n"]) == 1 + 3 + (size - 1)
