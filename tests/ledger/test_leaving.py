"""The queue of those who want to leave, and what is left of them afterwards."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from covey import LedgerError
from covey.base.names import Basis
from covey.leaving.facts import AnswerInProgress
from covey.ledger.chain import REWIND, Record
from covey.ledger.requests import LeaveRequest, Mark
from covey.ledger.store import Ledger
from ledger.conftest import noon
from ledger.served import SERVED

NAMES = {f"{n:04x}": f"client-{n:05d}-of-{'some' * 12}where" for n in range(120)}
HANDLE = "0007"
NAME = NAMES[HANDLE]
ANSWER = [Record(None, "ClientLeft", {"handle": HANDLE}), Record(None, REWIND, {"round_index": 0})]
UNRECORDED = LeaveRequest(HANDLE)


def ask(ledger: Ledger, handle: str, wanted: str, after_round: int | None = None) -> LeaveRequest:
    return ledger.add_requests([LeaveRequest(handle, wanted, after_round=after_round)])[0][0]


def serve(ledger: Ledger, request: LeaveRequest, mark: str) -> str:
    return ledger.serve([SERVED.noted(request, None)], {request.handle: mark}, ANSWER)[-1].hash


def begun(where: str | Path) -> Ledger:
    """A ledger of one round whose clients came in an order that splits pages."""
    ledger = Ledger.create(where, noon)
    for third in range(3):
        ledger.enrol(dict(list(NAMES.items())[third::3]))
    ledger.append(0, [Record(0, "facts", {"clients": list(NAMES)})])
    return ledger


def leave(ledger: Ledger) -> str:
    """Serve one client up to the proof, and return the request's id."""
    request_id = ask(ledger, HANDLE, "auto")
    serve(ledger, request_id, "a mark")
    ledger.scrub()
    return request_id.id


def test_a_request_that_was_drawn_before_is_the_first_one(where: str):
    with Ledger.create(where, noon) as ledger:
        first = ask(ledger, "0001", "deny", after_round=4)
        ask(ledger, "0002", "auto")
        assert ask(ledger, "0001", "deny", after_round=4) == first
        assert ask(ledger, "0003", "deny", after_round=5) != first
        assert len(ledger.requests()) == 3


def test_only_known_answers_and_bases_are_asked_for_and_all_or_none(where: str):
    with Ledger.create(where, noon) as ledger:
        with pytest.raises(LedgerError, match="erasure, withdrawal, objection, restriction"):
            ledger.add_requests(
                [LeaveRequest("7f3a", "auto"), LeaveRequest("09bc", basis=cast("Basis", "law"))]
            )
        with pytest.raises(LedgerError, match="auto, deny, subtract, roll_back, retrain"):
            ask(ledger, "7f3a", "forget")
        assert ledger.requests() == []


def test_a_later_answer_destroys_what_was_sealed_with_an_earlier_one(where: str):
    with Ledger.create(where, noon) as ledger:
        ledger.enrol({"7f3a": "client-00001", "09bc": "client-00002"})
        for handle in ("7f3a", "09bc"):
            ask(ledger, handle, "deny")
        requests = ledger.requests()
        served = [SERVED.noted(r, r.handle[::-1]) for r in requests]
        left = [Record(None, "ClientLeft", {"handle": "7f3a"})]
        ledger.serve(served, {r.handle: r.id for r in requests}, left)
        mark = Mark("00", "5b", "5e")
        ((back,), _) = ledger.add_requests([LeaveRequest("7f3a", "retrain", mark=mark)])
        assert (back.mark, back.served) == (mark, None)
        ledger.serve([SERVED.noted(back, None)], {}, left)
        assert [request.sealed for request in ledger.requests()] == [None, "cb90", None]
        assert len(ledger.roster().tombstones) == 2


def test_serving_answers_seals_and_erases_at_once(where: str):
    with begun(where) as ledger:
        request_id = ask(ledger, HANDLE, "retrain")
        head = serve(ledger, request_id, "a mark")
        assert ledger.head() == head
        assert ledger.replay()[1:] == ANSWER
        assert ledger.last_round() is None
        assert ledger.names() == {h: n for h, n in NAMES.items() if h != HANDLE}
        assert ledger.roster().tombstones == frozenset({"a mark"})
        (served,) = ledger.requests()
        assert (served.state, AnswerInProgress.of(served)) == ("serving", SERVED)
        ledger.answered(request_id.id, "retrain")
        (done,) = ledger.requests()
        assert (done.state, done.answer, done.served) == ("done", "retrain", None)
        assert done.answered_at == noon()
        ledger.verify()


def test_a_serving_that_fails_leaves_nothing_behind(where: str):
    with begun(where) as ledger:
        request, head = ask(ledger, "beef", "auto"), ledger.head()
        with pytest.raises(LedgerError, match="handle beef must be a client"):
            serve(ledger, request, "a mark")
        assert ledger.requests() == [request]
        assert ledger.head() == head
        assert ledger.roster().tombstones == frozenset()
        assert ledger.names() == NAMES


