"""A reason speaks of method, or of the figures that stand beside it."""

import pytest

from covey_papers.reproduce.specification import non_members_reason
from covey_papers.reproduce.theory import bound_verdict

SHIFT = "distribution shift, not membership"


@pytest.mark.parametrize(
    ("matched", "pooled", "blind", "told"),
    [
        (0.51, 0.62, 0.63, SHIFT),
        (0.626, 0.64, 0.51, "distribution shift does not explain"),
        (0.626, 0.70, 0.60, "a part of the mixture's figure is distribution shift"),
        (0.50, 0.51, 0.50, "cannot be distinguished there either"),
    ],
)
def test_opposite_figures_get_opposite_reasons(matched, pooled, blind, told):
    reason = non_members_reason([matched], [pooled], [blind])
    assert told in reason
    others = {SHIFT, "does not explain", "a part of", "either"} - {told}
    assert not any(other in reason for other in others if other not in told)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([True, True], "never above"),
        ([True, False], "ABOVE"),
        ([None, False], "ABOVE"),
        ([True, None], "not judged"),
        ([None], "not judged"),
    ],
)
def test_a_bound_that_was_not_tried_did_not_hold(runs, told):
    assert told in bound_verdict(runs)
