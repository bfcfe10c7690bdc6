"""A ledger that did not change is read, verified, told and planned from once."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, event

import covey
from covey import Config, History, Returning
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.session import read_history

SETTINGS = {
    "rounds": 2,
    "population": {"clients": 9, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
    "aggregation": {"name": "anonymity-sets", "min_anonymity": 9, "deniability_threshold": 7},
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    return covey.run(config=Config.of(SETTINGS), out=tmp_path_factory.mktemp("r") / "r")


@pytest.fixture
def readings() -> Iterator[list[str]]:
    """Every statement that reads a whole chain, as the database is sent it."""
    found: list[str] = []

    def note(_: object, __: object, statement: str, after: object, *___: object) -> None:
        words = " ".join(statement.split())
        if words.endswith("FROM events WHERE events.position > ? ORDER BY events.position"):
            found.extend([words] * (after == (0,)))

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


def test_a_run_is_read_once_to_be_loaded_explained_planned_and_reported(
    held: covey.Run, readings: list[str]
):
    """Nothing is read twice, and who writes verifies what it has not read."""
    run = covey.load(held.folder)
    assert len(readings) == 1
    run.report()
    assert run.summary == held.summary
    assert len(readings) == 1
    first, second = sorted(run.names)[:2]
    plans = run.plan([first, second]), run.plan([first, second]), run.plan(first)
    assert plans[0] == plans[1]
    run.explain(first)
    run.resume()
    assert len(readings) == 1
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
    assert not readings  # for the proof what was added since is read, and nothing else
    assert run.history == history_on_disk(run)
    readings.clear()
    again = run.plan([Returning(first, denied.answered.salt), second], "retrain")
    assert [each.chosen and each.chosen.answer for each in again] == ["retrain"] * 2
    assert not readings


def history_on_disk(run: covey.Run) -> History:
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        return read_history(ledger)