def test_every_step_is_taken_once_and_in_order(where: str):
    with begun(where) as ledger:
        with pytest.raises(LedgerError, match="for this step, found none"):
            serve(ledger, UNRECORDED, "a mark")
        request = ask(ledger, HANDLE, "auto")
        request_id = request.id
        with pytest.raises(LedgerError, match=r"must be serving .* found pending"):
            ledger.answered(request_id, "deny")
        serve(ledger, request, "a mark")
        with pytest.raises(LedgerError, match=r"must be pending .* found serving"):
            serve(ledger, request, "a mark")
        with pytest.raises(LedgerError, match=r"must be pending .* found serving"):
            ledger.refused(request_id, "too late")
        ledger.answered(request_id, "deny")
        with pytest.raises(LedgerError, match=r"must be serving .* found done"):
            ledger.answered(request_id, "deny")


def test_who_was_erased_is_not_enrolled_again(where: str):
    with begun(where) as ledger:
        leave(ledger)
        for beside in ({}, {"new": "a newcomer"}):
            with pytest.raises(LedgerError, match="whose name was erased") as no:
                ledger.enrol({HANDLE: NAME, **beside})
            assert NAME not in str(no.value)
        ledger.enrol({h: n for h, n in NAMES.items() if h != HANDLE})


def test_reading_asks_nothing_and_scrubs_nothing(where: str):
    begun(where).close()
    ledger = Ledger.read(where)
    for step in (
        lambda: ask(ledger, HANDLE, "auto"),
        lambda: ledger.append_between(ANSWER),
        lambda: serve(ledger, UNRECORDED, "a mark"),
        lambda: ledger.answered("id", "deny"),
        lambda: ledger.refused("id", "why"),
        ledger.scrub,
    ):
        with pytest.raises(LedgerError, match=r"use Ledger\.open"):
            step()


def bytes_in(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())


def test_an_erased_name_is_in_no_byte_of_any_file(path: Path):
    """Nor are names that wandered between pages."""
    gone = list(NAMES)[::6]
    with begun(path) as ledger:
        assert NAMES[gone[1]].encode() in bytes_in(path.parent)
        for number, handle in enumerate(gone):
            request_id = ask(ledger, handle, "auto")
            serve(ledger, request_id, f"mark {number}")
            ledger.answered(request_id.id, "deny")
        ledger.scrub()
        rest = bytes_in(path.parent)
    assert not [handle for handle in gone if NAMES[handle].encode() in rest]
    assert b'"salt"' not in rest
    assert NAMES["0008"].encode() in rest


def test_a_write_ahead_log_is_emptied_or_named(path: Path):
    begun(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        with Ledger.open(path, noon) as ledger:
            leave(ledger)
            assert NAME.encode() not in bytes_in(path.parent)
            ledger.append(0, [Record(0, "facts", {})])


def leave_a_copy(where: str) -> None:
    """Let a client leave a copy of the ledger that lies above."""
    path = Path(where)
    shutil.copy(path.parents[1] / path.name, path)
    with Ledger.open(path, noon) as ledger:
        leave(ledger)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_statement_the_leaving_is_whole_or_was_not(path: Path, deaths, step: int):
    with begun(path) as ledger:
        before = ledger.replay()
    remains = deaths(leave_a_copy, f"{path.parent}/{{}}/{path.name}", step)
    served: list[bool] = []
    for one in map(Path, remains):
        with Ledger.open(one, noon) as ledger:
            states = [one.state for one in ledger.requests()]
            served.append(states == ["serving"])
            assert states in ([], ["pending"], ["serving"])
            assert (HANDLE not in ledger.names()) == served[-1]
            assert (ledger.roster().tombstones != frozenset()) == served[-1]
            assert ledger.replay() == before + (ANSWER if served[-1] else [])
            ledger.scrub()
            assert (NAME.encode() not in bytes_in(one.parent)) == served[-1]
    assert served == sorted(served)
    assert {False, True} == set(served)


def test_an_erased_name_is_in_no_table_of_the_server(postgres):
    if postgres.data is None:
        pytest.skip("the files of a server that is not ours cannot be read")
    name = "somebody-nobody-else-is-called"
    where = postgres.run("erasure")
    with Ledger.create(where, noon) as ledger:
        ledger.enrol({**NAMES, "ffff": name})
        postgres.execute("ANALYZE", "CHECKPOINT")
        assert name.encode() in bytes_in(postgres.data / "base")
        request = ask(ledger, "ffff", "auto")
        serve(ledger, request, "a mark")
        ledger.scrub()
        postgres.execute("CHECKPOINT")
        assert name.encode() not in bytes_in(postgres.data / "base")
