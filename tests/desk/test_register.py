"""The register: whole transactions, dates, and nothing lost by a kill."""

import sqlite3
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import date, timedelta
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError, LedgerError
from covey_desk.lifecycle import add_request, close_request, correct_request, export_requests
from covey_desk.register import FILE, PACKS, read_register, register_at
from covey_desk.request import RegisterEntry, RunOfRequest, day_of, due_date, months_after

NAME = "Ada <script>alert(1)</script>"
DAY = date.today() - timedelta(days=40)
TEXT = st.sampled_from(["", "a", "b"])
NOTES = st.lists(
    st.fixed_dictionaries(
        {
            "run": st.sampled_from(["/one", "/two"]),
            "index": st.integers(1, 2),
            "held": TEXT,
            "run_request": TEXT,
            "answer": TEXT,
            "proof_sha256": TEXT,
            "model_changed": st.booleans(),
            "ended": st.sampled_from(["", "before", "gone"]),
        }
    ),
    max_size=6,
)


@given(NOTES)
def test_a_note_adds_to_what_is_known_of_its_run_and_person(tmp_path_factory, notes):
    """What is empty changes nothing, but for how a run ended; other requests stay."""
    folder, known = tmp_path_factory.mktemp("register"), {}
    entry = RegisterEntry(names=("A", "B"), received=DAY.isoformat(), basis="erasure")
    with register_at(folder) as held:
        one, other = held.add(entry), held.add(entry)
        before = replace(held.request(other), repeats=())
        for values in notes:
            held.note(RunOfRequest(request=one, person="", **values))
            key = values["index"], values["run"]
            added = {name: value for name, value in values.items() if value}
            known[key] = {**known.get(key, {}), **added, "ended": values["ended"]}
    with read_register(folder) as held:
        runs = {(run.index, run.run): asdict(run) for run in held.request(one).runs}
        assert replace(held.request(other), repeats=()) == before
    assert runs.keys() == known.keys()
    for key, values in known.items():
        assert runs[key]["person"] == "AB"[key[0] - 1]
        assert {name: runs[key][name] for name in values} == values


@pytest.fixture
def none(tmp_path) -> list[Path]:
    (tmp_path / "none").mkdir()
    return [tmp_path / "none"]


def add(register, none, names=(NAME,), basis="erasure", day=DAY, **more):
    return add_request(register, none, names, basis, day, **more)


def test_one_table_has_names_and_closing_leaves_no_trace(register, none):
    add(register, none, reference=f"letter of {NAME}")
    with closing(sqlite3.connect(register / FILE)) as database:
        lines = [line for line in database.iterdump() if "Ada" in line]
    assert len(lines) == 2
    assert all(line.startswith('INSERT INTO "texts"') for line in lines)
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


def test_an_entry_is_corrected(register, none):
    add(register, none, ("Ada",), "access")
    changed = {"names": ["Ida", "Ava"], "received": DAY + timedelta(days=3), "basis": "erasure"}
    view = correct_request(register, none, "1", changed)
    assert (view.entry.names, view.entry.basis) == (("Ida", "Ava"), "erasure")
    close_request(register, none, "1", "known to no run")
    for name in (b"Ada", b"Ida", b"Ava"):
        assert name not in (register / FILE).read_bytes()
    with pytest.raises(ConfigError, match="must be open to be corrected"):
        correct_request(register, none, "1", {"reference": "x"})


def test_an_extension_is_a_day_within_the_month_and_a_reason(register, none):
    add(register, none)
    for late in (DAY - timedelta(days=1), date.today()):
        with pytest.raises(ConfigError, match="one month later"):
            correct_request(register, none, "1", {"extended": late, "reason": "many runs"})
    with pytest.raises(ConfigError, match="no reason"):
        correct_request(register, none, "1", {"extended": DAY})
    tomorrow = date.today() + timedelta(days=1)
    with pytest.raises(ConfigError, match="today at the latest"):
        correct_request(register, none, "1", {"extended": tomorrow, "reason": "many runs"})
    extension = {"extended": DAY + timedelta(days=9), "reason": "many runs"}
    view = correct_request(register, none, "1", extension)
    assert view.due == months_after(DAY, 3).isoformat()
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


def test_a_name_stays_where_another_open_request_has_it(register, none):
    add(register, none, ("Ada",), reference="first letter of Ada")
    add(register, none, ("Ada", "Ida"), reference="second letter of Ada")
    assert close_request(register, none, "1", "a duplicate").entry.names == ("[erased]",)
    with read_register(register) as held:
        first, second = held.requests().values()
    assert first.entry.reference == "first letter of [requester]"
    assert second.entry.reference == "second letter of Ada"
    assert (second.entry.names, second.repeats) == (("Ada", "Ida"), ())
    close_request(register, none, "2", "known to no run")
    assert b"Ada" not in (register / FILE).read_bytes()


