"""From shadows to the target, worked by hand."""

import math

import pytest

from covey import RiskEstimate
from covey.base.figure import Figure
from covey.membership.shadow import moderated, power_law


def figure(risk: float, error: float = 0.01, members: int = 100) -> RiskEstimate:
    return RiskEstimate(Figure(risk, error), risk, members, members)


def test_a_moderated_deviation_by_hand():
    # Mean 0.6, squares 2 * 0.04^2 = 0.0032; the sampling error 0.02 counts four times:
    # (4 * 0.0004 + 0.0032) / (4 + 3 - 1) = 0.0008
    assert moderated([0.56, 0.6, 0.64], 0.02) == pytest.approx(math.sqrt(0.0008))


def test_a_power_law_is_continued_exactly():
    # Advantage 0.8 at 100, 0.4 at 400, 0.2 at 1600: halved by four times the examples,
    # so 0.1 at 6400.
    sizes = [(100, 0.9), (400, 0.7), (1600, 0.6)]
    shadows = [[figure(risk, members=n)] * 3 for n, risk in sizes]
    found = power_law(shadows, 6400)
    assert found.risk == pytest.approx(0.55)
    assert found.standard_error >= 0.01  # one more draw


def test_more_examples_never_mean_more_risk():
    rising = [[figure(r, members=n)] * 3 for n, r in [(100, 0.6), (200, 0.65), (400, 0.7)]]
    assert power_law(rising, 10_000).risk <= 0.7


@pytest.mark.parametrize("risks", [(0.5, 0.5, 0.5), (0.49, 0.51, 0.48)])
def test_no_signal_stays_no_signal(risks):
    shadows = [
        [figure(risk, members=n)] * 3 for n, risk in zip((100, 200, 400), risks, strict=True)
    ]
    found = power_law(shadows, 4000)
    assert 0.5 <= found.risk < 0.52
    assert found.risk - 0.5 < 2 * found.standard_error
