"""A ledger that did not change is read, verified, told and planned from once."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, event

import covey
from covey import Config, Returning
from covey.ledger import Ledger
from covey.runtime import RunFolder, read_history
from covey.runtime.ledger_record import RecordReader
from covey.unlearning import AnswerRules, WantedAnswer

SETTINGS = {
    "rounds": 2,
    "population": {"clients": 9, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "redteam": {"source": "none"},
    "method": {"name": "fedavg"},
    "merge": {"name": "anonymity-sets", "min_anonymity": 9, "deniability_threshold": 7},
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    return covey.run(config=Config.of(SETTINGS), out=tmp_path_factory.mktemp("r") / "r")


@pytest.fixture
def readings() -> Iterator[list[str]]:
    """Every statement that reads a whole chain, as the database is sent it."""
    found: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        words = " ".join(statement.split())
        if "FROM events" in words and words.endswith("ORDER BY events.position"):
            found.extend([words] * ("WHERE" not in words))

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


def test_a_run_is_read_once_to_be_loaded_explained_planned_and_reported(
    held: covey.Run, readings: list[str]
):
    """A writer verifies the chain that it opens, and reads nothing twice."""
    run = covey.load(held.folder)
    assert len(readings) == 1
    run.report()
    assert run.summary == held.summary
    assert len(readings) == 1
    first, second = sorted(run.names)[:2]
    plans = run.plan([first, second]), run.plan([first, second]), run.plan(first)
    assert plans[0] == plans[1]
    assert len(readings) == 1 + 3  # each opened the ledger to write it
    run.explain(first)
    run.resume()
    assert len(readings) == 1 + 5
    assert run.history == held.history


def test_letting_a_client_leave_plans_the_state_that_was_planned_no_second_time(
    held: covey.Run, readings: list[str]
):
    run = covey.load(held.folder)
    first, second = sorted(run.names)[:2]
    (plan,) = run.plan([first], "deny")
    assert plan.chosen is not None
    readings.clear()
    (denied,) = run.forget(first, answer="deny")
    assert denied.answered.option == plan.chosen
    # opened to write; and once more for the proof, as the answer was recorded
    assert len(readings) == 2
    assert run.history == history_on_disk(run)
    readings.clear()
    again = run.plan([Returning(first, denied.answered.salt), second], "retrain")
    assert [each.chosen and each.chosen.answer for each in again] == ["retrain"] * 2
    assert len(readings) == 1  # opened: what was recorded since is known already


def history_on_disk(run: covey.Run) -> covey.history.History:
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        return read_history(ledger)


def test_a_reader_that_knows_less_reads_again_and_answers_the_same(held: covey.Run):
    reader = RecordReader()
    with Ledger.read(RunFolder(held.folder).ledger) as ledger:
        known = reader.read(ledger)
        assert reader.read(ledger) is known
        fresh = RecordReader().read(ledger)
    assert (fresh.head, fresh.records) == (known.head, known.records)
    assert fresh.history == known.history
    handle = min(held.names.values(), default="")
    rules, wanted = AnswerRules(7, False, (0,), 2, True), [WantedAnswer(handle)]  # noqa: FBT003
    assert known.answers(wanted, rules) == fresh.answers(wanted, rules)
    assert known.answers(wanted, rules) is known.answers(list(wanted), rules)
