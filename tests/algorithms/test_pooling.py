"""Pooling: what a share means, who gives, and how the measured risk steers it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Never

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithms.playing import Playing, begun, fedavg, setup_of
from covey import Clients, Examples, Params, RiskEstimate, RoundResult, ServerState, Streams
from covey.algorithms.algorithm import Opening
from covey.algorithms.local_clients import LocalClients
from covey.algorithms.pooling import START, STEP, PoolingShares, head_first, pooled, share_by_risk
from covey.algorithms.round_steps import Steps
from covey.algorithms.selection import LatestLosses
from covey.algorithms.state import OwnRisks, RiskEstimates, initial_state
from covey.base.events import ModelsPooled
from covey.base.figure import Figure
from covey.base.params import model_hash
from covey.data.examples import Client

Point = Callable[..., Client]
STREAMS = Streams(0)
SHARES = st.floats(0.0, 1.0)


@given(share=SHARES, num_layers=st.integers(1, 8))
def test_head_first_shares_as_many_layers_as_it_says_from_the_output(share: float, num_layers: int):
    pull = head_first(share, num_layers)
    assert pull.sum() == pytest.approx(share * num_layers)
    assert np.all(np.diff(pull) >= 0)
    assert np.sum((pull > 0) & (pull < 1)) <= 1


@given(share=SHARES, more=SHARES)
def test_more_is_shared_nowhere_less(share: float, more: float):
    low, high = sorted([share, more])
    assert np.all(head_first(high, 5) >= head_first(low, 5))


def after_one_round(
    clusters: tuple[Params, ...],
    clients: Mapping[str, Client],
    shares: tuple[float, ...],
    layers: tuple[tuple[str, ...], ...] = (("w",),),
) -> RoundResult:
    """Return what pooling makes of a round that trained nothing, each client in its group."""

    def nothing(*_: object) -> Never:
        raise AssertionError

    own = {handle: each.group or 0 for handle, each in clients.items()}
    state = initial_state(clusters).with_choices(own).with_models(clusters)
    everybody = tuple(clients.values())
    steps = Steps(LocalClients(nothing), nothing, nothing)
    there = Clients(everybody, steps, setup_of(nothing, everybody, layers))
    return pooled(RoundResult(state, ()), shares, there)


@pytest.fixture
def two_groups(point: Point) -> Mapping[str, Client]:
    """Client "a" of group 0 holds 1 example, "b" of group 1 holds 3."""
    a = replace(point("a", 1.0, 1, times=1), group=0)
    b = replace(point("b", 1.0, 1, times=3), group=1)
    return {a.handle: a, b.handle: b}


def weight(value: float) -> Params:
    return {"w": torch.tensor([value])}


def values(played: RoundResult) -> list[float]:
    return [float(model["w"]) for model in played.state.clusters]


def test_equal_shares_pull_towards_the_mean_over_examples(two_groups: Mapping[str, Client]):
    # theta_all = (1 * 0 + 3 * 4) / 4 = 3; half way from 0 is 1.5, from 4 is 3.5
    played = after_one_round((weight(0.0), weight(4.0)), two_groups, (0.5, 0.5))
    assert values(played) == pytest.approx([1.5, 3.5])
    assert played.state.kept(PoolingShares).shares == (0.5, 0.5)


def test_a_cluster_gives_what_it_keeps(two_groups: Mapping[str, Client]):
    # w = 1 * (1 - 0.5), 3 * (1 - 0): theta_all = 3 * 4 / 3.5; the second is left alone
    played = after_one_round((weight(0.0), weight(4.0)), two_groups, (0.5, 0.0))
    assert values(played) == pytest.approx([0.5 * 12 / 3.5, 4.0])


def test_a_layer_given_up_by_one_cluster_comes_from_the_other(two_groups: Mapping[str, Client]):
    clusters = tuple(
        {"first": torch.tensor([x]), "head": torch.tensor([10 * x])} for x in (1.0, 2.0)
    )
    layers = (("first",), ("head",))
    one, other = after_one_round(clusters, two_groups, (0.5, 0.0), layers).state.clusters
    assert (float(one["first"]), float(one["head"])) == (1.0, 20.0)
    assert model_hash([other]) == model_hash([clusters[1]])


def test_the_last_fact_names_the_pooled_models(two_groups: Mapping[str, Client]):
    played = after_one_round((weight(0.0), weight(4.0)), two_groups, (1.0, 0.5))
    fact = played.events[-1]
    assert fact == ModelsPooled((1.0, 0.5), model_hash(played.state.clusters))


def test_an_empty_cluster_neither_moves_nor_gives(two_groups: Mapping[str, Client]):
    clusters = (weight(0.0), weight(4.0), weight(100.0))
    played = after_one_round(clusters, two_groups, (1.0, 1.0, 1.0))
    assert values(played) == pytest.approx([3.0, 3.0, 100.0])
    fact = played.events[-1]
    assert isinstance(fact, ModelsPooled)
    assert fact.shares == (1.0, 1.0, 0.0)


def test_counters_and_masks_stay_each_clusters_own(two_groups: Mapping[str, Client]):
    clusters = tuple({"w": torch.tensor([x]), "count": torch.tensor(int(x))} for x in (2.0, 6.0))
    played = after_one_round(clusters, two_groups, (1.0, 1.0), (("w", "count"),))
    assert [int(model["count"]) for model in played.state.clusters] == [2, 6]
    assert values(played) == pytest.approx([5.0, 5.0])


@pytest.fixture
def steps(one_step: Callable[[str], Steps]) -> Steps:
    return one_step("examples")


def test_everything_pooled_is_fedavg_and_nothing_is_ifca(
    steps: Steps, two_groups: Mapping[str, Client]
):
    def init(_: Streams) -> Params:
        return {"w": torch.tensor([0.5])}

    def played(strategy: Playing) -> tuple[Params, ...]:
        state = strategy.init(STREAMS)
        for t in range(3):
            cohort = tuple(two_groups.values())
            state = strategy.play_round(state, cohort, STREAMS.at("round", t)).state
        return state.clusters

    setup = setup_of(init, tuple(two_groups.values()), (("w",),))

    def mixed(share: float) -> tuple[Params, ...]:
        return played(begun(setup, steps, Opening("groups", 0, 3), share))

    (shared,) = played(fedavg(init, steps))
    for model in mixed(1.0):
        torch.testing.assert_close(model["w"], shared["w"])
    models = (weight(0.3), weight(4.1))
    alone = after_one_round(models, two_groups, (0.0, 0.0)).state.clusters
    assert model_hash(alone) == model_hash(models)


def figure(risk: float, error: float, round_index: int = 5) -> RiskEstimate:
    return RiskEstimate(Figure(risk, error), risk, 20, 20, round_index=round_index)


@pytest.fixture(scope="module")
def ten(make_client: Callable[..., Client]) -> Mapping[str, Client]:
    """Ten clients that accept 0.51, 0.53, ... 0.69, and one of another cluster."""
    two = Examples(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64))
    clients = [
        make_client(f"c{index}", two, preference=(0.0, 0.51 + 0.02 * index)) for index in range(10)
    ]
    return {client.handle: client for client in (*clients, make_client("other", two))}


GUESS = math.log(2)


def at_round_5(choices: Mapping[str, int]) -> ServerState:
    state = initial_state((weight(0.0), weight(0.0))).with_choices(choices)
    return replace(state, round_index=5)


def shares_after(
    ten: Mapping[str, Client],
    share: float,
    seen: RiskEstimate | None,
    elsewhere: float = 0.5,
    own: Mapping[str, tuple[RiskEstimate | None, ...]] | None = None,
) -> float:
    """Return the ten's next share, if the other model has this loss on their examples."""
    choices = {handle: int(client.name == "other") for handle, client in ten.items()}
    losses = dict.fromkeys(ten, (0.1, elsewhere))
    state = at_round_5(choices).keeping(
        RiskEstimates(estimates=(seen, None)),
        PoolingShares(shares=(share, START)),
        LatestLosses(losses=losses),
        OwnRisks(risks=own or {}),
    )
    with_room = replace(  # the other holds as many examples as the ten
        ten["OTHER"], train=Examples(torch.zeros(20, 1), torch.zeros(20).long())
    )
    return share_by_risk(state, {**ten, "OTHER": with_room}, GUESS)[0]


