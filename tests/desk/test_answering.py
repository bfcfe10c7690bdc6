"""One request over several runs: planned, answered once, whatever kills it, and proved."""

import json
import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

from covey import ConfigError, Run
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, now
from covey_desk import answer_requests, write_packs
from covey_desk.answering import plan_answers
from covey_desk.lifecycle import add_request, close_request, done_by_hand
from covey_desk.register import read_register, register_at
from desk.tiny import ONE, THREE, TWO, load
from recorded import requests_of

DAY = date.today() - timedelta(days=3)
ALL = ["program", "ridge", "sets"]


def proofs(run: Path) -> list[Path]:
    return sorted((run / "proofs").glob("*.json"))


def names_in(run: Path) -> set[str]:
    with Ledger.read(RunFolder(run).ledger) as ledger:
        return set(ledger.names().values())


def answered(outcomes) -> dict[str, str]:
    return {Path(outcome.run).name: outcome.answer for outcome in outcomes}


def add(register, runs, *names, basis="erasure", **more):
    return add_request(register, [runs], names or [ONE], basis, DAY, **more)


def only(runs: Path, *names: str) -> None:
    """Leave these runs alone, so that a test takes no longer than it has to."""
    for path in runs.iterdir():
        if path.name not in names:
            shutil.rmtree(path)


def go(register, runs, *numbers, **more):
    loader = more.pop("load", load)

    def without_report(path: Path) -> Run:  # which takes longer than the answer
        run = loader(path)
        vars(run)["report"] = lambda: path
        return run

    return answer_requests(register, [runs], numbers, load=without_report, **more)


def request(register, number="1"):
    with read_register(register) as held:
        return held.request(number)


def all_done(register, number="1") -> None:
    """Note that a person did all work by hand."""
    items = [i for i, e in enumerate(request(register, number).by_hand, 1) if e.waits]
    done_by_hand(register, number, items)


def endings(register, number="1") -> dict[str, str]:
    return {Path(run.run).name: run.ended for run in request(register, number).runs}


def test_from_the_request_to_its_closing_over_three_runs(register, runs):
    shown = add(register, runs)
    assert sorted(Path(run_shown.run).name for run_shown in shown.runs) == ALL
    load(runs / "sets").export(0, recipient="Hospital <b>North</b>")
    plan = plan_answers(register, [runs], load=load)
    planned = {Path(run_plan.run).name: run_plan.names[0].answer for run_plan in plan.runs}
    assert planned == {"program": "retrain", "sets": "retrain", "ridge": "subtract"}
    assert all(run_plan.names[0].afterwards for run_plan in plan.runs)
    assert request(register).state == "open"

    assert answered(go(register, runs)) == planned
    shown = request(register)
    assert shown.state == "answered"
    where = [item.where for item in shown.by_hand]
    assert len(where) == len(set(where)), "each place or recipient stands there once"
    assert any("Hospital <b>North</b>" in path for path in where)
    for name in ALL:
        assert ONE not in names_in(runs / name)
        (proof,) = proofs(runs / name)
        run = load(runs / name)
        (unacknowledged,) = run.unacknowledged
        verification = run.verify(proof, name_and_salt=(ONE, unacknowledged.salt))
        assert verification.failed == ()
        assert {c.name: c.ok for c in verification.checks}["subject"]
    with pytest.raises(ConfigError, match="answers are not written"):
        close_request(register, [runs], "1", load=load)
    (pack,) = write_packs(register, load=load)
    assert write_packs(register, load=load) == ()
    all_done(register)
    closed = close_request(register, [runs], "1", load=load)
    assert closed.state == "closed"
    assert not pack.folder.exists()
    assert not pack.archive.exists()
    assert all(load(runs / name).unacknowledged == () for name in ALL)
    for path in register.rglob("*"):
        assert path.is_dir() or ONE.encode() not in path.read_bytes()
    assert go(register, runs) == ()


