"""Requests under every setting, on digits: shared runs are the runs they stand for."""

import pytest

from covey import Config, load, run
from covey_papers.reproduce.answered_runs import outcomes
from reproduce.tiny import experiment

TINY = {
    "rounds": 5,
    "population": {"clients": 12, "examples_per_client": 12, "audit_examples": 0, "shift": "none"},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "leaving": {"request_probability": 0.5},
}
ASKED = experiment(k=(4,), x=(2, 3, 4), baselines=("retrain", "federaser", "isolated"))


@pytest.mark.slow
def test_every_setting_ends_as_if_it_had_been_played_alone(tmp_path):
    out = tmp_path / "bench"
    found = {each.name: each for each in outcomes(ASKED, TINY, 0, out)}

    assert list(found) == ["retrain", "federaser", "isolated", "k4-x2", "k4-x3", "k4-x4"]
    asked = sum(found["retrain"].answers.values())
    assert asked > 0
    assert found["retrain"].answers == {"retrain": asked}
    assert found["federaser"].answers == {"calibrate": asked}
    assert found["isolated"].answers == {"retrain": asked}
    assert len(load(out / "isolated").history.rounds[-1].clients) == 4
    denied = [found[f"k4-x{x}"].answers.get("deny", 0) for x in ASKED.x]
    assert denied == sorted(denied, reverse=True)
    assert denied[0] > denied[-1]
    assert found["k4-x3"].shared_with == "k4-x2"
    parted = found["k4-x4"]
    assert not parted.shared_with
    merge = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 4}
    config = Config.of({**TINY, "seed": 0, "aggregation": merge})
    alone = run(config=config, out=tmp_path / "alone")
    assert load(out / "k4-x4").summary.model_hash == alone.summary.model_hash
    # what lies in the folder is not played again
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    again = {each.name: each for each in outcomes(ASKED, TINY, 0, out)}
    assert again == found
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.safetensors")} == files