def test_nothing_is_noted_of_a_request_that_was_closed_meanwhile(register, none):
    add(register, none)
    close_request(register, none, "1", "known to no run")
    run = RunOfRequest(request="1", person=NAME, run="/one", index=1, held=f'"{NAME}"')
    with register_at(register) as held:
        held.note(run)
        assert held.request("1").runs == []
    assert b"Ada" not in (register / FILE).read_bytes()


@pytest.mark.parametrize("content", [b"x" * 9000, None])
def test_another_file_is_not_read(register, none, content):
    """It is damaged, or was written in another format; an empty one was cut off by a kill."""
    add(register, none)
    path = register / FILE
    if content:
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA user_version = 1")
    for opened in (read_register, register_at):
        with pytest.raises(LedgerError, match="must be a register"), opened(register) as held:
            held.requests()
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="found none"), read_register(register):
        pass
    assert add(register, none).request == "1"


def test_what_fails_half_way_changes_nothing(register, none):
    add(register, none)
    with suppress(ZeroDivisionError), register_at(register) as held:
        held.begin("1", "auto")
        _ = 1 / 0
    with read_register(register) as held:
        assert held.request("1").state == "open"
    with pytest.raises(LedgerError, match="FOREIGN KEY"), register_at(register) as held:
        held.note_pack("2", 1)


@pytest.mark.parametrize("step", [12, pytest.param(3, marks=pytest.mark.slow)])
def test_add_and_close_outlive_a_kill_at_every_change(tmp_path, none, dying, step):
    """Each is done whole or not at all, and ends with no trace of the name."""

    def live(folder):
        with register_at(folder) as held:
            requests = held.requests()
        if not requests:
            add(folder, none)
        pack = folder / PACKS / "request-1-1"
        if not requests or requests["1"].is_open:
            pack.mkdir(parents=True, exist_ok=True)
            (pack / "statement.html").write_text(NAME)
        close_request(folder, none, "1", "known to no run")

    for n in range(0, 100, step):
        folder = tmp_path / f"register-{n}"
        died = dying(lambda at=folder: live(at), n)
        live(folder)
        with read_register(folder) as held:
            (one,) = held.requests().values()
        assert (one.request, one.state, one.entry.names) == ("1", "closed", ("[erased]",))
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [file.name for file in files] == ["register.sqlite"]
        assert b"Ada" not in files[0].read_bytes()
        if not died:
            break
    else:
        raise AssertionError("it never ends")
    assert n > 10


@pytest.mark.parametrize("kind", ["view", "trigger"])
def test_what_covey_did_not_lay_out_is_refused_unread(register, none, kind):
    add(register, none)
    with closing(sqlite3.connect(register / "register.sqlite")) as place, place:
        if kind == "view":
            place.execute("DROP TABLE packs")
            place.execute(
                "CREATE VIEW packs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                "FROM n) SELECT i AS request, 1 AS person FROM n"
            )
        else:
            place.execute("CREATE TRIGGER t AFTER INSERT ON texts BEGIN DELETE FROM texts; END")
    with pytest.raises(LedgerError, match="tables alone"), read_register(register) as held:
        held.requests()


DAYS = st.dates(date(1990, 1, 1), date(2200, 12, 31))
MONTHS = st.integers(0, 40)


@pytest.mark.parametrize(
    ("received", "due", "extended"),
    [
        ("2027-01-31", "2027-02-28", "2027-04-30"),
        ("2028-01-31", "2028-02-29", "2028-04-30"),
        ("2026-11-30", "2026-12-30", "2027-02-28"),
        ("2027-12-01", "2028-01-01", "2028-03-01"),
        ("2100-01-29", "2100-02-28", "2100-04-29"),
    ],
)
def test_by_hand(received, due, extended):
    day = date.fromisoformat(received)
    assert due_date(day).isoformat() == due
    assert due_date(day, extended=True).isoformat() == extended


@given(DAYS, MONTHS)
def test_the_month_is_so_many_later_and_the_day_the_same_or_the_last(day, months):
    then = months_after(day, months)
    assert (then.year - day.year) * 12 + then.month - day.month == months
    last = (then + timedelta(days=1)).month != then.month
    assert then.day == day.day or (then.day < day.day and last)


def test_a_day_is_written_in_one_way():
    assert day_of(" 2027-01-31", "--on") == date(2027, 1, 31)
    for text in ("31.1.2027", "2027-02-30", "soon", ""):
        with pytest.raises(ConfigError, match="--on must be"):
            day_of(text, "--on")
