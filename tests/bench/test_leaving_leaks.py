"""What an observer of both models finds, on models made by hand."""

import pytest

from covey_papers.bench import leaked
from covey_papers.bench.forgetting_data import LABEL
from covey_papers.bench.forgetting_runs import Seen


def seen(leaver: float, fresh: float, label: float = 0.1) -> Seen:
    shares = tuple(label if c == LABEL else (1 - label) / 9 for c in range(10))
    return Seen((leaver,) * 3, (fresh,) * 4, shares, 0.5, "")


def test_what_became_less_likely_is_what_the_leaver_had():
    before, after = seen(3.0, 0.0, 0.3), seen(0.0, 0.0)
    found = leaked([(before, after)] * 5)
    assert found.both.membership.value == 1.0
    assert found.both.label.value == 1.0
    assert found.after.membership.value == 0.5
    # of ten classes that are equally likely nobody knows which to name
    assert found.after.label.value == pytest.approx(0.1)


def test_a_model_that_stays_the_same_tells_nothing_more():
    same = seen(3.0, 0.0, 0.3)
    found = leaked([(same, same)] * 5)
    assert found.both.membership.value == 0.5
    assert found.both.label.value == pytest.approx(0.1)
    assert found.after.membership.value == 1.0
    assert found.after.label.value == 1.0


def test_a_class_that_was_named_less_is_not_the_leaver_s():
    found = leaked([(seen(0.0, 0.0, 0.05), seen(0.0, 0.0, 0.1))] * 2)
    assert found.both.label.value == 0.0
