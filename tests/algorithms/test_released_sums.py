"""Heads of one noisy release: what is drawn, when, and what is refused beside it."""

from typing import Any

import pytest

import covey
from algorithms.playing import changed, hidden_run, rounds_of
from covey import Config, ConfigError
from covey.algorithms.releases import Release, ReleasedSums, release_of
from covey.base.events import HeadsSolved, SumPerturbed
from covey.base.params import model_hash
from covey.dp.accountant import gaussian_epsilon
from covey.dp.run_guarantees import guarantees
from covey.models.ridge_state import ClusterSums, SumNoise
from covey.models.ridge_sums import Sums
from covey.settings.run import BuiltRun

NOISY: dict[str, Any] = {
    "rounds": 3,
    "model": {"name": "linear-head", "norm": 3.8, "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {"name": "solved", "num_clusters": 1, "regularisation": 0.125},
    "privacy": {"client_clip": 0.3, "client_noise": 0.05},
    "risk": {"name": "none"},
    "population": {"clients": 12, "examples_per_client": 20, "minority_share": 0.25},
}


def built(secret: int = 7, **sections: Any) -> BuiltRun:
    return hidden_run(changed(NOISY, **sections), secret)


def noise_of(run: BuiltRun) -> SumNoise:
    assert run.records is not None
    assert isinstance(run.records.noise, SumNoise)
    return run.records.noise


def sums_in(release: Release) -> tuple[Sums, ...]:
    (kept,) = release.kept
    assert isinstance(kept, ReleasedSums)
    return kept.sums


@pytest.mark.slow
def test_sums_that_stay_are_released_once():
    results = [*rounds_of(built(), 3)]
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
    one, same, other = (next(rounds_of(built(secret), 1)).state for secret in (1, 1, 2))
    noisy = [state.kept(ReleasedSums).sums for state in (one, same, other)]
    exact = [state.kept(ClusterSums).sums for state in (one, same, other)]
    assert exact[0] == exact[1] == exact[2]
    assert noisy[0] == noisy[1]
    assert noisy[0] != noisy[2]


def test_other_sums_never_get_the_same_noise():
    """The difference of two releases would be that of the sums: exactly who left."""
    run = built()
    assert run.records is not None
    noise = noise_of(run)
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
    run = built()
    assert run.records is not None
    noise, streams = noise_of(run), run.streams.at("round", 1)
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


def test_nobody_is_subtracted_from_a_noisy_release(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run = covey.run(config=NOISY, out=tmp_path / "run")
    with pytest.raises(covey.RunError, match="second release"):
        run.forget("client-00001", answer="subtract")
    run.forget("client-00001", answer="retrain")
    again = [fact for fact in run.history.all_events if isinstance(fact, SumPerturbed)]
    assert len(again) == 2  # and both are paid for
