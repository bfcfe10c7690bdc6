"""The command line on a federation's run, while none of its nodes is there."""

from pathlib import Path

import pytest

from cli.conftest import refused
from covey import Config, load
from covey.flower.apps import Federated
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from flower.conftest import IN_SETS, build, own_data, settings_with

__all__ = ["build", "own_data"]

LEAVER = "client-00003"
PLAIN = settings_with(
    rounds=3, train={"local_epochs": 1}, method={"name": "fedavg"}, risk={"name": "none"}
)
HIDDEN = {**PLAIN, "aggregation": IN_SETS}


def answered(folder: Path) -> list[tuple[str, str, str]]:
    """Every request of a run: who, which answer was wished for, and its state."""
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return [(r.handle, r.wanted, r.state) for r in ledger.requests()]


def test_a_denial_needs_no_node(build, answer):
    federation = build(HIDDEN)
    run = federation.play(nodes=6).folder
    before = load(run).summary.model_hash
    held = answer("explain", run, LEAVER)
    assert held["rounds_trained"] == [0, 1, 2]
    assert len(held["anonymity_sets"]) == 3
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


def same_models(run: Path, other: Path) -> bool:
    found, expected = load(run), load(other)
    return found.summary.model_hash == expected.summary.model_hash


@pytest.fixture
def never_met(build):
    """A federation of six, and the run of the other five alone."""
    federation = build(PLAIN)
    leaver = federation.files.pop(103)
    met = federation.play("without", nodes=5).folder
    federation.files[103] = leaver
    return federation, met


@pytest.mark.parametrize("is_there", [True, False], ids=["present", "switched-off"])
def test_a_replay_is_put_down_and_served_by_whoever_plays_on(never_met, answer, covey, is_there):
    federation, met = never_met
    run = federation.play(nodes=6).folder
    assert not same_models(run, met)
    handle = load(run).names[LEAVER]
    words = ["forget", run, LEAVER, "--answer", "retrain"]
    told = {"client": LEAVER, "answer": "pending"}
    assert answer(*words)["answers"] == [told]
    code, out, _ = covey(*words)
    assert code == 0
    assert "put down" in out
    if not is_there:
        federation.files.pop(103)
    federation.play("run", nodes=6)
    assert answered(run) == [(handle, "retrain", "done")]
    assert same_models(run, met)
    (proof,) = (run / "proofs").glob("*.json")
    assert answer("verify", proof, "--ledger", run)["valid"]
    refused(f"has no client '{LEAVER}'", "forget", run, LEAVER, "--answer", "auto")


def test_who_says_so_in_its_own_file_is_forgotten(never_met):
    federation, met = never_met
    federation.node(LEAVER, leave=True)
    run = federation.play(nodes=6).folder
    ((_, wanted, state),) = answered(run)
    assert (wanted, state) == ("retrain", "done")
    assert LEAVER not in load(run).names
    assert same_models(run, met)
    assert [r.participants for r in load(run).history.rounds] == [5, 5, 5]


def test_while_somebody_plays_a_request_is_put_down(build, answer):
    federation = build(HIDDEN)
    run = federation.play(nodes=6).folder
    with Ledger.open(RunFolder(run).ledger, lambda: "now"):
        told = answer("forget", run, LEAVER, "--answer", "auto")["answers"]
        refused("has no client 'nobody'", "forget", run, "nobody", "--answer", "auto")
    assert told == [{"client": LEAVER, "answer": "pending"}]
    assert answered(run) == []
    federation.play(nodes=6)
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
        words = [Federated(settings).start(grid, federation.path / "run", 6).folder]
    refused("covey deploy init", command, *words)
    assert not (federation.path / "new").exists()
