"""Answers that were signed are told, whatever happens to the replays of others."""

import pytest

from covey import Config, History, run

SETTINGS = {
    "rounds": 2,
    "population": {"clients": 9, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 5},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
    "aggregation": {"name": "anonymity-sets", "min_anonymity": 9, "deniability_threshold": 8},
}


class StopError(Exception):
    pass


@pytest.mark.slow
def test_a_denial_is_told_before_the_replay_of_another_is_stopped(tmp_path):
    held = run(config=Config.of(SETTINGS), out=tmp_path / "run")
    first, second = sorted(held.names)[:2]
    told = []

    def stop(history: History) -> None:
        if told:  # the denial is signed; the other's rounds are being played again
            raise StopError

    plans = held.plan([first, second])
    assert [each.chosen and each.chosen.answer for each in plans] == ["deny", "retrain"]
    with pytest.raises(StopError):
        held.forget([first, second], "auto", observe=stop, on_answer=told.append)
    assert [each.option.answer for each in told] == ["deny"]
    assert len(bytes.fromhex(told[0].salt)) == 16
    held.resume(on_answer=told.append)
    assert [each.option.answer for each in told] == ["deny", "retrain"]
    assert len({each.request for each in told}) == 2


@pytest.mark.slow
def test_a_replay_that_was_stopped_is_finished_by_whoever_answers_next(tmp_path):
    held = run(config=Config.of(SETTINGS), out=tmp_path / "run")
    first, second = sorted(held.names)[:2]

    def stop(history: History) -> None:
        if len(history.rounds) == 1:  # half of the replay
            raise StopError

    with pytest.raises(StopError):
        held.forget(first, "retrain", observe=stop)
    (kept,) = held.unacknowledged
    assert not kept.proof
    (left,) = held.forget(second, "retrain")
    done = left.answered
    assert done.option.answer == "retrain"
    assert done.proof.is_file()
    assert held.unacknowledged[-1].proof
    assert all(each.proof for each in held.unacknowledged)
    assert held.history.finished is not None
