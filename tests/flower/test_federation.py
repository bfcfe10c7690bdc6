"""A federation whose clients are apart is the same run as its simulation."""

import json
import re

import pytest
import torch
from pydantic import TypeAdapter

import covey
from covey.base.events import (
    AnswersMissing,
    ClientsAssigned,
    ClientsHandedOut,
    ClientsJoined,
    RunRolledBack,
)
from covey.flower.apps import Federated
from covey.flower.client import client_app
from covey.flower.messages import Question, Reply
from flower.conftest import IN_SETS, all_of, same_risks, settings_with
from flower.inprocess import InProcessGrid

QUIET = "plugins.test_own_algorithms:Quiet"


def question_in(message):
    text = str(message.content["covey"]["json"])
    return TypeAdapter(Question).validate_json(text)


def reply_in(message):
    return TypeAdapter(Reply).validate_json(str(message.content["covey"]["json"]))


SAME = {
    "hidden in sets": settings_with(aggregation=IN_SETS),
    "judged by clients": settings_with(
        method={"initialisation": "random", "selection": "threshold"},
        risk={"name": "client", "every": 2},
    ),
    "by loss, some at a time": settings_with(
        method={"name": "ifca", "initialisation": "random"},
        train={"participation": 0.7},
        risk={"name": "none"},
    ),
    "FedAvg, so many at a time": settings_with(
        method={"name": "fedavg"}, train={"cohort_size": 2}, risk={"name": "none"}
    ),
    "FedAvg, noise on clients": settings_with(
        method={"name": "fedavg"},
        aggregation={"weights": "equal"},
        privacy={"client_noise": 0.1, "client_clip": 1.0},
        risk={"name": "federated"},
    ),
    "noisy choices": settings_with(
        method={"initialisation": "random", "name": "ifca"}, privacy={"selection_noise": 0.5}
    ),
    "a linear head, on normalised images": settings_with(
        data={"normalise": "image"},
        model={"name": "linear-head", "features": {"size": 4}},
        method={"name": "fedavg"},
        risk={"name": "federated"},
    ),
    "isolated": settings_with(method={"name": "isolated"}),
    "a loss of one's own, and other parts": settings_with(
        method={"name": "fedavg"},
        train={
            "optimizer": "adamw",
            "schedule": "cosine",
            "loss": {"name": "plugins.loss_generalized:GeneralizedCrossEntropy", "q": 0.5},
            "objective": {"name": "proximal", "mu": 0.1},
            "max_gradient_norm": 1.0,
            "learning_rate": 0.01,
        },
        risk={"name": "none"},
    ),
}


SOME = ("hidden in sets", "judged by clients", "a loss of one's own, and other parts")
"""What every test of every day plays; the slow suite plays all."""

EVERY = [
    pytest.param(each, id=name, marks=() if name in SOME else pytest.mark.slow)
    for name, each in SAME.items()
]


@pytest.mark.parametrize("settings", EVERY)
def test_the_same_settings_end_in_the_same_models(build, settings):
    federation = build(settings)
    there, here = federation.play(nodes=6), federation.simulated()
    assert there.history.assignment == here.history.assignment
    assert len(there.history.rounds) == len(here.history.rounds)
    assert [r.clients for r in there.history.rounds] == [r.clients for r in here.history.rounds]
    same_risks(there, here)
    for j in range(len(here.summary.clusters)):
        for name, value in here.params(j).items():
            assert torch.equal(there.params(j)[name], value)


def test_the_groups_are_found_and_hidden(build):
    federation = build(SAME["hidden in sets"])
    result = federation.play(nodes=6)
    assert sorted(c.clients for c in result.summary.clusters) == [2, 4]
    assert all(len(s) >= 2 for _, e in result.history.hidden for s in e.sets)


def test_the_server_holds_nothing_of_what_clients_keep_to_themselves(build):
    federation = build(SAME["judged by clients"], clients=range(4))
    federation.node("client-00004", report_violation=True, risk_threshold=0.0)
    result = federation.play(nodes=5)
    found = result.summary.violations
    assert (found.count, found.unknown) == (1, 4)
    assert result.history.started.risk_thresholds == {}
    assert result.history.measured == ()
    assert result.summary.accuracy.overall is None
    kept = list((federation.path / "client-00000" / "memory").iterdir())
    assert len(kept) == 1
    assert kept[0].stat().st_mode & 0o777 == 0o600


def test_a_node_keeps_account_of_what_it_sent(build):
    settings = settings_with(
        rounds=2,
        method={"initialisation": "random", "name": "ifca"},
        risk={"name": "none"},
        privacy={"selection_noise": 4.0},
    )
    federation = build(settings, clients=range(2))
    federation.play()
    (kept,) = (federation.path / "client-00000" / "memory").iterdir()
    told = json.loads(kept.read_text())
    assert len(told.pop("checksum")) == 64
    # two rounds and the last choice, at 2 / 4 each
    assert told == {"risks": [], "updates": 2, "choices_epsilon": 1.5}


