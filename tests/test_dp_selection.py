"""Report-noisy-min: what one choice tells, exactly and by counting."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey import SelectionInputs, Streams, select_by_loss
from covey.algorithms.selection import choice_epsilon, report_noisy_min, weighted_cost
from selecting import choosing

BOUND = math.log(10)
STREAMS = Streams(0).at("round", 2, "choice")

losses = st.floats(0, 20) | st.sampled_from([math.nan, math.inf])
noises = st.floats(0.05, 20)


def by_loss(inputs: SelectionInputs) -> Tensor:
    return inputs.losses


def inputs_of(rows: Sequence[Sequence[float]], names: str = "") -> SelectionInputs:
    """Clients named a, b, ... that know no risk."""
    names = names or "".join(chr(ord("a") + i % 26) for i in range(len(rows)))
    return choosing(rows, client_streams=[STREAMS.at(name) for name in names])


def odds(row: Sequence[float], noise: float, bound: float = BOUND) -> Tensor:
    """The formula: P(j) = exp(-c_j / (b B)) / sum_l exp(-c_l / (b B))."""
    costs = torch.tensor(row, dtype=torch.float64).nan_to_num(nan=math.inf)
    return torch.softmax(-costs.clamp(0, bound) / (noise * bound), dim=0)


@pytest.mark.parametrize(
    ("row", "noise"), [([0.0, 1.0, 2.0], 0.5), ([0.1, 0.2, 9.0, math.nan], 1.0), ([2.0, 0.0], 0.2)]
)
def test_choices_are_as_frequent_as_the_exponential_mechanism_says(row, noise):
    draws, streams = 4000, replace(STREAMS, secret=7)
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


@given(st.lists(st.permutations([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=5))
def test_with_hardly_any_noise_it_is_the_plain_choice(rows):
    inputs = inputs_of(rows)
    for cost in (by_loss, weighted_cost):  # of an unknown risk loss alone decides
        chosen = report_noisy_min(cost, BOUND, 1e-12)(inputs)
        assert torch.equal(chosen, select_by_loss(inputs))
