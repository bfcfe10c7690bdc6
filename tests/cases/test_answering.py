"""One request over several runs: planned, answered once, whatever kills it, and proved."""

import json
import shutil
from datetime import date
from pathlib import Path

import pytest

from cases.tiny import ONE, THREE, TWO, load
from covey import ConfigError, RunError, answer_cases, register_at
from covey.base.events import RunRolledBack
from covey.desk.answering import close_case
from covey.desk.case import read_register
from covey.desk.intake import add_case, delete_run, needed_runs, plan_answers, sign_items
from covey.desk.letters import write_letters
from covey.desk.runs import found_runs
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder, now
from covey.runtime.session import read_events

DAY, OFFICER = date(2026, 10, 1), "Olga Officer"
ALL = ["program", "sets", "solved"]


def proofs(run: Path) -> list[Path]:
    return sorted((run / "proofs").glob("*.json"))


def names_in(run: Path) -> set[str]:
    with Ledger.read(RunFolder(run).ledger) as ledger:
        return set(ledger.names().values())


def answered(outcomes) -> dict[str, str]:
    return {Path(each.run).name: each.answer for each in outcomes}


def add(register, runs, name=ONE, basis="erasure", **more):
    return add_case(register, [runs], name, DAY, basis, **more)


def only(runs: Path, *names: str) -> None:
    """Leave these runs alone, so that a test takes no longer than it has to."""
    for path in runs.iterdir():
        if path.name not in names:
            shutil.rmtree(path)


def go(register, runs, *numbers, **more):
    more = {"load": load, "pages": False, **more}
    return answer_cases(register, [runs], numbers, **more)


def test_from_the_request_to_the_letters_over_three_runs(register, runs):
    case = add(register, runs, owner=OFFICER)
    assert case.due == date(2026, 11, 1)
    assert sorted(Path(register.text(r)).name for r in case.known) == ALL
    load(runs / "sets").export(0, recipient="Hospital <b>North</b>")
    plan = plan_answers(register, [runs], load=load)
    planned = {Path(each.run).name: each.cases[0].answer for each in plan.runs}
    assert planned == {"program": "retrain", "sets": "retrain", "solved": "subtract"}
    assert all(each.cases[0].afterwards for each in plan.runs)
    assert register.case("1").state == "open"

    assert answered(go(register, runs)) == planned
    case = register.case("1")
    assert case.state == "answered"
    items = [register.text(each.text) for each in case.items]
    assert items == [each.text for each in plan.by_hand["1"]]
    assert any("Hospital <b>North</b>" in each for each in items)
    assert any("Backups" in each for each in items)
    for name in ALL:
        assert ONE not in names_in(runs / name)
        (proof,) = proofs(runs / name)
        run = load(runs / name)
        (kept,) = run.unacknowledged
        checks = run.verify(proof, name_and_salt=(ONE, kept.salt))
        assert not [each for each in checks if each.ok is False]
        assert {c.name: c.ok for c in checks}["subject"]

    letters = write_letters(register, "1", OFFICER, load=load)
    assert [each.path.name for each in letters] == ["answer.html", "notice-1.html"]
    page = letters[0].path.read_text()
    assert page.count("Whether this answer meets a legal duty") == 1
    assert page.count("What this does not say") == 3
    assert all(load(runs / name).unacknowledged[0].salt in page for name in ALL)
    notice = letters[1].path.read_text()
    assert "Hospital &lt;b&gt;North&lt;/b&gt;" in notice
    assert ONE not in notice

    sign_items(register, "1", [], OFFICER)
    with pytest.raises(ConfigError, match="older than what was added or signed off"):
        close_case(register, [runs], "1", OFFICER, load=load)
    again = write_letters(register, "1", OFFICER, load=load)
    assert "under way" not in again[0].path.read_text()
    case = close_case(register, [runs], "1", OFFICER, load=load)
    assert case.state == "closed"
    assert set(case.letters) == {"answer.html", "notice-1.html"}
    assert list(register.letters.iterdir()) == []
    assert all(load(runs / name).unacknowledged == () for name in ALL)
    assert ONE not in str(register.texts())
    for path in register.folder.rglob("*"):
        assert path.is_dir() or ONE.encode() not in path.read_bytes()
    assert answer_cases(register, [runs], load=load) == ()