def test_nobody_tells_and_nothing_is_known(build):
    result = build(settings_with(rounds=2, method={"name": "fedavg"})).play(nodes=6)
    assert result.summary.violations.count is None


def test_accuracies_are_told_by_those_who_want_to(build):
    settings = settings_with(rounds=4, method={"initialisation": "random"})
    federation = build(settings, clients=())
    for index in range(4):
        federation.node(f"client-{index:05}", report_accuracy=index < 3)
    result = federation.play(nodes=4)
    overall = result.summary.accuracy.overall
    assert 0.3 < overall <= 1
    assert [r.accuracy is not None for r in result.history.rounds] == [True] * 4


def test_a_silent_node_costs_only_its_own_update(build):
    federation = build(settings_with(method={"name": "fedavg"}, risk={"name": "none"}))

    def lost(question, reply):
        asked = question_in(question)
        late = asked.request.path[:2] == ("round", 2) and asked.name == "client-00001"
        return [] if late else [reply]

    federation.wire = lost
    result = federation.play(nodes=6)
    handle = result.names["client-00001"]
    assert all_of(AnswersMissing, result) == [AnswersMissing("train", (handle,))]
    assert [r.participants for r in result.history.rounds] == [6, 6, 5, 6, 6]


def test_nodes_come_and_go_while_the_run_goes_on(build):
    settings = settings_with(aggregation=IN_SETS, method={"initialisation": "random"})
    federation = build(settings, clients=range(4))

    def changing(question, reply):
        asked = question_in(question)
        if asked.request.path[:2] == ("round", 1) and asked.request.task == "choose":
            federation.node("client-00004")
        if asked.request.path[:2] == ("round", 3) and asked.request.task == "choose":
            federation.files.pop(100, None)
        return [reply]

    federation.wire = changing
    result = federation.play(nodes=4)
    assert all_of(ClientsJoined, result) == [ClientsJoined((result.names["client-00004"],))]
    assert [r.participants for r in result.history.rounds] == [4, 4, 5, 5, 4]
    assert result.history.finished is not None


def test_who_joins_isolated_clusters_later_draws_one_for_good(build):
    federation = build(settings_with(method={"name": "isolated"}), clients=range(4))

    def joining(question, reply):
        asked = question_in(question)
        if asked.request.path[:2] == ("round", 1):
            federation.node("client-00004")
        if asked.request.path[:2] == ("round", 3):
            federation.node("client-00005")
        late = asked.name == "client-00005" and asked.request.task == "train"
        return [] if late else [reply]

    federation.wire = joining
    result = federation.play(nodes=4)
    later, silent = (result.names[f"client-0000{index}"] for index in (4, 5))
    *rounds, last = all_of(ClientsAssigned, result)
    assert [later in each.clusters for each in rounds] == [False] * 2 + [True] * 3
    assert len({each.clusters[later] for each in (*rounds[2:], last)}) == 1
    assert last.by == "final"
    assert set(last.clusters) == set(result.names.values()) - {silent}


def test_a_replay_of_isolated_clusters_tells_who_took_part(build, monkeypatch):
    settings = settings_with(rounds=3, method={"name": "isolated"})
    federation = build(settings, clients=range(5))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(federation.path / "home"))
    never = federation.play("never", nodes=5)
    federation.node("client-00005", leave=True)
    result = federation.play(nodes=6)
    assert [r.participants for r in result.history.rounds] == [5] * 3
    assert result.history.assignment == never.history.assignment
    assert result.summary.model_hash == never.summary.model_hash


def test_who_is_there_is_asked_once_a_round(build):
    settings = settings_with(rounds=3, method={"name": "fedavg"}, risk={"name": "none"})
    federation = build(settings, clients=range(2))
    mute, seen = 101, []

    def listening(question, reply):
        asked = question_in(question)
        if question.metadata.dst_node_id == mute:
            seen.append(asked.request.task)
            return []
        if asked.request.task != "hello":
            seen.append(asked.request.path[1])
        return [reply]

    federation.wire = listening
    federation.play(nodes=1)
    # a round waits for every hello that is not answered
    assert seen[seen.index(0) - 1 :] == ["hello", 0, "hello", 1, "hello", 2]


class Counting(InProcessGrid):
    """Keeps what is asked together: of every exchange, the tasks and the clusters."""

    def __init__(self, files):
        super().__init__(client_app, files)
        self.exchanges = []

    def push_messages(self, messages):
        out = list(messages)
        asked = [question_in(each) for each in out]
        self.exchanges.append([(each.request.task, each.context.assigned) for each in asked])
        return super().push_messages(out)