@pytest.mark.slow
def test_each_basis_gets_the_answer_that_goes_with_it(register, runs):
    only(runs, "sets")
    add(register, runs, TWO, basis="withdrawal")
    add(register, runs, ONE, basis="objection")
    add(register, runs, THREE, basis="access")
    add(register, runs, TWO, basis="access")
    done = {outcome.request: outcome for outcome in go(register, runs)}
    assert {number: outcome.answer for number, outcome in done.items()} == {
        "1": "deny",
        "2": "stop",
    }
    assert request(register, "3").state == request(register, "4").state == "answered"
    assert endings(register, "4") == {"sets": "denied"}, "what is true once others are answered"
    assert names_in(runs / "sets") >= {ONE, THREE}
    assert TWO not in names_in(runs / "sets")
    with Ledger.read(runs / "sets" / "ledger.sqlite") as ledger:
        bases = {leave_request.basis for leave_request in ledger.requests()}
    signed = {json.loads(proof.read_text())["basis"] for proof in proofs(runs / "sets")}
    assert bases == signed == {"objection", "withdrawal"}


@pytest.mark.slow
def test_a_stronger_answer_follows_a_stop_and_a_denial(register, runs):
    only(runs, "sets")
    add(register, runs, TWO, basis="withdrawal")
    add(register, runs, ONE, basis="restriction")
    assert {outcome.answer for outcome in go(register, runs)} == {"stop", "deny"}
    add(register, runs, ONE, TWO)
    add(register, runs, TWO, basis="access")
    done = go(register, runs, "3")
    assert {outcome.answer for outcome in done} == {"retrain"}, (
        "the salt of the denial is still here"
    )
    assert not names_in(runs / "sets") & {ONE, TWO}
    assert go(register, runs, "4") == ()
    assert endings(register, "4") == {"sets": "before"}
    for proof in proofs(runs / "sets"):
        assert load(runs / "sets").verify(proof).valid


@pytest.mark.slow
def test_a_person_who_was_answered_is_recognised_after_the_closing(register, runs):
    only(runs, "ridge")
    add(register, runs)
    add(register, runs, TWO, basis="restriction")
    go(register, runs)
    write_packs(register, load=load)
    for number in ("1", "2"):
        all_done(register, number)
        close_request(register, [runs], number, load=load)
    assert [run.ended for run in add(register, runs).runs] == ["before"]
    add(register, runs, TWO, basis="objection")
    assert go(register, runs, "3") == ()
    assert {outcome.ended for outcome in go(register, runs, "4")} == {"before"}
    assert {request(register, number).state for number in "34"} == {"answered"}


def package_load(folder: Path):
    import covey

    return covey.load(folder)


@pytest.mark.slow
def test_a_run_that_is_played_gets_the_request_and_answers_later(register, runs):
    only(runs, "ridge")
    folder = RunFolder(runs / "ridge")
    add(register, runs, basis="restriction")
    with Ledger.open(folder.ledger_path, now):
        (done,) = go(register, runs)
        assert "between two rounds" in done.reason
        go(register, runs)  # the request is not left twice
    assert [leave_request.client for leave_request in folder.queued_requests()] == [ONE]
    load(folder.path).resume()
    assert answered(go(register, runs)) == {"ridge": "stop"}
    assert len(proofs(folder.path)) == 1
    assert requests_of(folder.path) == [("done", "stop")]


@pytest.mark.slow
def test_a_run_that_comes_later_is_answered_too(register, runs, three):
    only(runs, "ridge")
    add(register, runs)
    go(register, runs)
    write_packs(register, load=load)
    shutil.copytree(three / "program", runs / "program")
    with pytest.raises(ConfigError, match="has the name, and has no request"):
        close_request(register, [runs], "1", load=load)
    assert answered(go(register, runs, load=package_load)) == {"program": ""}
    assert request(register).state == "answering"
    assert answered(go(register, runs)) == {"program": "retrain"}
    assert request(register).packs == [], "the pack is older than the answer"


