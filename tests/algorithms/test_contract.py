"""What every strategy promises, and how they relate; a new one is one more line."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from operator import methodcaller

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
    isolated,
    playing,
    setup_of,
)
from covey import (
    Engine,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    RiskContext,
    RoundResult,
    ServerState,
    Streams,
    Target,
    select_by_threshold,
    select_weighted,
)
from covey.algorithms.algorithm import Opening
from covey.algorithms.clients import Clients
from covey.algorithms.ifca import Ifca
from covey.algorithms.redteam import RedTeamed
from covey.algorithms.selection import Selection, SelectionConfig
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import Cohort
from covey.base.built_ins import BUILT_INS
from covey.base.component_names import find
from covey.base.events import (
    ClientsAssigned,
    Event,
    GroupsSought,
    ModelsMerged,
    ModelsPooled,
    RiskUnknown,
)
from covey.base.params import layers_of, model_hash
from covey.data.examples import Client, Preference
from covey.engine.fixed_features import LocalRecords
from covey.engine.recipe import MULTICLASS
from covey.membership.estimators import FederatedEstimator
from covey.membership.truth import Assessment, divergence
from covey.models.build import initial_params

MakeClient = Callable[..., Client]
CLIENTS, EXAMPLES = 8, 12
RECIPE = Recipe(batch_size=6, learning_rate=0.1)


def architecture() -> nn.Module:
    """34 parameters and two counters' worth of BatchNorm buffers."""
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def init(streams: Streams) -> Params:
    with streams.lent_to_torch():
        return initial_params(architecture())


class LinearHeadOnInputs(nn.Module):
    """Inputs are the features."""

    scale = 10.0

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Identity(), nn.Linear(4, 2)


def init_head(streams: Streams) -> Params:
    with streams.lent_to_torch():
        return initial_params(LinearHeadOnInputs())


def trains_none(name: str) -> bool:
    """Say whether an algorithm solves its models, so that no seed is in them."""
    algorithm = find("algorithm", name, "method.name")
    return not algorithm.trains


@dataclass(frozen=True)
class World:
    engine: Engine
    population: Cohort

    def steps(self) -> Clients:
        return clients_with(Simulated(self.engine, RECIPE))

    def built_in(self, name: str) -> Playing:
        if trains_none(name):
            return built_in(name, init_head, self.head_steps(), self.population)
        return built_in(name, init, self.steps(), self.population)

    def head_steps(self) -> Clients:
        module = LinearHeadOnInputs()
        here = LocalRecords(module, MULTICLASS, 2)
        return clients_with(Simulated(self.engine, RECIPE, records=here))

    def mir(self, select: Selection) -> Playing:
        return ifca_mir(init, self.steps(), SelectionConfig(select))

    def warm(self, kept_rounds: int = 1) -> Playing:
        return begun(setup_of(init), self.steps(), Opening("warm", 1, kept_rounds))

    def groups(self, kept_rounds: int = 1) -> Playing:
        return begun(setup_of(init), self.steps(), Opening("groups", 0, kept_rounds))

    def pooled(self) -> Playing:
        setup = setup_of(init, self.population, layers_of(init(Streams(0))))
        algorithm = Ifca(num_clusters=2, initialisation="random", pooling=0.5)
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
    **{name: methodcaller("built_in", name) for name in BUILT_INS["algorithm"]},
    "random": lambda w: ifca(init, w.steps()),
    "three isolated": lambda w: isolated(init, w.steps(), 3, w.population),
    "weighted": lambda w: w.mir(select_weighted),
    "threshold": lambda w: w.mir(select_by_threshold),
    "warm": lambda w: w.warm(),
    "groups": lambda w: w.groups(),
    "pooled": lambda w: w.pooled(),
    "red-teamed": lambda w: w.watched(w.mir(select_weighted)),
}


