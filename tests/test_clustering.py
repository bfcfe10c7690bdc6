"""The laws of choosing a cluster, and every choice against a loop over its formula.

Losses, weights and risks are multiples of powers of two, so that sums are exact and a law
never fails by rounding alone.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covey import SelectionInputs, select_by_loss, select_by_threshold, select_weighted
from covey.algorithms.selection import Selection
from selecting import choosing

SELECTIONS: dict[str, Selection] = {
    "loss": select_by_loss,
    "weighted": select_weighted,
    "weighted, ties": partial(select_weighted, ties=2.0),
    "threshold": select_by_threshold,
    "threshold, ties": partial(select_by_threshold, ties=2.0),
}
UNKNOWN = math.nan


every_selection = pytest.mark.parametrize("select", SELECTIONS.values(), ids=list(SELECTIONS))


def parts(low: int, high: int, of: int) -> st.SearchStrategy[float]:
    """Numbers low/of, (low + 1)/of, ..., high/of."""
    return st.integers(low, high).map(lambda n: n / of)


KNOWN_RISKS = parts(24, 64, of=64)
ERRORS = parts(0, 4, of=64)
LOSSES = parts(0, 32, of=8)


@st.composite
def selection_inputs(
    draw: st.DrawFn,
    risk: st.SearchStrategy[float] = KNOWN_RISKS,
    loss: st.SearchStrategy[float] = LOSSES,
    *,
    same_error: bool = False,
) -> SelectionInputs:
    clients, clusters = draw(st.integers(1, 5)), draw(st.integers(1, 4))

    def row(each: st.SearchStrategy[float], count: int) -> Tensor:
        values = draw(st.lists(each, min_size=count, max_size=count))
        return torch.tensor(values, dtype=torch.float32)

    offered = draw(st.sets(st.integers(0, clusters - 1), min_size=1))
    rows = 1 if draw(st.booleans()) else clients  # sent to everybody, or each its own

    def table(each: st.SearchStrategy[float]) -> Tensor:
        values = row(each, rows * clusters).view(rows, clusters)
        return values.expand(clients, clusters).clone()

    errors = table(ERRORS)
    return choosing(
        row(loss, clients * clusters).view(clients, clusters),
        risks=table(risk),
        risk_errors=errors[:, :1].expand_as(errors).clone() if same_error else errors,
        risk_weights=row(parts(0, 8, of=8), clients),
        risk_thresholds=row(parts(30, 60, of=64), clients),
        available=torch.tensor([j in offered for j in range(clusters)]),
    )


def two_of(losses: list[list[float]], risks: list[float], **known: Any) -> SelectionInputs:
    """The inputs of clients who were told two clusters' risks, of no error unless told so."""
    clients = len(losses)
    usual = {"risk_thresholds": torch.full((clients,), 0.65)}
    return choosing(losses, risks=torch.tensor(risks).expand(clients, 2), **{**usual, **known})


Cost = Callable[[int, int, list[float]], Any]


def brute_force(inputs: SelectionInputs, cost: Cost, ties: float = 0.0) -> list[int]:
    """Return each client's first argmin of `cost(i, j, its risks)`; None: not admitted."""
    chosen: list[int] = []
    for i in range(len(inputs.losses)):
        risks = _with_ties(inputs, i, ties)
        costs = {j: cost(i, j, risks) for j in range(len(risks)) if inputs.available[j]}
        admitted = {j: value for j, value in costs.items() if value is not None}
        chosen.append(min(admitted, key=lambda j: admitted[j]))
    return chosen


def _with_ties(inputs: SelectionInputs, i: int, ties: float) -> list[float]:
    risks, errors = inputs.risks[i].tolist(), inputs.risk_errors[i].tolist()
    known = [j for j, risk in enumerate(risks) if inputs.available[j] and not math.isnan(risk)]
    if not known:
        return risks
    safest = min(known, key=lambda j: risks[j])
    return [
        risks[safest]
        if abs(risks[j] - risks[safest]) < ties * math.hypot(errors[j], errors[safest])
        else risks[j]
        for j in range(len(risks))
    ]


@settings(max_examples=400)
@given(selection_inputs())
def test_the_weighted_choice_is_line_12_as_printed(inputs):
    """argmin_j alpha_i loss + beta_i risk_j, whatever the errors are, of equal costs the first."""
    alpha, beta = 1 - inputs.risk_weights, inputs.risk_weights
    for i, chosen in enumerate(select_weighted(inputs).tolist()):
        costs = [
            float(alpha[i] * inputs.losses[i, j] + beta[i] * inputs.risks[i, j])
            if inputs.available[j]
            else math.inf
            for j in range(len(inputs.available))
        ]
        assert chosen == costs.index(min(costs))


def test_the_weighted_choice_is_line_12_on_2000_random_inputs():
    draws = np.random.default_rng(0)
    clients, clusters = 2000, 3
    losses = draws.exponential(size=(clients, clusters)).astype(np.float32)
    risks = draws.uniform(0.3, 1, size=(clients, clusters)).astype(np.float32)  # below .5, too
    beta = draws.uniform(size=(clients, 1)).astype(np.float32)
    beta[::10] = 1
    risks[::10, 1:] = risks[::10, :1]  # equal costs
    inputs = choosing(
        losses.tolist(),
        risks=torch.from_numpy(risks),
        risk_errors=torch.from_numpy(draws.uniform(0, 0.2, size=risks.shape).astype(np.float32)),
        risk_weights=torch.from_numpy(beta[:, 0]),
        risk_thresholds=torch.full((clients,), 0.6),
    )
    expected = ((1 - beta) * losses + beta * risks).argmin(axis=1)
    assert set(expected) == {0, 1, 2}
    assert (expected[::10] == 0).all()
    assert select_weighted(inputs).tolist() == expected.tolist()


