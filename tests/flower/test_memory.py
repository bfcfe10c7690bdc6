"""What clients keep for their objective lies at the clients, and is the simulation's."""

import re
from pathlib import Path

import pytest
import torch

from covey import RunError
from covey.algorithms.state import ClientMemory
from covey.base.events import AnswerRefused, AnswersMissing, ClientsReported
from covey.runs.states import load_state
from covey_flower.client import Node
from covey_flower.memory import MemoryFolder
from flower.conftest import all_of, settings_with
from flower.test_federation import question_in

SOME = {
    "participation": 0.7,
    "local_epochs": 2,
    "optimizer": {"momentum": 0.0},
    "learning_rate": 0.05,
}
FEDDYN = ("plugins.feddyn:FedDyn", {"alpha": 0.2})
SCAFFOLD = ("plugins.scaffold:Scaffold", {"scale": 0.5, "clients": 4})


def settings_of(name, options, **sections):
    sections = {"train": SOME, "rounds": 4, "risk": {"name": "none"}, **sections}
    return {**settings_with(**sections), "method": {"name": name, **options}}


def last_state(run):
    *_, newest = sorted((run.folder / "checkpoints").iterdir())
    state, _ = load_state(newest)
    return state


def memory_of(federation, name):
    home = federation.path / name / "memory"
    (kept,) = (file for file in home.glob("*.json") if file.stem.isalnum())
    return MemoryFolder(home, kept.stem)


@pytest.mark.slow
def test_what_clients_keep_is_the_same_as_in_a_simulation(build):
    federation = build(settings_of(*SCAFFOLD))
    there, here = federation.play(nodes=4), federation.simulated()
    assert there.summary.model_hash == here.summary.model_hash
    kept = last_state(here).get_state(ClientMemory)
    apart = last_state(there).get_state(ClientMemory)
    assert (apart.kept, kept.rounds) == ({}, {})
    assert apart.rounds.keys() == {there.names[name] for name in here.names}
    for client, handle in here.names.items():
        folder = memory_of(federation, client)
        found = folder.read_tensors(apart.rounds[there.names[client]])
        assert found.keys() == kept.kept[handle].keys()
        for key, tensors in kept.kept[handle].items():
            for parameter, value in tensors.items():
                assert torch.equal(found[key][parameter], value)


def test_a_lost_or_refused_answer_leaves_what_was_kept_as_it_was(build):
    federation = build(settings_of(*FEDDYN, train={}), clients=range(3))
    asked = []

    def losing(question, reply):
        found = question_in(question)
        if found.name == "client-00001" and found.request.task == "train":
            asked.append((found.request.path[1], found.context.memory_round))
            if found.request.path[1] == 1:
                return []
            if found.request.path[1] == 2:
                reply.content["update"] = question.content["covey"]
        return [reply]

    federation.wire = losing
    result = federation.play(nodes=3)
    assert len(all_of(AnswersMissing, result)) == len(all_of(AnswerRefused, result)) == 1
    # rounds 1 and 2 were played at the client, and each goes on from round 0 all the same
    assert asked == [(0, None), (1, 0), (2, 0), (3, 0)]


@pytest.mark.slow
def test_a_retraining_goes_on_from_what_was_kept_before_the_leaver_came(build):
    federation = build(settings_of(*SCAFFOLD, train={}), clients=range(3))
    never = federation.play("never", nodes=3)
    leaver = federation.node("client-00003")
    asked = []

    def joining(question, reply):
        found = question_in(question)
        if found.request.task == "train" and found.name == "client-00000":
            asked.append((found.request.path[1], found.context.memory_round))
        if found.request.path[:2] == ("round", 3):
            federation.node("client-00003", leave=True)
        return [reply]

    federation.wire = joining
    result = federation.play(nodes=4)
    assert result.summary.model_hash == never.summary.model_hash
    assert asked[4:8] == asked[:4] == [(0, None), (1, 0), (2, 1), (3, 2)]
    assert leaver in federation.files


def test_accuracy_is_of_the_clients_own_model(build):
    settings = settings_of("ditto", {"lam": 0.0}, rounds=2, train={"local_epochs": 4})
    federation = build(settings, clients=())
    for index in range(3):
        federation.node(f"client-{index:05}", report_accuracy=True, holdout=0.3)
    own = federation.play("own", nodes=3)
    wanted = []
    for name, handle in own.names.items():
        node = Node(Path(federation.files[100 + int(name[-1])]))
        model = memory_of(federation, name).read_tensors(0)["personal"]
        wanted.append((handle, node.member(10).accuracy(model)))
    first, second = all_of(ClientsReported, own)
    assert second.accuracy == dict(wanted) != first.accuracy


def test_what_is_gone_is_told(tmp_path):
    folder = MemoryFolder(tmp_path / "memory", "run")
    assert folder.read_tensors(None) == {}
    with pytest.raises(RunError, match=r"3\.safetensors must be there.*put it back"):
        folder.read_tensors(3)
    value = torch.tensor([1.0, 2.0])
    folder.write_tensors(3, {"a/b %": {"c.d": value}, "again": {"c.d": value}})
    assert folder.read_tensors(3)["a/b %"]["c.d"].tolist() == [1.0, 2.0]
    (file,) = (tmp_path / "memory" / "run").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"3\.safetensors", file.name)
