from dataclasses import fields
from typing import Any

import pytest

from covey import History
from covey.base.events import ClusterWaited, Event
from covey.base.history import NOTABLE
from covey.report.page import templates
from covey.report.summary import happenings


def sentences(history: History) -> list[str]:
    """Return what a page says of how the rounds went."""
    said: Any = templates().get_template("happenings.html").module
    return [f"{each.when}: {said.sentence(each)}".strip() for each in happenings(history)]


ANY: dict[str, Any] = {
    "clients": ("h0", "h1"),
    "handles": ("h0", "h1"),
    "clusters": (0,),
    "gaps": {"inputs": 0.1},
}


@pytest.mark.parametrize("kind", NOTABLE)
def test_every_kind_of_event_that_a_reader_is_shown_has_a_sentence(kind: type[Event]):
    values: dict[str, Any] = {each.name: ANY.get(each.name, 1) for each in fields(kind)}
    if kind.__name__ == "ClusterWaited":
        values["clients"] = 1
    (sentence,) = sentences(History(notable=((0, kind(**values)),)))
    assert sentence.startswith("Round 1: ")
    assert sentence.endswith(".")
    assert len(sentence) > 20


def test_why_a_cluster_waited():
    few, far = (sentences(History(notable=((0, ClusterWaited(1, n, 4)),))) for n in (3, 6))
    assert few == [
        "Round 1: cluster 1 waited. Its 3 clients are fewer than the 4 that its aggregation needs."
    ]
    assert far == [
        "Round 1: cluster 1 waited. No 4 of its 6 clients were near enough to each other."
    ]
