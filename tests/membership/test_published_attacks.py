"""The same scores as two published implementations, on the same numbers.

`published/scores.json` holds what their own functions returned, once, with their source.
None of their code is here.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray
from scipy.special import log_softmax

from covey.membership.attacks import (
    Variance,
    auc,
    likelihood_ratio_offline,
    lira_offline,
    lira_online,
    logit,
    of_label,
    rmia,
)

FOUND: dict[str, Any] = json.loads(
    (Path(__file__).parent / "published" / "scores.json").read_text()
)
INPUTS, TFP, METER = (FOUND[key] for key in ("inputs", "tensorflow-privacy", "privacy-meter"))
MEMBER = np.array(INPUTS["member"], dtype=bool)
INSIDE = np.array(INPUTS["inside"], dtype=bool)
VARIANCES: dict[str, Variance] = {"own": "per-example", "shared": "global"}


def told(of: dict[str, Any]) -> tuple[ndarray, ndarray, ndarray]:
    """The log-probabilities of a target and of references, and the labels."""
    target, references = (
        log_softmax(np.array(of[key]), axis=-1) for key in ("target", "references")
    )
    return target, references, np.array(of["labels"])


def phis() -> tuple[ndarray, ndarray]:
    target, references, labels = told(INPUTS)
    return logit(target, labels), logit(references, labels)


def area(scores: ndarray) -> float:
    return auc(scores[MEMBER], scores[~MEMBER])


def test_the_logit_scaled_confidence_is_tensorflow_privacys():
    np.testing.assert_allclose(phis()[0], TFP["statistic"], rtol=1e-9)


def test_online_lira_is_tensorflow_privacys_with_each_records_own_variance():
    ours = lira_online(*phis(), INSIDE, "per-example")
    theirs = -np.array(TFP["lira"]["both, own variance"])  # low is a member there
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    assert area(ours) == pytest.approx(TFP["auc"]["both, own variance"], abs=1e-12)


def test_online_lira_with_one_variance_ranks_nearly_alike():
    """Not equal: one variance is around all records' common mean here, as in the authors'
    own code, and around each record's own mean in TensorFlow Privacy."""
    ours = lira_online(*phis(), INSIDE, "global")
    theirs = -np.array(TFP["lira"]["both, shared variance"])
    ranks = np.argsort(np.argsort(ours)), np.argsort(np.argsort(theirs))
    assert np.corrcoef(*ranks)[0, 1] > 0.9
    assert area(ours) == pytest.approx(TFP["auc"]["both, shared variance"], abs=0.05)


@pytest.mark.parametrize("variance", VARIANCES)
def test_offline_lira_orders_who_stands_out_as_tensorflow_privacy_does(variance: str):
    """The score here is the tail above phi, one-sided as in the paper; there it is the
    density. Above the mean of the OUT models both fall with the same distance."""
    target, references = phis()
    ours = lira_offline(target, references, INSIDE, VARIANCES[variance])
    theirs = -np.array(TFP["lira"][f"out, {variance} variance"])
    mean = references.mean(axis=1, where=~INSIDE)
    deviation = references.std(axis=1, where=~INSIDE)
    shown = (target > mean) & (deviation > 0)
    if variance == "own":  # a density also rises with a smaller deviation: taken out
        theirs = theirs - np.log(deviation)
    assert shown.sum() > 15
    assert (np.argsort(ours[shown]) == np.argsort(theirs[shown])).all()


@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
def test_offline_rmia_is_privacy_meters(a: float):
    """With records of nobody's as the population, as there; no two ratios are equal, so
    that >= here and > there count the same."""
    target, references, labels = told(INPUTS)
    ratios = likelihood_ratio_offline(
        of_label(target, labels), of_label(references, labels), INSIDE, a
    )
    z, z_references, z_labels = told(INPUTS["population"])
    z_out = of_label(z_references, z_labels)
    others = likelihood_ratio_offline(
        of_label(z, z_labels), z_out, np.zeros(z_out.shape, dtype=bool), a
    )
    ours = rmia(ratios, others)
    np.testing.assert_allclose(ours, METER["rmia"][f"a = {a}"], atol=1e-12)
    assert area(ours) == pytest.approx(METER["auc"][f"a = {a}"], abs=1e-12)
