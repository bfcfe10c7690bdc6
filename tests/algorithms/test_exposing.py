"""Each client enters as much as the risk that it accepts allows."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from algorithms.test_solved import built, counted_anew
from covey.algorithms import RoundResult
from covey.build import BuiltRun
from covey.data import Client
from covey.engine.fixed_features import params_of
from covey.events import ClientsAssigned, ExposureChosen, HeadsSolved
from covey.heads import ClusterSums
from covey.membership import risk_curve
from covey.params import model_hash

TAUS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 1.0)
"""Small heads of few records: risks of .6 to .8 at weight 1."""


@cache
def plain() -> BuiltRun:
    return built(
        **{
            "method.initialisation": "groups",
            "method.options": {
                "exposure": "risk",
                "pooling": 0.5,
                "regularisation": 1.0,
            },
        }
    )


def accepting(taus: Mapping[int, float], run: BuiltRun | None = None) -> BuiltRun:
    """The run with other thresholds: of these clients, and TAUS of all others."""
    run = run or plain()

    def with_own(place: int, client: Client) -> Client:
        tau = taus.get(place, TAUS[place % len(TAUS)])
        return replace(
            client, preference=replace(client.preference, risk_threshold=tau)
        )

    clients = (with_own(i, c) for i, c in enumerate(run.population.clients))
    return run.with_clients(tuple(clients))


def first_round(run: BuiltRun) -> RoundResult:
    there = run.clients(run.population.clients)
    state = run.strategy.init(run.streams)
    return run.strategy.play_round(state, there, run.streams.at("round", 0))


def chosen_in(played: RoundResult) -> ExposureChosen:
    (found,) = (e for e in played.events if isinstance(e, ExposureChosen))
    return found


@cache
def standard() -> tuple[BuiltRun, RoundResult]:
    run = accepting({})
    return run, first_round(run)


def test_everybodys_risk_is_what_it_accepts_and_who_accepts_all_enters_wholly():
    run, played = standard()
    chosen = chosen_in(played)
    weights = [chosen.weights[c.handle] for c in run.population.clients]
    for client, weight in zip(run.population.clients, weights, strict=True):
        tau = client.preference.risk_threshold
        assert 0 <= weight <= 1
        assert chosen.risks[client.handle] <= max(tau, 0.5)
        assert tau < 1 or weight == 1
        assert tau > 0.5 or weight == 0
    assert any(0 < weight < 1 for weight in weights)
    assert chosen.passes > 1
    again = first_round(accepting({}))
    assert chosen_in(again) == chosen
    assert model_hash(again.state.clusters) == model_hash(played.state.clusters)


def test_the_sums_have_these_weights_and_the_risks_are_those_of_their_heads():
    run, played = standard()
    chosen, known = chosen_in(played), played.state.kept(ClusterSums)
    assert run.records is not None
    assert known.sums == counted_anew(run, played.state)
    (solved,) = (e for e in played.events if isinstance(e, HeadsSolved))
    assert solved.sums == tuple(each.digest() for each in known.sums)
    told = {h: w / 256 for h, (_, w) in known.counted.items()}
    assert told == chosen.weights
    there = {c.handle: c for c in run.population.clients}
    for place in (1, 4, 7):
        handle = run.population.clients[place].handle
        curve = risk_curve(known, run.records, there, handle, run.streams)
        risks = {each.weight: each.likelihood_ratio for each in curve}
        assert risks[told[handle]] == pytest.approx(chosen.risks[handle], abs=1e-4)
        assert curve[0].weight == 0
        assert curve[0].likelihood_ratio == 0.5
        assert [*risks.values()] == sorted(risks.values())


def test_a_lower_threshold_of_one_client_never_gives_it_a_larger_weight():
    place = 6
    handle = plain().population.clients[place].handle
    found = [
        chosen_in(first_round(accepting({place: tau}))).weights[handle]
        for tau in (1.0, 0.7, 0.62, 0.55, 0.5)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] == 1
    assert found[-1] == 0


def test_who_leaves_changes_nobody_elses_weight_and_no_other_bit():
    run, played = standard()
    subtraction = run.strategy.subtraction
    assert subtraction is not None
    weights = chosen_in(played).weights
    leavers = tuple(c for c in run.population.clients if 0 < weights[c.handle] < 1)[:2]
    gone = {c.handle for c in leavers}
    stay = tuple(c for c in run.population.clients if c.handle not in gone)
    less = subtraction.without(played.state, run.clients(leavers))
    where = {c.handle: played.state.assignment[c.handle] for c in stay}
    chosen = ClientsAssigned(where, "clients")
    solved = subtraction.solve(less, chosen, run.clients(stay), run.streams)
    assert not [e for e in solved.events if isinstance(e, ExposureChosen)]
    known = solved.state.kept(ClusterSums)
    before = played.state.kept(ClusterSums)
    assert known.counted == {h: before.counted[h] for h in where}
    anew = counted_anew(run, solved.state)
    assert known.sums == anew
    direct = before.of(anew, known.counted)
    heads = tuple(params_of(direct.head(j)) for j in range(2))
    assert model_hash(solved.state.clusters) == model_hash(heads)
    assert model_hash(heads) != model_hash(played.state.clusters)


def test_who_comes_back_is_weighed_again_with_everybody():
    run, played = standard()
    subtraction = run.strategy.subtraction
    assert subtraction is not None
    leaver = run.clients(run.population.clients[2:3])
    less = subtraction.without(played.state, leaver)
    chosen = ClientsAssigned(dict(played.state.assignment), "clients")
    everybody = run.clients(run.population.clients)
    whole = subtraction.solve(less, chosen, everybody, run.streams)
    assert chosen_in(whole) == chosen_in(played)
    assert model_hash(whole.state.clusters) == model_hash(played.state.clusters)


def test_weights_are_found_anew_once_somebody_moves_and_never_in_a_replay():
    run, played = standard()
    moved = dict(played.state.assignment)
    handle = run.population.clients[7].handle
    moved[handle] = 1 - moved[handle]
    there = run.clients(run.population.clients, 1)
    replayed = run.strategy.subtraction
    assert replayed is not None
    stayed = replayed.solve(
        played.state, ClientsAssigned(moved, "clients"), there, run.streams
    )
    assert not [e for e in stayed.events if isinstance(e, ExposureChosen)]
    told = stayed.state.kept(ClusterSums).counted
    assert told[handle] == (moved[handle], 256)
    state = played.state
    for t in range(1, 4):
        again = run.strategy.play_round(
            state, run.clients(run.population.clients, t), run.streams.at("round", t)
        )
        found = [e for e in again.events if isinstance(e, ExposureChosen)]
        assert bool(found) == (again.state.assignment != state.assignment)
        state = again.state


def test_nobody_in_is_a_head_that_knows_nothing():
    run = accepting(dict.fromkeys(range(12), 0.5))
    played = first_round(run)
    assert set(chosen_in(played).weights.values()) == {0.0}
    for model in played.state.clusters:
        assert not bool(model["head.weight"].any())