@pytest.fixture(scope="module")
def world(make_client: MakeClient) -> World:
    """Two groups of clients, whose labels follow opposite rules."""
    draw = np.random.default_rng(0)

    def examples(group: int, size: int) -> Examples:
        inputs = draw.normal(size=(size, 4)).astype(np.float32)
        labels = ((inputs.sum(axis=1) > 0) ^ bool(group)).astype(np.int64)
        return Examples(torch.from_numpy(inputs), torch.from_numpy(labels))

    population = tuple(
        make_client(
            f"c{i}",
            examples(i % 2, EXAMPLES),
            examples(i % 2, 6),
            group=i % 2,
            preference=(i / CLIENTS, 0.5 + i / 20),
        )
        for i in range(CLIENTS)
    )
    return World(ReferenceEngine(architecture()), population)


@pytest.fixture(params=STRATEGIES.values(), ids=list(STRATEGIES))
def strategy(request: pytest.FixtureRequest, world: World) -> Playing:
    return request.param(world)


Story = tuple[ServerState, list[tuple[Event, ...]]]


def played(strategy: Playing, cohorts: list[Cohort], seed: int = 0) -> Story:
    state, story = strategy.init(Streams(seed)), []
    for index, cohort in enumerate(cohorts):
        at = Streams(seed).at("round", index)
        state, events, *_ = strategy.play_round(state, cohort, at)
        story.append(events)
    return state, story


def same_bits(left: tuple[Params, ...], right: tuple[Params, ...]) -> bool:
    return len(left) == len(right) and model_hash(left) == model_hash(right)


def the_assignment(events: tuple[Event, ...]) -> ClientsAssigned:
    (found,) = (event for event in events if isinstance(event, ClientsAssigned))
    return found


def test_names_shapes_and_dtypes_are_kept(strategy: Playing, world: World):
    state, _ = played(strategy, [world.population] * 3)
    (start, *_) = strategy.init(Streams(0)).clusters
    assert len(state.clusters) == len(strategy.init(Streams(0)).clusters)
    assert len(state.risk_estimates()) == len(state.clusters)
    for cluster in state.clusters:
        assert list(cluster) == list(start)
        for name, value in start.items():
            assert cluster[name].shape == value.shape
            assert cluster[name].dtype == value.dtype


def test_training_moves_something(strategy: Playing, world: World):
    state, _ = played(strategy, [world.population])
    assert not same_bits(state.clusters, strategy.init(Streams(0)).clusters)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_an_empty_cohort_moves_nothing(strategy: Playing, world: World, rounds: int):
    before, _ = played(strategy, [world.population] * rounds)
    after, events, *_ = strategy.play_round(before, (), Streams(1))
    assert same_bits(after.clusters, before.clusters)
    assert after.assignment == before.assignment
    assert after.round_index == before.round_index + 1
    assert the_assignment(events).clusters == {}


def test_a_run_may_begin_with_an_empty_cohort(strategy: Playing, world: World):
    state, story = played(strategy, [(), world.population, world.population])
    assert state.round_index == 3
    assert set(the_assignment(story[1]).clusters) == {client.handle for client in world.population}


def test_a_round_is_deterministic(strategy: Playing, world: World):
    cohorts = [world.population, world.population[:5], world.population]
    first, again = played(strategy, cohorts), played(strategy, cohorts)
    assert first[1] == again[1]
    assert same_bits(first[0].clusters, again[0].clusters)
    assert first[0].assignment == again[0].assignment


def test_another_seed_is_another_run_unless_models_follow_from_the_records_alone(
    strategy: Playing, world: World, request: pytest.FixtureRequest
):
    name = request.node.callspec.id
    drawn = name not in BUILT_INS["algorithm"] or not trains_none(name)
    one, _ = played(strategy, [world.population] * 2)
    other, _ = played(strategy, [world.population] * 2, seed=1)
    # of heads only the numbers of clusters are drawn
    renumbered = permutations(other.clusters)
    assert any(same_bits(one.clusters, each) for each in renumbered) != drawn


def test_every_participant_and_nobody_else_is_in_the_events(strategy: Playing, world: World):
    cohorts = [world.population[:5], world.population[2:], world.population[:1]]
    _, story = played(strategy, cohorts)
    for cohort, events in zip(cohorts, story, strict=True):
        assigned = the_assignment(events)
        assert list(assigned.clusters) == [client.handle for client in cohort]
        (merged,) = (event for event in events if isinstance(event, ModelsMerged))
        trained = Counter(assigned.clusters.values())
        models = range(len(merged.participants))
        assert merged.participants == tuple(trained[j] for j in models)


