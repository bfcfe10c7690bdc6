"""The command line on a federation's run, while none of its nodes is there."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra flower")

from cli.conftest import refused
from covey import Config, load
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey_flower.apps import Federated
from flower.conftest import IN_SETS, build, own_data, settings_with

__all__ = ["build", "own_data"]

LEAVER = "client-00003"
PLAIN = settings_with(
    rounds=2, train={"local_epochs": 1}, method={"name": "fedavg"}, risk={"name": "none"}
)
HIDDEN = {**PLAIN, "aggregation": IN_SETS}


def answered(folder: Path) -> list[tuple[str, str, str]]:
    """Every request of a run: who, which answer was wished for, and its state."""
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return [(r.handle, r.wanted, r.state) for r in ledger.requests()]


@pytest.mark.slow
def test_a_denial_needs_no_node(build, answer):
    federation = build(HIDDEN)
    run = federation.play(nodes=4).folder
    before = load(run).summary.model_hash
    held = answer("explain", run, LEAVER)
    assert held["rounds_trained"] == [0, 1]
    assert len(held["anonymity_sets"]) == 2
    (plan,) = answer("forget", run, LEAVER, "--plan")["plans"]
    assert plan["chosen"]["answer"] == "deny"
    (told,) = answer("forget", run, LEAVER, "--answer", "auto")["answers"]
    assert told["answer"] == "deny"
    proof = told["proof"]
    found = answer("verify", proof, "--ledger", run, "--mine", LEAVER, told["salt"])
    assert found["valid"]
    assert load(run).summary.model_hash == before
    assert LEAVER not in load(run).names
    assert Path(answer("report", run)["report"]).is_file()


@pytest.mark.slow
def test_a_replay_is_put_down_and_served_by_whoever_plays_on(build, answer):
    federation = build(PLAIN)
    leaver = federation.files.pop(103)
    never = federation.play("without", nodes=3)
    federation.files[103] = leaver
    run = federation.play(nodes=4).folder
    assert load(run).summary.model_hash != never.summary.model_hash
    handle = load(run).names[LEAVER]
    words = ["forget", run, LEAVER, "--answer", "retrain"]
    told = {"client": LEAVER, "answer": "pending"}
    assert answer(*words)["answers"] == [told]
    federation.files.pop(103)
    federation.play("run", nodes=4)
    assert answered(run) == [(handle, "retrain", "done")]
    assert load(run).summary.model_hash == never.summary.model_hash
    (proof,) = (run / "proofs").glob("*.json")
    assert answer("verify", proof, "--ledger", run)["valid"]
    refused(f"records, found '{LEAVER}'", "forget", run, LEAVER, "--answer", "auto")


def test_while_somebody_plays_a_request_is_put_down(build, answer):
    federation = build(HIDDEN)
    run = federation.play(nodes=4).folder
    with Ledger.open(RunFolder(run).ledger, lambda: "now"):
        told = answer("forget", run, LEAVER, "--answer", "auto")["answers"]
        refused("records, found 'nobody'", "forget", run, "nobody", "--answer", "auto")
    assert told == [{"client": LEAVER, "answer": "pending"}]
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
