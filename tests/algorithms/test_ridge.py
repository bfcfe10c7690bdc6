"""Ridge heads: FedAvg, IFCA and IFCA-MIR by sums."""

from typing import Any

import numpy as np
import pytest
import torch

import covey
from algorithms.playing import changed, rounds_of
from covey import ConfigError
from covey.base.events import HeadsSolved
from covey.base.params import model_hash
from covey.ridge.head import ClusterSums
from covey.ridge.sums import FEATURE_STEPS
from covey.settings.run import BuiltRun, build_run

RIDGE: dict[str, Any] = {
    "rounds": 3,
    "model": {"name": "linear-head", "features": {"filters": 8, "size": 3, "pool": 2}},
    "method": {"name": "ridge", "selection": "loss"},
    "risk": {"name": "none"},
    "population": {"clients": 12, "examples_per_client": 20, "minority_share": 0.25},
}


def built(**method: object) -> BuiltRun:
    return build_run(covey.Config.of(changed(RIDGE, method=method)))


def test_one_cluster_is_ridge_regression_over_everybody():
    run = built(num_clusters=1, regularisation=0.5)
    assert run.records is not None
    first, second = rounds_of(run, 2)
    rows = [run.records.rows(c.train) for c in run.population.clients]
    phi = torch.cat([row.features for row in rows]).double().numpy() / FEATURE_STEPS
    labels = torch.cat([row.labels for row in rows]).numpy()
    gram = phi.T @ phi
    ridge = 0.5 * gram.diagonal().mean() * np.eye(len(gram))
    theta = np.linalg.solve(gram + ridge, phi.T @ (np.eye(10)[labels] - 0.1))
    model = first.state.clusters[0]
    np.testing.assert_allclose(model["head.weight"].T, theta[:-1], atol=1e-5)
    np.testing.assert_allclose(model["head.bias"], theta[-1], atol=1e-5)
    assert model_hash(second.state.clusters) == model_hash(first.state.clusters)


@pytest.mark.parametrize("initialisation", ["random", "warm"])
def test_sums_are_those_of_whoever_is_in_each_cluster(initialisation):
    run = built(initialisation=initialisation)
    assert run.records is not None
    by_handle = {client.handle: client.train for client in run.population.clients}
    rounds = [*rounds_of(run, 4)]
    for played in rounds:
        state, known = played.state, played.state.get_state(ClusterSums)
        for j, cluster_sums in enumerate(known.sums):
            inside = [by_handle[h] for h, own in known.counted.items() if own == j]
            assert cluster_sums == run.records.sums(inside, len(cluster_sums.targets))
        assert known.counted == state.assignment
        (event,) = (fact for fact in played.events if isinstance(fact, HeadsSolved))
        assert event.sums == tuple(cluster_sum.digest() for cluster_sum in known.sums)
        assert sum(event.clients) == 12
        assert played.events[-1].model_hash == model_hash(state.clusters)  # pyright: ignore
    moved = rounds[0].state.assignment != rounds[-1].state.assignment
    assert moved or initialisation != "random"


def test_everything_pooled_is_one_cluster_to_the_bit():
    one, two = built(num_clusters=1), built(pooling=1.0, initialisation="random")
    (alone,), (pooled,) = rounds_of(one, 1), rounds_of(two, 1)
    for model in pooled.state.clusters:
        assert model_hash([model]) == model_hash(alone.state.clusters)


def test_a_client_chooses_by_heads_that_never_met_it():
    """The choice on training examples is that among heads solved without the client."""
    run = built(initialisation="random")
    first, second = rounds_of(run, 2)
    known, records = first.state.get_state(ClusterSums), run.records
    assert records is not None
    agreed = 0
    for client in run.population.clients:
        rows = records.rows(client.train)
        own = records.sums([client.train], len(known.sums[0].targets))
        sums = list(known.sums)
        sums[known.counted[client.handle]] -= own
        rest = known.of(tuple(sums), {})
        phi = rows.features.double() / FEATURE_STEPS
        answers = [(phi @ rest.head(j).theta).float() for j in range(2)]
        losses = [float(records.losses(answer, rows.labels).mean()) for answer in answers]
        agreed += int(np.argmin(losses)) == second.state.assignment[client.handle]
    assert agreed >= 11  # the unit of the regularisation is one of all clients


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"aggregation": {"name": "anonymity-sets"}}, "single updates"),
        ({"method": {"regularisation": 0.0}}, "regularisation"),
        ({"leaving": {"store_updates": 1}}, "updates"),
        ({"privacy": {"client_clip": 1.0}}, "clients that train"),
        ({"privacy": {"client_clip": 1.0, "client_noise": 1.0}}, r"client_noise = 1\.0 needs"),
        ({"privacy": {"record_clip": 1.0}}, "such as method.name = 'fedavg'"),
        ({"privacy": {"record_clip": 1.0, "record_noise": 1.0}}, r"record_noise = 1\.0 needs"),
    ],
)
def test_what_does_not_fit_is_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        build_run(covey.Config.of(changed(RIDGE, **sections)))


def test_who_was_away_while_nobody_moved_is_asked_when_it_comes():
    """Heads are others' since its last choice, whatever the rest did in between."""
    run = built(initialisation="random")
    clients = run.population.clients
    start = run.algorithm.init(run.streams)
    first = run.algorithm.round(start, run.clients(clients), run.streams).state
    state, part = first, clients[:3]
    for t in range(1, 6):  # until these stay where they are
        state = run.algorithm.round(state, run.clients(part, t), run.streams).state
    after = run.algorithm.round(state, run.clients(clients, 6), run.streams).state
    assert any(after.assignment[c.handle] != first.assignment[c.handle] for c in clients[3:])


def test_no_attack_rests_on_references_of_another_recipe():
    run = built(pooling=0.5)
    params = run.init(run.streams)
    with pytest.raises(ConfigError, match="an attack with others is too kind"):
        run.retrain_recipe.play_round(0, params, (), run.streams)
