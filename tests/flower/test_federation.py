"""A federation whose clients are apart is the same run as its simulation."""

import json
import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import covey
from covey.base.events import (
    ClientsAssigned,
    ClientsHandedOut,
    ClientsJoined,
    ClientsReported,
    RunRolledBack,
)
from covey.cli.runs import RunConcluded
from covey.report.queries import round_line
from covey_flower.messages import Question
from flower.conftest import IN_SETS, all_of, same_risks, settings_with

WITHOUT_EVENTS = "plugins.test_own_algorithms:WithoutEvents"


def question_in(message):
    text = str(message.content["covey"]["json"])
    return TypeAdapter(Question).validate_json(text)


# by loss: of four nodes that count there is no figure, as there is in their simulation
HIDDEN = settings_with(method={"initialisation": "warm", "selection": "loss"}, aggregation=IN_SETS)
JUDGED = settings_with(
    method={"initialisation": "random", "selection": "threshold"},
    risk={"name": "client", "every": 2},
)
ONE_BATCH = settings_with(
    rounds=2,
    method={"initialisation": "random", "same_batch": True},
    train={"local_steps": 1, "batch_size": 4},
)
WARM_BATCH = settings_with(  # where groups are sought, a client trains on all that it has
    rounds=2,
    method={"initialisation": "warm", "same_batch": True},
    train={"local_steps": 1, "batch_size": 4},
)
OTHER_PARTS = settings_with(
    rounds=2,
    method={"name": "fedavg"},
    train={
        "cohort_size": 4,
        "optimizer": "adamw",
        "schedule": "cosine",
        "loss": {"name": "plugins.loss_generalized:GeneralizedCrossEntropy", "q": 0.5},
        "objective": {"name": "proximal", "mu": 0.1},
        "max_gradient_norm": 1.0,
        "learning_rate": 0.01,
    },
    risk={"name": "none"},
)


@pytest.mark.parametrize(
    "settings",
    [HIDDEN, ONE_BATCH, WARM_BATCH, pytest.param(OTHER_PARTS, marks=pytest.mark.slow)],
    ids=["hidden", "one batch", "warm batch", "other parts"],
)
def test_the_same_settings_end_in_the_same_models(build, settings):
    federation = build(settings)
    federated, here = federation.play(nodes=4), federation.simulated()
    assert federated.history.assignment == here.history.assignment
    assert [r.clients for r in federated.history.rounds] == [r.clients for r in here.history.rounds]
    same_risks(federated, here)
    assert federated.summary.model_hash == here.summary.model_hash
    if settings is HIDDEN:
        assert sorted(c.clients for c in federated.summary.clusters) == [2, 2]
        assert all(len(s) >= 2 for _, e in federated.history.hidden for s in e.sets)


@pytest.mark.slow
def test_the_server_holds_nothing_of_what_clients_keep_to_themselves(build):
    federation = build(JUDGED, clients=range(4))
    federation.node("client-00004", report_violation=True, risk_threshold=0.0)
    result = federation.play(nodes=5)
    violations = result.summary.violations
    assert (violations.count, violations.unknown) == (1, 4)
    assert result.history.started.risk_thresholds == {}
    assert result.history.measured == ()
    assert result.summary.accuracy.overall is None
    memory_files = list((federation.path / "client-00000" / "memory").iterdir())
    assert sorted(file.stem.isalnum() for file in memory_files) == [False, False, True]
    assert {file.stat().st_mode & 0o777 for file in memory_files} == {0o600}


def test_a_node_keeps_account_of_what_it_sent(build):
    settings = settings_with(
        rounds=2,
        method={"initialisation": "random", "name": "ifca"},
        risk={"name": "none"},
        privacy={"selection_noise": 4.0},
    )
    federation = build(settings, clients=range(2))
    federation.play(nodes=2)
    files = (federation.path / "client-00000" / "memory").iterdir()
    (memory_file,) = (file for file in files if file.stem.isalnum())
    memory = json.loads(memory_file.read_text())
    assert len(memory.pop("checksum")) == 64
    # two rounds and the last choice, at 2 / 4 each
    assert memory == {"risks": [], "updates": 2, "choices_epsilon": 1.5}


