"""Choosing a cluster, with noise and prices: laws, and a loop over each formula."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from covey import (
    ByLoss,
    ByThreshold,
    Params,
    Recipe,
    ReferenceEngine,
    SelectionInputs,
    ServerState,
    Streams,
    Weighted,
)
from covey.algorithms.selection import (
    Selection,
    SelectionConfig,
    SelectionResult,
    choice_epsilon,
    report_noisy_min,
)
from covey.algorithms.simulated import Simulated
from covey.algorithms.start import gap_split, update_directions
from covey.algorithms.state import Cohort, initial_state
from covey.base.events import ChoicesPerturbed, PricesSet
from covey_papers.selection import Priced, select_priced
from selecting import choosing

SELECTIONS: dict[str, Selection] = {
    "loss": ByLoss().select,
    "weighted": Weighted().select,
    "weighted, ties": Weighted(ties=2.0).select,
    "threshold": ByThreshold().select,
    "threshold, ties": ByThreshold(ties=2.0).select,
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

    def row(numbers: st.SearchStrategy[float], count: int) -> Tensor:
        values = draw(st.lists(numbers, min_size=count, max_size=count))
        return torch.tensor(values, dtype=torch.float32)

    offered = draw(st.sets(st.integers(0, clusters - 1), min_size=1))
    rows = 1 if draw(st.booleans()) else clients  # sent to everybody, or each its own

    def table(numbers: st.SearchStrategy[float]) -> Tensor:
        values = row(numbers, rows * clusters).view(rows, clusters)
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


@given(selection_inputs())
def test_the_weighted_choice_is_line_12_as_printed(inputs):
    """argmin_j alpha_i loss + beta_i risk_j, whatever the errors are, of equal costs the first."""
    alpha, beta = 1 - inputs.risk_weights, inputs.risk_weights
    for i, chosen in enumerate(Weighted().select(inputs).tolist()):
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
    assert Weighted().select(inputs).tolist() == expected.tolist()


@given(selection_inputs(), st.sampled_from([1.0, 2.0]))
def test_the_weighted_choice_with_ties_takes_the_lowest_loss_of_equal_costs(inputs, ties):
    def cost(i: int, j: int, risks: list[float]) -> tuple[float, float]:
        beta, loss = float(inputs.risk_weights[i]), float(inputs.losses[i, j])
        return (1 - beta) * loss + beta * min(max(risks[j], 0.5), 1.0), loss

    assert Weighted(ties=ties).select(inputs).tolist() == brute_force(inputs, cost, ties)


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

    assert ByThreshold(ties=ties).select(inputs).tolist() == brute_force(inputs, cost, ties)


@given(selection_inputs(risk=KNOWN_RISKS | st.just(UNKNOWN)))
def test_zero_risk_weight_is_ifca(inputs):
    inputs = replace(inputs, risk_weights=torch.zeros_like(inputs.risk_weights))
    expected = ByLoss().select(inputs)
    assert torch.equal(Weighted().select(inputs), expected)


@given(selection_inputs(risk=parts(32, 64, of=64)))
def test_risk_weight_one_sends_everybody_to_the_safest_offered_cluster(inputs):
    inputs = replace(
        inputs,
        risk_weights=torch.ones_like(inputs.risk_weights),
        risk_errors=torch.zeros_like(inputs.risk_errors),
    )
    lowest = inputs.risks[:, inputs.available].amin(dim=1)
    chosen = Weighted().select(inputs)
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
    assert torch.equal(Weighted().select(inputs), ByLoss().select(inputs))


@pytest.mark.parametrize(
    ("risks", "threshold", "chosen"),
    [([0.9, UNKNOWN], 1.0, 0), ([0.9, UNKNOWN], 0.5, 0), ([UNKNOWN, UNKNOWN], 0.5, 1)],
)
def test_an_unknown_risk_is_above_every_threshold(risks, threshold, chosen):
    inputs = two_of([[2.0, 1.0]], risks, risk_thresholds=torch.tensor([threshold]))
    assert ByThreshold().select(inputs).tolist() == [chosen]


def test_with_ties_risks_closer_than_two_standard_errors_count_as_equal():
    # the difference is 0.04; its standard error is sqrt(2) s: equal from s > 0.01414 on
    equal, distinct = (
        two_of(
            [[1.0, 1.01]],
            [0.64, 0.60],
            risk_errors=torch.full((1, 2), error),
            risk_thresholds=torch.tensor([0.5]),
        )
        for error in (0.015, 0.014)
    )
    assert Weighted(ties=2.0).select(equal).tolist() == [0]  # by loss
    assert Weighted(ties=2.0).select(distinct).tolist() == [1]  # 0.5 + 0.32 > 0.505 + 0.30
    assert ByThreshold(ties=2.0).select(equal).tolist() == [0]
    assert ByThreshold(ties=2.0).select(distinct).tolist() == [1]
    assert Weighted().select(equal).tolist() == ByThreshold().select(equal).tolist() == [1]


seeds = st.integers(0, 2**32 - 1)


def blobs(sizes: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clouds of deviation 1 whose centres lie 30 apart, and who belongs to which."""
    centres = 30 * np.eye(len(sizes), 4)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    noise = np.random.default_rng(seed).normal(size=(len(truth), 4))
    return centres[truth] + noise, truth


@pytest.mark.parametrize("sizes", [(10, 10), (4, 20), (8, 8, 8)])
def test_well_separated_groups_are_found(sizes):
    points, truth = blobs(sizes, seed=1)
    split = gap_split(points, len(sizes), np.random.default_rng(0))
    assert adjusted_rand_score(truth, split.labels) == 1


