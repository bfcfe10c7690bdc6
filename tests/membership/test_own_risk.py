"""The largest weight that a client accepts."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.membership import largest_weight

RISKS = st.integers(0, 2**31).map(
    lambda seed: np.random.default_rng(seed).uniform(0.5, 1, 257).tolist()
)
MOST = st.integers(1, 256)


@given(RISKS, st.floats(0.4, 1), st.floats(0.4, 1), MOST)
def test_who_accepts_less_never_gets_a_larger_weight(
    risks: list[float], one: float, other: float, most: int
):
    low, high = sorted((one, other))
    strict, loose = (largest_weight(risks.__getitem__, t, most) for t in (low, high))
    assert 0 <= strict <= loose <= most
    assert not strict or risks[strict] <= low


@given(RISKS, st.floats(0.4, 1), MOST)
def test_of_risks_that_grow_it_is_the_last_that_is_accepted(
    risks: list[float], accepted: float, most: int
):
    grown = sorted(risks)
    accepting = [w for w in range(1, most + 1) if grown[w] <= accepted]
    assert largest_weight(grown.__getitem__, accepted, most) == max(
        accepting, default=0
    )


def test_a_risk_that_is_unknown_is_not_accepted():
    assert largest_weight(lambda _: math.nan, 1.0, 256) == 0
