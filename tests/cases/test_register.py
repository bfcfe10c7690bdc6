"""The register: facts in order, names in one place, and nothing lost by a kill."""

import json
import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from threading import Thread
from zlib import compress, decompress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError, LedgerError
from covey.desk import register as kinds
from covey.desk.register import Fact, fact_of, read_register, record_of, register_at, requests_of
from covey.desk.requests import add_request, close_request, correct_request, export_requests

NAME = "Ada <script>alert(1)</script>"
DAY = date.today() - timedelta(days=40)
TEXT = st.text("abc-", min_size=1, max_size=4)
ENTRY = kinds.Entry(names=("p-1",), received="2026-10-01", basis="erasure")
PERSON = {"person": st.just("p-1"), "run": TEXT}

DRAWN = {
    kinds.Corrected: {"entry": st.just(ENTRY), "day": TEXT},
    kinds.AnswerBegun: {"wanted": TEXT},
    kinds.RunOfRequest: {
        **PERSON,
        "held": TEXT,
        "run_request": st.just("") | TEXT,
        "ended": st.sampled_from(["", "before", "gone"]),
    },
    kinds.PackWritten: {"person": TEXT, "pack": TEXT, "sha256": TEXT},
}
DRAWS = st.lists(
    st.one_of([st.tuples(st.just(kind), st.fixed_dictionaries(d)) for kind, d in DRAWN.items()]),
    max_size=8,
)


def facts_about(number: str, draws) -> list[Fact]:
    """Whatever can happen to a request, in any order, after it was received."""
    first = kinds.Registered(request=number, entry=ENTRY)
    return [first, *(kind(request=number, **values) for kind, values in draws)]


@given(DRAWS, DRAWS, st.randoms(use_true_random=False))
def test_what_a_request_is_follows_from_its_own_facts_alone(one, other, random):
    one, other = facts_about("1", one), facts_about("2", other)
    mixed, left = [], [list(one), list(other)]
    while any(left):
        mixed.append(random.choice([each for each in left if each]).pop(0))
    found = requests_of(mixed)
    assert found["1"] == requests_of(one)["1"]
    assert found["2"] == requests_of(other)["2"]


@given(DRAWS)
def test_facts_come_back_from_the_chain_as_they_were(draws):
    facts = facts_about("1", draws)
    assert [fact_of(record_of(each)) for each in facts] == facts
    assert json.dumps([record_of(each).body for each in facts])


def test_a_request_comes_once_and_first():
    first = kinds.Registered(request="1", entry=ENTRY)
    for wrong in ([first, first], [kinds.AnswerBegun(request="1", wanted="auto")]):
        with pytest.raises(LedgerError, match="out of order"):
            requests_of(wrong)


@pytest.fixture
def none(tmp_path) -> list[Path]:
    (tmp_path / "none").mkdir()
    return [tmp_path / "none"]


def add(register, none, names=(NAME,), basis="erasure", day=DAY, **more):
    return add_request(register, none, names, basis, day, **more)


