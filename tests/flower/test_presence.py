"""A federation in which too few take part says so, waits, and ends."""

import pytest

from covey.report.queries import round_line
from flower.conftest import settings_with

PLAIN = settings_with(rounds=6, method={"name": "fedavg"}, risk={"name": "none"})
MASKED = {**PLAIN, "privacy": {"secure_sums": True, "min_cohort": 5}}


def test_a_federation_that_trains_nothing_ends_and_says_why(build):
    """Five clients are needed for a sum, and three are there."""
    result = build(MASKED, clients=range(3)).play(nodes=3)
    assert [each.participants for each in result.history.rounds] == [0, 0, 0]
    assert "nobody took part in 3 rounds in a row" in result.summary.ended_early
    assert "participants 0" in round_line(result.history)


@pytest.mark.parametrize(("rounds", "most", "played"), [(6, 1, 1), (6, 9, 6), (2, 3, 2)])
def test_so_many_rounds_are_played_as_are_set(build, rounds, most, played):
    settings = {**MASKED, "rounds": rounds, "stopping": {"empty_rounds": most}}
    result = build(settings, clients=range(3)).play(nodes=3)
    assert len(result.history.rounds) == played
