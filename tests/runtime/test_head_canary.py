"""A canary in a ridge head: noise as accounted hides it, and four faults show."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from torch import Tensor

from covey import Streams
from covey.algorithms.releases import theta_alone
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_sums import Rows, sums_of, target_norm
from support.canaries import (
    CLASSES,
    COORDINATES,
    Verdict,
    head_draws,
    released_head,
    verdict_on_head,
)

NOISE = HeadNoise(target_norm(CLASSES), 1.5, 8.0, CLASSES)
DRAWS = 1_600
DELTA = 1e-5


def audited(release) -> Verdict:
    return verdict_on_head(NOISE, head_draws(NOISE, release, DRAWS, Streams(3)), DELTA)


@pytest.mark.slow
def test_the_accounted_noise_hides_it_and_is_nearly_reached():
    found = audited(partial(released_head, NOISE))
    assert found.holds
    assert 1 < found.refuted < found.accounted


def half_the_noise(rows: Sequence[Rows], streams: Streams) -> Tensor:
    return released_head(replace(NOISE, multiplier=NOISE.multiplier / 2), rows, streams)


def double_the_weight(rows: Sequence[Rows], streams: Streams) -> Tensor:
    twice = [Rows(each.features, each.labels, 2 * each.weight) for each in rows]
    return released_head(NOISE, twice, streams)


def not_scaled(rows: Sequence[Rows], streams: Streams) -> Tensor:
    sums = sums_of(rows, COORDINATES, CLASSES)
    return theta_alone(sums, NOISE, streams, sums.digest())


def the_same_draw(rows: Sequence[Rows], _: Streams) -> Tensor:
    return released_head(NOISE, rows, Streams(1))


@pytest.mark.parametrize(
    "fault",
    [
        half_the_noise,
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (double_the_weight, not_scaled, the_same_draw)
        ),
    ],
)
def test_a_fault_is_caught(fault):
    assert not audited(fault).holds
