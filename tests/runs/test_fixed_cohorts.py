"""Cohorts of a fixed size: who is drawn, how often, and what leaving changes."""

from collections import Counter
from itertools import combinations, compress

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from covey.settings.schema import TrainConfig

DRAWS = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12)


def test_the_smallest_draws_by_hand():
    draws = [0.5, 0.1, 0.9, 0.1]
    assert TrainConfig(cohort_size=1).takes_part(draws) == [False, True, False, False]
    assert TrainConfig(cohort_size=3).takes_part(draws) == [True, True, False, True]
    assert TrainConfig(cohort_size=9).takes_part(draws) == [True] * 4
    assert TrainConfig(participation=0.5).takes_part(draws) == [False, True, False, True]


@given(DRAWS, st.integers(1, 12), st.data())
def test_who_leaves_moves_nobody_else_out(draws, size, data):
    """Who was not drawn changes nothing, and who was is followed by at most one other."""
    gone = data.draw(st.integers(0, len(draws) - 1))
    train = TrainConfig(cohort_size=size)
    before = train.takes_part(draws)
    after = train.takes_part(draws[:gone] + draws[gone + 1 :])
    others = before[:gone] + before[gone + 1 :]
    came = [new and not old for old, new in zip(others, after, strict=True)]
    assert not any(old and not new for old, new in zip(others, after, strict=True))
    assert sum(came) <= before[gone]


def test_every_cohort_is_equally_likely():
    generator, train = np.random.default_rng(0), TrainConfig(cohort_size=2)
    drawn = Counter(
        tuple(compress("abcd", train.takes_part(draws)))
        for draws in generator.random((6_000, 4)).tolist()
    )
    assert set(drawn) == set(combinations("abcd", 2))
    assert chisquare(list(drawn.values())).pvalue > 0.001
