"""The papers' theory, by hand and on real runs."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import Config, Streams, run
from covey.data.clients import PopulationRequest
from covey.data.examples import NoShift, Preference, ShiftRange
from covey.data.population import Group, Population, PopulationSpec
from covey.settings.run import build_run
from covey_papers.linear_mixture import LinearMixture
from covey_papers.reproduce.corollary import Constants, constants_of, promise
from covey_papers.reproduce.federations import PlayedRun
from covey_papers.reproduce.mixtures import MixtureSetting, models_of, start_of
from covey_papers.reproduce.record import MeasuredRun, RunCache, digest, note
from covey_papers.reproduce.specification import experiment, printed_table
from covey_papers.reproduce.theory import (
    TILTED,
    Choice,
    Descent,
    Tilt,
    arithmetic,
    contraction_bound,
    descent,
    noise_floor,
    safe_risk_weight,
    tilt,
)
from covey_papers.reproduce.violation_bound import largest_factor, violating_share, violations

SMALL = MixtureSetting(clients=10, dimension=4, examples=50, noise=0.05, rounds=8)


@pytest.fixture(scope="module")
def no_risk(tmp_path_factory: pytest.TempPathFactory) -> Descent:
    return descent(SMALL, "ifca", 0, cache_in(tmp_path_factory.mktemp("quiet")))


@pytest.fixture(scope="module")
def tilted(tmp_path_factory: pytest.TempPathFactory) -> Tilt:
    few = replace(TILTED, rounds=8)
    return tilt(few, 0.7, 0, cache_in(tmp_path_factory.mktemp("tilted")))


def test_the_bound_by_hand():
    assert contraction_bound(0.5, 1.0, 1.0) == 1 - 1 / 16
    assert contraction_bound(0.25, 0.5, 4.0) == 1 - 1 / 256


def test_the_noise_floor_is_where_least_squares_ends():
    mixture = LinearMixture(dimension=3, noise=0.5, separation=1.0, condition=4.0)
    optimum = mixture.optima(1, Streams(0))[0]
    draws = np.random.default_rng(0)
    squares: list[float] = []
    for _ in range(200):
        drawn = mixture.draw(100, optimum, draws)
        solution, *_ = np.linalg.lstsq(drawn.inputs.numpy(), drawn.labels.numpy())
        squares.append(float(((solution - optimum) ** 2).sum()))
    assert np.sqrt(np.mean(squares)) == pytest.approx(noise_floor(mixture, 100), rel=0.1)


@given(
    smallest=st.floats(0.01, 1),
    separation=st.floats(0.1, 10),
    share=st.floats(0, 0.999),
    risk_gap=st.floats(-0.5, 0.5),
)
def test_below_the_safe_weight_no_risk_draws_a_client_away(smallest, separation, share, risk_gap):
    beta = share * safe_risk_weight(smallest, separation)
    choice = Choice(beta, smallest * separation**2 / 2, risk_gap, first=False, joined=True)
    assert choice.margin > 0
    assert choice.lawful


def test_the_start_by_hand():
    mixture = LinearMixture(dimension=2, noise=1.0, separation=1.0)
    optima = np.eye(2)
    at = start_of(mixture, optima, optima, (100, 50, 0.5))
    # the variance of y - <x, theta> is 1, and 1 + 2 for the other group's model
    assert at.margin == 0.5
    assert at.examples_needed == pytest.approx(2 * (3**2 / 2) / (0.25 * 4))
    assert at.share_needed == math.log(5000) / 100
    assert at.holds
    assert not replace(at, examples=8).holds
    assert not replace(at, share=0.05).holds
    far = start_of(mixture, optima, optima[::-1], (100, 50, 0.5))
    assert far.margin == pytest.approx(-0.5)
    assert far.examples_needed == math.inf
    assert not far.holds


def test_where_nobody_minds_the_risk_every_step_is_within_the_bound(no_risk: Descent):
    judged = [step for step in no_risk.steps if step.judged]
    assert {step.cluster for step in judged} == {0, 1}
    assert no_risk.start.margin > 0
    assert no_risk.holds
    assert no_risk.worst < no_risk.bound == 1 - 0.3 * 0.25 / 8
    assert no_risk.worst == pytest.approx(no_risk.expected, abs=0.1)
    assert no_risk.misassigned == 0.0


def test_distances_are_those_of_gradient_descent_by_hand(no_risk: Descent):
    run = build_run(SMALL.config("ifca", 0))
    optima = SMALL.mixture.optima(2, Streams(0))
    thetas = models_of(run.algorithm.init(run.streams)).copy()
    distances = {(step.round_index, step.cluster): step.after for step in no_risk.steps}
    for t in range(SMALL.rounds):
        for j, theta in enumerate(thetas):
            gradients = [
                x.T @ (x @ theta - y) / len(y)
                for client in run.population.clients
                if client.group == j
                for x, y in [
                    (client.train.inputs.double().numpy(), client.train.labels.double().numpy())
                ]
            ]
            thetas[j] = theta - np.mean(gradients, axis=0)
            if (t, j) in distances:
                distance = float(np.linalg.norm(thetas[j] - optima[j]))
                assert distances[t, j] == pytest.approx(distance, abs=1e-5)
    assert len(distances) == 2 * (SMALL.rounds - 2)  # two rounds from the true groups


def test_clients_leave_exactly_where_the_margin_says(tilted: Tilt):
    assert tilted.unlawful == 0
    assert not tilted.safe
    left = [c for c in tilted.choices if c.margin < 0 < c.loss_gap]
    assert left
    assert not any(c.joined for c in left)
    assert any(c.joined and c.risk_gap > 0 for c in tilted.choices)
    assert 0 < tilted.misassigned_at_last <= 0.15


def cache_in(folder: Path) -> RunCache:
    return RunCache(folder, lambda _: nullcontext(lambda _: None), folder / "measured")


HAND = Constants(
    clients=4,
    examples=25,
    clusters=2,
    share=0.25,
    smallest=0.5,
    largest=2.0,
    apart=1.0,
    gradient_variance=9.0,
    loss_variance=0.5,
)


def test_rounds_and_error_by_hand():
    # 8 * 2 / (.25 * .5) = 128 rounds per factor e, from 2 Delta = 2 to epsilon = 2 / e^3
    assert HAND.rounds(2 / math.e**3) == pytest.approx(3 * 128)
    assert HAND.rounds(5.0) == 0
    # sigma s L = 3 * 2 * 2 = 12; p^(5/2) = 1/32; lambda^2 = 1/4; sqrt(n B) = 10; log(n B) = 4.605:
    # 12 * 4.605 / (1/32 * 1/4 * 1/2 * 10) = 1414.7
    # eta^2 L^2 s = .5 * 4 * 2 = 4; p^2 lambda^4 delta Delta^4 B = 1/16 * 1/16 * 1/2 * 25: 377.3
    assert HAND.epsilon(0.5) == pytest.approx(1414.7 + 377.3, abs=0.1)


@given(st.floats(1e-6, 2), st.floats(0.05, 0.5))
def test_by_theorem_4_without_a_floor_t_hat_is_enough(epsilon, share):
    """(1 - p lambda / (8 L))^T_hat 2 Delta <= epsilon."""
    bounds = replace(HAND, share=share)
    shrinks = 1 - share * bounds.smallest / (8 * bounds.largest)
    assert shrinks ** bounds.rounds(epsilon) * 2 * bounds.apart <= epsilon * (1 + 1e-9)


def test_the_variances_at_the_optima_are_those_of_drawn_examples():
    setting = MixtureSetting(shares=(0.5, 0.5), dimension=3, noise=0.5, condition=4.0)
    constants, mixture = constants_of(setting), setting.mixture
    optima = mixture.optima(2, Streams(0))
    drawn = mixture.draw(200_000, optima[0], np.random.default_rng(0))
    x, y = drawn.inputs.double().numpy(), drawn.labels.double().numpy()
    errors = y - x @ optima[1]
    gradients = -errors[:, None] * x
    assert np.var(errors**2 / 2) == pytest.approx(constants.loss_variance, rel=0.05)
    assert gradients.var(axis=0).sum() == pytest.approx(constants.gradient_variance, rel=0.05)
    assert constants.apart == pytest.approx(setting.apart)


def test_a_promise_of_nothing_is_called_that():
    said = promise("two groups", MixtureSetting())
    assert "Corollary 5, two groups: T_hat for an epsilon of Delta / 100 is" in said
    assert said.endswith("it promises nothing here.")
    many = MixtureSetting(shares=(0.5, 0.5), clients=10**9, examples=10**9, condition=1.0)
    assert not promise("many", many).endswith("it promises nothing here.")


NOWHERE = ShiftRange(NoShift(), 0.0, 0.0)
SPEC = PopulationSpec(
    clients=10,
    groups=(Group("minority", 0.3, NOWHERE, 40), Group("majority", 0.7, NOWHERE, 60)),
    shift_per="image",
    holdout=0.2,
    audit_examples=30,
    pool=-1,
    non_members="matched",
)


def indifferent(_: str) -> Preference:
    return Preference(0.0, 1.0)


def population(mixture: LinearMixture, spec: PopulationSpec = SPEC) -> Population:
    request = PopulationRequest(
        folder=Path(),
        label="",
        spec=spec,
        streams=Streams(0),
        preference=indifferent,
        outputs=lambda *_: 1,
        keeps_ids=False,
    )
    return mixture.population(request)[0]


@settings(max_examples=20)
@given(
    groups=st.integers(1, 6),
    dimension=st.integers(1, 8),
    separation=st.floats(0.1, 10),
    seed=st.integers(0, 1000),
)
def test_optima_have_the_norm_and_are_as_far_apart_as_can_be(groups, dimension, separation, seed):
    optima = LinearMixture(dimension=dimension, noise=0.5, separation=separation).optima(
        groups, Streams(seed)
    )
    assert optima.shape == (groups, dimension)
    np.testing.assert_allclose(np.linalg.norm(optima, axis=1), separation)
    if groups <= dimension:
        distances = np.linalg.norm(optima[:, None] - optima, axis=2)
        off = distances[~np.eye(groups, dtype=bool)]
        np.testing.assert_allclose(off, np.sqrt(2) * separation)


def test_least_squares_finds_every_groups_optimum_and_the_noise():
    mixture = LinearMixture(dimension=4, noise=0.3, separation=2.0, condition=9.0)
    optima = mixture.optima(2, Streams(0))
    many = replace(SPEC, groups=tuple(replace(g, examples_per_client=2000) for g in SPEC.groups))
    for client in population(mixture, many).clients:
        assert client.group is not None
        x, y = client.train.inputs.numpy(), client.train.labels.numpy()
        solution, _, _, _ = np.linalg.lstsq(x, y, rcond=None)
        np.testing.assert_allclose(solution, optima[client.group], atol=0.1)
        np.testing.assert_allclose(x.var(axis=0), mixture.spectrum, rtol=0.2)
        assert np.std(y - x @ optima[client.group]) == pytest.approx(0.3, rel=0.1)


risks = st.floats(0.51, 0.99)


def test_the_largest_factors_by_hand():
    # F(.761) = .261 / .3 = .87, F(.521) = .07: (.1 * .87 + .9 * .07) / .07 = 2.143
    assert violating_share(0.761) == pytest.approx(0.87)
    assert largest_factor(0.761, 0.521, 0.1) == pytest.approx(2.1428571)
    assert largest_factor(0.761, 0.521, 0.5) == pytest.approx(6.7142857)
    table = printed_table("ifca-mir", "Table 2")
    printed = (table["IFCA, Minor", "CIFAR-10"].value, table["IFCA, Major", "CIFAR-10"].value)
    assert largest_factor(*printed, 0.5) == pytest.approx((0.95 + 0.3466667) / 2 / 0.3466667)


@given(minor=risks, major=risks, share=st.floats(0, 1), moved=st.floats(0, 1))
def test_no_assignment_has_a_larger_one(minor, major, share, moved):
    """Whatever share of each group moves to the other's model."""
    stays = 1 - moved
    ifca = share * violating_share(minor) + (1 - share) * violating_share(major)
    own = share * (stays * violating_share(minor) + moved * violating_share(major))
    others = (1 - share) * (stays * violating_share(major) + moved * violating_share(minor))
    assert ifca / (own + others) <= largest_factor(minor, major, share) * (1 + 1e-9)


