"""Several clients that leave at once, and one that comes back for a stronger answer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from covey import Config, History, ReturningClient, RunError, load, resume, run, verify
from covey.base.events import RunRolledBack
from covey.base.names import Basis
from covey.leaving.forgetting import ForgetResult, record_requests
from covey.leaving.planning import client_plans
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from recorded import events_of, facts, requests_of
from runs.conftest import excluding
from support.runs import small

ONE, OTHER = PAIR = ("client-00002", "client-00005")
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3}
SMALL = small(
    rounds=3,
    population={"clients": 8},
    model={"name": "mlp"},
    aggregation=HIDDEN,
    train={"participation": 0.8, "learning_rate": 0.5},
)


@pytest.fixture(scope="module")
def config(settings):
    return settings(**SMALL)


@pytest.fixture(scope="module")
def without(whole, config):
    """Where runs end that never met some clients."""
    return lambda *clients: whole(excluding(config, *clients)).summary.model_hash


@pytest.fixture
def folder(config, copied, tmp_path):
    copied(config, tmp_path / "run")
    return tmp_path / "run"


def left(folder: Path, *clients, answer="auto", basis: Basis = "none"):
    return load(folder).forget(clients, answer, basis)


def hash_of(folder: Path) -> str:
    return load(folder).summary.model_hash or ""


def proof_of(done: ForgetResult) -> dict[str, Any]:
    assert verify(done.answered.proof).valid
    return json.loads(done.answered.proof.read_text())


@pytest.mark.slow
def test_two_retrained_at_once_end_where_a_run_that_met_neither_ends(folder, without):
    one, other = left(folder, ONE, OTHER, answer="retrain")
    assert hash_of(folder) == without(*PAIR)
    assert one.answered.model_hash == other.answered.model_hash == without(*PAIR)
    kinds = [type(event).__name__ for t, event in events_of(folder) if t is None]
    assert kinds[-3:] == ["ClientLeft", "ClientLeft", "RunRolledBack"]
    assert set(kinds[:-3]) == {"LeaveRequested"}
    assert one.answered.salt != other.answered.salt
    for done in (one, other):
        proof = proof_of(done)
        assert proof["first_replayed_round"] == 0
        assert proof["replayed"] == "anew"
        verification = verify(
            done.answered.proof, folder, name_and_salt=(done.client, done.answered.salt)
        )
        assert [check.name for check in verification.checks if not check.ok] == ["trust"]


def test_what_is_planned_for_several_is_what_is_done(folder):
    existing = RunFolder.existing(folder)
    names = sorted(load(folder).names)[:4]
    plans = client_plans(existing, names)
    done = left(folder, *names)
    assert {plan.chosen.answer for plan in plans if plan.chosen} > {"deny"}
    assert [plan.chosen for plan in plans] == [plan.answered.option for plan in done]
    assert len(facts(folder, RunRolledBack)) == 1
    for answer in done:
        proof = proof_of(answer)
        if answer.answered.option.answer == "deny":  # before the others' replay
            assert proof["model_before"] == proof["model_after"]
            assert all(held["size_left"] >= 3 for held in proof["rounds"])
        else:
            assert proof["model_after"] == hash_of(folder)


def test_one_that_cannot_be_answered_keeps_all_of_them(folder):
    before = RunFolder(folder).ledger_path.read_bytes()
    names = sorted(load(folder).names)
    with pytest.raises(RunError, match=r"client-0000.: A denial must leave at least 3"):
        left(folder, *names[:5], answer="deny")
    with pytest.raises(RunError, match="all would leave"):
        left(folder, *names, answer="retrain")
    assert RunFolder(folder).ledger_path.read_bytes() == before


PROGRAM = """
from covey import load

