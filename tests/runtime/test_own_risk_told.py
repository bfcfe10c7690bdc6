"""A run in which each client's weight follows its own risk: its page, and leaving it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from covey import Config, load, run
from covey.api import verify
from covey.events import ExposureChosen
from covey.heads import ClusterSums
from covey.report import write_explanation
from covey.runtime import RunFolder
from covey.runtime.state_io import load_state
from runtime.test_subtraction import SOLVED

ONE = "client-00003"
BY_RISK: dict[str, Any] = {
    **SOLVED,
    "population": {**SOLVED["population"], "thresholds": [0.55, 0.95]},
    "method": {
        **SOLVED["method"],
        "options": {**SOLVED["method"]["options"], "exposure": "risk"},
    },
}


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def folder(copied, tmp_path) -> Path:
    copied(Config.of(BY_RISK), tmp_path / "run")
    return tmp_path / "run"


def test_a_client_is_shown_its_risk_at_other_weights_than_its_own(folder, tmp_path):
    held = load(folder)
    chosen = held.history.weights_chosen
    assert isinstance(chosen, ExposureChosen)
    told = held.explain(ONE)
    shown = told["risk_against_weight"]
    assert not shown["unknown"]
    assert shown["weight"] == chosen.weights[held.names[ONE]]
    risks = {p["weight"]: p["likelihood_ratio"] for p in shown["points"]}
    assert risks[shown["weight"]] == pytest.approx(
        chosen.risks[held.names[ONE]], abs=1e-3
    )
    assert {0.0, 1.0} <= risks.keys()
    page = write_explanation(told, "a run", tmp_path / "page.html").read_text()
    assert "Its risk, and how much it enters" in page
    assert "(its own)" in page
    assert "data:image/png" in page
    report = held.report()
    assert (report.parent / "figures" / "weights.png").exists()


def test_without_the_data_it_says_so(tmp_path):
    drawn = torch.Generator().manual_seed(0)
    labels = torch.arange(12) % 2
    clients = [(torch.randn(12, 4, generator=drawn), labels) for _ in range(4)]
    settings = {
        "rounds": 1,
        "model": {"name": "linear-head", "options": {"features": "none"}},
        "method": BY_RISK["method"],
        "redteam": {"source": "none"},
    }
    out = tmp_path / "own"
    run(clients=clients, config=Config.of(settings), out=out)
    told = load(out).explain(ONE)
    assert told["risk_against_weight"]["points"] == []
    assert "clients=..." in told["risk_against_weight"]["unknown"]
    page = write_explanation(told, "a run", tmp_path / "page.html")
    assert "Not known here" in page.read_text()
    there = load(out, clients=clients).explain(ONE)["risk_against_weight"]
    assert there["points"]


def test_who_leaves_by_subtraction_changes_no_weight_of_others(folder):
    before = load(folder)
    handle = before.names[ONE]
    first = before.history.weights_chosen
    (done,) = before.forget([ONE], "subtract")
    proof = json.loads(done.answered.proof.read_text())
    assert proof["answer"] == "subtract"
    checks = verify(done.answered.proof, folder)
    assert [c.name for c in checks if c.ok is False] == []
    assert first is not None
    others = {h: weight for h, weight in first.weights.items() if h != handle}
    now = load(folder).history.weights_chosen
    assert now is not None
    assert now.weights == others
    kept = RunFolder(folder).checkpoints / "round-00002.safetensors"
    known = load_state(kept)[0].kept(ClusterSums)
    weights = {h: w / 256 for h, (_, w) in known.counted.items()}
    assert weights == others
