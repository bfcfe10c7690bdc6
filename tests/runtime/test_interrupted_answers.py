"""Answers that were signed are told, whatever happens to the replays of others."""

import pytest

from covey import Config, run
from covey.events import AnswerRefused, ClientsAssigned
from covey.history import History
from covey.runtime.finalization import _accepted  # pyright: ignore[reportPrivateUsage]

SETTINGS = {
    "rounds": 2,
    "population": {"clients": 9, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 5},
    "redteam": {"source": "none"},
    "method": {"name": "fedavg"},
    "merge": {"name": "anonymity-sets", "min_anonymity": 9, "deniability_threshold": 8},
}


class StopError(Exception):
    pass


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


def test_who_was_refused_in_every_round_was_never_accepted():
    both = ClientsAssigned({"a": 0, "b": 0}, "clients")
    one = AnswerRefused("b", "not finite")
    assert _accepted(History(told=(one, both, one, both))) == {"a"}
    assert _accepted(History(told=(one, both, both))) == {"a", "b"}
    assert _accepted(History(told=(one, ClientsAssigned({"a": 0}, "clients")))) == {"a"}
