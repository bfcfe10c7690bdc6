"""`covey.sweep`: the runs and the table of `covey sweep`, from a program."""

import csv

import pytest
from torch import nn

import covey as package
from covey import ConfigError
from runtime.test_on_round import clients

SETTINGS = {
    "rounds": 1,
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
    "population": {"clients": 4, "examples_per_client": 10, "audit_examples": 20},
}
OVER = {"method.name": ["fedavg", "local"], "train.learning_rate": [0.2]}


def test_a_sweep_is_that_of_the_command_line(covey, tmp_path):
    """Both find that the models do no better than guessing; the command exits with 1."""
    swept = package.sweep(SETTINGS, OVER, seeds=1, out=tmp_path / "python")
    (tmp_path / "one.toml").write_text(package.Config.of(SETTINGS).toml())
    over = [f"{key}={','.join(map(str, values))}" for key, values in OVER.items()]
    options = [word for each in over for word in ("--over", each)]
    covey(
        *("sweep", str(tmp_path / "one.toml"), *options),
        *("--seeds", "1", "--out", str(tmp_path / "command")),
    )
    told = (tmp_path / "python" / "sweep.csv").read_text()
    assert told == (tmp_path / "command" / "sweep.csv").read_text()
    frame = swept.frame()
    rows = list(csv.DictReader(told.splitlines()))
    assert list(frame.columns) == list(rows[0])
    assert len(frame) == len(rows) == 2
    assert set(frame["train.learning_rate"]) == {0.2}
    assert swept.page.is_file()


def test_runs_that_are_there_are_kept_and_cut_ones_resumed(tmp_path):
    def stop(row):
        raise KeyboardInterrupt

    over = {"train.learning_rate": [0.1]}
    here = {"model": lambda: nn.Linear(2, 2), "clients": clients()}
    config = {"rounds": 2, "risk": {"name": "none"}}
    with pytest.raises(KeyboardInterrupt):
        package.run(
            **here,
            config={**config, "train.learning_rate": 0.1, "seed": 7},
            out=tmp_path / "sweep" / "0.1-seed7",
            on_round=stop,
        )
    swept = package.sweep(config, over, seeds=[7], out=tmp_path / "sweep", **here)
    assert list(swept.histories) == ["0.1-seed7"]
    head = package.load(tmp_path / "sweep" / "0.1-seed7").ledger_head
    package.sweep(config, over, seeds=[7], out=tmp_path / "sweep", **here)
    assert package.load(tmp_path / "sweep" / "0.1-seed7").ledger_head == head
    other = {**config, "rounds": 3}
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        package.sweep(other, over, seeds=[7], out=tmp_path / "sweep", **here)
    with pytest.raises(ConfigError, match="changes no run of this sweep"):
        package.sweep(config, {"aggregation.radius": [1.0, 2.0]}, out=tmp_path / "x", **here)
