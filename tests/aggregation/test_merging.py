import pytest
import torch

from covey import ClientUpdate, Params, Streams, mean_per_cluster

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
