"""What a report says of differential privacy: a number only with what it is about."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covey import History
from covey.dp.accountant import gaussian_epsilon
from covey.dp.status import guarantee_status
from covey.report.comparison import comparison
from covey.report.comparison_figures import epsilon_figure
from covey.report.figures import spent_figure
from covey.report.page import write_report
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


def test_without_noise_nothing_is_accounted_for(histories: dict[str, History]):
    told = guarantee_status(histories["two clusters"])
    assert told.guarantee is None
    assert "accounted for" in told.guarantee_reason
    assert told.guarantees == ()
    assert guarantee_status(History()).guarantee is None


def test_the_page_shows_the_number_with_its_limits(noisy: Reported, tmp_path: Path):
    page = write_report([noisy], tmp_path / "report.html").read_text()
    assert "Differential privacy" in page
    assert "the server itself" in page
    assert "No guarantee" not in page
    assert (tmp_path / "figures" / "spent.svg").is_file()


def test_the_figure_ends_at_what_the_run_has_spent(noisy: Reported):
    (line,) = spent_figure(noisy.history).axes[0].lines
    ys = list(line.get_ydata())  # pyright: ignore[reportArgumentType]
    told = guarantee_status(noisy.history).guarantee
    assert told is not None
    assert ys[0] == 0.0
    assert ys == sorted(ys)
    assert ys[-1] == told.epsilon


def test_rounds_that_were_rolled_back_stay_spent(noisy: Reported):
    history = noisy.history
    twice = replace(history, all_events=tuple(history.all_events) * 2)
    again, once = (guarantee_status(each).guarantee for each in (twice, history))
    assert again is not None
    assert again.epsilon is not None
    assert once is not None
    assert once.epsilon is not None
    assert again.epsilon > once.epsilon


def test_runs_are_drawn_by_their_epsilon_and_bare_ones_apart(
    a_run: Callable[..., Reported], a_plot: Callable[..., Any], tmp_path: Path
):
    runs = [
        a_run(name, a_plot(noise=noise), seed)
        for seed, (name, noise) in enumerate([("a", 0.0), ("b", 2.0), ("c", 4.0)])
    ]
    rows = comparison(runs)
    assert rows[0]["epsilon"] is None
    assert rows[1]["epsilon"] > rows[2]["epsilon"] > 0
    assert len(epsilon_figure(rows).axes) == 3
    page = write_report(runs, tmp_path / "two.html").read_text()
    assert "What a smaller epsilon takes and gives" in page
    bare = write_report(runs[:1] * 2, tmp_path / "bare.html").read_text()
    assert "What a smaller epsilon" not in bare
