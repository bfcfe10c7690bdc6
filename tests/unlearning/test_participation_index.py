"""Who took part, found in columns as it is found in texts."""

from array import array
from itertools import accumulate, chain

from hypothesis import given
from hypothesis import strategies as st

from covey.base.columns import Column, HandleColumn, HandleMap, Lists, Words
from covey.base.events import AnonymitySetsFormed, ClientsAssigned, Event
from covey.unlearning.participation import participation_of

HANDLES = [f"h{n:02}" for n in range(30)]
WORDS = Words(HANDLES)

parts = st.lists(
    st.sets(st.sampled_from(HANDLES), min_size=1, max_size=4).map(sorted).map(tuple),
    max_size=5,
    unique_by=lambda members: members[0],
).map(tuple)
cohorts = st.dictionaries(st.sampled_from(HANDLES), st.integers(0, 2))


def column(handles: list[str]) -> HandleColumn:
    return HandleColumn(WORDS, array("H", map(HANDLES.index, handles)))


def in_columns(event: Event) -> Event:
    """The same event, as a large ledger gives it."""
    match event:
        case AnonymitySetsFormed(cluster, sets, diameters):
            ends = array("I", accumulate(map(len, sets)))
            lists = Lists(ends, column(list(chain.from_iterable(sets))))
            cells = Column(array("d", [each or 0 for each in diameters]))
            return AnonymitySetsFormed(cluster, lists, cells)  # pyright: ignore
        case ClientsAssigned(clusters, by):
            handles = sorted(clusters)
            values = Column(array("B", [clusters[each] for each in handles]))
            return ClientsAssigned(HandleMap(column(handles), values), by)
        case _:
            return event


@given(st.lists(st.tuples(parts, cohorts, st.booleans(), st.booleans()), max_size=5))
def test_columns_tell_what_texts_tell(rounds):
    plain: list[tuple[int, Event]] = []
    mixed: list[tuple[int, Event]] = []
    for t, (sets, cohort, *in_column) in enumerate(rounds):
        facts = (
            AnonymitySetsFormed(0, sets, (1.0,) * len(sets)),
            ClientsAssigned(cohort, "clients"),
        )
        for fact, wanted in zip(facts, in_column, strict=True):
            plain.append((t, fact))
            mixed.append((t, in_columns(fact) if wanted else fact))
            assert mixed[-1][1] == fact
    told, found = participation_of(plain), participation_of(mixed)
    assert found == told
    for handle in (*HANDLES, "nobody"):
        held = [each for each in told.sets if handle in each.members]
        assert list(found.sets_of(handle)) == held
        rounds_in = [
            t for t, fact in plain if isinstance(fact, ClientsAssigned) and handle in fact.clusters
        ]
        assert list(found.trained.get(handle, {})) == rounds_in
        assert found.first_round(handle) == min(rounds_in, default=None)
