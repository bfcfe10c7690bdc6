"""What every strategy promises, and how they relate; a new one is one more line."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from operator import methodcaller
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.playing import (
    Playing,
    begun,
    built_in,
    clients_with,
    ifca,
    ifca_mir,
    playing,
    setup_of,
)
from covey import (
    ByThreshold,
    Engine,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    RiskContext,
    ServerState,
    Streams,
    Target,
    Weighted,
)
from covey.algorithms.algorithm import Opening
from covey.algorithms.clients import Clients
from covey.algorithms.redteam import RedTeamed
from covey.algorithms.ridge import Ridge
from covey.algorithms.selection import Selection, SelectionConfig
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import Cohort
from covey.base.built_ins import built_ins
from covey.base.events import (
    ClientsAssigned,
    Event,
    GroupsSought,
    ModelsMerged,
    ModelsPooled,
    RiskUnknown,
)
from covey.base.params import model_hash
from covey.data.examples import Client, Preference
from covey.engine.fixed_features import LocalRecords
from covey.engine.recipe import MULTICLASS
from covey.membership.estimators import FederatedEstimator
from covey.membership.truth import Assessment, divergence
from covey.models.build import initial_params
from covey.models.linear_head import FixedMap, FrozenFeatures, LinearHeadNetwork
from covey_papers.pooling import PooledIfca

CLIENTS, EXAMPLES = 8, 12
RECIPE = Recipe(batch_size=6, learning_rate=0.1)


def architecture() -> nn.Module:
    """34 parameters and two counters' worth of BatchNorm buffers."""
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def init(streams: Streams) -> Params:
    with streams.lent_to_torch():
        return initial_params(architecture())


def head_on_inputs() -> LinearHeadNetwork:
    """Return a head whose inputs are the features."""
    features = FrozenFeatures(FixedMap(nn.Identity(), "none", {}, "")).sized((4,))
    return LinearHeadNetwork(features, 2, 10.0)


def init_head(_: Streams) -> Params:
    return initial_params(head_on_inputs())


@dataclass(frozen=True)
class World:
    engine: Engine
    population: Cohort

    def steps(self) -> Clients:
        return clients_with(Simulated(self.engine, RECIPE))

    def built_in(self, name: str) -> Playing:
        if name == "ridge":
            return built_in(name, init_head, self.head_steps(), self.population)
        return built_in(name, init, self.steps(), self.population)

    def head_steps(self) -> Clients:
        here = LocalRecords(head_on_inputs(), MULTICLASS, 2)
        return clients_with(Simulated(self.engine, RECIPE, records=here))

    def mir(self, select: Selection) -> Playing:
        return ifca_mir(init, self.steps(), SelectionConfig(select))

    def begun(self, opening: Literal["warm", "groups"], kept_rounds: int = 1) -> Playing:
        opens = Opening(opening, int(opening == "warm"), kept_rounds)
        return begun(setup_of(init), self.steps(), opens)

    def pooled(self) -> Playing:
        setup = setup_of(init, self.population)
        algorithm = PooledIfca(num_clusters=2, initialisation="random", pooling=0.5)
        return playing(algorithm, setup, self.steps())

    def watched(self, learner: Playing) -> Playing:
        clients = {client.handle: client for client in self.population}
        start = (init(Streams(0)),) * 2

        def attack(target: Target, streams: Streams) -> Assessment:
            context = RiskContext(self.engine)
            return FederatedEstimator().assess(target, context, streams)

        def why(target: Target) -> str:
            return divergence(self.engine, target, start, rounds=100)

        team = RedTeamed(attack, 1, clients, source="federated", divergence=why)
        return learner.measured_by(team)


STRATEGIES: dict[str, Callable[[World], Playing]] = {
    **{name: methodcaller("built_in", name) for name in built_ins("algorithm")},
    "threshold": lambda w: w.mir(ByThreshold().select),
    "warm": lambda w: w.begun("warm"),
    "groups": lambda w: w.begun("groups"),
    "pooled": lambda w: w.pooled(),
    "red-teamed": lambda w: w.watched(w.mir(Weighted().select)),
}