def test_several_leavers_share_one_replay(register, runs):
    only(runs, "sets", "solved")
    for name in (ONE, TWO, THREE):
        add(register, runs, name)
    done = go(register, runs)
    assert {each.answer for each in done} == {"retrain", "subtract"}
    assert len(done) == 6
    for name in ("sets", "solved"):
        assert len(proofs(runs / name)) == 3
        with Ledger.read(runs / name / "ledger.sqlite") as ledger:
            events = [e for _, told in read_events(ledger) for e in told]
        assert sum(isinstance(each, RunRolledBack) for each in events) == 1


def test_each_basis_gets_the_answer_that_goes_with_it(register, runs):
    only(runs, "sets")
    add(register, runs, ONE, "objection")
    add(register, runs, TWO, "withdrawal")
    done = {each.case: each for each in go(register, runs, "2", "1")}
    assert (done["1"].answer, done["2"].answer) == ("retrain", "deny")
    assert not names_in(runs / "sets") & {ONE, TWO}
    with Ledger.read(runs / "sets" / "ledger.sqlite") as ledger:
        asked = {each.basis for each in ledger.requests()}
    signed = {json.loads(each.read_text())["basis"] for each in proofs(runs / "sets")}
    assert asked == signed == {"objection", "withdrawal"}


def test_who_asks_twice_is_answered_once(register, runs):
    only(runs, "solved")
    add(register, runs)
    add(register, runs)
    assert {each.case for each in go(register, runs)} == {"1"}
    assert len(proofs(runs / "solved")) == 1


def test_a_program_s_run_waits_for_its_program_and_the_others_do_not(register, runs):
    only(runs, "program", "solved")
    add(register, runs)
    done = answer_cases(register, [runs], pages=False)
    assert answered(done) == {"program": "", "solved": "subtract"}
    reasons = {Path(each.run).name: each.reason for each in done}
    assert "model=..." in reasons["program"]
    assert register.case("1").state == "answering"
    assert answered(go(register, runs)) == {"program": "retrain"}
    assert register.case("1").state == "answered"


def test_a_run_that_is_played_gets_the_request_and_answers_later(register, runs):
    only(runs, "solved")
    folder = RunFolder(runs / "solved")
    add(register, runs)
    with Ledger.open(folder.ledger_path, now):
        done = {Path(each.run).name: each for each in go(register, runs)}
        assert "between two rounds" in done["solved"].reason
        go(register, runs)  # the request is not left twice
    assert [each.client for each in folder.queued_requests()] == [ONE]
    load(folder.path).resume()
    assert ONE not in names_in(folder.path)
    assert answered(go(register, runs)) == {"solved": "subtract"}
    assert len(proofs(folder.path)) == 1


def test_a_request_that_nobody_took_up_is_answered_once(register, runs):
    only(runs, "solved")
    add(register, runs)
    with Ledger.open(runs / "solved" / "ledger.sqlite", now):
        go(register, runs)
    assert answered(go(register, runs)) == {"solved": "subtract"}
    assert len(proofs(runs / "solved")) == 1
    with Ledger.read(runs / "solved" / "ledger.sqlite") as ledger:
        assert [each.state for each in ledger.requests()] == ["done"]


def test_a_run_that_somebody_else_answered_becomes_an_item(register, runs):
    only(runs, "solved")
    add(register, runs)
    run = load(runs / "solved")
    (done,) = run.forget(ONE, basis="erasure")
    run.acknowledge(done.answered.request)
    go(register, runs)
    case = register.case("1")
    assert case.state == "answered"
    assert any("knew the name" in register.text(each.text) for each in case.items)


