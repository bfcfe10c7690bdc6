"""Solved heads: FedAvg, IFCA and IFCA-MIR by sums."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import ConfigError, RoundResult, ServerState, load_config
from covey.algorithms.solved import Solved
from covey.base.events import ClientsAssigned, HeadsSolved, ModelsMerged
from covey.base.params import model_hash
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import FEATURE_STEPS, Sums
from covey.settings.run import BuiltRun, build_run

FEATURES = {"filters": 8, "size": 3, "pool": 2}
SOLVED: dict[str, Any] = {
    "rounds": 3,
    "model.name": "linear-head",
    "model.features": FEATURES,
    "method.name": "solved",
    "risk.name": "none",
    "population": {"clients": 12, "examples_per_client": 20, "minority_share": 0.25},
}


def built(**changed: object) -> BuiltRun:
    return build_run(covey.Config.model_validate(nested({**SOLVED, **changed})))


def nested(flat: Mapping[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.partition(".")
        if name:
            found.setdefault(section, {})[name] = value
        else:
            found[key] = value
    return found


def rounds_of(run: BuiltRun, count: int) -> Iterator[RoundResult]:
    state = run.algorithm.init(run.streams)
    for t in range(count):
        played = run.algorithm.round(
            state, run.clients(run.population.clients, t), run.streams.at("round", t)
        )
        yield played
        state = played.state


def features(run: BuiltRun, inputs: object) -> np.ndarray:
    assert run.records is not None
    return run.records.rows(inputs).features.double().numpy() / FEATURE_STEPS  # type: ignore[arg-type]


def counted_anew(run: BuiltRun, state: ServerState) -> tuple[Sums, ...]:
    known, records = state.kept(ClusterSums), run.records
    assert records is not None
    by_handle = {client.handle: client.train for client in run.population.clients}
    d = state.clusters[0]["head.weight"].shape[1] + 1
    return tuple(
        records.sums(((by_handle[h], w) for h, (c, w) in known.counted.items() if c == j), d)
        for j in range(len(state.clusters))
    )


def test_one_cluster_is_ridge_regression_over_everybody():
    run = built(**{"method.num_clusters": 1, "method.regularisation": 0.5})
    first, second = rounds_of(run, 2)
    phi = np.concatenate([features(run, c.train) for c in run.population.clients])
    labels = np.concatenate([c.train.labels.numpy() for c in run.population.clients])
    gram = phi.T @ phi
    ridge = 0.5 * gram.diagonal().mean() * np.eye(len(gram))
    theta = np.linalg.solve(gram + ridge, phi.T @ (np.eye(10)[labels] - 0.1))
    model = first.state.clusters[0]
    np.testing.assert_allclose(model["head.weight"].T, theta[:-1], atol=1e-5)
    np.testing.assert_allclose(model["head.bias"], theta[-1], atol=1e-5)
    assert model_hash(second.state.clusters) == model_hash(first.state.clusters)


@pytest.mark.parametrize("initialisation", ["random", "warm", "groups"])
def test_sums_are_those_of_whoever_is_in_each_cluster(initialisation: str):
    run = built(**{"method.initialisation": initialisation, "method.selection": "loss"})
    moves = 0
    before: Mapping[str, int] = {}
    for played in rounds_of(run, 4):
        state = played.state
        known = state.kept(ClusterSums)
        assert known.sums == counted_anew(run, state)
        assert {h: j for h, (j, _) in known.counted.items()} == state.assignment
        facts = {type(fact): fact for fact in played.events}
        solved = facts[HeadsSolved]
        assert isinstance(solved, HeadsSolved)
        assert solved.sums == tuple(each.digest() for each in known.sums)
        assert sum(solved.clients) == 12
        merged = facts[ModelsMerged]
        assert isinstance(merged, ModelsMerged)
        assert merged.model_hash == model_hash(state.clusters)
        moves += sum(before.get(h, j) != j for h, j in state.assignment.items())
        before = state.assignment
    assert moves or initialisation != "random"


def test_everything_pooled_is_one_cluster_to_the_bit():
    one = built(**{"method.num_clusters": 1})
    two = built(**{"method.pooling": 1.0, "method.initialisation": "random"})
    (alone,), (pooled,) = rounds_of(one, 1), rounds_of(two, 1)
    for model in pooled.state.clusters:
        assert model_hash([model]) == model_hash(alone.state.clusters)


def test_a_client_chooses_by_heads_that_never_met_it():
    """The choice on training examples is that among heads solved without the client."""
    run = built(**{"method.initialisation": "random", "method.selection": "loss"})
    first, second = rounds_of(run, 2)
    known, records = first.state.kept(ClusterSums), run.records
    assert records is not None
    agreed = 0
    for client in run.population.clients:
        cluster, weight = known.counted[client.handle]
        rows = records.rows(client.train, weight)
        own = records.sums([(client.train, weight)], known.targets[0].shape[0])
        sums = list(known.sums)
        sums[cluster] -= own
        rest = known.of(tuple(sums), {})
        losses = [
            float(
                records.losses(
                    (rows.features.double() / FEATURE_STEPS @ rest.head(j).theta).float(),
                    rows.labels,
                ).mean()
            )
            for j in range(2)
        ]
        agreed += int(np.argmin(losses)) == second.state.assignment[client.handle]
    assert agreed >= 11  # the unit of the regularisation is one of all clients


def test_nobody_is_asked_again_once_nobody_moves():
    run = built(**{"method.selection": "loss"})
    played = list(rounds_of(run, 6))
    choices = [
        fact.clusters
        for each in played
        for fact in each.events
        if isinstance(fact, ClientsAssigned)
    ]
    assert choices[-1] == choices[-2]
    hashes = [model_hash(each.state.clusters) for each in played]
    assert hashes[-1] == hashes[-2]


def test_once_somebody_left_heads_are_those_of_who_stayed():
    run = built(**{"method.num_clusters": 1})
    played = list(rounds_of(run, 2))
    leaver = run.population.clients[0].handle
    state = played[1].state.without({leaver})
    assert not state.kept(ClusterSums).is_whole
    rest = tuple(c for c in run.population.clients if c.handle != leaver)
    after = run.with_clients(rest)
    again = after.algorithm.round(state, after.clients(rest, 2), run.streams)
    assert again.state.kept(ClusterSums).is_whole
    alone = after.algorithm.round(
        after.algorithm.init(run.streams), after.clients(rest, 0), run.streams
    )
    assert model_hash(again.state.clusters) == model_hash(alone.state.clusters)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": {"name": "mlp"}}, "features that do not train"),
        ({"aggregation.name": "anonymity-sets"}, "single updates"),
        ({"aggregation.name": "geometric-median"}, "single updates"),
        ({"method.regularisation": 0.0}, "regularisation"),
        ({"method.regularisation": "risk"}, "regularisation"),
        ({"method.exposure": "risk"}, "exposure"),
        ({"method.pooling": "risk"}, "pooling"),
        ({"risk.name": "leave-one-out"}, "must be one of federated"),
        ({"leaving.store_updates": 1}, "updates"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], told: str):
    with pytest.raises((ConfigError, ValueError), match=told):
        built(**changed)


def test_a_run_is_resumed_exported_and_audited(tmp_path: Path):
    config = {**SOLVED, "method.num_clusters": 1, "population.audit_examples": 60}
    run = covey.run(out=tmp_path / "run", config=config)
    ended = run.summary.model_hash
    newest = max((tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    newest.unlink()
    assert covey.resume(tmp_path / "run").summary.model_hash == ended
    assert run.audit(attacks=["lira"], references=4) is not None
    assert set(run.params(0)) == {"head.weight", "head.bias"}


def test_the_settings_are_read_from_toml(tmp_path: Path):
    path = tmp_path / "solved.toml"
    path.write_text(
        '[model]\nname = "linear-head"\n[method]\nname = "solved"\n'
        "regularisation = 0.3\npooling = 1.0\n"
    )
    assert load_config(path).method == Solved(regularisation=0.3, pooling=1.0)


def test_who_was_away_while_nobody_moved_is_asked_when_it_comes():
    """Heads are others' since its last choice, whatever the rest did in between."""
    run = built(**{"method.initialisation": "random", "method.selection": "loss"})
    everybody = run.population.clients
    first = run.algorithm.round(
        run.algorithm.init(run.streams), run.clients(everybody), run.streams
    ).state
    settled, part = first, everybody[:3]
    for t in range(1, 6):  # until these stay where they are
        settled = run.algorithm.round(settled, run.clients(part, t), run.streams).state
    after = run.algorithm.round(settled, run.clients(everybody, 6), run.streams).state
    assert any(after.assignment[c.handle] != first.assignment[c.handle] for c in everybody[3:])


def test_no_attack_rests_on_references_of_another_recipe():
    run = built(**{"method.pooling": 0.5})
    params = run.init(run.streams)
    with pytest.raises(ConfigError, match="another recipe"):
        run.retrain_recipe.play_round(0, params, (), run.streams)
