"""Whenever a run is killed, resuming it ends as if nothing had happened."""

import sqlite3

import pytest
import torch

from covey import Config, LedgerError, LedgerLocked, LedgerMismatch, RunError, resume, run
from covey.ledger.store import Ledger
from covey.runtime import loop

PROGRAM = """
import tomllib
from covey import Config, run

settings, out = words
run(config=Config.of(tomllib.loads(settings)), out=out)
"""


POOLED = {"pooling": "risk"}
THRESHOLD = {"selection": "threshold"}


@pytest.mark.parametrize(
    ("where", "calls", "source", "method"),
    [
        ("after append", 2, "federated", POOLED),  # recorded, and not in a checkpoint
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("before append", 0, "federated", POOLED),  # nothing recorded yet
                ("before append", 3, "shadow", POOLED),  # as after the save before it
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
    config = settings(population={"audit_examples": 60}, risk=risk, method=method)
    folder = tmp_path / "killed"
    killed(PROGRAM, where, calls, config.toml(), folder)

    resumed, expected = resume(folder), whole(config)

    assert resumed.ledger_head == expected.ledger_head
    assert resumed.summary.model_hash == expected.summary.model_hash
    assert len(resumed.history.rounds) == config.rounds


def test_resuming_a_finished_run_repeats_nothing(play):
    finished = play()
    again = resume(finished.folder)
    assert again.ledger_head == finished.ledger_head
    assert again.history.rounds == finished.history.rounds


def test_sparse_and_thinned_checkpoints_resume_to_the_same_end(play, settings, tmp_path):
    every_second = play(checkpoints={"every": 2, "keep": "thin"})
    newest = sorted((every_second.folder / "checkpoints").iterdir())[-1]
    newest.unlink()
    assert resume(every_second.folder).ledger_head == every_second.ledger_head


def test_what_choices_left_behind_is_in_the_checkpoint(play, cut):
    """Prices decide the rounds to come."""
    whole = play(
        rounds=8,
        method={"selection": {"name": "priced", "target_share": 0.4}, "initialisation": "groups"},
        population={"clients": 10, "thresholds": [0.5, 0.6]},
        train={"participation": 0.8},
    )
    prices = [fact.prices for _, fact in whole.history.prices]
    assert any(price > 0 for price in prices[3])
    cut(whole.folder, 6)
    assert resume(whole.folder).ledger_head == whole.ledger_head


def test_changed_settings_do_not_pass_for_the_same_run(play):
    finished = play()
    config = finished.folder / "config.toml"
    config.write_text(config.read_text().replace("rate = 0.5", "rate = 0.4"))
    with pytest.raises(RunError, match=r"settings in config\.toml must be those"):
        resume(finished.folder)


def test_changed_data_do_not_pass_for_the_same_run(tmp_path):
    def clients(seed):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(20) % 2
        return [(torch.randn(20, 3, generator=generator), labels) for _ in range(3)]

    def model():
        return torch.nn.Linear(3, 2)

    config = Config.of({"rounds": 1})
    run(model=model, clients=clients(0), config=config, out=tmp_path / "own")
    with pytest.raises(RunError, match="clients' data must be those"):
        resume(tmp_path / "own", model, clients(1))
    with pytest.raises(RunError, match="came from a program"):
        resume(tmp_path / "own")


def test_a_round_that_replays_differently_is_refused(play, monkeypatch):
    finished = play()
    with sqlite3.connect(finished.folder / "ledger.sqlite") as database:
        database.execute("DELETE FROM events WHERE round = 4")
    database.close()
    for checkpoint in (finished.folder / "checkpoints").iterdir():
        checkpoint.unlink()
    monkeypatch.setattr(loop, "TESTS_PER_ROUND", 3)  # another way to measure
    with pytest.raises(LedgerMismatch, match="Round 0 must replay"):
        resume(finished.folder)


def test_a_cut_ledger_is_noticed_against_the_checkpoint(play):
    finished = play()
    with sqlite3.connect(finished.folder / "ledger.sqlite") as database:
        database.execute("DELETE FROM events WHERE round >= 2")
    database.close()
    with pytest.raises(LedgerError, match="Events were removed or exchanged"):
        resume(finished.folder)


def test_two_players_of_one_run(play):
    finished = play()
    holder = Ledger.open(finished.folder / "ledger.sqlite", clock=lambda: "now")
    with holder, pytest.raises(LedgerLocked):
        resume(finished.folder)


def test_only_runs_can_be_resumed(tmp_path):
    with pytest.raises(RunError, match="not a covey run"):
        resume(tmp_path)