def test_accuracies_are_reported_by_those_who_want_to(build):
    settings = settings_with(rounds=2, method={"initialisation": "random"})
    federation = build(settings, clients=())
    for index in range(3):
        federation.node(f"client-{index:05}", report_accuracy=index < 2)
    result = federation.play(nodes=3)
    assert result.summary.accuracy.overall is not None
    assert [r.accuracy is not None for r in result.history.rounds] == [True] * 2


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_accuracies_that_nodes_report_stand_in_the_summary_as_reported(build, method):
    """Two of four report theirs: of the model that they got last, so that none is measured."""
    settings = settings_with(rounds=2, method={"name": method}, risk={"name": "none"})
    federation = build(settings)
    for index in range(2):
        federation.node(f"client-{index:05}", report_accuracy=True)
    result = federation.play()
    reported = all_of(ClientsReported, result)[-1].accuracy
    assert len(reported) == 2
    accuracy = result.summary.accuracy
    assert accuracy.overall == pytest.approx(sum(reported.values()) / 2)
    assert accuracy.reported == 2
    assert "reported accuracy 0." in round_line(result.history)
    assert b"Reported accuracy, all clients" in result.report().read_bytes()
    first, *_ = RunConcluded("run", result.summary, None, (), seconds=0.0, report=Path()).lines()
    assert str(first).endswith("after 2 rounds, reported by 2 clients, not measured")
    assert federation.simulated().summary.accuracy.reported == 0


@pytest.mark.slow
def test_nodes_come_and_go_while_the_run_goes_on(build):
    settings = settings_with(aggregation=IN_SETS, method={"initialisation": "random"})
    federation = build(settings, clients=range(4))

    def changing(question, reply):
        request = question_in(question)
        if request.request.path[:2] == ("round", 1) and request.request.task == "choose":
            federation.node("client-00004")
        if request.request.path[:2] == ("round", 2) and request.request.task == "choose":
            federation.files.pop(100, None)
        return [reply]

    federation.wire = changing
    result = federation.play(nodes=4)
    assert all_of(ClientsJoined, result) == [ClientsJoined((result.names["client-00004"],))]
    assert [r.participants for r in result.history.rounds] == [4, 4, 5, 4]
    assert result.history.finished is not None


class PowerCut(BaseException):
    pass


@pytest.mark.slow
def test_a_server_that_was_killed_goes_on_with_the_same_round_numbers(build):
    federation = build(HIDDEN)
    whole = federation.play("whole", nodes=4)

    def cut(question, reply):
        request = question_in(question)
        if request.request.path[:2] == ("round", 3) and request.name == "client-00003":
            raise PowerCut
        return [reply]

    federation.wire = cut
    with pytest.raises(PowerCut):
        federation.play("cut", nodes=4)
    states = sorted((federation.path / "cut" / "checkpoints").iterdir())
    for state in states[-2:]:
        state.unlink()
    federation.wire = lambda _, reply: [reply]
    result = federation.play("cut", nodes=4)
    assert [r.round_index for r in result.history.rounds] == list(range(4))
    assert result.summary.model_hash == whole.summary.model_hash
    assert len(all_of(RunRolledBack, result)) == 1
    assert len(result.history.all_events) > len(whole.history.all_events) + 5


def test_who_leaves_by_its_file_is_told_its_proof_once(build, caplog):
    hidden = {"aggregation": IN_SETS, "method": {"name": "fedavg"}, "risk": {"name": "none"}}
    federation = build(settings_with(rounds=3, **hidden))
    requests_after = []

    def leaving(question, reply):
        request = question_in(question)
        if request.request.path[:2] == ("round", 1):
            federation.node("client-00003", leave=True)
        if request.request.path[:2] == ("round", 2) and request.name == "client-00003":
            requests_after.append(request)
        return [reply]

    federation.wire = leaving
    with caplog.at_level("INFO", "covey.flower"):
        result = federation.play(nodes=4)
    ((proof, salt),) = re.findall(r"proof (.+), salt .+: (\w+)$", caplog.text, re.M)
    verification = covey.verify(proof, result.folder, name_and_salt=("client-00003", salt))
    assert verification.failed == ()
    assert requests_after == []
    assert "client-00003" not in result.names


def test_an_algorithm_that_says_nothing_leaves_remote_clients_on_record(build):
    settings = settings_with(rounds=2, risk={"name": "none"})
    settings["method"] = {"name": WITHOUT_EVENTS}
    federation = build(settings, clients=range(3))
    federation.node("client-00002", leave=True)
    result = federation.play(nodes=3)
    (proof,) = (result.folder / "proofs").glob("*.json")
    signed = json.loads(proof.read_text())
    assert (signed["answer"], signed["first_round"]) == ("retrain", 0)
    verification = covey.verify(proof, result.folder)
    assert verification.failed == ()
    stay = set(result.names.values())
    assert [set(event.handles) for event in all_of(ClientsHandedOut, result)] == [stay] * 2
    (chosen, *_) = all_of(ClientsAssigned, result)
    assert (set(chosen.clusters), chosen.by) == (stay, "algorithm")
