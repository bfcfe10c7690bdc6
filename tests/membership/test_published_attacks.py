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
    auc,
    likelihood_ratio_offline,
    lira_online,
    logit,
    of_label,
    rmia,
)

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "published" / "scores.json").read_text()
)
INPUTS, TFP, METER = (PUBLISHED[key] for key in ("inputs", "tensorflow-privacy", "privacy-meter"))
MEMBER = np.array(INPUTS["member"], dtype=bool)
INSIDE = np.array(INPUTS["inside"], dtype=bool)


def log_probs_of(of: dict[str, Any]) -> tuple[ndarray, ndarray, ndarray]:
    """The log-probabilities of a target and of references, and the labels."""
    target, references = (
        log_softmax(np.array(of[key]), axis=-1) for key in ("target", "references")
    )
    return target, references, np.array(of["labels"])


def phis() -> tuple[ndarray, ndarray]:
    target, references, labels = log_probs_of(INPUTS)
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


@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
def test_offline_rmia_is_privacy_meters(a):
    """With records of nobody's as the population, as there; no two ratios are equal, so
    that >= here and > there count the same."""
    target, references, labels = log_probs_of(INPUTS)
    ratios = likelihood_ratio_offline(
        of_label(target, labels), of_label(references, labels), INSIDE, a
    )
    z, z_references, z_labels = log_probs_of(INPUTS["population"])
    z_out = of_label(z_references, z_labels)
    others = likelihood_ratio_offline(
        of_label(z, z_labels), z_out, np.zeros(z_out.shape, dtype=bool), a
    )
    ours = rmia(ratios, others)
    np.testing.assert_allclose(ours, METER["rmia"][f"a = {a}"], atol=1e-12)
    assert area(ours) == pytest.approx(METER["auc"][f"a = {a}"], abs=1e-12)
