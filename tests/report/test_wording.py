from dataclasses import fields
from typing import Any

import pytest

from covey import History
from covey.base.events import Event
from covey.base.figure import Figure, number
from covey.base.history import NOTABLE
from covey.report.page import templates
from covey.report.summary import happenings


def sentences(history: History) -> list[str]:
    """Return what a page says of how the rounds went."""
    said: Any = templates().get_template("happenings.html").module
    return [f"{each.when}: {said.sentence(each)}".strip() for each in happenings(history)]


def test_a_figure_has_one_wording():
    assert str(Figure(0.7, 0.02)) == "0.700 ± 0.020"
    assert str(Figure(0.7)) == number(0.7) == "0.700"
    assert str(Figure(0.7, low=0.6, high=0.8)) == "0.700 [0.600, 0.800]"
    assert str(Figure.unknown("too few")) == number(None, "too few") == "unknown: too few"
    assert str(Figure.share(0.99, 0.1)) == "0.990 [0.794, 1.000]"
    assert not Figure.unknown("too few").lower_bound > 0  # and not below it either


ANY: dict[str, Any] = {"clients": ("h0", "h1"), "clusters": (0,), "gaps": {"inputs": 0.1}}


@pytest.mark.parametrize("kind", NOTABLE)
def test_every_kind_of_event_that_a_reader_is_shown_has_a_sentence(kind: type[Event]):
    values: dict[str, Any] = {each.name: ANY.get(each.name, 1) for each in fields(kind)}
    if kind.__name__ == "ClusterWaited":
        values["clients"] = 1
    (sentence,) = sentences(History(notable=((0, kind(**values)),)))
    assert sentence.startswith("Round 1: ")
    assert sentence.endswith(".")
    assert len(sentence) > 20
