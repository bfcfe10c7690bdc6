import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.base import history as told
from covey.base.columns import HandleColumn, Words
from covey.base.events import (
    ClientsAssigned,
    ClusterAbandoned,
    CohortSampled,
    Event,
    ForeignEvent,
    ModelsMerged,
    RoundMeasured,
)
from covey.base.history import ToldEvents, of_kinds

COLUMN = HandleColumn(Words(["h-0", "h-1"]), array("B", [1, 0]))
EVENTS: st.SearchStrategy[Event] = st.sampled_from(
    [
        *(ClusterAbandoned(cluster) for cluster in range(4)),
        *(RoundMeasured(x, {"one": x}, (1, 2)) for x in (0.0, 0.1, 1 / 3, 1.0)),
        ClientsAssigned({"h-1": 0, "h-0": 1}, "clients"),
        CohortSampled(COLUMN),
        ForeignEvent("Elsewhere", {"left": [1, None]}),
    ]
)
SOUGHT: tuple[tuple[type[Event], ...], ...] = (
    (ClusterAbandoned, CohortSampled),
    (ForeignEvent,),
    (Event,),
)
FACTS = st.lists(EVENTS, max_size=9)


@pytest.fixture(scope="module", autouse=True)
def _small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(told, "PIECE", 4)
        yield


@settings(max_examples=50)
@given(FACTS, st.lists(st.tuples(st.integers(0, 20), FACTS), max_size=8))
def test_packed_events_are_those_that_were_told(
    first: list[Event], rounds: list[tuple[int, list[Event]]]
):
    stories = [(ToldEvents(first), tuple(first))]
    for of, more in rounds:  # of any earlier one, as two stories may begin alike
        kept, plain = stories[of % len(stories)]
        stories.append((kept.with_more(more), (*plain, *more)))
    for kept, plain in stories:
        assert kept == plain
        assert tuple(kept) == tuple(kept[:]) == plain
        assert len(kept) == len(plain)
        assert [kept[i] for i in range(-len(plain), len(plain))] == [*plain, *plain]
        for kinds in SOUGHT:
            wanted = [each for each in plain if isinstance(each, kinds)]
            assert list(of_kinds(kept, *kinds)) == wanted
            assert list(of_kinds(plain, *kinds)) == wanted


def test_a_round_takes_next_to_no_memory_once_it_is_old(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(told, "PIECE", 256)
    handles = [f"h-{i:012x}" for i in range(20)]

    def played(t: int) -> list[Event]:
        return [
            CohortSampled(tuple(handles)),
            ClientsAssigned(dict.fromkeys(handles, 0), "shared"),
            ModelsMerged(f"{t:064x}", (20,)),
            RoundMeasured(t / 1000, {}, (20,)),
        ]

    story, taken = ToldEvents(), list[int]()
    tracemalloc.start()
    for rounds in (512, 1_024):  # the newest 512 events are as they were
        for t in range(rounds):
            story = story.with_more(played(t))
        taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert (taken[1] - taken[0]) / 1_024 < 600  # of 2,400 as objects
