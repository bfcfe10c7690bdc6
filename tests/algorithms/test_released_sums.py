"""Heads of one noisy release: what is drawn, when, and what is refused beside it."""

from dataclasses import replace
from typing import TypeVar

import pytest
import torch

import covey
from covey import Config, ConfigError, RoundResult, ServerState
from covey.algorithms.releases import Release, ReleasedSums, release_of
from covey.base.events import ClientsAssigned, Event, HeadsSolved, SumPerturbed
from covey.base.params import model_hash
from covey.dp.accountant import gaussian_epsilon
from covey.dp.run_guarantees import guarantees
from covey.models.ridge_state import ClusterSums, SumNoise
from covey.models.ridge_sums import Sums
from covey.settings.run import BuiltRun, build_run

NOISY = {
    "rounds": 3,
    "model": {"name": "linear-head", "norm": 3.8, "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {"name": "solved", "num_clusters": 1, "regularisation": 0.125},
    "privacy": {"client_clip": 0.3, "client_noise": 0.05},
    "risk": {"name": "none"},
    "population": {"clients": 12, "examples_per_client": 20, "minority_share": 0.25},
}


def settings(**sections) -> dict[str, object]:
    return {
        key: {**value, **sections.pop(key, {})} if isinstance(value, dict) else value
        for key, value in NOISY.items()
    } | sections


def built(secret: int = 7, **sections) -> BuiltRun:
    run = build_run(Config.model_validate(settings(**sections)))
    return replace(run, streams=replace(run.streams, secret=secret))


def noise_of(run: BuiltRun) -> SumNoise:
    assert run.records is not None
    assert isinstance(run.records.noise, SumNoise)
    return run.records.noise


def sums_in(release: Release) -> tuple[Sums, ...]:
    (kept,) = release.kept
    assert isinstance(kept, ReleasedSums)
    return kept.sums


def played(run: BuiltRun, rounds: int) -> list[RoundResult]:
    found: list[RoundResult] = []
    state: ServerState = run.algorithm.init(run.streams)
    for t in range(rounds):
        clients = run.clients(run.population.clients, t)
        found.append(run.algorithm.round(state, clients, run.streams.at("round", t)))
        state = found[-1].state
    return found


F = TypeVar("F", bound=Event)


def facts_of(results: list[RoundResult], kind: type[F]) -> list[F]:
    return [fact for each in results for fact in each.events if isinstance(fact, kind)]


def test_sums_that_stay_are_released_once():
    results = played(built(), 3)
    assert facts_of(results, SumPerturbed) == [SumPerturbed(0, 0.3, 0.05, 1.0)]
    assert len({model_hash(each.state.clusters) for each in results}) == 1
    sums = {each.sums for each in facts_of(results, HeadsSolved)}
    assert len(sums) == 1
    exact = results[0].state.kept(ClusterSums).sums[0].digest()
    assert sums != {(exact,)}  # whose hash would tell who guesses a client's data
    facts = [fact for each in results for fact in each.events]
    (found,) = guarantees(facts, 1e-5, secret=True)
    assert found.epsilon == pytest.approx(gaussian_epsilon(20.0, 1e-5), rel=1e-3)
    (seeded,) = guarantees(facts, 1e-5, secret=False)
    assert seeded.epsilon is None
    assert "seed" in seeded.reason


def test_the_noise_hangs_on_the_secret_and_on_nothing_else():
    """The seed and the round being the same, who lacks the secret cannot draw it again."""
    one, same, other = (played(built(secret), 1)[0].state for secret in (1, 1, 2))
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
    state = played(run, 1)[0].state
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
    state = played(run, 1)[0].state
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


def test_more_noise_is_a_worse_head_and_hardly_any_is_a_good_one():
    def right(noise: float) -> float:
        run = built(privacy={"client_noise": noise})
        model = played(run, 1)[0].state.clusters[0]
        assert run.records is not None
        theta = torch.cat([model["head.weight"], model["head.bias"][:, None]], dim=1)
        found = [
            (run.records.rows(c.train).features.float() @ theta.T).argmax(dim=1) == c.train.labels
            for c in run.population.clients
        ]
        return float(torch.cat(found).double().mean())

    assert right(0.001) > 0.8
    assert right(0.001) > right(3.0) + 0.3


def test_only_clusters_whose_clients_changed_are_released_again():
    run = built(method={"num_clusters": 2, "initialisation": "groups"})
    first = played(run, 1)[0]
    assert {fact.cluster for fact in facts_of([first], SumPerturbed)} == {0, 1}
    sums = first.state.kept(ClusterSums)
    some = next(h for h, (j, _) in sums.counted.items() if j == 0)
    moved = dict(first.state.assignment) | {some: 1}
    clients = run.clients(run.population.clients, 1)
    again = run.algorithm.solve(
        first.state, ClientsAssigned(moved, "clients"), clients, run.streams.at("round", 1)
    )
    assert {fact.cluster for fact in facts_of([again], SumPerturbed)} == {0, 1}
    back = release_of(
        again.state, again.state.kept(ClusterSums), noise_of(run), run.streams.at("round", 2)
    )
    assert back.facts == ()


def test_an_auditor_s_references_are_solved_under_noise_too():
    run = built()
    sets = tuple(client.train for client in run.population.clients)
    init = run.algorithm.init(run.streams).clusters[0]
    play = run.retrain_recipe.play_round
    heads = [
        play(0, init, sets, replace(run.streams.at("reference"), secret=secret))
        for secret in (1, 2)
    ]
    assert not torch.equal(heads[0]["head.weight"], heads[1]["head.weight"])


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"method": {"keep_sums": True}}, ("without noise",)),
        ({"train": {"participation": 0.5}}, ("participation", "clients train")),
        ({"privacy": {"record_clip": 1.0}}, ("on heads", "record_clip")),
        (
            {"privacy": {"client_noise": 0, "client_clip": 0, "record_clip": 1.0}},
            ("record_noise = 0",),
        ),
    ],
)
def test_what_noise_on_sums_does_not_go_with_is_refused(sections, words):
    with pytest.raises(ConfigError) as refused:
        Config.model_validate(settings(**sections))
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_nobody_is_subtracted_from_a_noisy_release(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run = covey.run(config=Config.model_validate(settings()), out=tmp_path / "run")
    with pytest.raises(covey.RunError, match="second release"):
        run.forget("client-00001", answer="subtract")
    run.forget("client-00001", answer="retrain")
    again = [fact for fact in run.history.all_events if isinstance(fact, SumPerturbed)]
    assert len(again) == 2  # and both are paid for
