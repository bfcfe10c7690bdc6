"""The register: facts in order, names in one place, and nothing lost by a kill."""

import json
import sqlite3
from datetime import date
from zlib import compress, decompress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError, LedgerError, register_at
from covey.desk import case as kinds
from covey.desk.answering import close_case
from covey.desk.case import Fact, cases_of, fact_of, read_register, record_of
from covey.desk.intake import add_case, add_item, extend_case, sign_items

NAME = "Ada <script>alert(1)</script>"
DAY = date(2026, 10, 1)
CASES = ("1", "2")
TEXT = st.text("abc-", min_size=1, max_size=4)


DRAWN = {
    kinds.RunsSearched: {"known": st.tuples(TEXT, TEXT)},
    kinds.DeadlineExtended: {"told": st.just("2026-10-02"), "reason": TEXT},
    kinds.ItemAdded: {"item": st.integers(1, 3), "kind": TEXT, "text": TEXT},
    kinds.ItemSigned: {
        "item": st.integers(1, 3),
        "by": TEXT,
        "day": TEXT,
        "note": TEXT,
        "kept": TEXT,
    },
    kinds.AnswerBegun: {"wanted": TEXT},
    kinds.RunAsked: {"run": TEXT, "request": TEXT},
    kinds.RunLost: {"run": TEXT},
    kinds.LetterWritten: {"letter": TEXT, "sha256": TEXT},
}
DRAWS = st.lists(
    st.one_of([st.tuples(st.just(kind), st.fixed_dictionaries(d)) for kind, d in DRAWN.items()]),
    max_size=8,
)


def facts_about(case: str, draws) -> list[Fact]:
    """Whatever can happen to a case, in any order, after it was received."""
    first = kinds.RequestReceived(
        case=case, person=f"p-{case}", received="2026-10-01", basis="erasure"
    )
    return [first, *(kind(case=case, **values) for kind, values in draws)]


@given(DRAWS, DRAWS, st.randoms(use_true_random=False))
def test_what_a_case_is_hangs_on_its_own_facts_alone(one, other, random):
    one, other = facts_about("1", one), facts_about("2", other)
    mixed, left = [], [list(one), list(other)]
    while any(left):
        mixed.append(random.choice([each for each in left if each]).pop(0))
    cases = cases_of(mixed)
    assert cases["1"] == cases_of(one)["1"]
    assert cases["2"] == cases_of(other)["2"]


@given(DRAWS)
def test_facts_come_back_from_the_chain_as_they_were(draws):
    facts = facts_about("1", draws)
    read = [fact_of(record_of(each)) for each in facts]
    assert read == facts
    assert json.dumps([record_of(each).body for each in facts])


def test_a_case_begins_once_and_first():
    (first,) = (kinds.RequestReceived(case="1", person="p", received="2026-10-01", basis="none"),)
    with pytest.raises(LedgerError, match="out of order"):
        cases_of([first, first])
    with pytest.raises(LedgerError, match="out of order"):
        cases_of([kinds.AnswerBegun(case="1", wanted="auto")])


def test_a_fact_of_another_covey_is_refused():
    record = record_of(kinds.CaseClosed(case="1"))
    for kind, body in (("Unknown", {}), (record.kind, {})):
        with pytest.raises(LedgerError, match="cannot be read"):
            fact_of(type(record)(None, kind, body))


def add(register, tmp_path, name=NAME, **more):
    (tmp_path / "none").mkdir(exist_ok=True)
    return add_case(register, [tmp_path / "none"], name, DAY, "erasure", **more)


def test_events_name_nobody_and_closing_leaves_no_trace(tmp_path):
    folder = tmp_path / "register"
    with register_at(folder) as register:
        add(register, tmp_path, owner="Olga")
        add_item(register, "1", "source", f"the file of {NAME}")
        events = "".join(str(each.record().body) for each in register._ledger.links())
        assert "Ada" not in events
        assert "Olga" not in events
        sign_items(register, "1", [1], "Olga", note=f"{NAME} was told")
        close_case(register, [tmp_path / "none"], "1", "Olga", "no run knows the name")
        texts = register.texts().values()
        assert "the file of [requester]" in texts
        assert "[requester] was told" in texts
        assert "Olga" in texts
    for path in folder.iterdir():
        assert b"Ada" not in path.read_bytes()
    with read_register(folder) as register:
        assert register.case("1").state == "closed"
        assert register.text(register.case("1").person) == "[erased]"


def test_a_name_stays_as_long_as_another_case_needs_it(register, tmp_path):
    none = [tmp_path / "none"]
    for _ in CASES:
        add(register, tmp_path)
    assert register.case("1").person == register.case("2").person
    close_case(register, none, "1", "Olga", "twice the same")
    assert register.text(register.case("1").person) == NAME
    close_case(register, none, "2", "Olga", "no run knows the name")
    assert NAME not in register.texts().values()


