"""A ledger of the version before requests had a basis."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from covey.errors import LedgerError
from covey.ledger import Ledger, NewRequest, Record, ServedRequest
from covey.unlearning.served import Mark
from ledger.served import SERVED, SINCE, as_before

FACT = [Record(0, "facts", {"n": 1})]
LEFT = [Record(None, "ClientLeft", {"handle": "7f3a"})]


def noon() -> str:
    return "2030-01-01T12:00:00Z"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger as covey wrote it before: two columns fewer, and a lower number."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.create(path, noon) as ledger:
        ledger.enrol({"7f3a": "client-00001", "09bc": "client-00002"})
        ledger.append(0, FACT)
        ledger.ask("7f3a", "retrain")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for column in ("basis", "sealed"):
            database.execute(f"ALTER TABLE requests DROP COLUMN {column}")
        database.execute("DROP TABLE client_keys")
        database.execute("DROP TABLE client_organisations")
        database.execute("ALTER TABLE events DROP COLUMN packed")
        database.execute("DROP TABLE handles")
        database.execute("UPDATE schema SET version = 2")
    return path


def test_an_old_ledger_is_read_as_it_is_and_left_alone(old: Path):
    before = old.read_bytes()
    (request,) = Ledger.read(old).requests()
    assert (request.wanted, request.state) == ("retrain", "pending")
    assert (request.basis, request.sealed, request.served) == ("none", None, None)
    assert Ledger.read(old).replay() == FACT
    assert Ledger.read(old).keys() == {}
    assert old.read_bytes() == before


def test_an_old_ledger_is_carried_on_by_a_writer(old: Path):
    with Ledger.open(old, noon) as ledger:
        head = ledger.head()
        ledger.enrol({"09bc": "client-00002"}, {"client-00002": "a key"})
        (first,) = ledger.requests()
        ledger.serve([ServedRequest(first, "a mark", SERVED, "sealed")], LEFT)
        second = ledger.ask_all([NewRequest("09bc", "auto", basis="erasure")])
        assert [each.basis for each in second] == ["erasure"]
    with Ledger.open(old, noon) as again:
        assert again.keys() == {"client-00002": "a key"}
        assert [each.sealed for each in again.requests()] == ["sealed", None]
        assert [each.basis for each in again.requests()] == ["none", "erasure"]
        assert again.replay() == FACT + LEFT
        assert head in again.hashes()


def test_there_is_no_other_basis_and_all_are_asked_or_none(where: str):
    with Ledger.create(where, noon) as ledger:
        with pytest.raises(
            LedgerError, match="erasure, withdrawal, objection, restriction"
        ):
            ledger.ask_all(
                [NewRequest("7f3a", "auto"), NewRequest("09bc", "auto", basis="law")]
            )
        assert ledger.requests() == []


def test_a_later_answer_destroys_what_was_sealed_with_an_earlier_one(where: str):
    with Ledger.create(where, noon) as ledger:
        ledger.enrol({"7f3a": "client-00001", "09bc": "client-00002"})
        for handle in ("7f3a", "09bc"):
            ledger.ask(handle, "deny")
        served = [
            ServedRequest(r, r.id, SERVED, r.handle[::-1]) for r in ledger.requests()
        ]
        ledger.serve(served, LEFT)
        mark = Mark("00", "5b", "5e")
        (back,) = ledger.ask_all([NewRequest("7f3a", "retrain", mark=mark)])
        assert (back.mark, back.served) == (mark, None)
        ledger.serve([ServedRequest(back, None, SERVED)], LEFT)
        assert [each.sealed for each in ledger.requests()] == [None, "cb90", None]
        assert len(ledger.tombstones()) == 2


def kept(path: Path, note: str | None = None) -> str:
    """Return what stands in the first request's column, which may be set first."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        if note is not None:
            database.execute("UPDATE requests SET note = ?", (note,))
            database.execute("DELETE FROM files")  # earlier versions sealed no table
        return database.execute("SELECT note FROM requests").fetchone()[0]


def test_what_is_kept_of_a_request_is_read_as_versions_before_wrote_it(old: Path):
    with Ledger.open(old, noon) as ledger:
        ledger.serve([ServedRequest(ledger.requests()[0], "a mark", SERVED)], LEFT)
    now = json.loads(kept(old))
    assert now.keys() == {"first", "until", "salt", "cluster", "facts"}
    assert now["facts"].keys() == {*as_before()["facts"], *SINCE}
    kept(old, json.dumps(as_before()))
    (request,) = Ledger.read(old).requests()
    assert request.being_served() == SERVED
    kept(old, '{"mark": {"salt": "00", "subject": "5b", "sealed": "5e"}}')
    assert Ledger.read(old).requests()[0].mark == Mark("00", "5b", "5e")
    kept(old, '{"salt": "00"}')
    with pytest.raises(LedgerError, match="Restore the ledger from a copy"):
        Ledger.read(old).requests()
