"""Answers by calibration, as FedEraser has it."""

import pytest

import covey

SETTINGS = {
    "rounds": 2,
    "population": {"clients": 5, "examples_per_client": 20, "holdout": 0},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 1},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


def test_a_calibration_ends_the_same_after_a_break(tmp_path):
    settings = SETTINGS | {"leaving": {"store_updates": 1}}

    calls = iter(range(1))

    def stop(_: object) -> None:
        if next(calls, None) is None:  # the first call comes before the first round
            raise KeyboardInterrupt

    run = covey.run(config=settings, out=tmp_path / "whole")
    before = run.summary.model_hash
    run.forget("client-00003", answer="calibrate", basis="withdrawal")
    whole = covey.load(tmp_path / "whole").summary.model_hash
    stopped = covey.run(config=settings, out=tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        stopped.forget("client-00003", answer="calibrate", observe=stop)
    assert covey.resume(tmp_path / "stopped").summary.model_hash == whole != before