@pytest.fixture(scope="module")
def world(make_client) -> World:
    """Two groups of clients, whose labels follow opposite rules."""
    draw = np.random.default_rng(0)

    def examples(group: int, size: int) -> Examples:
        inputs = draw.normal(size=(size, 4)).astype(np.float32)
        labels = ((inputs.sum(axis=1) > 0) ^ bool(group)).astype(np.int64)
        return Examples(torch.from_numpy(inputs), torch.from_numpy(labels))

    def client(i: int) -> Client:
        own = examples(i % 2, EXAMPLES), examples(i % 2, 6)
        return make_client(f"c{i}", *own, group=i % 2, preference=(i / CLIENTS, 0.5 + i / 20))

    return World(ReferenceEngine(architecture()), tuple(map(client, range(CLIENTS))))


@dataclass(frozen=True)
class PlayedRounds:
    """Rounds of a strategy: the states before the first and after each, and what was told."""

    strategy: Playing
    cohorts: list[Cohort]
    states: list[ServerState]
    events: list[tuple[Event, ...]]

    @property
    def models(self) -> tuple[Params, ...]:
        return self.states[-1].clusters


def played(strategy: Playing, cohorts: list[Cohort], seed: int = 0) -> PlayedRounds:
    history = PlayedRounds(strategy, cohorts, [strategy.init(Streams(seed))], [])
    for index, cohort in enumerate(cohorts):
        at = Streams(seed).at("round", index)
        state, events, *_ = strategy.play_round(history.states[-1], cohort, at)
        history.states.append(state)
        history.events.append(events)
    return history


@pytest.fixture(scope="module", params=STRATEGIES.values(), ids=list(STRATEGIES))
def history(request, world) -> PlayedRounds:
    all_clients = world.population
    return played(request.param(world), [all_clients[:5], (), all_clients[2:], all_clients])


def same_bits(left: Sequence[Params], right: Sequence[Params]) -> bool:
    return len(left) == len(right) and model_hash(left) == model_hash(right)


def the_assignment(events: tuple[Event, ...]) -> ClientsAssigned:
    (assignment,) = (event for event in events if isinstance(event, ClientsAssigned))
    return assignment


def how(history: PlayedRounds) -> list[str]:
    return [the_assignment(events).by for events in history.events]


def test_models_keep_their_form_and_whoever_is_away_keeps_its_choice(history):
    start = history.states[0].clusters
    assert not same_bits(history.states[1].clusters, start)
    for t, (cohort, before, after) in enumerate(
        zip(history.cohorts, history.states, history.states[1:], strict=False)
    ):
        assert after.round_index == t + 1
        assert len(after.clusters) == len(after.risk_estimates()) == len(start)
        for cluster in after.clusters:
            assert list(cluster) == list(start[0])
            for name, value in start[0].items():
                assert (cluster[name].shape, cluster[name].dtype) == (value.shape, value.dtype)
        here = {client.handle for client in cohort}
        away = {h: j for h, j in before.assignment.items() if h not in here}
        assert {h: j for h, j in after.assignment.items() if h not in here} == away
        assert cohort or same_bits(before.clusters, after.clusters)


def test_every_participant_and_nobody_else_is_in_the_events_and_the_last_names_the_models(history):
    for cohort, events, state in zip(
        history.cohorts, history.events, history.states[1:], strict=True
    ):
        assigned = the_assignment(events)
        assert list(assigned.clusters) == [client.handle for client in cohort]
        (merged,) = (event for event in events if isinstance(event, ModelsMerged))
        trained = Counter(assigned.clusters.values())
        assert merged.participants == tuple(trained[j] for j in range(len(merged.participants)))
        last = events[-1]
        assert isinstance(last, ModelsMerged | ModelsPooled)
        counted = last.participants if isinstance(last, ModelsMerged) else last.shares
        assert last.model_hash == model_hash(state.clusters[: len(counted)])


