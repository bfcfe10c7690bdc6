"""An aggregation and a server optimizer of a user's own, each one file."""

from pathlib import Path
from typing import Any

import pytest
import torch

from covey import Config, ConfigError, resume, run
from covey.base.component_state import decoded, encoded
from covey.settings.aggregation import server_step_of
from plugins.aggregation_trimmed import TrimmedByNumber
from plugins.server_optimizer_fedavgm import Nesterov

TINY: dict[str, Any] = {
    "rounds": 3,
    "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "train": {"learning_rate": 0.5},
    "risk": {"name": "none"},
}
BY_NAME = {"name": "plugins.aggregation_trimmed:TrimmedByNumber", "cut": 2}
NESTEROV = "plugins.server_optimizer_fedavgm:Nesterov"


@pytest.mark.parametrize("name", ["aggregation_trimmed", "server_optimizer_fedavgm"])
def test_a_plugin_is_one_short_file(name: str):
    assert len((Path(__file__).parent / f"{name}.py").read_text().splitlines()) <= 60


def test_an_aggregation_by_name_and_as_an_object_is_the_same_run(tmp_path: Path):
    by_name = run(config=Config.of({**TINY, "aggregation": BY_NAME}), out=tmp_path / "named")
    passed = Config(**{**TINY, "aggregation": TrimmedByNumber(cut=2)})
    by_object = run(config=passed, out=tmp_path / "passed")
    assert by_object.summary.model_hash == by_name.summary.model_hash
    written = (tmp_path / "passed" / "config.toml").read_text()
    assert "plugins.aggregation_trimmed:TrimmedByNumber" in written
    assert "cut = 2" in written


def test_a_server_optimizer_moves_models_and_goes_on_after_a_break(tmp_path: Path):
    moving = {"server_optimizer": Nesterov(beta=0.5)}
    settings = {**TINY, "aggregation": moving, "checkpoints": {"every": 1}}
    whole = run(config=Config.of(settings), out=tmp_path / "whole")
    plain = run(config=Config.of(TINY), out=tmp_path / "plain")
    assert whole.summary.model_hash != plain.summary.model_hash
    rounds = iter((False, True))

    def stop_after_two(_: object) -> None:
        if next(rounds):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config=Config.of(settings), out=tmp_path / "cut", observe=stop_after_two)
    resumed = resume(tmp_path / "cut")
    assert resumed.summary.model_hash == whole.summary.model_hash


def test_options_of_an_aggregation_are_checked_by_name(tmp_path: Path):
    wrong = {**BY_NAME, "cut": 2, "trim": 0.1}
    with pytest.raises(ConfigError, match=r"aggregation\.trim"):
        run(config=Config.of({**TINY, "aggregation": wrong}), out=tmp_path / "run")


def test_a_server_optimizer_by_name_and_as_an_object():
    named = Config.of({"aggregation": {"server_optimizer": {"name": NESTEROV, "beta": 0.5}}})
    passed = Config.of({"aggregation": {"server_optimizer": Nesterov(beta=0.5)}})
    assert named == passed
    # v = -1, w = 1 + 1/2;  g = -2: v = -1/2 - 2, w = 1.5 + 2 + 1.25
    step, states = server_step_of(passed), {}
    places = []
    at = 0.0
    for change in (1.0, 2.0):
        models, states = step(
            ({"w": torch.tensor(at)},), ({"w": torch.tensor(at + change)},), states
        )
        at = float(models[0]["w"])
        places.append(at)
        states = decoded(*encoded(states))
    assert places == [1.5, 4.75]