def test_members_of_all_clusters_count_in_one_exchange(build):
    federation = build(settings_with(rounds=4))
    grid = Counting(federation.files)
    Federated(federation.path / "covey.toml").start(grid, federation.path / "run", 6)
    counts = [each for each in grid.exchanges if each[0][0] == "count"]
    assert [len(each) for each in counts] == [6, 6]  # before round 2, and at the end
    assert [{cluster for _, cluster in each} for each in counts] == [{0, 1}] * 2


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("lost_states", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_server_that_was_killed_goes_on_with_the_same_round_numbers(build, lost_states):
    federation = build(SAME["hidden in sets"])
    whole = federation.play("whole", nodes=6)

    def cut(question, reply):
        asked = question_in(question)
        if asked.request.path[:2] == ("round", 3) and asked.name == "client-00003":
            raise PowerCut
        return [reply]

    federation.wire = cut
    with pytest.raises(PowerCut):
        federation.play("cut", nodes=6)
    states = sorted((federation.path / "cut" / "checkpoints").iterdir())
    for state in states[len(states) - lost_states :]:
        state.unlink()
    federation.wire = lambda _, reply: [reply]
    result = federation.play("cut", nodes=6)
    assert [r.round_index for r in result.history.rounds] == list(range(5))
    assert result.summary.model_hash == whole.summary.model_hash
    assert len(all_of(RunRolledBack, result)) == (1 if lost_states else 0)
    superseded = len(result.history.all_events) - len(whole.history.all_events)
    assert (superseded > 5) == bool(lost_states)  # what took part stays recorded


def test_a_federation_begins_once_enough_nodes_are_there(build):
    federation = build(settings_with(rounds=2, method={"name": "fedavg"}), clients=[0])
    grid = federation.grid()
    looks = iter(range(100))

    def arriving():
        if next(looks) == 1:
            federation.node("client-00001")
        return list(federation.files)

    grid.get_node_ids = arriving
    result = Federated(federation.path / "covey.toml").start(grid, federation.path / "run", 2)
    assert [r.participants for r in result.history.rounds] == [2, 2]


def test_who_leaves_by_its_file_is_told_its_proof_once(build, monkeypatch, caplog):
    federation = build(
        settings_with(rounds=4, aggregation=IN_SETS, method={"initialisation": "random"})
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(federation.path / "home"))
    asked_again = []

    def leaving(question, reply):
        asked = question_in(question)
        if asked.request.path[:2] == ("round", 1):
            federation.node("client-00005", leave=True)
        if asked.request.path[:2] == ("round", 3) and asked.name == "client-00005":
            asked_again.append(asked)
        return [reply]

    federation.wire = leaving
    with caplog.at_level("INFO", "covey.flower"):
        result = federation.play(nodes=6)
    ((proof, salt),) = re.findall(r"proof (.+), salt .+: (\w+)$", caplog.text, re.M)
    found = covey.verify(proof, result.folder, name_and_salt=("client-00005", salt))
    assert found.failed == ()
    assert asked_again == []
    assert "client-00005" not in result.names


def test_nobody_waits_for_who_has_left(build, monkeypatch):
    settings = settings_with(rounds=2, method={"name": "fedavg"}, risk={"name": "none"})
    federation = build(settings, clients=range(2))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(federation.path / "home"))
    leaver = federation.node("client-00002", leave=True)
    federation.play(nodes=3)
    del federation.files[leaver]
    grid, looks = federation.grid(), iter(range(3))

    def looking():
        next(looks)  # an error, where it would wait for ever
        return list(federation.files)

    grid.get_node_ids = looking
    again = Federated(federation.path / "covey.toml").start(grid, federation.path / "run", 3)
    assert [r.participants for r in again.history.rounds] == [2, 2]


def test_an_algorithm_that_says_nothing_leaves_remote_clients_on_record(
    build, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    settings = settings_with(rounds=2, method={"name": QUIET}, risk={"name": "none"})
    settings["method"] = {"name": QUIET}
    federation = build(settings, clients=range(3))
    federation.node("client-00002", leave=True)
    result = federation.play(nodes=3)
    (proof,) = (result.folder / "proofs").glob("*.json")
    signed = json.loads(proof.read_text())
    assert (signed["answer"], signed["first_round"]) == ("retrain", 0)
    found = covey.verify(proof, result.folder)
    assert found.failed == ()
    stay = set(result.names.values())
    assert [set(each.handles) for each in all_of(ClientsHandedOut, result)] == [stay] * 2
    (chosen, *_) = all_of(ClientsAssigned, result)
    assert (set(chosen.clusters), chosen.by) == (stay, "algorithm")