def test_the_last_fact_of_a_round_names_its_models(strategy: Playing, world: World):
    state = strategy.init(Streams(0))
    for index in range(3):
        at = Streams(0).at("round", index)
        state, events, *_ = strategy.play_round(state, world.population, at)
        last = events[-1]
        assert isinstance(last, ModelsMerged | ModelsPooled)
        counted = last.participants if isinstance(last, ModelsMerged) else last.shares
        assert last.model_hash == model_hash(state.clusters[: len(counted)])


def test_the_last_choice_is_everybodys_and_trains_nothing(strategy: Playing, world: World):
    before, _ = played(strategy, [world.population[:5]] * 3)
    after, events, *_ = strategy.conclude(before, world.population, Streams(2))
    assert same_bits(after.clusters, before.clusters)
    final = the_assignment(events)
    assert final.by == "final"
    assert set(after.assignment) == {client.handle for client in world.population}
    assert dict(after.assignment) == dict(final.clusters)
    offered = before.available()
    assert all(offered[j] for j in final.clusters.values())


def test_the_state_before_a_round_stays_as_it_was(strategy: Playing, world: World):
    before, _ = played(strategy, [world.population])
    models, choices = model_hash(before.clusters), dict(before.assignment)
    strategy.play_round(before, world.population, Streams(3))
    assert model_hash(before.clusters) == models
    assert dict(before.assignment) == choices


def test_absent_clients_keep_their_latest_choice(strategy: Playing, world: World):
    before, _ = played(strategy, [world.population] * 3)
    after, *_ = strategy.play_round(before, world.population[:2], Streams(4))
    for client in world.population[2:]:
        assert after.assignment.get(client.handle) == before.assignment.get(client.handle)


def without_risk_weights(world: World) -> World:
    indifferent = tuple(
        replace(client, preference=Preference(0.0, 0.5)) for client in world.population
    )
    return replace(world, population=indifferent)


def without_unknown(story: list[tuple[Event, ...]]) -> list[tuple[Event, ...]]:
    return [
        tuple(event for event in events if not isinstance(event, RiskUnknown)) for events in story
    ]


@pytest.mark.parametrize("watched", ["watched", "alone"])
def test_zero_risk_weight_is_ifca_bit_for_bit(world: World, watched: str):
    world = without_risk_weights(world)
    plain = ifca(init, world.steps())
    weighing = world.mir(select_weighted)
    if watched == "watched":
        plain, weighing = world.watched(plain), world.watched(weighing)
    cohorts = [world.population] * 4
    one, other = played(plain, cohorts), played(weighing, cohorts)
    assert same_bits(one[0].clusters, other[0].clusters)
    assert one[0].assignment == other[0].assignment
    assert one[0].risk_estimates() == other[0].risk_estimates()
    assert one[1] == without_unknown(other[1])
    if watched == "watched":
        assert any(figure is not None for figure in one[0].risk_estimates())


def test_a_red_team_changes_nothing_but_choices(world: World):
    plain = ifca(init, world.steps())
    alone, _ = played(plain, [world.population] * 3)
    looked_at, _ = played(world.watched(plain), [world.population] * 3)
    assert same_bits(alone.clusters, looked_at.clusters)


def test_known_groups_are_kept_for_some_rounds_and_then_clients_choose(world: World):
    _, story = played(world.groups(kept_rounds=2), [(), *[world.population] * 2])
    known = {client.handle: client.group or 0 for client in world.population}
    assert the_assignment(story[0]) == ClientsAssigned({}, "groups")
    assert the_assignment(story[1]) == ClientsAssigned(known, "groups")
    assert the_assignment(story[2]).by == "clients"


def test_a_split_is_kept_for_some_rounds_and_newcomers_take_the_lowest_loss(world: World):
    early, late = world.population[:6], world.population
    state, story = played(world.warm(kept_rounds=3), [early, early, late, late, late])
    assert [the_assignment(events).by for events in story] == [
        "shared",
        "split",
        "split",
        "split",
        "clients",
    ]
    split, kept = (the_assignment(story[index]).clusters for index in (1, 2))
    assert {handle: kept[handle] for handle in split} == dict(split)
    before, _ = played(world.warm(kept_rounds=3), [early, early])
    losses = world.steps().federation.evaluate(before.clusters, late[6:], Streams(0))
    newcomers = [kept[client.handle] for client in late[6:]]
    assert newcomers == losses.argmin(dim=1).tolist()
    assert state.round_index == 5