@given(selection_inputs(), st.sampled_from([1.0, 2.0]))
def test_the_weighted_choice_with_ties_takes_the_lowest_loss_of_equal_costs(inputs, ties):
    def cost(i: int, j: int, risks: list[float]) -> tuple[float, float]:
        beta, loss = float(inputs.risk_weights[i]), float(inputs.losses[i, j])
        return (1 - beta) * loss + beta * min(max(risks[j], 0.5), 1.0), loss

    assert select_weighted(inputs, ties).tolist() == brute_force(inputs, cost, ties)


@given(selection_inputs(risk=KNOWN_RISKS | st.just(UNKNOWN)), st.sampled_from([0.0, 2.0]))
def test_the_threshold_choice_is_the_argmin_over_what_is_accepted(inputs, ties):
    offered = inputs.available.tolist()

    def cost(i: int, j: int, risks: list[float]) -> float | None:
        raw = inputs.risks[i].tolist()
        known = [j for j, risk in enumerate(raw) if offered[j] and not math.isnan(risk)]
        accepted = [k for k in known if raw[k] <= float(inputs.risk_thresholds[i])]
        lowest = min((risks[k] for k in known), default=0.0)
        safest = [k for k in known if risks[k] == lowest]
        admitted = accepted or safest or [k for k, is_on in enumerate(offered) if is_on]
        return float(inputs.losses[i, j]) if j in admitted else None

    assert select_by_threshold(inputs, ties).tolist() == brute_force(inputs, cost, ties)


@given(selection_inputs(risk=KNOWN_RISKS | st.just(UNKNOWN)))
def test_zero_risk_weight_is_ifca(inputs):
    inputs = replace(inputs, risk_weights=torch.zeros_like(inputs.risk_weights))
    expected = select_by_loss(inputs)
    assert torch.equal(select_weighted(inputs), expected)


@given(selection_inputs(risk=parts(32, 64, of=64)))
def test_risk_weight_one_sends_everybody_to_the_safest_offered_cluster(inputs):
    inputs = replace(
        inputs,
        risk_weights=torch.ones_like(inputs.risk_weights),
        risk_errors=torch.zeros_like(inputs.risk_errors),
    )
    lowest = inputs.risks[:, inputs.available].amin(dim=1)
    chosen = select_weighted(inputs)
    assert torch.equal(inputs.risks.gather(1, chosen[:, None])[:, 0], lowest)
    assert inputs.available[chosen].all()


@every_selection
@given(selection_inputs(same_error=True), st.data())
def test_raising_one_clusters_risk_attracts_nobody_to_it(select, inputs, data):
    j = data.draw(st.integers(0, len(inputs.available) - 1))
    raised = inputs.risks.clone()
    raised[:, j] += data.draw(parts(1, 40, of=64))
    before, after = select(inputs), select(replace(inputs, risks=raised))
    assert not ((after == j) & (before != j)).any()


anything = st.sampled_from([0.0, 1.0, 3.0e38, math.inf, math.nan])


@every_selection
@given(selection_inputs(risk=KNOWN_RISKS | st.just(UNKNOWN), loss=anything))
def test_a_cluster_that_is_not_offered_is_never_chosen(select, inputs):
    """Whatever its risk and its loss, and whatever the others' are."""
    assert inputs.available[select(inputs)].all()


@every_selection
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_diverged_model_attracts_nobody(select, loss):
    inputs = two_of([[loss, 2.0], [2.0, loss]], [0.6, 0.6])
    assert select(inputs).tolist() == [1, 0]


@given(selection_inputs(risk=KNOWN_RISKS | st.just(UNKNOWN)), st.data())
def test_while_an_offered_clusters_risk_is_unknown_loss_alone_decides(inputs, data):
    j = data.draw(st.sampled_from(inputs.available.nonzero().flatten().tolist()))
    risks = inputs.risks.clone()
    risks[:, j] = UNKNOWN
    inputs = replace(inputs, risks=risks)
    assert torch.equal(select_weighted(inputs), select_by_loss(inputs))


@pytest.mark.parametrize(
    ("risks", "threshold", "chosen"),
    [([0.9, UNKNOWN], 1.0, 0), ([0.9, UNKNOWN], 0.5, 0), ([UNKNOWN, UNKNOWN], 0.5, 1)],
)
def test_an_unknown_risk_is_above_every_threshold(risks, threshold, chosen):
    inputs = two_of([[2.0, 1.0]], risks, risk_thresholds=torch.tensor([threshold]))
    assert select_by_threshold(inputs).tolist() == [chosen]


def test_with_ties_risks_closer_than_two_standard_errors_count_as_equal():
    # the difference is 0.04; its standard error is sqrt(2) s: equal from s > 0.01414 on
    equal, apart = (
        two_of(
            [[1.0, 1.01]],
            [0.64, 0.60],
            risk_errors=torch.full((1, 2), error),
            risk_thresholds=torch.tensor([0.5]),
        )
        for error in (0.015, 0.014)
    )
    assert select_weighted(equal, ties=2.0).tolist() == [0]  # by loss
    assert select_weighted(apart, ties=2.0).tolist() == [1]  # 0.5 + 0.32 > 0.505 + 0.30
    assert select_by_threshold(equal, ties=2.0).tolist() == [0]
    assert select_by_threshold(apart, ties=2.0).tolist() == [1]
    assert select_weighted(equal).tolist() == select_by_threshold(equal).tolist() == [1]
