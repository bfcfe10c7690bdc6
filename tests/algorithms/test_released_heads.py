"""Heads under objective perturbation in a run: weights, releases, refusals, leaving."""

import json
from typing import Any

import pytest
import torch

import covey
from algorithms.playing import changed, hidden_run, rounds_of
from covey import ConfigError, History, RunError, verify
from covey.algorithms.releases import ReleasedHeads
from covey.base.events import HeadPerturbed, ModelAttacked
from covey.base.params import model_hash
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import WEIGHT_STEPS
from covey.runtime import head_attacks
from covey.settings.run import BuiltRun
from covey.unlearning.proof import read_proof
from covey.unlearning.proof_text import sentences

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "model": {
        "name": "linear-head",
        "norm": 3.87,
        "features": {"filters": 4, "size": 3, "pool": 2},
    },
    "method": {"name": "solved", "num_clusters": 1, "regularisation": 8.0, "exposure": "accepted"},
    "privacy": {"record_clip": 1.4, "record_noise": 0.594},
    "risk": {"name": "none"},
    "secrets": {"source": "os"},
    "population": {"clients": 12, "examples_per_client": 20, "minority_share": 0.25},
}


def built(secret: int = 7, **sections: Any) -> BuiltRun:
    return hidden_run(changed(SETTINGS, **sections), secret)


def noise_of(run: BuiltRun) -> HeadNoise:
    assert run.records is not None
    assert isinstance(run.records.noise, HeadNoise)
    return run.records.noise


def test_each_client_enters_at_the_weight_that_it_accepts_and_once():
    run = built()
    results = [*rounds_of(run, 3)]
    (fact,) = (e for each in results for e in each.events if isinstance(e, HeadPerturbed))
    noise = noise_of(run)
    assert noise == HeadNoise(1.4, 0.594, 8.0, 10)
    for client in run.population.clients:
        weight = noise.weight_for(client.preference.risk_threshold) / WEIGHT_STEPS
        assert fact.weights[client.handle] == weight
        assert noise.success(weight) <= client.preference.risk_threshold
    people = run.population.clients
    assert fact.heaviest == max(fact.weights[c.handle] * len(c.train) for c in people)
    assert len({model_hash(each.state.clusters) for each in results}) == 1


def test_the_noise_hangs_on_the_secret_and_the_sums_do_not():
    one, same, other = (next(rounds_of(built(secret), 1)).state for secret in (1, 1, 2))
    sums = [state.kept(ClusterSums).sums for state in (one, same, other)]
    assert sums[0] == sums[1] == sums[2]
    thetas = [state.kept(ReleasedHeads).thetas[0] for state in (one, same, other)]
    assert torch.equal(thetas[0], thetas[1])
    assert not torch.equal(thetas[0], thetas[2])


def test_weights_count_on_all_releases_and_who_comes_after_them_is_not_in_the_head():
    run = built(method={"releases": 2})
    everybody = run.population.clients
    late, second = everybody[:2]
    state, facts = run.algorithm.init(run.streams), []
    for t, cohort in enumerate((everybody[2:], everybody[1:], everybody)):
        played = run.algorithm.round(state, run.clients(cohort, t), run.streams.at("round", t))
        state = played.state
        facts += [each for each in played.events if isinstance(each, HeadPerturbed)]
    assert len(facts) == 2
    assert state.kept(ReleasedHeads).rounds == 2
    counted = state.kept(ClusterSums).counted
    assert counted[late.handle] == (0, 0)
    noise = noise_of(run)
    assert counted[second.handle][1] == noise.weight_for(second.preference.risk_threshold, 2)
    history = History(all_events=tuple(facts))
    attacks = head_attacks.head_attacks(run, state, history, run.streams.at("end"))
    bounds = {e.client: e.estimate.risk for e in attacks if e.estimate.source == "bound"}
    assert bounds.keys() == {each.handle for each in everybody}
    assert bounds[late.handle] == 0.5


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"privacy": {"record_clip": 0, "record_noise": 0}}, ("exposure", "noise")),
        ({"method": {"pooling": 0.5, "num_clusters": 2}}, ("pooling", "one cluster")),
    ],
)
def test_what_hidden_heads_do_not_go_with_is_refused(sections, words):
    with pytest.raises(ConfigError) as refused:
        built(**sections)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("clip", [0.5, 1.0])
def test_a_residual_above_the_bound_releases_nothing(clip):
    with pytest.raises(RunError, match=f"record_clip = {clip},"):
        next(rounds_of(built(privacy={"record_clip": clip}), 1))


def told(run: covey.Run, attack: str) -> list[ModelAttacked]:
    return [each for each in run.history.attacks if each.estimate.source == attack]


@pytest.mark.slow
def test_nobody_ends_above_what_it_accepts_until_somebody_leaves(tmp_path, monkeypatch):
    """A leaver costs one more release, which is counted for those who stay."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run = covey.run(config=SETTINGS, out=tmp_path / "run")
    assert run.summary.violations.count == 0
    exact = {e.client: e.estimate.risk for e in told(run, "likelihood-ratio") if e.client}
    bounds = {each.client: each.estimate.risk for each in told(run, "bound")}
    assert len(bounds) == 12
    assert all(risk <= bounds[handle] + 2e-3 for handle, risk in exact.items())
    (all_records,) = [e for e in told(run, "likelihood-ratio") if not e.client]
    (by_weights,) = told(run, "weights")
    found = by_weights.estimate
    assert found.risk < all_records.estimate.risk + 3 * found.standard_error
    run.forget("client-00001", answer="subtract")
    facts = [e for e in run.history.all_events if isinstance(e, HeadPerturbed)]
    assert [len(each.weights) for each in facts] == [12, 11]
    noise = HeadNoise(1.4, 0.594, 8.0, 10)
    after = {e.client: e.estimate.risk for e in told(run, "bound")[-12:]}
    for handle, weight in facts[1].weights.items():
        assert after[handle] == noise.success(weight, 2)
    assert (run.summary.violations.count or 0) > 0
    (written,) = (run.folder / "proofs").glob("*.json")
    assert verify(written, run.folder).failed == ()
    proof = json.loads(written.read_text())
    (left,) = facts[0].weights.keys() - facts[1].weights.keys()
    weight = facts[0].weights[left]
    assert proof["earlier_heads"] == {"heads": 1, "weight": weight, "bound": noise.success(weight)}
    limits = sentences(read_proof(written.read_bytes()))["limits"]
    assert any("0.5 is a guess" in each for each in limits)


@pytest.mark.slow
def test_nobody_is_protected_by_an_attack_that_is_too_large_to_run(tmp_path, monkeypatch):
    """The weaker attack is printed, but whoever could run the stronger one knows."""
    monkeypatch.setattr(head_attacks, "MAX_POOL", 100)
    bare = changed(
        SETTINGS,
        privacy={"record_clip": 0, "record_noise": 0},
        method={"exposure": 1.0, "regularisation": 1.0},
    )
    run = covey.run(config=bare, out=tmp_path / "run")
    assert told(run, "weights") == []
    assert told(run, "population")[0].estimate.risk < 1
    assert [each.estimate.risk for each in told(run, "bound")] == [1.0] * 12
    assert run.summary.violations.count == 12