def test_risks_that_are_put_in_steer_clients_and_are_counted_apart(tmp_path):
    settings = {
        "rounds": 3,
        "population": {"clients": 10, "examples_per_client": 20, "minority_share": 0.2},
        "method": {"name": "ifca-mir", "initialisation": "groups", "selection": "threshold"},
        "model": {"name": "mlp"},
        "risk": {"name": "printed", "every": 1, "minority": 0.99, "majority": 0.5},
    }
    played = run(config=Config.of(settings), out=tmp_path / "run")
    seen = PlayedRun.of(played.folder)
    assert seen.summary.group_models["minority"].clients == 0  # nobody accepts .99
    assert seen.reported_risk(-1) == 0.5
    assert seen.measured_violations == 0
    assert not any(cluster.calibrated for cluster in seen.summary.clusters)


def test_the_experiment_names_every_red_team():
    names = {row.settings["risk"]["name"] for row in experiment("ifca-mir-violations").rows}
    assert names == {"printed", "paper", "shadow", "federated", "client", "oracle"}


def test_what_clients_were_told_compares_where_the_same_red_team_told_it(tmp_path):
    whole = experiment("ifca-mir-violations").model_copy(update={"repeats": 1})
    cache = cache_in(tmp_path)
    cache.measured.mkdir(exist_ok=True)
    for row in whole.rows:
        config = Config.of({**whole.settings_of(whole.columns[0], row), "seed": 0})
        known = MeasuredRun(values=dict.fromkeys(whole.measures, 2.0))
        note(cache.measured / f"{digest(config)}.json", known)
    cells = violations(whole, cache).cells
    factor = "violations, by the measured risk: IFCA's / own"
    printed = {"weighted, printed risks", "threshold, printed risks"}
    assert {cell.row for cell in cells if cell.measure == factor} == printed
    others = {row.name for row in whole.rows} - {"IFCA"}
    assert {cell.row for cell in cells if cell.measure == "violations: IFCA's / own"} == others


