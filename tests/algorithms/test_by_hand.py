"""Rounds of a model with one parameter, redone on paper.

P(class 1 | x) = s(w x), s(z) = 1 / (1 + e^-z); s(1) = 0.731059, s(2) = 0.880797
loss of class 1: -ln s(w x); of class 0: -ln s(-w x)
-ln s(2) = 0.126928, -ln s(1) = 0.313262, -ln s(-1) = 1.313262, -ln s(-2) = 2.126928
gradient: (s(w x) - y) x
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from algorithms.playing import Playing, clients_with, fedavg, ifca, ifca_mir, local_training
from covey import (
    ConfigError,
    Params,
    Recipe,
    ReferenceEngine,
    RiskEstimate,
    Streams,
    Target,
    select_by_threshold,
    select_weighted,
)
from covey.algorithms.clients import Clients
from covey.algorithms.own_steps import user_selection
from covey.algorithms.redteam import RedTeamed, SelfAssessed
from covey.algorithms.selection import Selection, SelectionConfig
from covey.algorithms.simulated import Simulated
from covey.base.events import (
    ClientsAssigned,
    ClusterAbandoned,
    ClustersCollapsed,
    Event,
    ModelsMerged,
    RiskMeasured,
    RiskUnknown,
)
from covey.base.figure import Figure
from covey.base.history import history_of
from covey.base.names import Handle
from covey.data.examples import Client
from covey.membership.truth import Assessment, RedTeam

Point = Callable[..., Client]
Models = Callable[..., Callable[[Streams], dict[str, Tensor]]]
Script = Callable[[dict[int, float | None]], RedTeam]
STREAMS = Streams(0)


def weights_of(clusters: tuple[object, ...]) -> list[float]:
    return [float(cluster["w"]) for cluster in clusters]  # pyright: ignore


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_one_round_of_ifca(steps: Clients, point: Point, models: Models):
    # w = (1, -1); A: x 1, class 1; B: x 1, class 0; C: x 2, class 1
    # losses: A (0.31, 1.31), B (1.31, 0.31), C (0.13, 2.13) -> A 0, B 1, C 0
    # A moves to 1 - (0.731059 - 1) * 1 = 1.268941, C to 1 - (0.880797 - 1) * 2 = 1.238406
    # cluster 0: their mean 1.253673;  cluster 1: -1 - (s(-1) - 0) = -1.268941
    cohort = (point("a", 1, 1), point("b", 1, 0), point("c", 2, 1))
    strategy = ifca(models(1.0, -1.0), steps)
    start = strategy.init(STREAMS)
    played = strategy.play_round(start, cohort, STREAMS)
    assert played.state.assignment == {"A": 0, "B": 1, "C": 0}
    assert weights_of(played.state.clusters) == pytest.approx([1.2536735, -1.2689414], abs=1e-6)
    assert played.state.round_index == 1
    chosen, merged = played.events
    assert chosen == ClientsAssigned({"A": 0, "B": 1, "C": 0}, "clients")
    assert isinstance(merged, ModelsMerged)
    assert merged.participants == (2, 1)
    assert weights_of(start.clusters) == [1.0, -1.0]


def test_a_risk_moves_the_client_that_weighs_it(
    steps: Clients, point: Point, models: Models, scripted: Script
):
    # risks 0.9 and 0.6. A, beta 0.5: 0.157 + 0.45 = 0.607 against 0.657 + 0.3 = 0.957
    # B, beta 0.9: 0.031 + 0.81 = 0.841 against 0.131 + 0.54 = 0.671: B moves to 1
    strategy = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(select_weighted))
    cohort = (point("a", 1, 1, weight=0.5), point("b", 1, 1, weight=0.9))
    team = RedTeamed(scripted({0: 0.9, 1: 0.6}), 1, {c.handle: c for c in cohort})
    watched = strategy.measured_by(team)
    start = replace(strategy.init(STREAMS), assignment={"A": 0, "B": 1}, round_index=1)
    played = watched.play_round(start, cohort, STREAMS)
    assert played.state.assignment == {"A": 0, "B": 1}
    assert kinds(played.events) == [
        "RiskMeasured", "RiskMeasured", "ClientsAssigned", "ModelsMerged"
    ]  # fmt: skip
    # without figures, loss alone decides, and says so
    blind = strategy.play_round(start, cohort, STREAMS)
    assert blind.events[0] == RiskUnknown((0, 1))
    assert blind.state.assignment == {"A": 0, "B": 0}


def test_fedavg_is_the_mean_of_the_local_models(steps: Clients, point: Point, models: Models):
    # A: 1.268941 and C: 1.238406 as above; B: 1 - s(1) = 0.268941; mean 0.925429
    cohort = (point("a", 1, 1), point("b", 1, 0), point("c", 2, 1))
    together = fedavg(models(1.0), steps)
    played = together.play_round(together.init(STREAMS), cohort, STREAMS)
    assert weights_of(played.state.clusters) == pytest.approx([0.9254294], abs=1e-6)
    alone = local_training(models(1.0), steps, cohort)
    apart = alone.play_round(alone.init(STREAMS), cohort, STREAMS)
    locals_ = weights_of(apart.state.clusters)
    assert locals_ == pytest.approx([1.2689414, 0.2689414, 1.2384058], abs=1e-6)
    mean = sum(locals_) / 3
    assert weights_of(played.state.clusters) == pytest.approx([mean], abs=1e-6)


def test_weights_by_examples(one_weight: nn.Module, point: Point, models: Models):
    # A holds three equal examples, B one: (3 * 1.268941 + 0.268941) / 4 = 1.018941
    engine = ReferenceEngine(one_weight)
    recipe = Recipe(local_steps=1, learning_rate=1.0)
    steps = clients_with(Simulated(engine, recipe, "examples"))
    strategy = fedavg(models(1.0), steps)
    cohort = (point("a", 1, 1, times=3), point("b", 1, 0))
    played = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
    assert weights_of(played.state.clusters) == pytest.approx([1.0189414], abs=1e-6)


def test_a_cluster_that_nobody_chose_is_frozen_and_never_offered_again(
    steps: Clients, point: Point, models: Models
):
    # Both clients like w = 1 in round 0. B's example is then of class 0, which w = -1
    # would fit better; but that model is abandoned.
    strategy = ifca(models(1.0, -1.0), steps)
    start = strategy.init(STREAMS)
    first = strategy.play_round(start, (point("a", 1, 1), point("b", 1, 1)), STREAMS)
    assert first.events[1:3] == (ClusterAbandoned(1), ClustersCollapsed(0))
    assert first.state.available() == (True, False)
    turned = (point("a", 1, 1), point("b", 1, 0))
    second = strategy.play_round(first.state, turned, STREAMS)
    assert second.state.assignment == {"A": 0, "B": 0}
    assert kinds(second.events) == ["ClientsAssigned", "ModelsMerged"]  # said once
    assert second.state.clusters[1] is start.clusters[1]
    last = strategy.conclude(second.state, turned, STREAMS)
    assert last.state.assignment == {"A": 0, "B": 0}


def test_leaving_two_of_three_clusters_is_a_collapse_and_leaving_one_is_not(
    steps: Clients, point: Point, models: Models
):
    strategy = ifca(models(1.0, -1.0, 0.0), steps, 3)
    cohort = (point("a", 1, 1), point("b", 1, 0))
    played = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
    assert played.events[1:-1] == (ClusterAbandoned(2),)
    together = (point("a", 1, 1), point("b", 1, 1))
    later = strategy.play_round(played.state, together, STREAMS)
    assert later.events[1:-1] == (ClusterAbandoned(1), ClustersCollapsed(0))


def test_an_absent_clients_cluster_is_not_abandoned(steps: Clients, point: Point, models: Models):
    strategy = ifca(models(1.0, -1.0), steps)
    cohort = (point("a", 1, 1), point("b", 1, 0))
    first = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
    second = strategy.play_round(first.state, cohort[:1], STREAMS)
    assert second.state.available() == (True, True)
    assert kinds(second.events) == ["ClientsAssigned", "ModelsMerged"]
    assert second.state.clusters[1] is first.state.clusters[1]


def test_clients_who_train_alone_keep_their_models_while_absent(
    steps: Clients, point: Point, models: Models
):
    everybody = (point("a", 1, 1), point("b", 1, 0), point("c", 2, 1))
    strategy = local_training(models(1.0), steps, everybody)
    start = strategy.init(STREAMS)
    played = strategy.play_round(start, everybody[:1], STREAMS)
    assert kinds(played.events) == ["ClientsAssigned", "ModelsMerged"]
    assert played.state.clusters[1] is start.clusters[1]


def watched_by(
    script: RedTeam, steps: Clients, models: Models, cohort: tuple[Client, ...], every: int
) -> Playing:
    strategy = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(select_weighted))
    return strategy.measured_by(RedTeamed(script, every, {c.handle: c for c in cohort}))


def played_rounds(strategy: Playing, cohort: tuple[Client, ...], rounds: int):
    state, story = strategy.init(STREAMS), []
    for index in range(rounds):
        state, events, *_ = strategy.play_round(state, cohort, STREAMS.at("round", index))
        story.append(events)
    return state, story


def test_the_red_team_looks_every_so_many_rounds_and_at_the_end(
    steps: Clients, point: Point, models: Models, scripted: Script
):
    cohort = (point("a", 1, 1), point("b", 1, 0))
    script = scripted({0: 0.6, 1: 0.6})
    strategy = watched_by(script, steps, models, cohort, every=2)
    state, story = played_rounds(strategy, cohort, 5)
    looked = [sum(isinstance(event, RiskMeasured) for event in events) for events in story]
    assert looked == [0, 0, 2, 0, 2]  # nobody has chosen before round 0
    assert [f.round_index for f in state.risk_estimates() if f] == [4, 4]
    last = strategy.conclude(state, cohort, STREAMS)
    assert [
        (e.cluster, e.estimate.round_index) for e in last.events if isinstance(e, RiskMeasured)
    ] == [(0, 5), (1, 5)]
    seen = getattr(script, "seen")  # noqa: B009
    assert [(t.cluster, [c.handle for c in t.members]) for t in seen[:2]] == [
        (0, ["A"]),
        (1, ["B"]),
    ]


def test_nothing_is_measured_before_the_first_round(
    steps: Clients, point: Point, models: Models, scripted: Script
):
    cohort = (point("a", 1, 1),)
    alone = local_training(models(1.0), steps, cohort)
    strategy = alone.measured_by(RedTeamed(scripted({0: 0.6}), 1, {"A": cohort[0]}))
    _, story = played_rounds(strategy, cohort, 2)
    assert [kinds(events)[0] for events in story] == ["ClientsAssigned", "RiskMeasured"]


def test_unknown_risks_are_told_while_they_are_unknown(
    steps: Clients, point: Point, models: Models, scripted: Script
):
    cohort = (point("a", 1, 1), point("b", 1, 0))
    script = scripted({0: 0.6, 1: None})
    strategy = watched_by(script, steps, models, cohort, every=2)
    _, story = played_rounds(strategy, cohort, 4)
    unknown = [[event for event in events if isinstance(event, RiskUnknown)] for events in story]
    assert unknown == [[RiskUnknown((0, 1))]] * 2 + [[RiskUnknown((1,))]] * 2


def test_a_figure_lives_for_twice_the_rounds_between_two_looks(
    steps: Clients, point: Point, models: Models, scripted: Script
):
    # Measured before round 2, withheld ever after: four rounds old in round 6, and gone
    # in round 7.
    cohort = (point("a", 1, 1), point("b", 1, 0))
    script = scripted({0: 0.6, 1: 0.6})
    strategy = watched_by(script, steps, models, cohort, every=2)
    state, _ = played_rounds(strategy, cohort, 3)
    script.risks[0] = script.risks[1] = None  # pyright: ignore
    alive: dict[int, int] = {}
    for index in range(3, 9):
        state, *_ = strategy.play_round(state, cohort, STREAMS)
        alive[index] = sum(figure is not None for figure in state.risk_estimates())
    assert [alive[index] for index in (3, 4, 5, 6)] == [2, 2, 2, 2]
    assert [alive[index] for index in (7, 8)] == [0, 0]


def test_nobody_acts_on_an_extrapolated_figure(steps: Clients, point: Point, models: Models):
    def attack(target: Target, _: Streams) -> Assessment:
        figure = RiskEstimate(Figure(0.9, 0.01), 0.9, 10, 10, round_index=target.round_index)
        return Assessment(replace(figure, calibrated=False, rests_on="extrapolated"))

    cohort = (point("a", 1, 1), point("b", 1, 0))
    strategy = watched_by(attack, steps, models, cohort, every=1)
    state, story = played_rounds(strategy, cohort, 3)
    told = [event for event in story[-1] if isinstance(event, RiskMeasured)]
    assert [event.estimate.risk for event in told] == [0.9, 0.9]
    assert state.risk_estimates() == (None, None)
    assert RiskUnknown((0, 1)) in story[-1]
    history = history_of([*enumerate(story)])
    assert not history.figures
    assert history.measured[-1].estimate.reason == "extrapolated"


def test_what_clients_find_stays_theirs_and_is_kept_from_inside(
    steps: Clients, point: Point, models: Models
):
    # Every client finds 0.9 in its own cluster and 0.5 in the other, and accepts 0.8:
    # both change places. What they found inside lives on, so nobody goes back.
    looked: list[list[str]] = []

    def judge(
        found: tuple[Params, ...], cohort: Sequence[Client], _: Streams
    ) -> dict[Handle, list[RiskEstimate | None]]:
        looked.append([c.name for c in cohort])
        inside = {c.handle: int(c.name == "b") for c in cohort}
        return {
            handle: [
                RiskEstimate(Figure(0.9 if j == own else 0.5, 0.05), 0.5, 9, 9)
                for j in range(len(found))
            ]
            for handle, own in inside.items()
        }

    cohort = (point("a", 1, 1), point("b", 1, 0))
    plain = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(select_by_threshold))
    strategy = plain.measured_by(SelfAssessed(judge, 2))
    state, story = played_rounds(strategy, cohort, 6)
    assert [each for each in looked if each] == [["a", "b"], ["a", "b"]]  # rounds 2, 4
    assert state.assignment == {"A": 1, "B": 0}
    found = state.known_risks("A")
    assert [k and (k.risk, k.round_index, k.inside) for k in found] == [
        (0.9, 2, True),
        (0.5, 4, True),
    ]
    kinds_seen = {kind for events in story for kind in kinds(events)}
    assert "RiskMeasured" not in kinds_seen
    unknown = [RiskUnknown((0, 1)) in events for events in story]
    assert unknown == [True, True, False, False, False, False]


def choosing(values: Tensor) -> Selection:
    return lambda _: values


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([0]),
        torch.tensor([0, 0, 0]),
        torch.tensor(0),
        torch.tensor([[0], [0]]),
        torch.tensor([0, 2]),
        torch.tensor([0, -1]),
        torch.tensor([0, 1]),  # cluster 1 is abandoned
    ],
)
def test_a_users_bad_selection_is_refused_in_clear_words(
    steps: Clients, point: Point, models: Models, values: Tensor
):
    strategy = ifca_mir(
        models(1.0, -1.0), steps, SelectionConfig(user_selection("mine:own", choosing(values)))
    )
    cohort = (point("a", 1, 1), point("b", 1, 0))
    state = replace(strategy.init(STREAMS), assignment={"A": 0, "B": 0})
    with pytest.raises(ConfigError, match=r"one offered cluster index per client: 2"):
        strategy.play_round(state, cohort, STREAMS)
    with pytest.raises(ConfigError, match=r"2 integers out of \[0\]"):
        strategy.conclude(state, cohort, STREAMS)


@pytest.mark.parametrize("values", [torch.tensor([1, 0]), np.array([1, 0]), [1, 0]])
def test_a_users_good_selection_is_obeyed(
    steps: Clients, point: Point, models: Models, values: Tensor
):
    strategy = ifca_mir(
        models(1.0, -1.0), steps, SelectionConfig(user_selection("mine:own", choosing(values)))
    )
    cohort = (point("a", 1, 1), point("b", 1, 0))
    played = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
    assert played.state.assignment == {"A": 1, "B": 0}
