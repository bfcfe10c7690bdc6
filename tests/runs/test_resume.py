"""Whenever a run is killed, resuming it ends as if nothing had happened."""

import sqlite3
from contextlib import closing

import pytest
import torch

from covey import Config, LedgerMismatch, RunError, resume, run
from covey.base.events import PricesSet
from covey.runs import loop

PROGRAM = """
import tomllib
from covey import Config, run

settings, out = words
run(config=Config.of(tomllib.loads(settings)), out=out)
"""


POOLED = {"name": "pooled-ifca-mir"}
THRESHOLD = {"selection": "threshold"}


@pytest.mark.parametrize(
    ("where", "calls", "source", "method"),
    [
        ("after append", 2, "federated", {}),  # recorded, and not in a checkpoint
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("before append", 0, "federated", POOLED),  # nothing recorded yet
                ("after save", 2, "shadow", POOLED),
                ("after append", 3, "client", THRESHOLD),  # they know what they found
                ("after append", 4, "federated", POOLED),  # after its very last fact
            )
        ),
    ],
)
def test_resuming_after_a_kill_ends_in_the_same_bits(
    settings, whole, killed, tmp_path, where, calls, source, method
):
    risk = {"name": source, **({"shadows": 1} if source == "shadow" else {})}
    config = settings(risk=risk, method=method)
    folder = tmp_path / "killed"
    killed(PROGRAM, where, calls, config.toml(), folder)

    resumed, expected = resume(folder), whole(config)

    assert resumed.ledger_head == expected.ledger_head
    assert resumed.summary.model_hash == expected.summary.model_hash
    assert len(resumed.history.rounds) == config.rounds


@pytest.mark.slow
def test_what_choices_left_behind_is_in_the_checkpoint(play, cut):
    """Prices decide the rounds to come."""
    whole = play(
        rounds=8,
        method={"selection": {"name": "priced", "target_share": 0.4}, "initialisation": "groups"},
        population={"clients": 10, "thresholds": [0.5, 0.6]},
        train={"participation": 0.8},
    )
    prices = [each.prices for each in whole.history.all_events if isinstance(each, PricesSet)]
    assert any(price > 0 for price in prices[3])
    cut(whole.folder, 6)
    assert resume(whole.folder).ledger_head == whole.ledger_head


def test_changed_data_do_not_pass_for_the_same_run(tmp_path):
    def clients(seed):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(20) % 2
        return [(torch.randn(20, 3, generator=generator), labels) for _ in range(3)]

    def model():
        return torch.nn.Linear(3, 2)

    config = Config.of({"rounds": 1})
    run(model=model, clients=clients(0), config=config, out=tmp_path / "own")
    with pytest.raises(RunError, match="clients' data must be what"):
        resume(tmp_path / "own", model, clients(1))
    with pytest.raises(RunError, match="must come from a program"):
        resume(tmp_path / "own")


def test_a_round_that_replays_differently_is_refused(play, monkeypatch):
    finished = play()
    with closing(sqlite3.connect(finished.folder / "ledger.sqlite")) as database, database:
        database.execute("DELETE FROM events WHERE round = 4")
    database.close()
    for checkpoint in (finished.folder / "checkpoints").iterdir():
        checkpoint.unlink()
    monkeypatch.setattr(loop, "TESTS_PER_ROUND", 3)  # another way to measure
    with pytest.raises(LedgerMismatch, match="Round 0 must replay"):
        resume(finished.folder)
