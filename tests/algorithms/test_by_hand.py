"""Rounds of a model with one parameter, redone on paper.

P(class 1 | x) = s(w x), s(z) = 1 / (1 + e^-z); s(1) = 0.731059, s(2) = 0.880797
loss of class 1: -ln s(w x); of class 0: -ln s(-w x)
-ln s(2) = 0.126928, -ln s(1) = 0.313262, -ln s(-1) = 1.313262, -ln s(-2) = 2.126928
gradient: (s(w x) - y) x
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from algorithms.playing import Playing, fedavg, ifca, ifca_mir, local_training
from covey import (
    ByLoss,
    ByThreshold,
    ConfigError,
    Examples,
    ReferenceEngine,
    RiskEstimate,
    Streams,
    Target,
    Weighted,
)
from covey.algorithms.own_steps import checked_selection
from covey.algorithms.redteam import RedTeamed, SelfAssessed
from covey.algorithms.selection import OwnSelection, SelectionConfig
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import ObjectiveInputs
from covey.base.events import (
    ChoicesPerturbed,
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
from covey.data.examples import Client
from covey.engine.recipe import Recipe
from covey.membership.truth import Assessment, RedTeam
from covey_papers.selection import Priced

STREAMS = Streams(0)


def weights_of(clusters: tuple[object, ...]) -> list[float]:
    return [float(cluster["w"]) for cluster in clusters]  # pyright: ignore


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_one_round_of_ifca(steps, point, models):
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


def test_a_risk_moves_the_client_that_weighs_it(steps, point, models, scripted):
    # risks 0.9 and 0.6. A, beta 0.5: 0.157 + 0.45 = 0.607 against 0.657 + 0.3 = 0.957
    # B, beta 0.9: 0.031 + 0.81 = 0.841 against 0.131 + 0.54 = 0.671: B moves to 1
    strategy = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(Weighted().select))
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


def test_fedavg_is_the_mean_of_the_local_models(steps, point, models):
    # A: 1.268941 and C: 1.238406 as above; B: 1 - s(1) = 0.268941; mean 0.925429
    cohort = (point("a", 1, 1), point("b", 1, 0), point("c", 2, 1))
    together = fedavg(models(1.0), steps)
    played = together.play_round(together.init(STREAMS), cohort, STREAMS)
    assert weights_of(played.state.clusters) == pytest.approx([0.9254294], abs=1e-6)
    alone = local_training(models(1.0), steps, cohort)
    separate = alone.play_round(alone.init(STREAMS), cohort, STREAMS)
    expected = pytest.approx([1.2689414, 0.2689414, 1.2384058], abs=1e-6)
    assert weights_of(separate.state.clusters) == expected


@pytest.mark.parametrize("same", [True, False])
def test_a_client_chooses_and_steps_on_one_batch(one_weight, models, make_client, same):
    """f(theta_j, xi_i) of line 12 is what line 13 takes the gradient of; else xi_i is another."""
    xs = torch.arange(1.0, 9.0)[:, None]
    client = make_client("a", Examples(xs, torch.tensor([0, 1] * 4)))
    recipe = Recipe(local_steps=1, batch_size=2, learning_rate=1.0)
    engine = ReferenceEngine(one_weight)
    clients = Simulated(engine, recipe, compares_on=("batch" if same else "train", 2))
    thetas = tuple(models(w)(Streams(0, (0,))) for w in (0.5, -0.5))
    equal: list[bool] = []
    for seed in range(10):
        at = Streams(seed).at("round", 0)
        losses = clients.evaluate(thetas, (client,), at)
        wanted = ObjectiveInputs(wants_losses=True)
        for j in range(2):
            (update,) = clients.train(thetas, (client,), {"A": j}, at, wanted)
            equal.append(update.loss == pytest.approx(float(losses[0, j]), abs=1e-6))
    assert all(equal) == same


def test_weights_by_examples(one_step, point, models):
    # A holds three equal examples, B one: (3 * 1.268941 + 0.268941) / 4 = 1.018941
    strategy = fedavg(models(1.0), one_step("examples"))
    cohort = (point("a", 1, 1, times=3), point("b", 1, 0))
    played = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
    assert weights_of(played.state.clusters) == pytest.approx([1.0189414], abs=1e-6)


def test_a_cluster_that_nobody_chose_is_frozen_and_never_offered_again(steps, point, models):
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


@pytest.fixture
def pair(point) -> tuple[Client, ...]:
    """One that likes w = 1 and one that likes w = -1."""
    return point("a", 1, 1), point("b", 1, 0)


@pytest.fixture
def watched(steps, models, pair) -> Callable[..., Playing]:
    def by(script: RedTeam, every: int) -> Playing:
        strategy = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(Weighted().select))
        return strategy.measured_by(RedTeamed(script, every, {c.handle: c for c in pair}))

    return by


def played_rounds(strategy: Playing, cohort: tuple[Client, ...], rounds: int):
    state, history = strategy.init(STREAMS), []
    for index in range(rounds):
        state, events, *_ = strategy.play_round(state, cohort, STREAMS.at("round", index))
        history.append(events)
    return state, history


def measured(events: tuple[Event, ...]) -> list[tuple[int, int]]:
    risk_events = [event for event in events if isinstance(event, RiskMeasured)]
    return [(event.cluster, event.estimate.round_index) for event in risk_events]


def test_the_red_team_looks_every_so_many_rounds_and_at_the_end(watched, pair, scripted):
    script = scripted({0: 0.6, 1: 0.6})
    strategy = watched(script, every=2)
    state, rounds = played_rounds(strategy, pair, 5)
    # nobody has chosen before round 0
    assert [*map(measured, rounds)] == [[], [], [(0, 2), (1, 2)], [], [(0, 4), (1, 4)]]
    assert [f.round_index for f in state.risk_estimates() if f] == [4, 4]
    assert measured(strategy.conclude(state, pair, STREAMS).events) == [(0, 5), (1, 5)]
    seen = [(t.cluster, [c.handle for c in t.members]) for t in script.seen[:2]]
    assert seen == [(0, ["A"]), (1, ["B"])]


def test_a_figure_lives_for_twice_the_rounds_between_two_looks(watched, pair, scripted):
    # Measured before round 2, withheld ever after: four rounds old in round 6, and gone
    # in round 7.
    script = scripted({0: 0.6, 1: 0.6})
    strategy = watched(script, every=2)
    state, _ = played_rounds(strategy, pair, 3)
    script.risks[0] = script.risks[1] = None
    known: list[int] = []
    for _ in range(3, 9):
        state, *_ = strategy.play_round(state, pair, STREAMS)
        known.append(sum(figure is not None for figure in state.risk_estimates()))
    assert known == [2, 2, 2, 2, 0, 0]


def test_nobody_acts_on_an_extrapolated_figure(watched, pair):
    def attack(target: Target, _: Streams) -> Assessment:
        figure = RiskEstimate(Figure(0.9, 0.01), 0.9, 10, 10, round_index=target.round_index)
        return Assessment(replace(figure, calibrated=False, rests_on="extrapolated"))

    state, rounds = played_rounds(watched(attack, every=1), pair, 3)
    risk_events = [event for event in rounds[-1] if isinstance(event, RiskMeasured)]
    assert [event.estimate.risk for event in risk_events] == [0.9, 0.9]
    assert state.risk_estimates() == (None, None)
    assert RiskUnknown((0, 1)) in rounds[-1]
    history = history_of([*enumerate(rounds)])
    assert not history.figures
    assert history.measured[-1].estimate.reason == "extrapolated"


@pytest.mark.parametrize("steers", [False, True])
def test_clients_choose_by_a_figure_that_is_not_calibrated_only_where_it_steers(
    steps, models, point, steers
):
    # as above: B, beta 0.9, is at 0.841 against 0.671, and by its loss at 0.31 against 1.31
    def attack(target: Target, _: Streams) -> Assessment:
        figure = Figure(0.9 if target.cluster == 0 else 0.6, 0.01)
        return Assessment(RiskEstimate(figure, calibrated=False, steers=steers))

    cohort = (point("a", 1, 1, weight=0.5), point("b", 1, 1, weight=0.9))
    plain = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(Weighted().select))
    watched = plain.measured_by(RedTeamed(attack, 1, {c.handle: c for c in cohort}))
    start = replace(plain.init(STREAMS), assignment={"A": 0, "B": 1}, round_index=1)
    played = watched.play_round(start, cohort, STREAMS)
    assert played.state.assignment == {"A": 0, "B": 1 if steers else 0}
    assert (RiskUnknown((0, 1)) in played.events) is not steers
    sent = [e and (e.calibrated, e.steers) for e in played.state.known_risks("A")]
    assert sent == ([(False, True)] * 2 if steers else [None] * 2)
    assert not history_of([(1, played.events)]).figures  # no report counts it


def test_what_clients_find_stays_theirs_and_is_kept_from_inside(steps, models, pair):
    # Every client finds 0.9 in its own cluster and 0.5 in the other, and accepts 0.8:
    # both change places. What they found inside lives on, so nobody goes back.
    looked: list[list[str]] = []

    def risk(value: float) -> RiskEstimate:
        return RiskEstimate(Figure(value, 0.05), 0.5, 9, 9)

    def judge(_: object, cohort: Sequence[Client], __: Streams):
        looked.append([c.name for c in cohort])
        risks: list[RiskEstimate | None] = [risk(0.9), risk(0.5)]
        return {c.handle: risks[::-1] if c.name == "b" else risks for c in cohort}

    plain = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(ByThreshold().select))
    state, rounds = played_rounds(plain.measured_by(SelfAssessed(judge, 2)), pair, 6)
    assert [names for names in looked if names] == [["a", "b"], ["a", "b"]]  # rounds 2, 4
    assert state.assignment == {"A": 1, "B": 0}
    known = [k and (k.risk, k.round_index, k.inside) for k in state.known_risks("A")]
    assert known == [(0.9, 2, True), (0.5, 4, True)]
    assert not any(measured(events) for events in rounds)
    unknown = [RiskUnknown((0, 1)) in events for events in rounds]
    assert unknown == [True, True, False, False, False, False]


def test_the_last_choice_is_recorded_like_any_other_and_sets_no_price(steps, models, pair):
    how = SelectionConfig(
        ByLoss().select, after_choice=Priced(target_share=0.3).after_choice, epsilon=2.0
    )
    strategy = ifca_mir(models(1.0, -1.0), steps, how)
    state, (first,) = played_rounds(strategy, pair, 1)
    last = strategy.conclude(state, pair, STREAMS.at("round", 1))
    chose = ChoicesPerturbed(2.0, ("A", "B"))
    assert chose in first
    assert "PricesSet" in kinds(first)
    assert last.events == (chose, ClientsAssigned(last.state.assignment, "final"))


@pytest.mark.parametrize("values", [[0, 0, 0], [[0], [0]], [0, -1], [0, 1]])
def test_a_users_bad_selection_is_refused_in_clear_words(steps, models, pair, values):
    own = checked_selection(OwnSelection(function=lambda _: torch.tensor(values)))
    strategy = ifca_mir(models(1.0, -1.0), steps, SelectionConfig(own))
    # cluster 1 is abandoned
    state = replace(strategy.init(STREAMS), assignment={"A": 0, "B": 0})
    with pytest.raises(ConfigError, match=r"one offered cluster index per client, 2"):
        strategy.play_round(state, pair, STREAMS)
    with pytest.raises(ConfigError, match=r"2 integers out of \[0\]"):
        strategy.conclude(state, pair, STREAMS)
