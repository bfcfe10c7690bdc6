"""What a page says of one client, from the table, is what the events say of it."""

from typing import Any

import pytest

import covey
from covey import Config
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerReader
from covey.runtime.planning import read_client

SETTINGS = {
    "rounds": 3,
    "population": {"clients": 12, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"participation": 0.7},
    "risk": {"name": "none"},
    "method": {"name": "ifca"},
    "aggregation": {"name": "anonymity-sets", "min_anonymity": 2, "deniability_threshold": 2},
}


@pytest.mark.parametrize("organised", [False, True])
def test_the_table_of_participation_says_of_a_client_what_the_events_say(
    tmp_path, monkeypatch, organised
):
    settings: dict[str, Any] = dict(SETTINGS)
    if organised:
        file = tmp_path / "own.csv"
        whose = (f"client-{n:05d}, org-{n % 5}" for n in range(12))
        file.write_text("\n".join(["name, organisation", *whose]))
        settings["population"] = {**settings["population"], "organisations": str(file)}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    run = covey.run(config=Config.of(settings), out=tmp_path / "run")
    run.forget(min(run.names), "retrain")
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        whole = LedgerReader().read(ledger).participation
    for handle in run.names.values():
        held, plan = read_client(RunFolder(run.folder), handle)
        assert held.sets_of(handle) == whole.sets_of(handle)
        assert held.trained.get(handle, {}) == whole.trained.get(handle, {})
        assert held.first_trace(handle) == whole.first_trace(handle)
        assert (held.counted, held.left, held.lingering) == (
            whole.counted,
            whole.left,
            whole.lingering,
        )
        assert plan.options
