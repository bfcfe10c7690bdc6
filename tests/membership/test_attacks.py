"""Attacks, one by one, by hand and by their laws."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax
from scipy.stats import norm

import covey
from covey import ConfigError, Signals
from covey.base.as_json import json_of
from covey.base.figure import RiskEstimate
from covey.membership.attacks import (
    Attack,
    EntropyAttack,
    PlainEntropyAttack,
    auc,
    best_threshold,
    check_references,
    cross_fitted,
    fedmia,
    log_complement,
    logit,
    risk_at,
    scores_of,
    shokri_features,
)
from covey.membership.references import attribution, source_of
from covey.membership.weights_attack import Equations, membership_weights

# Whole numbers from a short range: many ties, and monotone maps stay exact.
scores = st.lists(st.integers(-6, 6), min_size=1, max_size=12).map(
    lambda values: np.array(values, dtype=np.float64)
)


@given(scores, scores)
def test_auc_is_the_share_of_pairs_won(members, non_members):
    won = [1.0 if m > n else 0.5 if m == n else 0.0 for m in members for n in non_members]
    assert auc(members, non_members) == pytest.approx(np.mean(won), abs=1e-12)


@given(scores, scores)
def test_no_threshold_beats_the_best_one(members, non_members):
    everywhere = np.arange(-7, 8) - 0.5
    best = max(risk_at(float(c), members, non_members).risk for c in everywhere)
    threshold = best_threshold(members, non_members)
    risk = risk_at(threshold, members, non_members).risk
    assert risk == pytest.approx(best, abs=1e-12)
    assert threshold in np.concatenate([members, non_members])


def test_rates_by_hand():
    # from 3 on: members 1 2 [3 4] -> 2/4; non-members [0 1 2 2] 3 -> 4/5
    members, others = np.array([1.0, 2, 3, 4]), np.array([0.0, 1, 2, 2, 3])
    rates = risk_at(3.0, members, others)
    assert rates == RiskEstimate.of_rates(0.5, 0.8, 4, 5, auc=auc(members, others))
    assert rates.risk == pytest.approx(0.65)
    # one more right and one wrong on each side, 3 of 6 and 5 of 7: 1/4 / 6 and 10/49 / 7
    assert rates.standard_error == pytest.approx(math.sqrt(1 / 24 + 10 / 343) / 2)


def test_a_perfect_attack_on_a_few_records_is_still_uncertain():
    # rates of 1 count as 11 of 12: SE = sqrt(2 * 11/12 * 1/12 / 12) / 2
    rates = RiskEstimate.of_rates(tpr=1.0, tnr=1.0, members=10, non_members=10)
    assert rates.risk == 1
    assert rates.standard_error == pytest.approx(math.sqrt(22 / 12**3) / 2)
    inverted = RiskEstimate.of_rates(tpr=0.0, tnr=0.0, members=10, non_members=10)
    assert inverted.standard_error == pytest.approx(rates.standard_error)


def test_on_pure_noise_a_cross_fitted_attack_is_a_coin_toss_and_an_in_sample_one_is_not():
    # One accuracy on 50 noisy records a side has SE sqrt(2 * 0.25 / 50) / 2 = 0.05, the
    # mean of 200 has 0.0035: beyond 4 of them with probability 6e-5. Taking the best
    # threshold on the judged records themselves gives 0.56 instead.
    fitted, biased = [], []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        members, others = generator.normal(size=(2, 50))
        fitted.append(cross_fitted(members, others, generator).risk)
        threshold = best_threshold(members, others)
        biased.append(risk_at(threshold, members, others).risk)
    assert abs(np.mean(fitted) - 0.5) < 4 * 0.0035
    assert 0.54 < np.mean(biased) < 0.59


def test_a_loss_that_is_no_number_is_the_least_member_like():
    losses = np.array([np.nan, 0.5, np.inf, 5.0])
    assert scores_of(losses).tolist() == [-np.inf, -0.5, -np.inf, -5.0]


LABELS = np.array([0, 0])
LOG_PROBS = np.log([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])


def entropy_scores(attack: Attack, log_probs: np.ndarray) -> np.ndarray:
    return attack(Signals(LABELS, log_probs, np.zeros((2, 0, 3)), np.zeros((2, 0), dtype=bool)))


def test_entropy_by_hand():
    # -H = .7 log .7 + .2 log .2 + .1 log .1, whatever the label
    expected = 0.7 * np.log(0.7) + 0.2 * np.log(0.2) + 0.1 * np.log(0.1)
    assert entropy_scores(PlainEntropyAttack(), LOG_PROBS) == pytest.approx([expected] * 2)


def test_modified_entropy_by_hand():
    # right: (1 - .7) log .7 + .2 log .8 + .1 log .9
    # wrong: (1 - .1) log .1 + .2 log .8 + .7 log .3
    right = 0.3 * np.log(0.7) + 0.2 * np.log(0.8) + 0.1 * np.log(0.9)
    wrong = 0.9 * np.log(0.1) + 0.2 * np.log(0.8) + 0.7 * np.log(0.3)
    entropies = entropy_scores(EntropyAttack(), LOG_PROBS)
    assert entropies == pytest.approx([right, wrong])


def test_certainty_of_the_right_class_is_the_most_member_like_of_all():
    sure = np.array([[0.0, -800.0, -800.0], [-800.0, 0.0, -800.0]])
    right, wrong = entropy_scores(EntropyAttack(), sure)
    assert right == 0
    assert wrong < -800


def test_client_by_client():
    draw = np.random.default_rng(0)
    signals, suspects = draw.normal(size=(3, 5, 7)), draw.integers(5, size=7)
    by_client = fedmia(signals, suspects)
    for x, k in enumerate(suspects):
        tails: list[float] = []
        for t in range(3):
            others = [signals[t, i, x] for i in range(5) if i != k]
            z = (signals[t, k, x] - np.mean(others)) / np.std(others)
            tails.append(float(norm.cdf(z)))
        assert by_client[x] == pytest.approx(np.mean(tails))


def test_by_hand():
    # others 0 and 2: mu 1, sigma 1; the suspect's 2 is one sigma above: Phi(1)
    signals = np.array([[[0.0], [2.0], [2.0]]])
    assert fedmia(signals, np.array([2])) == pytest.approx([norm.cdf(1.0)])


def test_too_few_others_are_refused():
    with pytest.raises(ConfigError, match="found 2 clients"):
        fedmia(np.zeros((1, 2, 3)), np.array([0, 1, 0]))


def test_features_by_hand():
    log_probs = np.log([[0.1, 0.5, 0.3, 0.1]])
    (features,) = shokri_features(log_probs, np.array([2]))
    expected = [*np.log([0.5, 0.3, 0.1, 0.3, 0.3 / 0.7]), 0, 0, 0, 1, 0]
    assert features == pytest.approx(expected)
    (right,) = shokri_features(log_probs, np.array([1]))
    assert right[5] == 1


RIDGE = {
    "rounds": 1,
    "model": {"name": "linear-head", "features": {"filters": 30, "size": 3, "pool": 2}},
    "method": {"name": "ridge", "selection": "loss", "initialisation": "groups", "pooling": 0.3},
    "risk": {"name": "none"},
    "population": {"clients": 8, "examples_per_client": 20, "minority_share": 0.5},
}


def head_of(
    features: torch.Tensor, labels: torch.Tensor, z: torch.Tensor, regularisation: float
) -> torch.Tensor:
    """Return (A + lambda I)^-1 B over records of these weights."""
    targets = torch.nn.functional.one_hot(labels, 6).double() - 1 / 6
    weighed = features * z[:, None]
    system = features.T @ weighed
    system.diagonal().add_(regularisation)
    return torch.linalg.solve(system, weighed.T @ targets)


@given(
    seed=st.integers(0, 10**6),
    regularisation=st.sampled_from([0.3, 3.0, 100.0]),
    half=st.booleans(),
)
@settings(max_examples=10)
def test_weights_come_back_whatever_the_regularisation(seed, regularisation, half):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(150, 60, generator=generator, dtype=torch.float64)
    features[:, -1] = 1
    labels = torch.randint(6, (150,), generator=generator)
    allowed = torch.tensor([0.0, 0.0, 0.0195, 1.0], dtype=torch.float64)
    z = allowed[torch.randint(4, (150,), generator=generator)]
    theta = head_of(features, labels, z, regularisation)
    theta = theta.half().double() if half else theta.float().double()
    weights = membership_weights(Equations.of_ridge(theta, features, labels))
    weights = weights / weights[z == 1].mean()
    assert (weights - z).abs().max() < (0.05 if half else 0.0195 / 2)


@pytest.mark.slow
def test_everybody_is_found_in_a_head(tmp_path):
    run = covey.run(config=RIDGE, out=tmp_path / "run")
    ended = run.summary.violations.count
    clusters = json_of(run.audit(attacks=["weights"]))["clusters"]
    assert len(clusters) == 2
    for cluster in clusters:
        assert set(cluster["attacks"]) == {"weights", "population"}
        assert set(cluster["accuracies"]) == {"members", "non_members"}
        figures = cluster["attacks"]["weights"]["overall"]
        assert figures["auc"]["value"] == 1.0
        # a threshold that is fitted without the lowest member may miss that one
        assert figures["balanced_accuracy"]["value"] > 0.95
    # all of them, and by the end of the run: nobody accepts a risk of 1
    assert ended == run.summary.violations.count == 8
    assert any("finds who was in it" in note for note in run.summary.notes)
    with pytest.raises(covey.ConfigError, match="--attack weights"):
        run.audit(attacks=["lira"], references=2)


@pytest.mark.slow
def test_a_network_s_last_layer_is_attacked_too(tmp_path):
    settings = {
        "rounds": 4,
        "population": {"clients": 4, "examples_per_client": 40},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
    }
    trained = covey.run(config=settings, out=tmp_path / "run")
    (cluster,) = json_of(trained.audit(attacks=["weights"]))["clusters"]
    assert set(cluster["attacks"]) == {"weights", "population"}
    for figures in cluster["attacks"].values():
        assert 0.3 < figures["overall"]["auc"]["value"] <= 1


def test_the_lowest_loss_owns_the_record():
    losses = np.array([[0.1, 2.0, 0.5], [0.3, 1.0, 0.2]])
    assert source_of(losses).tolist() == [0, 1, 1]


def test_accuracy_beside_the_prior():
    # 3 of 4 right: SE sqrt(.75 * .25 / 4); three of the four belong to source 1
    attributed = attribution(np.array([0, 1, 1, 0]), np.array([0, 1, 1, 1]))
    assert (attributed.accuracy, attributed.prior_accuracy, attributed.records) == (0.75, 0.75, 4)
    assert attributed.standard_error == pytest.approx(np.sqrt(0.75 * 0.25 / 4))


moderate = arrays(np.float64, (5, 4), elements=st.floats(-8, 8))
SIGNAL_LABELS = np.array([0, 1, 2, 3, 1])


@given(moderate)
def test_the_complement_and_the_logit_are_what_they_say(outputs):
    log_probs = log_softmax(outputs, axis=1)
    probs = np.exp(log_probs)
    p = probs[np.arange(5), SIGNAL_LABELS]
    np.testing.assert_allclose(np.exp(log_complement(log_probs)), 1 - probs, rtol=1e-6)
    np.testing.assert_allclose(
        logit(log_probs, SIGNAL_LABELS), np.log(p / (1 - p)), rtol=1e-6, atol=1e-8
    )


def test_the_logit_stays_exact_where_probabilities_round_to_one():
    # p_y = 1 / (1 + 2 e^-60): 1 - p_y is 0 in floating point, its logit is 60 - log 2
    log_probs = log_softmax(np.array([[60.0, 0.0, 0.0]]), axis=1)
    assert np.exp(log_probs[0, 0]) == 1.0
    expected = 60 - np.log(2)
    assert logit(log_probs, np.array([0]))[0] == pytest.approx(expected)


def test_a_record_without_references_of_a_kind_is_refused():
    check_references(np.array([[True, False]]))
    with pytest.raises(ConfigError, match="inside at least 1 reference"):
        check_references(np.array([[True, False], [False, False]]))
    with pytest.raises(ConfigError, match="outside at least 2 references, found 1"):
        check_references(np.array([[True, True, False]]), least=2)
