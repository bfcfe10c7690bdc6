"""What is PostgreSQL's alone: runs side by side, a lock that a server keeps, its URL."""

from itertools import count

import pytest
from sqlalchemy import insert

from covey import LedgerError, LedgerLocked
from covey.ledger.backends import backend_of, errors_explained
from covey.ledger.store import Ledger
from covey.ledger.tables import clients
from ledger.conftest import noon

NUMBERS = count()
"""Never the same twice: pytest may come back to this file, and the server stays."""


@pytest.fixture
def where(postgres) -> str:
    """The URL of a run of this test's own."""
    return postgres.run(f"alone_{next(NUMBERS)}")


def schema_of(where: str) -> str:
    return where.rpartition("=")[2]


def test_runs_share_a_database_and_nothing_else(where: str, life):
    other = f"{where}_2"
    with Ledger.create(where, noon) as one, Ledger.create(other, noon) as two:
        one.append(0, life.rounds[0])
        two.enrol(life.names)
        assert two.replay() == []
        assert one.names() == {}


@pytest.mark.parametrize("query", ["", "?run=Digits", '?run=a"', "?run=a&run=b"])
def test_a_url_names_one_run_that_can_name_a_schema(query: str):
    url = f"postgresql://covey:secret@host/runs{query}"
    with pytest.raises(LedgerError, match=r"end the URL with \?run=NAME") as no:
        Ledger.create(url, noon)
    assert "secret" not in str(no.value)


def test_a_stranger_s_tables_are_left_alone(postgres, where: str):
    schema = schema_of(where)
    postgres.execute(f'CREATE SCHEMA "{schema}"', f'CREATE TABLE "{schema}".events (mine text)')
    with pytest.raises(LedgerError, match='"events" already exists'):
        Ledger.create(where, noon)
    postgres.execute(f'DROP TABLE "{schema}".events')
    Ledger.create(where, noon).close()


def test_no_server_is_one_sentence_without_the_password():
    url = "postgresql://covey:secret@127.0.0.1:1/runs?run=a&password=secret"
    for door in (Ledger.read, Ledger.exists, lambda url: Ledger.create(url, noon)):
        with pytest.raises(LedgerError, match="check the URL") as no:
            door(url)
        assert "secret" not in str(no.value)
        assert "\n" not in str(no.value)
        assert "postgresql://127.0.0.1:1/runs?run=a" in str(no.value)


def test_a_failure_quotes_no_client(where: str, life):
    Ledger.create(where, noon).close()
    place = backend_of(where)
    twice = [{"handle": handle, "name": "client-00001"} for handle in life.names]
    with (
        pytest.raises(LedgerError, match="violates unique constraint") as no,
        errors_explained(place),
        place.writer().begin() as connection,
    ):
        connection.execute(insert(clients), twice)
    assert "client-00001" not in str(no.value)


def test_a_reader_cannot_write(where: str):
    Ledger.create(where, noon).close()
    place = backend_of(where)
    with (
        pytest.raises(LedgerError, match="read-only transaction"),
        errors_explained(place),
        place.reader().begin() as connection,
    ):
        connection.execute(insert(clients), [{"handle": "7f3a", "name": "one"}])


def test_who_lost_the_lock_writes_no_more(postgres, where: str, life):
    holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    others = postgres.execute(holders)
    with Ledger.create(where, noon) as ledger:
        ledger.append(0, life.rounds[0])
        ((ours,),) = set(postgres.execute(holders)) - set(others)
        postgres.execute(f"SELECT pg_terminate_backend({ours}, 5000)")
        for _ in range(2):
            with pytest.raises(LedgerLocked, match="open the ledger again"):
                ledger.append(1, life.rounds[1])
        with Ledger.open(where, noon) as second:
            second.append(1, life.rounds[1])


@pytest.mark.slow
def test_killed_at_every_third_statement_all_of_a_round_is_there_or_none(postgres, life, deaths):
    lives = deaths(life.live, postgres.run("killed") + "_{}", step=3)
    replays = [Ledger.read(one).replay() if Ledger.exists(one) else [] for one in lives]
    assert 10 < len(lives) < 50
    assert all(replay in life.replays for replay in replays)
    assert {len(replay) for replay in replays} == {len(replay) for replay in life.replays}
    assert len({life.live(one) for one in lives}) == 1  # nobody is locked out
    assert all(Ledger.read(one).replay() == life.replays[-1] for one in lives)