folder, answer, *clients = words
load(folder).forget(clients, answer)
"""


@pytest.mark.slow
def test_a_kill_while_two_are_answered_is_finished_by_resuming(folder, without, killed):
    # the first proof is signed and its request closed, the second one is not
    killed(PROGRAM, "before answered", 1, folder, "retrain", *PAIR)
    assert resume(folder).summary.model_hash == without(*PAIR)
    assert [state for state, _ in requests_of(folder)] == ["done", "done"]
    assert not set(load(folder).names) & set(PAIR)
    assert len(list((folder / "proofs").glob("*.json"))) == 2


@pytest.fixture
def denied(folder):
    """A run that denied a client, and what it was told."""
    (done,) = left(folder, ONE, answer="deny")
    return folder, done


def sealed_salts(folder: Path) -> list[str | None]:
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return [request.sealed for request in ledger.requests()]


@pytest.mark.slow
def test_who_was_denied_can_be_retrained_with_its_salt(denied, without):
    folder, first = denied
    proof = proof_of(first)
    assert proof["sealed_record_kept"] is True
    assert sealed_salts(folder) != [None]
    (done,) = left(folder, ReturningClient(ONE, first.answered.salt), basis="erasure")
    assert done.answered.option.answer == "retrain"
    assert hash_of(folder) == done.answered.model_hash == without(ONE)
    again = proof_of(done)
    assert again["subject"] != proof["subject"]
    assert (again["basis"], proof["basis"]) == ("erasure", "none")
    assert again["sealed_record_kept"] is False
    assert again["rounds"] == proof["rounds"]
    mine = verify(done.answered.proof, folder, name_and_salt=(ONE, done.answered.salt))
    assert [check.name for check in mine.checks if not check.ok] == ["trust"]
    assert load(folder).summary.left == {"retrain": 1}
    # what was sealed is destroyed, in every byte
    assert sealed_salts(folder) == [None, None]
    for salt in (first.answered.salt, done.answered.salt):
        with pytest.raises(RunError, match="records, found 'client-00002'"):
            left(folder, ReturningClient(ONE, salt), answer="retrain")
    assert ONE not in load(folder).names
    assert resume(folder).summary.model_hash == without(ONE)


def test_without_its_salt_nobody_comes_back(denied):
    folder, first = denied
    before = sealed_salts(folder)
    salt = first.answered.salt
    sentences: set[str] = set()
    for back in (
        ONE,
        ReturningClient(ONE, "00" * 16),
        ReturningClient(OTHER, salt),
        "client-00009",
    ):
        with pytest.raises(RunError, match="comes back with --salt") as no:
            left(folder, back, answer="retrain")
        sentences.add(re.sub("client-0000.", "X", str(no.value)))
    assert len(sentences) == 1
    with pytest.raises(RunError, match="A salt must be hexadecimal"):
        left(folder, ReturningClient(ONE, "xyz"), answer="retrain")
    for answer in ("deny", "auto"):
        with pytest.raises(RunError, match="found a denial"):
            left(folder, ReturningClient(ONE, salt), answer=answer)
    assert sealed_salts(folder) == before


@pytest.mark.slow
def test_what_is_recorded_is_answered_by_whoever_plays_on(denied, without):
    folder, first = denied
    with load(folder).open() as session:
        record_requests(session, [ReturningClient(ONE, first.answered.salt)], "auto", "erasure")
    assert hash_of(folder) != without(ONE)
    assert resume(folder).summary.model_hash == without(ONE)


# answers that were signed are told, whatever happens to others' replays


IN_ONE_SET = small(
    population={"clients": 9},
    model={"name": "mlp"},
    train={"local_epochs": 5},
    aggregation={"name": "anonymity-sets", "min_anonymity": 9, "deniability_threshold": 8},
)


class StopError(Exception):
    pass


@pytest.mark.slow
def test_a_denial_is_reported_before_the_replay_of_another_is_stopped(tmp_path):
    held = run(config=Config.of(IN_ONE_SET), out=tmp_path / "run")
    first, second = sorted(held.names)[:2]
    answers = []

    def stop(history: History) -> None:
        if answers:  # the denial is signed; the other's rounds are being played again
            raise StopError

    plans = held.plan([first, second])
    assert [plan.chosen and plan.chosen.answer for plan in plans] == ["deny", "retrain"]
    with pytest.raises(StopError):
        held.forget([first, second], "auto", observe=stop, on_answer=answers.append)
    assert [answer.option.answer for answer in answers] == ["deny"]
    assert len(bytes.fromhex(answers[0].salt)) == 16
    held.resume(on_answer=answers.append)
    assert [answer.option.answer for answer in answers] == ["deny", "retrain"]
    assert len({answer.request for answer in answers}) == 2


@pytest.mark.slow
def test_a_replay_that_was_stopped_is_finished_by_whoever_answers_next(tmp_path):
    held = run(config=Config.of(IN_ONE_SET), out=tmp_path / "run")
    first, second = sorted(held.names)[:2]

    def stop(history: History) -> None:
        if len(history.rounds) == 1:  # half of the replay
            raise StopError

    with pytest.raises(StopError):
        held.forget(first, "retrain", observe=stop)
    (unacknowledged,) = held.unacknowledged
    assert not unacknowledged.proof
    (left,) = held.forget(second, "retrain")
    done = left.answered
    assert done.option.answer == "retrain"
    assert done.proof.is_file()
    assert held.unacknowledged[-1].proof
    assert all(receipt.proof for receipt in held.unacknowledged)
    assert held.history.finished is not None
