"""What a report says of differential privacy: a number only with what it is about."""

from collections.abc import Callable
from typing import Any

import pytest

from covey.dp.accountant import gaussian_epsilon
from covey.dp.status import guarantee_status
from covey.report.queries import Reported


@pytest.fixture(scope="module")
def noisy(a_run: Callable[..., Reported], a_plot: Callable[..., Any]) -> Reported:
    return a_run("noisy", a_plot(noise=4.0))


def test_rounds_of_noise_are_told_with_what_they_are_about(noisy: Reported):
    told = guarantee_status(noisy.history)
    assert told.guarantee_reason == ""
    holds = told.guarantee
    assert holds is not None
    assert holds.epsilon == pytest.approx(gaussian_epsilon(3**0.5 / 4.0, 1e-5), abs=1e-3)
    assert holds.unit == "client"
    for aspect in ("relation", "adversary", "covers", "does_not_cover", "holds_if"):
        assert getattr(holds, aspect)
    assert told.guarantees == (holds,)


def test_a_seeded_run_promises_nothing_and_says_why(
    a_run: Callable[..., Reported], a_plot: Callable[..., Any]
):
    told = guarantee_status(a_run("s", a_plot(noise=4.0, secrets="seeded")).history)
    assert told.guarantee is None
    assert "seed" in told.guarantee_reason
    assert [each.epsilon for each in told.guarantees] == [None]