@pytest.fixture(scope="module")
def arithmetic_findings():
    return arithmetic(experiment("deniable-headline"))


@pytest.fixture(scope="module")
def ratios(arithmetic_findings):
    """Factors by model and data set, and k."""
    return {(c.row, c.column): c.mean for c in arithmetic_findings.cells if c.row != "claimed"}


def test_two_cells_by_hand(ratios):
    named = ratios["ResNet-mini, FMNIST-noniid", "k=8"]
    assert named == pytest.approx(331.2 / 14.56)
    assert round(named, 1) == 22.7
    least = ratios["ResNet-mini, FMNIST-iid", "k=4"]
    assert least == pytest.approx(253.09 / 206.43)


def test_the_claimed_range_follows_from_no_cell(arithmetic_findings, ratios):
    assert min(ratios.values()) < 1.3  # not 1.6
    assert max(ratios.values()) == pytest.approx(1362.2 / 0.004)  # not 500,769
    assert not any(round(ratio) == 500_769 for ratio in ratios.values())
    claims = {c.column: (c.printed.value, c.mean) for c in arithmetic_findings.cells[:3]}
    assert claims == {
        "abstract, lower end": (1.6, min(ratios.values())),
        "abstract, upper end": (500_769.0, max(ratios.values())),
        "section 4, k = 8, FMNIST, non-iid": (500_769.0, pytest.approx(22.747, abs=1e-3)),
    }
    assert "1.23 to 340,550 times" in arithmetic_findings.notes[0]
    assert "22.7" in arithmetic_findings.notes[0]