@pytest.mark.slow
def test_a_salt_goes_only_with_a_pack_or_by_an_explicit_word(register, runs):
    only(runs, "ridge")
    add(register, runs)
    go(register, runs)
    with pytest.raises(ConfigError, match="stands in no pack"):
        close_request(register, [runs], "1", "the person does not answer", load=load)
    assert load(runs / "ridge").unacknowledged
    reason = "the person does not answer"
    all_done(register)
    close_request(register, [runs], "1", reason, load=load, delete_salts=True)
    assert not load(runs / "ridge").unacknowledged


@pytest.mark.slow
def test_damaged_deleted_and_unknown_runs_are_said_to_be(register, runs):
    (runs / "program" / "ledger.sqlite").write_bytes(b"x" * 9000)
    add(register, runs)
    shutil.rmtree(runs / "sets")
    plan = plan_answers(register, [runs], load=load)
    assert list(plan.unreadable) == [str(runs / "program")]
    assert answered(go(register, runs)) == {"ridge": "subtract"}
    assert endings(register) == {"program": "unreadable", "sets": "gone", "ridge": ""}
    add(register, runs, "a stranger")
    assert plan_answers(register, [runs], load=load).unknown["2"] == ("a stranger",)
    assert go(register, runs) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("basis", "steps"), [("erasure", range(10, 600, 120)), ("restriction", range(5, 200, 40))]
)
def test_an_answer_outlives_a_kill_at_every_change(three, tmp_path, dying, basis, steps):
    """Whatever dies between two steps, each run answers once, and the register has it."""

    def live(at):
        go(at / "register", at / "runs")

    for n in steps:
        at = tmp_path / f"{n}"
        shutil.copytree(three, at / "runs", ignore=shutil.ignore_patterns("sets"))
        add(at / "register", at / "runs", ONE, TWO, basis=basis)
        died = dying(lambda at=at: live(at), n)
        live(at)
        wanted = {"erasure": {"retrain", "subtract"}, "restriction": {"stop"}}[basis]
        with register_at(at / "register") as held:
            (one,) = held.requests().values()
        assert one.state == "answered"
        assert {outcome.answer for outcome in one.runs} == wanted
        for name in ("program", "ridge"):
            run = load(at / "runs" / name)
            assert len(proofs(run.folder)) == 2
            assert len(run.unacknowledged) == 2
            assert bool(names_in(run.folder) & {ONE, TWO}) == (basis == "restriction")
            for proof in proofs(run.folder):
                assert run.verify(proof).valid
        shutil.rmtree(at)
        if not died:
            break


@pytest.mark.parametrize("name", ["program", pytest.param("ridge", marks=pytest.mark.slow)])
def test_a_run_that_was_killed_while_it_answered_is_finished_by_the_same_command(
    three, tmp_path, dying, name
):
    """From before the answer is signed to the last change, every few changes."""

    def begun(at: Path) -> Path:
        shutil.copytree(three / name, at / "runs" / name)
        add(at / "register", at / "runs", ONE)
        return at

    whole = begun(tmp_path / "whole")
    go(whole / "register", whole / "runs")
    expected = load(whole / "runs" / name)
    for n in range(60, 600, 47):
        at = begun(tmp_path / f"{n}")
        died = dying(lambda at=at: go(at / "register", at / "runs"), n)
        go(at / "register", at / "runs")
        run = load(at / "runs" / name)
        assert run.history.finished is not None, n
        assert run.summary.model_hash == expected.summary.model_hash
        assert len(run.history.rounds) == len(expected.history.rounds)
        assert names_in(run.folder) == names_in(expected.folder)
        (proof,) = proofs(run.folder)
        assert run.verify(proof).valid
        shutil.rmtree(at)
        if not died:
            break
    else:
        pytest.fail("it never came to its end")
