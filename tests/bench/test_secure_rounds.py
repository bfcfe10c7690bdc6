"""The bench of secure sums, on rounds of a few numbers."""

import pytest

from covey_papers.bench import SecureRoundSize, secure_round_cost


@pytest.mark.parametrize("drop_outs", [0, 3])
def test_the_sum_is_exact_and_everything_is_counted(drop_outs: int) -> None:
    cost = secure_round_cost(SecureRoundSize(12, 50, drop_outs, neighbours=10))
    assert cost.exact
    assert cost.neighbours == 10
    assert min(cost.sent_bytes, cost.received_bytes) > 0


def test_bytes_beside_the_numbers_do_not_hang_on_how_many_these_are() -> None:
    few, many = (
        secure_round_cost(SecureRoundSize(8, numbers, neighbours=6))
        for numbers in (10, 1000)
    )
    assert many.sent_bytes == pytest.approx(few.sent_bytes, abs=8)
