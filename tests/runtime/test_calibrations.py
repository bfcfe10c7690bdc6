"""Answers by calibration: FedEraser's, and a user's own."""

from pathlib import Path

import pytest

import covey
from plugins.halfway import Halfway

SETTINGS = {
    "rounds": 2,
    "population": {"clients": 5, "examples_per_client": 20, "holdout": 0},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 1},
    "method": {"name": "fedavg"},
    "redteam": {"source": "none"},
}


def forgotten(folder: Path, **unlearning: object) -> str:
    """Return the hash of the models that are left when a client's part is calibrated."""
    settings = SETTINGS | {"unlearning": {"store_updates": 1} | unlearning}
    run = covey.run(config=settings, out=folder)
    run.forget("client-00003", answer="calibrate", basis="withdrawal")
    return covey.load(folder).summary["model_hash"]


@pytest.fixture(scope="module")
def hashes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrations")
    named = {
        "calibration": "plugins.halfway:Halfway",
        "calibration_options": {"keep": 0.25},
    }
    return {
        "usual": forgotten(folder / "usual"),
        "by name": forgotten(folder / "name", **named),
        "passed": forgotten(folder / "passed", calibration=Halfway(keep=0.25)),
    }


def test_a_users_calibration_is_the_same_by_name_and_passed(hashes):
    assert hashes["by name"] == hashes["passed"] != hashes["usual"]