@pytest.mark.parametrize(
    ("risk", "expected"),
    [
        (0.56, START + STEP),  # 3 of 10 refuse
        (0.54, START),  # 2 of 10 refuse
    ],
)
def test_a_refused_risk_is_pooled_more(ten: Mapping[str, Client], risk: float, expected: float):
    assert shares_after(ten, START, figure(risk, 0.01)) == pytest.approx(expected)


def test_without_a_new_figure_nothing_moves(ten: Mapping[str, Client]):
    assert shares_after(ten, 0.4, None) == 0.4
    assert shares_after(ten, 0.4, figure(0.9, 0.01, round_index=4)) == 0.4


def test_whoever_does_not_know_the_risk_refuses_it(ten: Mapping[str, Client]):
    # Everybody accepts the 0.5 that it found; of ten, two found nothing, then three.
    found = RiskEstimate(Figure(0.5, 0.1), round_index=5)

    def after(knowing: int) -> float:
        own = {
            handle: (found if place < knowing else None, None) for place, handle in enumerate(ten)
        }
        return shares_after(ten, START, None, own=own)

    assert after(8) == START
    assert after(7) == pytest.approx(START + STEP)


def test_an_unknown_risk_starts_protected(ten: Mapping[str, Client]):
    assert shares_after(ten, 0.0, None) == START


def test_nothing_more_is_shared_with_a_model_no_better_than_guessing(ten: Mapping[str, Client]):
    refused = figure(0.9, 0.01)
    assert shares_after(ten, START, refused, elsewhere=GUESS + 0.01) == START
    assert shares_after(ten, START, refused, elsewhere=GUESS - 0.01) > START


def test_a_cluster_with_nearly_all_examples_keeps_its_model(ten: Mapping[str, Client]):
    # The ten hold 20 of 22 examples, the other client 2.
    choices = {handle: int(client.name == "other") for handle, client in ten.items()}
    figures = RiskEstimates(estimates=(figure(0.9, 0.01), None))
    state = at_round_5(choices).keeping(figures)
    assert share_by_risk(state, ten, GUESS) == (0.0, START)


@given(
    share=SHARES, risk=st.floats(0.3, 1.0), error=st.floats(0.0, 0.2), higher=st.floats(0.0, 0.5)
)
def test_a_higher_risk_is_never_pooled_less_and_no_share_falls(
    ten: Mapping[str, Client], share: float, risk: float, error: float, higher: float
):
    def after(seen: float) -> float:
        return shares_after(ten, share, figure(seen, error))

    assert share <= after(risk) <= after(risk + higher) <= 1.0
