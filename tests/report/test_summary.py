"""A run in one JSON object: what it says where it knows nothing."""

from covey.history import History
from covey.report import summary


def test_no_guarantee_says_what_is_true_with_any_noise(histories: dict[str, History]):
    for history in histories.values():
        told = summary(history)
        assert told["guarantee"] is None
        assert "noise" not in told["guarantee_reason"]  # merge.noise adds some
        assert "accounted for as differentially private" in told["guarantee_reason"]