def test_the_same_word_may_be_a_name_an_officer_and_a_text(register, tmp_path):
    add(register, tmp_path, name="Kim", owner="Kim")
    add_item(register, "1", "other", "Kim")
    add_item(register, "1", "other", "Kim")
    sign_items(register, "1", [], "Kim")
    case = register.case("1")
    assert [register.text(each.text) for each in case.items] == ["Kim", "Kim"]
    close_case(register, [tmp_path / "none"], "1", "Kim", "a test")
    assert register.text(register.case("1").owner) in ("Kim", "[requester]")


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"name": ""}, "one line"),
        ({"name": "a\nb"}, "one line"),
        ({"name": "x" * 501}, "one line"),
        ({"number": "../x"}, "--case"),
        ({"number": "7"}, "already"),
        ({"owner": "\x1b[31m"}, "--owner"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(register, tmp_path, wrong, match):
    add(register, tmp_path, number="7")
    before = register.facts()
    with pytest.raises(ConfigError, match=match):
        add(register, tmp_path, **wrong)
    assert register.facts() == before


def test_a_request_of_tomorrow_and_an_unknown_basis_are_refused(register, tmp_path):
    tomorrow = date(2026, 10, 2)
    with pytest.raises(ConfigError, match="--received"):
        add_case(register, [], NAME, tomorrow, "erasure", today=DAY)
    with pytest.raises(ConfigError, match="--basis"):
        add_case(register, [], NAME, DAY, "anger")


def test_who_asks_is_told_in_time_that_it_takes_longer(register, tmp_path):
    add(register, tmp_path)
    for late in (date(2026, 11, 2), date(2026, 9, 30)):
        with pytest.raises(ConfigError, match="one month later"):
            extend_case(register, "1", "many runs", late)
    case = extend_case(register, "1", "many runs", date(2026, 11, 1))
    assert case.due == date(2027, 1, 1)
    with pytest.raises(ConfigError, match="before"):
        extend_case(register, "1", "more runs", date(2026, 11, 1))


def test_items_are_signed_off_once_and_by_their_numbers(register, tmp_path):
    add(register, tmp_path)
    add_item(register, "1", "backup", "the tape")
    add_item(register, "1", "downstream", "the app")
    with pytest.raises(ConfigError, match="--kind"):
        add_item(register, "1", "thing", "x")
    with pytest.raises(ConfigError, match="item 1 is not signed off; item 2"):
        close_case(register, [tmp_path / "none"], "1", "Olga", "a reason")
    sign_items(register, "1", [2], "Olga", DAY, "taken down")
    for wrong in ([2], [3]):
        with pytest.raises(ConfigError, match=r"open are \[1\]"):
            sign_items(register, "1", wrong, "Olga")
    case = sign_items(register, "1", [], "Olga", DAY)
    assert not case.open_items
    assert register.text(case.items[1].note) == "taken down"


def test_a_changed_register_is_not_read(tmp_path):
    with register_at(tmp_path / "register") as register:
        add(register, tmp_path)
    with sqlite3.connect(tmp_path / "register" / "register.sqlite") as database:
        rows = database.execute("SELECT position, body FROM events").fetchall()
        for position, body in rows:
            changed = compress(decompress(body).replace(b"erasure", b"none"))
            new = "UPDATE events SET body = ? WHERE position = ?"
            database.execute(new, (changed, position))
    database.close()
    with (
        pytest.raises(LedgerError, match="broken"),
        read_register(tmp_path / "register") as register,
    ):
        register.cases()


def test_there_is_no_register_until_a_case_begins_one(tmp_path):
    with pytest.raises(ConfigError, match="requests add"), read_register(tmp_path / "register"):
        pass


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_add_and_close_outlive_a_kill_at_every_change(tmp_path, dying, step):
    """Each is done whole or not at all, and ends with no trace of the name."""
    none = tmp_path / "none"
    none.mkdir()
    ends = set()

    def live(folder):
        with register_at(folder) as register:
            if not register.cases():
                add(register, tmp_path)
            if register.case("1").closing is None:
                letters = register.letters / "1"
                letters.mkdir(parents=True, exist_ok=True)
                (letters / "answer.html").write_text(NAME)
            close_case(register, [none], "1", "Olga", "no run knows the name")

    for n in range(0, 100, step):
        folder = tmp_path / f"register-{n}"
        died = dying(lambda at=folder: live(at), n)
        live(folder)
        with read_register(folder) as register:
            facts = [type(each).__name__ for each in register.facts()]
            assert "Ada" not in str(register.texts())
        ends.add(tuple(facts))
        files = [each for each in folder.rglob("*") if each.is_file()]
        assert {each.name for each in files} <= {"register.sqlite", "register.lock"}
        content = b"".join(each.read_bytes() for each in files)
        assert b"Ada" not in content
        if not died:
            break
    else:
        raise AssertionError("it never ends")
    assert n > 10
    assert ends == {
        ("RequestReceived", "RunsSearched", "CaseClosing", "CaseClosed", "TracesOverwritten")
    }
