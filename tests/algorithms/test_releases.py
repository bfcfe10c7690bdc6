"""Noise on heads and on sums: a release at a time, and who is in it."""

import json
from typing import Any

import pytest
import torch

import covey
from algorithms.playing import changed, hidden_run, rounds_of
from covey import Config, ConfigError, History, RunError, verify
from covey.algorithms.releases import Release, ReleasedHeads, ReleasedSums, release_of
from covey.base.events import HeadPerturbed, HeadsSolved, ModelAttacked, SumPerturbed
from covey.base.params import model_hash
from covey.dp.accountant import gaussian_epsilon
from covey.dp.run_guarantees import guarantees
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_state import ClusterSums, SumNoise
from covey.models.ridge_sums import WEIGHT_STEPS, Sums
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
def test_nobody_ends_above_what_it_accepts_until_somebody_leaves(tmp_path):
    """A leaver costs one more release, which is counted for those who stay."""
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


# noise on sums


NOISY: dict[str, Any] = {
    "rounds": 3,
    "model": {"name": "linear-head", "norm": 3.8, "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {"name": "solved", "num_clusters": 1, "regularisation": 0.125},
    "privacy": {"client_clip": 0.3, "client_noise": 0.05},
    "risk": {"name": "none"},
    "population": {"clients": 12, "examples_per_client": 20, "minority_share": 0.25},
}


def with_noisy_sums(secret: int = 7, **sections: Any) -> BuiltRun:
    return hidden_run(changed(NOISY, **sections), secret)


def noise_on_sums(run: BuiltRun) -> SumNoise:
    assert run.records is not None
    assert isinstance(run.records.noise, SumNoise)
    return run.records.noise


def sums_in(release: Release) -> tuple[Sums, ...]:
    (kept,) = release.kept
    assert isinstance(kept, ReleasedSums)
    return kept.sums


@pytest.mark.slow
def test_sums_that_stay_are_released_once():
    results = [*rounds_of(with_noisy_sums(), 3)]
    facts = [fact for each in results for fact in each.events]
    told = [fact for fact in facts if isinstance(fact, SumPerturbed)]
    assert told == [SumPerturbed(0, 0.3, 0.05, 1.0)]
    assert len({model_hash(each.state.clusters) for each in results}) == 1
    sums = {fact.sums for fact in facts if isinstance(fact, HeadsSolved)}
    assert len(sums) == 1
    exact = results[0].state.kept(ClusterSums).sums[0].digest()
    assert sums != {(exact,)}  # whose hash would tell who guesses a client's data
    (found,) = guarantees(facts, 1e-5, secret=True)
    assert found.epsilon == pytest.approx(gaussian_epsilon(20.0, 1e-5), rel=1e-3)
    (seeded,) = guarantees(facts, 1e-5, secret=False)
    assert seeded.epsilon is None
    assert "seed" in seeded.reason


def test_the_noise_hangs_on_the_secret_and_on_nothing_else():
    """The seed and the round being the same, who lacks the secret cannot draw it again."""
    one, same, other = (next(rounds_of(with_noisy_sums(secret), 1)).state for secret in (1, 1, 2))
    noisy = [state.kept(ReleasedSums).sums for state in (one, same, other)]
    exact = [state.kept(ClusterSums).sums for state in (one, same, other)]
    assert exact[0] == exact[1] == exact[2]
    assert noisy[0] == noisy[1]
    assert noisy[0] != noisy[2]


def test_other_sums_never_get_the_same_noise():
    """The difference of two releases would be that of the sums: exactly who left."""
    run = with_noisy_sums()
    assert run.records is not None
    noise = noise_on_sums(run)
    state = next(rounds_of(run, 1)).state
    sums = state.kept(ClusterSums)
    leaver = run.population.clients[0]
    weight = sums.counted[leaver.handle][1]
    d = len(sums.targets[0])
    own = run.records.sums([(leaver.train, weight)], d)
    rest = {h: c for h, c in sums.counted.items() if h != leaver.handle}
    without = sums.of((sums.sums[0] - own,), rest)
    streams, fresh = run.streams.at("round", 0), state.keeping(ReleasedSums())
    releases = [release_of(fresh, each, noise, streams) for each in (sums, without)]
    assert [len(each.facts) for each in releases] == [1, 1]
    before, after = (sums_in(each)[0] for each in releases)
    drawn, off = before - sums.sums[0], before - after - own  # on a grid: not quite own
    assert off.gram.abs().max() > 0.5 * drawn.gram.abs().max()


def test_who_adds_nothing_is_hidden_like_everybody():
    """Noise that stayed after it came or left would tell that its sums are zero."""
    run = with_noisy_sums()
    assert run.records is not None
    noise, streams = noise_on_sums(run), run.streams.at("round", 1)
    state = next(rounds_of(run, 1)).state
    sums = state.kept(ClusterSums)
    handle = run.population.clients[0].handle
    without = {h: c for h, c in sums.counted.items() if h != handle}
    left = release_of(state, sums.of(sums.sums, without), noise, streams)
    assert len(left.facts) == 1
    assert sums_in(left) != state.kept(ReleasedSums).sums
    state = state.keeping(*left.kept)
    came = release_of(state, sums, noise, run.streams.at("round", 2))
    assert len(came.facts) == 1
    assert sums_in(came) != sums_in(left)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"train": {"participation": 0.5}}, ("participation", "clients train")),
        ({"privacy": {"record_clip": 1.0}}, ("on heads", "record_clip")),
    ],
)
def test_what_noise_on_sums_does_not_go_with_is_refused(sections, words):
    with pytest.raises(ConfigError) as refused:
        Config.model_validate(changed(NOISY, **sections))
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_nobody_is_subtracted_from_a_noisy_release(tmp_path):
    run = covey.run(config=NOISY, out=tmp_path / "run")
    with pytest.raises(covey.RunError, match="second release"):
        run.forget("client-00001", answer="subtract")
    run.forget("client-00001", answer="retrain")
    again = [fact for fact in run.history.all_events if isinstance(fact, SumPerturbed)]
    assert len(again) == 2  # and both are paid for
