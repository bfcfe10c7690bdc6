"""Report-noisy-min: what one choice tells, exactly and by counting."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey import SelectionInputs, Streams, select_by_loss, select_weighted
from covey.algorithms.selection import UNASSIGNED, choice_epsilon, report_noisy_min, weighted_cost

BOUND = math.log(10)
STREAMS = Streams(0).at("round", 2, "choice")

losses = st.floats(0, 20) | st.sampled_from([math.nan, math.inf])
noises = st.floats(0.05, 20)


def by_loss(inputs: SelectionInputs) -> Tensor:
    return inputs.losses


def inputs_of(
    rows: Sequence[Sequence[float]], offered: Sequence[bool] = (), names: str = ""
) -> SelectionInputs:
    """Clients named a, b, ... that know no risk."""
    clients, clusters = len(rows), len(offered) or len(rows[0])
    names = names or "".join(chr(ord("a") + i % 26) for i in range(clients))
    return SelectionInputs(
        losses=torch.tensor(rows, dtype=torch.float32).reshape(clients, clusters),
        risks=torch.full((clients, clusters), math.nan),
        risk_errors=torch.full((clients, clusters), math.nan),
        risk_weights=torch.full((clients,), 0.5),
        risk_thresholds=torch.full((clients,), 0.7),
        available=torch.tensor(list(offered) or [True] * clusters),
        current=torch.full((clients,), UNASSIGNED),
        absent_counts=torch.zeros(clusters, dtype=torch.int64),
        prices=torch.zeros(clusters),
        streams=STREAMS,
        client_streams=[STREAMS.at(name) for name in names],
    )


def odds(row: Sequence[float], noise: float, bound: float = BOUND) -> Tensor:
    """The formula: P(j) = exp(-c_j / (b B)) / sum_l exp(-c_l / (b B))."""
    costs = torch.tensor(row, dtype=torch.float64).nan_to_num(nan=math.inf)
    return torch.softmax(-costs.clamp(0, bound) / (noise * bound), dim=0)


@pytest.mark.parametrize(
    ("row", "noise"),
    [
        ([0.0, 1.0, 2.0], 0.5),
        ([0.1, 0.2, 9.0, math.nan], 1.0),
        ([2.0, 0.0], 0.2),
        ([1.0, 1.0, 1.0], 3.0),
    ],
)
@pytest.mark.parametrize("secret", [None, 7])
def test_choices_are_as_frequent_as_the_exponential_mechanism_says(row, noise, secret):
    draws, streams = 4000, replace(STREAMS, secret=secret)
    inputs = replace(
        inputs_of([row] * draws, names="a" * draws),
        client_streams=[streams.at("client", i) for i in range(draws)],
    )
    chosen = report_noisy_min(by_loss, BOUND, noise)(inputs)
    counts = torch.bincount(chosen, minlength=len(row)).double()
    expected = odds(row, noise) * draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 20  # 3 degrees of freedom or fewer: p < 2e-4


@given(st.data(), st.integers(1, 6), noises)
def test_no_examples_change_the_odds_of_a_choice_by_more_than_epsilon(data, clusters, noise):
    row = st.lists(losses, min_size=clusters, max_size=clusters)
    one, other = odds(data.draw(row), noise), odds(data.draw(row), noise)
    assert float((one.log() - other.log()).abs().max()) <= choice_epsilon(noise) + 1e-9


@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_epsilon_is_reached_by_many_clusters_and_halved_by_two(noise):
    def worst(clusters: int) -> float:
        rest = [0.0] * (clusters - 1)
        good = odds([BOUND, *rest], noise).log()
        bad = odds([0.0, *[BOUND] * (clusters - 1)], noise).log()
        return float((good - bad).abs().max())

    assert worst(2) == pytest.approx(choice_epsilon(noise) / 2)
    assert worst(10**6) == pytest.approx(choice_epsilon(noise), rel=0.02)


@given(st.lists(st.lists(losses, min_size=3, max_size=3), min_size=2, max_size=5))
def test_nobodys_draw_depends_on_the_others(rows):
    select = report_noisy_min(by_loss, BOUND, 1.0)
    names = "abcde"[: len(rows)]
    together = select(inputs_of(rows, names=names)).tolist()
    alone = [
        int(select(inputs_of([row], names=name))[0]) for row, name in zip(rows, names, strict=True)
    ]
    assert together == alone
    turned = select(inputs_of(rows[::-1], names=names[::-1])).tolist()
    assert turned == together[::-1]


def test_the_draws_are_hidden():
    inputs = inputs_of([[1.0, 1.0]] * 20)

    def chosen(secret: int) -> tuple[int, ...]:
        own = [replace(each, secret=secret) for each in inputs.client_streams]
        select = report_noisy_min(by_loss, BOUND, 1.0)
        return tuple(select(replace(inputs, client_streams=own)).tolist())

    assert len({chosen(secret) for secret in range(5)}) == 5
    assert chosen(1) == chosen(1)


@given(st.lists(st.lists(losses, min_size=4, max_size=4), min_size=1, max_size=5))
def test_only_offered_clusters_are_chosen(rows):
    offered = [False, True, False, True]
    chosen = report_noisy_min(by_loss, BOUND, 100.0)(inputs_of(rows, offered))
    assert set(chosen.tolist()) <= {1, 3}


def test_nobody_chooses_nothing():
    nobody = inputs_of([], offered=[True, False])
    for cost in (by_loss, weighted_cost):
        chosen = report_noisy_min(cost, BOUND, 1.0)(nobody)
        assert chosen.shape == (0,)
        assert chosen.dtype == torch.int64


@given(
    st.lists(st.permutations([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=5),
    st.permutations([0.5, 0.625, 0.75, 1.0]),
    st.permutations([0.0, 0.0, 0.25, 1.0]),
)
def test_with_hardly_any_noise_it_is_the_plain_choice(rows, risks, weights):
    blind = inputs_of(rows)
    inputs = replace(
        blind,
        risks=torch.tensor([risks] * len(rows)),
        risk_errors=torch.zeros(len(rows), 4),
        risk_weights=torch.tensor([weights[i % 4] for i in range(len(rows))]),
    )
    quietly = partial(report_noisy_min, bound=BOUND, noise=1e-12)
    assert torch.equal(quietly(by_loss)(inputs), select_by_loss(inputs))
    costs, plain = weighted_cost(inputs), select_weighted(inputs)
    chosen = quietly(weighted_cost)(inputs)
    for one, own, other in zip(costs, chosen, plain, strict=True):
        # equal costs are told apart by the loss there, and by chance here
        assert float(one[own]) == float(one[other])
    assert torch.equal(quietly(weighted_cost)(blind), select_by_loss(blind))