def test_events_name_nobody_and_closing_leaves_no_trace(register, none):
    add(register, none, reference=f"letter of {NAME}")
    with read_register(register) as held:
        events = "".join(str(each.record().body) for each in held._ledger.links())
    assert "Ada" not in events
    with pytest.raises(ConfigError, match="requests answer 1"):
        close_request(register, none, "1")
    view = close_request(register, none, "1", f"{NAME} is known to no run")
    assert (view.state, view.entry.names) == ("closed", ("[erased]",))
    assert view.entry.reference == "letter of [requester]"
    for path in register.iterdir():
        assert b"Ada" not in path.read_bytes()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"names": ()}, "one name at least"),
        ({"names": ("a\nb",)}, "one line"),
        ({"reference": "\x1b[31m"}, "--reference"),
        ({"day": date.today() + timedelta(days=1)}, "--received"),
        ({"basis": "none"}, "--basis"),
        ({"language": "fr"}, "--language"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(register, none, wrong, match):
    with pytest.raises(ConfigError, match=match):
        add(register, none, **wrong)
    assert not register.exists()


def test_an_entry_is_corrected_and_what_it_said_stays(register, none):
    add(register, none, ("Ada",), "access")
    changed = {"names": ["Ida", "Ava"], "received": DAY + timedelta(days=3), "basis": "erasure"}
    view = correct_request(register, none, "1", changed)
    assert (view.entry.names, view.entry.basis) == (("Ida", "Ava"), "erasure")
    ((said, day),) = view.before
    assert (said.names, said.basis, said.received) == (("Ada",), "access", DAY.isoformat())
    assert day == date.today().isoformat()
    close_request(register, none, "1", "known to no run")
    with read_register(register) as held:
        assert not {"Ada", "Ida", "Ava"} & {*held.texts().values()}
    with pytest.raises(ConfigError, match="until it is closed"):
        correct_request(register, none, "1", {"reference": "x"})


def test_an_extension_is_a_day_within_the_month_and_a_reason(register, none):
    add(register, none)
    for late in (DAY - timedelta(days=1), date.today()):
        with pytest.raises(ConfigError, match="one month later"):
            correct_request(register, none, "1", {"extended": late, "reason": "many runs"})
    with pytest.raises(ConfigError, match="no reason"):
        correct_request(register, none, "1", {"extended": DAY})
    tomorrow = date.today() + timedelta(days=1)
    with pytest.raises(ConfigError, match="has come"):
        correct_request(register, none, "1", {"extended": tomorrow, "reason": "many runs"})
    told = {"extended": DAY + timedelta(days=9), "reason": "many runs"}
    view = correct_request(register, none, "1", told)
    assert view.due == kinds.months_after(DAY, 3).isoformat()
    assert view.days_left > 0


def test_a_regulator_gets_every_request_of_a_period_and_no_name(register, none):
    add(register, none, reference=f"letter of {NAME}")
    add(register, none, day=DAY - timedelta(days=30))
    close_request(register, none, "1", "known to no run")
    with read_register(register) as held:
        (row,) = export_requests(held, DAY, date.today())
        assert len(export_requests(held, date.min, date.today())) == 2
        assert "Ada" not in str(export_requests(held, date.min, date.today()))
        assert "[requester]" in str(export_requests(held, date.min, date.today()))
    assert (row.request, row.entry.basis) == ("1", "erasure")
    assert (row.closed, row.closed_because) == (date.today().isoformat(), "known to no run")


def test_a_command_waits_while_another_one_writes(register, none):
    with register_at(register):
        other = Thread(target=lambda: add(register, none))
        other.start()
        other.join(0.2)
        assert other.is_alive()
    other.join()
    with read_register(register) as held:
        assert [*held.requests()] == ["1"]


def test_a_changed_register_is_not_read(register, none):
    add(register, none)
    with closing(sqlite3.connect(register / "register.sqlite")) as database, database:
        for position, body in database.execute("SELECT position, body FROM events").fetchall():
            changed = compress(decompress(body).replace(b"erasure", b"access!"))
            new = "UPDATE events SET body = ? WHERE position = ?"
            database.execute(new, (changed, position))
    database.close()
    with pytest.raises(LedgerError, match="broken"), read_register(register) as held:
        held.requests()


@pytest.mark.parametrize("step", [12, pytest.param(3, marks=pytest.mark.slow)])
def test_add_and_close_outlive_a_kill_at_every_change(tmp_path, none, dying, step):
    """Each is done whole or not at all, and ends with no trace of the name."""
    ends = set()

    def live(folder):
        if not (folder / kinds.FILE).is_file():
            add(folder, none)
        with register_at(folder) as held:
            there = held.requests()
        if not there:
            add(folder, none)
        pack = folder / kinds.PACKS / "request-1-1"
        if not there or there["1"].closing is None:
            pack.mkdir(parents=True, exist_ok=True)
            (pack / "statement.html").write_text(NAME)
        close_request(folder, none, "1", "known to no run")

    for n in range(0, 100, step):
        folder = tmp_path / f"register-{n}"
        died = dying(lambda at=folder: live(at), n)
        live(folder)
        with read_register(folder) as held:
            ends.add(tuple(type(each).__name__ for each in held.facts()))
            assert "Ada" not in str(held.texts())
        files = [each for each in folder.rglob("*") if each.is_file()]
        assert {each.name for each in files} <= {"register.sqlite", "register.lock"}
        assert b"Ada" not in b"".join(each.read_bytes() for each in files)
        if not died:
            break
    else:
        raise AssertionError("it never ends")
    assert n > 10
    assert ends == {("Registered", "RequestClosing", "RequestClosed", "TracesOverwritten")}