def test_a_warm_start_shares_then_splits_then_lets_clients_choose(world: World):
    state, story = played(STRATEGIES["warm"](world), [world.population] * 3)
    assert [the_assignment(events).by for events in story] == ["shared", "split", "clients"]
    (sought,) = (event for event in story[1] if isinstance(event, GroupsSought))
    assert sought.chosen in sought.gaps
    groups = {client.handle: client.group for client in world.population}
    split = the_assignment(story[1]).clusters
    together = {
        (one, other)
        for one in split
        for other in split
        if (split[one] == split[other]) != (groups[one] == groups[other])
    }
    assert not together  # the split is the groups, whichever is called 0
    assert len(set(state.assignment.values())) == 2


def test_a_shared_round_of_a_warm_start_is_a_round_of_fedavg(world: World):
    warm, _ = played(STRATEGIES["warm"](world), [world.population])
    shared, _ = played(STRATEGIES["fedavg"](world), [world.population])
    assert all(same_bits((each,), shared.clusters) for each in warm.clusters)
    assert not warm.assignment


def test_a_warm_start_does_not_split_fewer_clients_than_make_groups(world: World):
    few = world.population[:2]
    state, story = played(STRATEGIES["warm"](world), [world.population, few, few])
    assert [the_assignment(events).by for events in story] == ["shared"] * 3
    later: RoundResult = STRATEGIES["warm"](world).play_round(state, world.population, Streams(5))
    assert the_assignment(later.events).by == "split"


def test_different_models_differ_and_one_model_does_not(world: World):
    def start(*, alike: bool) -> tuple[Params, ...]:
        steps = world.steps()
        algorithm = begun(setup_of(init), steps, clusters=3) if alike else ifca(init, steps, 3)
        return algorithm.init(Streams(0)).clusters

    apart = start(alike=False)
    assert len({model_hash([each]) for each in apart}) == 3
    alike = start(alike=True)
    assert len({model_hash([each]) for each in alike}) == 1
    assert model_hash(apart[:1]) == model_hash(alike[:1])


@pytest.mark.parametrize(("on", "size"), [("train", EXAMPLES), ("holdout", 6)])
def test_losses_are_means_over_the_examples_asked_for(world: World, on: str, size: int):
    state = ifca(init, world.steps()).init(Streams(0))
    by = "train" if on == "train" else "holdout"
    clients = Simulated(world.engine, RECIPE, compares_on=(by, 0))
    losses = clients.evaluate(state.clusters, world.population, Streams(0))
    module = architecture().eval()
    for i, client in enumerate(world.population):
        examples = client.train if on == "train" else client.holdout
        assert len(examples) == size
        for j, params in enumerate(state.clusters):
            module.load_state_dict(dict(params))
            with torch.no_grad():
                outputs = module(examples.inputs)
            expected = nn.functional.cross_entropy(outputs, examples.labels)
            assert losses[i, j].item() == pytest.approx(expected.item(), abs=1e-6)


def test_a_selection_batch_is_a_sample_of_its_own_for_every_client(world: World):
    class Spy(ReferenceEngine):
        def score(self, jobs):  # pyright: ignore
            batches.append([job.examples for job in jobs])
            return super().score(jobs)

    batches: list[list[Examples]] = []
    evaluate = Simulated(Spy(architecture()), RECIPE, compares_on=("train", 3)).evaluate
    state = begun(setup_of(init), world.steps()).init(Streams(0))
    for _ in range(2):
        evaluate(state.clusters, world.population, Streams(6))
    assert [len(batch) for batch in batches[0]] == [3] * 2 * CLIENTS
    first, again = batches
    assert all(
        torch.equal(one.inputs, other.inputs) for one, other in zip(first, again, strict=True)
    )
    for i, client in enumerate(world.population):
        rows = {tuple(row) for row in client.train.inputs.tolist()}
        assert {tuple(row) for row in first[2 * i].inputs.tolist()} <= rows