def test_a_run_that_comes_later_is_answered_too(register, runs, three):
    only(runs, "solved")
    add(register, runs)
    go(register, runs)
    before = len(register.case("1").items)
    shutil.copytree(three / "program", runs / "program")
    add(register, runs, "nobody")
    reasons = answer_cases(register, [runs], pages=False)
    assert [(each.case, Path(each.run).name) for each in reasons] == [("1", "program")]
    assert register.case("1").state == "answering"
    assert answered(go(register, runs)) == {"program": "retrain"}
    assert len(register.case("1").items) > before
    assert len(register.case("1").answered) == 2


def test_a_run_that_was_deleted_becomes_an_item(register, runs):
    only(runs, "program", "solved")
    add(register, runs)
    shutil.rmtree(runs / "program")
    assert answered(go(register, runs)) == {"solved": "subtract"}
    case = register.case("1")
    assert case.state == "answered"
    assert any("is not there" in register.text(each.text) for each in case.items)


def test_an_answer_that_nobody_acknowledged_is_taken_over(register, runs):
    only(runs, "solved")
    add(register, runs)
    (done,) = load(runs / "solved").forget([TWO, ONE], basis="erasure")[1:]
    assert answered(go(register, runs)) == {"solved": "subtract"}
    (given,) = register.case("1").answered.values()
    assert given.request == done.answered.request


def test_damaged_and_unknown_runs_are_said_to_be(register, runs):
    only(runs, "program", "solved")
    (runs / "program" / "ledger.sqlite").write_bytes(b"x" * 9000)
    add(register, runs)
    plan = plan_answers(register, [runs], load=load)
    assert list(plan.unreadable) == [str(runs / "program")]
    done = go(register, runs)
    assert answered(done) == {"solved": "subtract"}
    items = register.case("1").items
    assert any("program could not be read" in register.text(e.text) for e in items)
    add(register, runs, "nobody")
    assert plan_answers(register, [runs], load=load).unknown == ("2",)
    assert go(register, runs) == ()


def test_what_an_open_case_needs_is_told(register, runs):
    entries = found_runs([runs])
    assert needed_runs(register.folder, [runs], entries) == {}
    add(register, runs)
    needed = needed_runs(register.folder, [runs], entries)
    assert sorted(Path(place).name for place in needed) == ALL
    assert needed_runs(register.folder / "nowhere", [runs], entries) == {}


def test_what_an_open_case_needs_is_not_overwritten(runs):
    only(runs, "program")
    with register_at(runs / "requests") as register:
        add(register, runs)
        with pytest.raises(RunError, match="case 1 of the register is open"):
            delete_run(runs / "program")
    assert load(runs / "program").names


@pytest.mark.parametrize("steps", [[215], pytest.param(range(10, 600, 40), marks=pytest.mark.slow)])
def test_an_answer_outlives_a_kill_at_every_change(three, tmp_path, dying, steps):
    """Whatever dies between two steps, each run answers once, and the case knows it."""

    def live(at):
        with register_at(at / "register") as register:
            go(register, at / "runs")

    for n in steps:
        at = tmp_path / f"{n}"
        shutil.copytree(three, at / "runs", ignore=shutil.ignore_patterns("sets"))
        with register_at(at / "register") as register:
            add(register, at / "runs")
            add(register, at / "runs", TWO)
        died = dying(lambda at=at: live(at), n)
        live(at)
        with read_register(at / "register") as register:
            for case in register.cases().values():
                assert case.state == "answered"
                assert {each.answer for each in case.answered.values()} == {"retrain", "subtract"}
        for name in ("program", "solved"):
            run = load(at / "runs" / name)
            assert len(proofs(run.folder)) == 2
            assert len(run.unacknowledged) == 2
            assert not names_in(run.folder) & {ONE, TWO}
            for proof in proofs(run.folder):
                assert not [c for c in run.verify(proof) if c.ok is False]
        shutil.rmtree(at)
        if not died:
            break
