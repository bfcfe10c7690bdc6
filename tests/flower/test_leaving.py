"""Leaving by the command line from a federation of which no node is there."""

from pathlib import Path

import pytest

from cli.conftest import json_of, refused
from covey import Config, load
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey_flower.apps import Federated
from flower.conftest import IN_SETS, settings_with

LEAVING_NODE = "client-00003"
PLAIN = settings_with(
    rounds=2, train={"local_epochs": 1}, method={"name": "fedavg"}, risk={"name": "none"}
)
HIDDEN = {**PLAIN, "aggregation": IN_SETS}


def answered(folder: Path) -> list[tuple[str, str, str]]:
    """Every request of a run: who, which answer was wished for, and its state."""
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return [(r.handle, r.wanted, r.state) for r in ledger.requests()]


@pytest.mark.slow
def test_a_denial_needs_no_node(build):
    federation = build(HIDDEN)
    run = federation.play(nodes=4).folder
    before = load(run).summary.model_hash
    held = json_of("explain", run, LEAVING_NODE)
    assert held["rounds_trained"] == [0, 1]
    assert len(held["anonymity_sets"]) == 2
    (plan,) = json_of("forget", run, LEAVING_NODE, "--plan")["plans"]
    assert plan["chosen"]["answer"] == "deny"
    (outcome,) = json_of("forget", run, LEAVING_NODE, "--answer", "auto")["answers"]
    assert outcome["answer"] == "deny"
    proof = outcome["proof"]
    verified = json_of("verify", proof, "--ledger", run, "--mine", LEAVING_NODE, outcome["salt"])
    assert verified["valid"]
    assert load(run).summary.model_hash == before
    assert LEAVING_NODE not in load(run).names
    assert Path(json_of("report", run)["report"]).is_file()


@pytest.mark.slow
def test_a_replay_is_recorded_and_served_by_whoever_plays_on(build):
    federation = build(PLAIN)
    leaver = federation.files.pop(103)
    never = federation.play("without", nodes=3)
    federation.files[103] = leaver
    run = federation.play(nodes=4).folder
    assert load(run).summary.model_hash != never.summary.model_hash
    handle = load(run).names[LEAVING_NODE]
    words = ["forget", run, LEAVING_NODE, "--answer", "retrain"]
    pending = {"client": LEAVING_NODE, "answer": "pending"}
    assert json_of(*words)["answers"] == [pending]
    federation.files.pop(103)
    federation.play("run", nodes=4)
    assert answered(run) == [(handle, "retrain", "done")]
    assert load(run).summary.model_hash == never.summary.model_hash
    (proof,) = (run / "proofs").glob("*.json")
    assert json_of("verify", proof, "--ledger", run)["valid"]
    refused(f"records, found '{LEAVING_NODE}'", "forget", run, LEAVING_NODE, "--answer", "auto")


def test_while_somebody_plays_a_request_is_recorded(build):
    federation = build(HIDDEN)
    run = federation.play(nodes=4).folder
    with Ledger.open(RunFolder(run).ledger, lambda: "now"):
        answers = json_of("forget", run, LEAVING_NODE, "--answer", "auto")["answers"]
        refused("records, found 'nobody'", "forget", run, "nobody", "--answer", "auto")
    assert answers == [{"client": LEAVING_NODE, "answer": "pending"}]
    assert answered(run) == []
    federation.play(nodes=4)
    ((_, wanted, state),) = answered(run)
    assert (wanted, state) == ("auto", "done")
    assert list((run / "asking").iterdir()) == []


@pytest.mark.parametrize("command", ["run", "resume"])
def test_without_a_deployment_it_is_said_what_to_do(build, command):
    federation = build({**PLAIN, "rounds": 1})
    config = federation.path / "covey.toml"
    words = [config, "--out", "new"]
    if command == "resume":
        settings = Config.of({**federation.settings, "engine": {"name": "flower"}})
        grid = federation.grid()
        words = [Federated(settings).start(grid, federation.path / "run", 4).folder]
    refused("covey deploy init", command, *words)
    assert not (federation.path / "new").exists()
