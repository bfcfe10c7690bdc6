"""A history that is folded as its ledger grows is the one that is folded at its end."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import LedgerError
from covey.base.events import (
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    RiskMeasured,
    RoundMeasured,
    RunRolledBack,
    RunStarted,
    kind_and_body,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle
from covey.ledger import rows
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.report.summary import summary
from covey.runs.grammar import Grammar
from covey.runs.ledger_record import LedgerReader, LedgerRecord

HANDLES: tuple[Handle, ...] = ("h0", "h1", "h2", "h3")
STEPS = st.lists(st.one_of(st.just("round"), st.just("look"), st.integers(0, 5)), max_size=14)
"""A round, a look at the ledger, or a rewind to before some round."""


def clock() -> str:
    return "2030-01-01T12:00:00Z"


def records(t: int | None, *events: Event) -> list[Record]:
    return [Record(t, *kind_and_body(each)) for each in events]


def a_round(t: int, seed: int) -> list[Record]:
    chosen = {h: (seed + i * t) % 2 for i, h in enumerate(HANDLES)}
    taus = dict.fromkeys(HANDLES, 0.6)
    begins = [RunStarted("0", "ifca", "c", "d", 2, 20, (), dict.fromkeys(HANDLES), taus, 3, ())]
    sizes = (sum(j == 0 for j in chosen.values()), sum(chosen.values()))
    return records(
        t,
        *(begins if t == 0 else []),
        CohortSampled(HANDLES),
        RiskMeasured(
            seed % 2, RiskEstimate(Figure(0.65, 0.01), 0.6, 9, 9, source="oracle", round_index=t)
        ),
        ClientsAssigned(chosen, "clients"),
        ModelsMerged(f"{seed:064x}", sizes),
        RoundMeasured(0.5 + 0.01 * seed, {}, sizes),
    )


def looked(reader: LedgerReader, place: Path) -> LedgerRecord:
    with Ledger.read(place) as ledger:
        return reader.read(ledger)


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_BYTES", 1)


@pytest.mark.slow
@given(steps=STEPS, most_bytes=st.sampled_from([1, 300, 10_000]))
def test_looking_often_and_in_small_pieces_tells_the_same_story(
    steps: list[str | int], most_bytes: int
):
    reader = LedgerReader()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "MOST_BYTES", most_bytes)
        place, t = Path(folder) / "ledger.sqlite", 0
        with Ledger.create(place, clock) as ledger:
            for seed, step in enumerate(steps):
                if step == "look":
                    assert looked(reader, place).history.all_events is not None
                elif step == "round":
                    ledger.append(t, a_round(t, seed))
                    t += 1
                elif isinstance(step, int) and step < t:
                    ledger.append_between(records(None, RunRolledBack(step, t, "anew")))
                    t = step
            grown, whole = looked(reader, place), LedgerReader().read(ledger)
            kinds = {link.kind for link in ledger.links()}
            counting = [link.position for link in ledger.look(kinds)]
    assert grown.history == whole.history
    assert (grown.head, grown.facts) == (whole.head, whole.facts)
    assert len(grown.hashes) == len(whole.hashes)
    assert [at for at, counts in enumerate(grown.counting, 1) if counts] == counting
    assert summary(grown.history) == summary(whole.history)


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """Three rounds, the last of which was played twice."""
    place = tmp_path / "ledger.sqlite"
    with Ledger.create(place, clock) as ledger:
        for t in range(3):
            ledger.append(t, a_round(t, t))
        ledger.append_between(records(None, RunRolledBack(2, 3, "anew")))
        ledger.append(2, a_round(2, 7))
    return place


@pytest.mark.parametrize(
    ("t", "events", "problem"),
    [
        (1, [CohortSampled(HANDLES)], "round 1, and round 3 of 20 comes next"),
        (3, [CohortSampled(HANDLES)] * 2, "a round has one CohortSampled, and round 3 has not"),
        (3, [ClientsAssigned({"h0": 0}, "clients")], "a round has one CohortSampled"),
        (3, [CohortSampled(("strange",))], "never joined: 'strange'"),
        (None, [RunRolledBack(-1, 3, "anew")], "greater than or equal to 0"),
        (None, [RunRolledBack(1, 5, "anew")], "3 rounds had been played, not 1 to 5"),
        (None, [CohortSampled(HANDLES)], "a CohortSampled belongs to a round"),
    ],
)
def test_an_event_out_of_its_order_is_refused_however_often_it_is_read(
    played: Path, t: int | None, events: list[Event], problem: str
):
    with Ledger.read(played) as ledger:
        grammar = Grammar()
        grammar.read(ledger.replay())
    for _ in range(2):
        with pytest.raises(LedgerError, match=problem):
            grammar.read(records(t, *events))
