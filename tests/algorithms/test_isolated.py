"""Isolated clusters, and rounds in which only some of them are trained."""

from collections import Counter
from dataclasses import replace

import pytest

from algorithms.playing import fedavg, isolated
from covey import ReferenceEngine, Streams
from covey.base.events import ModelsMerged
from covey.base.params import model_hash

CLUSTERS = 3


@pytest.fixture
def population(point):
    return tuple(point(f"c{i}", i / 4 - 1, i % 2, times=i % 3 + 1) for i in range(9))


def played(strategy, cohort, rounds=3):
    state = strategy.init(Streams(0))
    for t in range(rounds):
        state = strategy.play_round(state, cohort, Streams(0).at("round", t)).state
    return state


def test_each_cluster_is_fedavg_among_its_own_clients(steps, models, population):
    alone = fedavg(models(0.5), steps)
    state = played(isolated(models(0.5), steps, CLUSTERS, population), population)
    for j, model in enumerate(state.clusters):
        own = tuple(c for c in population if state.assignment[c.handle] == j)
        assert own
        assert model_hash([model]) == model_hash(played(alone, own).clusters)


def test_a_clients_cluster_hangs_on_its_name_and_the_seed_alone(steps, models, point):
    def drawn(clients, seed=0):
        strategy = isolated(models(0.5), steps, 4, tuple(clients))
        found = strategy.init(Streams(seed)).assignment
        return {client.name: found[client.handle] for client in clients}

    everybody = [point(f"c{i}", 1.0, 0) for i in range(80)]
    whole = drawn(everybody)
    some = [replace(client, handle=f"h-{i}") for i, client in enumerate(everybody[::3])]
    assert drawn(some) == {client.name: whole[client.name] for client in some}
    assert drawn(everybody, seed=1) != whole
    assert all(8 < clients < 32 for clients in Counter(whole.values()).values())


class Noting(ReferenceEngine):
    """Notes how many clients train."""

    trained = 0

    def train(self, jobs):
        for each in super().train(jobs):
            self.trained += 1
            yield each


@pytest.mark.parametrize("spared", [(), (1,), (0, 2), (0, 1, 2)], ids=str)
def test_a_round_that_spares_clusters_trains_the_others_as_ever(
    steps, models, population, one_weight, spared
):
    whole = isolated(models(0.5), steps, CLUSTERS, population)
    before = played(whole, population)
    expected = whole.play_round(before, population[1:], Streams(7))
    engine = Noting(one_weight)
    here = replace(steps.federation, engine=engine, untouched=frozenset(spared))
    fewer = isolated(models(0.5), replace(steps, federation=here), CLUSTERS, population)
    found = fewer.play_round(before, population[1:], Streams(7))
    for j, model in enumerate(found.state.clusters):
        same = before if j in spared else expected.state
        assert model_hash([model]) == model_hash([same.clusters[j]])
    *others, merged = found.events
    *same, last = expected.events
    assert isinstance(merged, ModelsMerged)
    assert isinstance(last, ModelsMerged)
    assert (others, merged.participants) == (same, last.participants)
    asked = {client.handle for client in population[1:]}
    assert engine.trained == sum(before.assignment[handle] not in spared for handle in asked)