def test_a_run_is_its_seed_s_unless_models_follow_from_the_records_alone(history):
    models = history.states[1].clusters
    again = played(history.strategy, history.cohorts[:1])
    assert again.events == history.events[:1]
    assert same_bits(again.models, models)
    other = played(history.strategy, history.cohorts[:1], seed=1).models
    if isinstance(history.strategy.algorithm.algorithm, Ridge):
        # of heads only the numbers of clusters are drawn
        assert any(same_bits(models, permutation) for permutation in permutations(other))
    else:
        assert not same_bits(models, other)


def test_the_last_choice_is_everybodys_and_trains_nothing(history, world):
    before = history.states[1]
    models, choices = model_hash(before.clusters), dict(before.assignment)
    after, events, *_ = history.strategy.conclude(before, world.population, Streams(2))
    assert same_bits(after.clusters, before.clusters)
    final = the_assignment(events)
    assert final.by == "final"
    assert after.assignment == final.clusters
    assert set(final.clusters) == {client.handle for client in world.population}
    assert all(before.available()[j] for j in final.clusters.values())
    assert (model_hash(before.clusters), dict(before.assignment)) == (models, choices)


def test_zero_risk_weight_is_ifca_bit_for_bit_and_a_red_team_changes_nothing_but_choices(world):
    preference = Preference(0.0, 0.5)
    people = tuple(replace(client, preference=preference) for client in world.population)
    world = replace(world, population=people)
    plain, weighing = ifca(init, world.steps()), world.mir(Weighted().select)
    strategies = (plain, world.watched(plain), world.watched(weighing))
    alone, one, other = (played(strategy, [people] * 4) for strategy in strategies)
    assert same_bits(alone.models, one.models)
    assert same_bits(one.models, other.models)
    figures = one.states[-1].risk_estimates()
    assert figures == other.states[-1].risk_estimates()
    assert any(figure is not None for figure in figures)
    known = [[e for e in events if not isinstance(e, RiskUnknown)] for events in other.events]
    assert [list(events) for events in one.events] == known


def test_a_warm_start_shares_then_splits_then_lets_clients_choose(world):
    history = played(STRATEGIES["warm"](world), [world.population] * 3)
    assert how(history) == ["shared", "split", "clients"]
    (sought,) = (event for event in history.events[1] if isinstance(event, GroupsSought))
    assert sought.chosen in sought.gaps
    split = the_assignment(history.events[1]).clusters
    groups = {(split[client.handle], client.group) for client in world.population}
    assert len(groups) == 2  # the split is the groups, whichever is called 0
    shared = played(STRATEGIES["fedavg"](world), [world.population]).models
    assert all(same_bits((cluster,), shared) for cluster in history.states[1].clusters)
    assert not history.states[1].assignment


def test_a_warm_start_does_not_split_fewer_clients_than_make_groups(world):
    few = world.population[:2]
    history = played(STRATEGIES["warm"](world), [world.population, few, few, world.population])
    assert how(history) == ["shared"] * 3 + ["split"]


def test_a_selection_batch_is_a_sample_of_its_own_for_every_client(world):
    class Spy(ReferenceEngine):
        def score(self, jobs):  # pyright: ignore
            batches.append([job.examples for job in jobs])
            return super().score(jobs)

    batches: list[list[Examples]] = []
    evaluate = Simulated(Spy(architecture()), RECIPE, compares_on=("train", 3)).evaluate
    for _ in range(2):
        evaluate((init(Streams(0)),) * 2, world.population, Streams(6))
    assert [len(batch) for batch in batches[0]] == [3] * 2 * CLIENTS
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(*batches, strict=True))
    for i, client in enumerate(world.population):
        rows = {tuple(row) for row in client.train.inputs.tolist()}
        assert {tuple(row) for row in batches[0][2 * i].inputs.tolist()} <= rows