def drawn_updates(seed: int, clients: int = 5) -> list[Params]:
    draws = torch.Generator().manual_seed(seed)
    return [
        {"a": torch.randn(2, 3, generator=draws), "b": torch.randn(4, generator=draws)}
        for _ in range(clients)
    ]


def products(updates: Sequence[Params]) -> np.ndarray:
    rows = update_directions(updates)
    return rows @ rows.T


@given(seeds)
def test_directions_have_the_cosines_of_the_centred_updates(seed):
    updates = drawn_updates(seed)
    rows = torch.stack(
        [torch.cat([update["a"].flatten(), update["b"]]) for update in updates]
    ).double()
    rows = rows - rows.mean(dim=0)
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows, dim=2)
    np.testing.assert_allclose(products(updates), expected.numpy(), atol=1e-6)


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
        own = [replace(stream, secret=secret) for stream in inputs.client_streams]
        select = report_noisy_min(by_loss, BOUND, 1.0)
        return tuple(select(replace(inputs, client_streams=own)).tolist())

    assert len({chosen(secret) for secret in range(5)}) == 5
    assert chosen(1) == chosen(1)


@given(st.lists(st.permutations([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=5))
def test_with_hardly_any_noise_it_is_the_plain_choice(rows):
    inputs = inputs_of(rows)
    for cost in (by_loss, Weighted().cost):  # of an unknown risk loss alone decides
        chosen = report_noisy_min(cost, BOUND, 1e-12)(inputs)
        assert torch.equal(chosen, ByLoss().select(inputs))


MODELS = tuple({"w": torch.tensor([float(j)])} for j in range(2))


def losses_are(*rounds: list[list[float]]) -> Callable[..., Tensor]:
    """Losses per round, by client in the cohort's order and by cluster."""
    left = list(rounds)

    def evaluate(_: object, cohort: Cohort, __: object) -> Tensor:
        return torch.tensor(left.pop(0), dtype=torch.float32).view(len(cohort), 2)

    return evaluate


@pytest.fixture(scope="session")
def people(make_client, digits) -> Cohort:
    return tuple(make_client(name, digits.take(torch.arange(2))) for name in "abcdef")


def measuring(evaluated: Callable[..., Tensor]) -> Simulated:
    """Clients whose losses are what a test says."""

    class Measuring(Simulated):
        def evaluate(self, models: object, cohort: Cohort, streams: object) -> Tensor:
            return evaluated(models, cohort, streams)

    return Measuring(ReferenceEngine(torch.nn.Linear(1, 1)), Recipe())


BOTH_ALIVE = initial_state(MODELS).with_choices({"X": 0, "Y": 1})
"""Two clients that never come back keep both clusters on offer."""


def through(
    how: SelectionConfig,
    cohorts: list[Cohort],
    evaluate: Callable[..., Tensor] = lambda _, cohort, __: torch.zeros(len(cohort), 2),
    state: ServerState = BOTH_ALIVE,
) -> list[tuple[ServerState, SelectionResult]]:
    """Every round's state before, and the choice; nobody trains."""
    decide = partial(measuring(evaluate).choose, how)
    rounds: list[tuple[ServerState, SelectionResult]] = []
    for t, cohort in enumerate(cohorts):
        choice = decide(state, cohort, Streams(0).at("round", t))
        rounds.append((state, choice))
        state = choice.state.with_choices(choice.clusters).with_models(MODELS)
    return rounds


def test_a_price_rises_until_somebody_wants_to_stay(people):
    # Nothing is known of the risks: the loss decides. To A's labels cluster 0 gives the
    # probability exp(-ln 4) = 1/4 and cluster 1 gives 1: A wants 0 from 3/4 on.
    away = [[9.0, 0.0]] * 5
    losses = losses_are([[0.0, 9.0], *away], *[[[math.log(4), 0.0], *away]] * 3)
    priced = SelectionConfig(
        lambda inputs: select_priced(inputs, 1 / 3),
        after_choice=Priced(target_share=1 / 3).after_choice,
    )
    rounds = through(priced, [people] * 4, losses, initial_state(MODELS))
    facts = [fact for _, choice in rounds for fact in choice.events]
    assert [type(fact) for fact in facts] == [PricesSet] * 4
    # round 0: newcomers get what they want: 1 of 6 wants cluster 0, 1/6 too few
    # rounds 1 and 2: nobody wants it at 1/6 nor at 1/2: + 1/3 each; round 3: A does
    prices = [(f.prices[0], f.desired[0]) for f in facts if isinstance(f, PricesSet)]
    expected = [1 / 6, 1 / 6, 1 / 2, 0, 5 / 6, 0, 1, 1 / 6]
    assert [price for pair in prices for price in pair] == pytest.approx(expected, abs=1e-6)
    # and meanwhile whoever sits there may not leave: nobody has come for it
    assert [choice.clusters["A"] for _, choice in rounds] == [0] * 4


def test_choices_under_noise_are_recorded_with_their_epsilon(people):
    noisy = SelectionConfig(ByLoss().select, epsilon=0.5)
    perturbed = [choice.events for _, choice in through(noisy, [people, people[:2], ()])]
    six, two = (ChoicesPerturbed(0.5, tuple("ABCDEF"[:n])) for n in (6, 2))
    assert perturbed == [(six,), (two,), ()]
    ((_, plain),) = through(SelectionConfig(ByLoss().select), [people])
    assert plain.events == ()
