"""Runs whose ledgers lie in PostgreSQL are in the list too; locks are seen, not taken."""

import pytest

from covey import run
from covey.api.listing import find_runs
from covey.ledger.store import Ledger
from covey.runs.folder import now
from registry.tiny import TINY


@pytest.fixture(scope="module")
def url(postgres, tmp_path_factory):
    place = postgres.run("listed")
    out = tmp_path_factory.mktemp("listed") / "run"
    run(config={**TINY, "rounds": 1, "ledger.url": place}, out=out)
    return place, out


def test_by_its_folder_and_by_its_url(url, tmp_path):
    place, folder = url
    (entry,) = find_runs([folder.parent])
    assert (entry.state, entry.rounds_played, entry.clients) == ("finished", 1, 4)
    (bare,) = find_runs([place])
    assert (bare.state, bare.rounds_played, bare.clients) == ("finished", 1, 4)
    assert bare.ledger_head == entry.ledger_head
    assert bare.folder is None
    assert bare.is_verified
    with Ledger.open(place, now):
        assert [each.state for each in find_runs([place, folder])] == ["running"] * 2
