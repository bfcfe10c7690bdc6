"""What nodes keep: memories, frozen parts, and features of their own networks."""

import re
import tomllib
from pathlib import Path

import pytest
import tomli_w
import torch
from torch import Tensor, nn

from covey import RunError
from covey.algorithms.state import ClientMemory
from covey.base.events import AnswerRefused, AnswersMissing, ClientsReported
from covey.models.feature_store import FeatureStore
from covey.runs.states import load_state
from covey_flower.client import Node
from covey_flower.memory import MemoryFolder
from flower.conftest import all_of, settings_with
from flower.test_allowance import asker
from flower.test_federation import question_in
from runs.test_kept_states import Adapted

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
    (memory_file,) = (file for file in home.glob("*.json") if file.stem.isalnum())
    return MemoryFolder(home, memory_file.stem)


@pytest.mark.slow
def test_what_clients_keep_is_the_same_as_in_a_simulation(build):
    federation = build(settings_of(*SCAFFOLD))
    federated, here = federation.play(nodes=4), federation.simulated()
    assert federated.summary.model_hash == here.summary.model_hash
    memory = last_state(here).get_state(ClientMemory)
    memories = last_state(federated).get_state(ClientMemory)
    assert (memories.kept, memory.rounds) == ({}, {})
    assert memories.rounds.keys() == {federated.names[name] for name in here.names}
    for client, handle in here.names.items():
        folder = memory_of(federation, client)
        saved = folder.read_tensors(memories.rounds[federated.names[client]])
        assert saved.keys() == memory.kept[handle].keys()
        for key, tensors in memory.kept[handle].items():
            for parameter, value in tensors.items():
                assert torch.equal(saved[key][parameter], value)


def test_a_lost_or_refused_answer_leaves_what_was_kept_as_it_was(build):
    federation = build(settings_of(*FEDDYN, train={}), clients=range(3))
    requests = []

    def losing(question, reply):
        message = question_in(question)
        if message.name == "client-00001" and message.request.task == "train":
            requests.append((message.request.path[1], message.context.memory_round))
            if message.request.path[1] == 1:
                return []
            if message.request.path[1] == 2:
                reply.content["update"] = question.content["covey"]
        return [reply]

    federation.wire = losing
    result = federation.play(nodes=3)
    assert len(all_of(AnswersMissing, result)) == len(all_of(AnswerRefused, result)) == 1
    # rounds 1 and 2 were played at the client, and each goes on from round 0 all the same
    assert requests == [(0, None), (1, 0), (2, 0), (3, 0)]


@pytest.mark.slow
def test_a_retraining_goes_on_from_what_was_kept_before_the_leaver_came(build):
    federation = build(settings_of(*SCAFFOLD, train={}), clients=range(3))
    never = federation.play("never", nodes=3)
    leaver = federation.node("client-00003")
    requests = []

    def joining(question, reply):
        message = question_in(question)
        if message.request.task == "train" and message.name == "client-00000":
            requests.append((message.request.path[1], message.context.memory_round))
        if message.request.path[:2] == ("round", 3):
            federation.node("client-00003", leave=True)
        return [reply]

    federation.wire = joining
    result = federation.play(nodes=4)
    assert result.summary.model_hash == never.summary.model_hash
    assert requests[4:8] == requests[:4] == [(0, None), (1, 0), (2, 1), (3, 2)]
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


def test_what_is_gone_is_reported(tmp_path):
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


def settings():
    two_rounds = settings_with(
        rounds=2, risk={"name": "none"}, train={"optimizer": {"momentum": 0.0}}
    )
    model = {"name": "runs.test_kept_states:Adapted", "personal": ["*.bias"]}
    return {**two_rounds, "model": model, "method": {"name": "fedavg"}}


def test_only_what_trains_for_all_is_sent_and_it_ends_as_in_a_simulation(build):
    federation = build(settings())
    names = set[str]()

    def watching(question, reply):
        for message in (question, reply):
            for record in message.content.array_records.values():
                names.update(record)
        return [reply]

    federation.wire = watching
    federated = federation.play(nodes=4)
    assert names == {"head.weight"}
    assert federated.params(0).keys() == Adapted().state_dict().keys()
    assert federated.summary.model_hash == federation.simulated().summary.model_hash


def test_a_client_with_other_frozen_parameters_takes_no_part(build):
    federation = build(settings(), clients=range(3))
    other = {
        **settings(),
        "seed": 7,
        "engine": {"name": "flower"},
        "data": federation.settings["data"],
    }
    (federation.path / "other.toml").write_text(tomli_w.dumps(other))
    odd = federation.path / "client-00001" / "node.toml"
    odd.write_text(odd.read_text().replace("covey.toml", "other.toml"))
    result = federation.play(nodes=3)
    refused = all_of(AnswerRefused, result)
    assert {event.handle for event in refused} == {result.names["client-00001"]}


seen: list[int] = []


class Network(nn.Module):
    """Stand-in for a backbone; its weights are those of every node."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 5)
        nn.init.constant_(self.layer.weight, 0.1)

    def forward(self, images: Tensor) -> Tensor:
        if images.any():  # a trial is of zeros
            seen.append(len(images))
        return self.layer(images.flatten(1)).relu()


@pytest.fixture
def federation(build, monkeypatch):
    monkeypatch.delenv("COVEY_FEATURES", raising=False)
    seen.clear()
    model = {"name": "linear-head", "features": f"{__name__}:Network"}
    settings = {"method": {"name": "ifca"}, "model": model}
    return build(settings, clients=[0])


@pytest.fixture
def node(federation):
    return Node(Path(federation.files[100]))


def test_records_are_seen_once(node):
    member = node.member(10)
    client, records = member.client, member.records
    assert records is not None
    assert sum(seen) == len(client.train) + len(client.holdout)
    first = records.features(client.train)
    seen.clear()
    again = Node(node.path).member(10)
    assert not seen
    assert again.records is not None
    assert torch.equal(first, again.records.features(again.client.train))
    assert node.features.stat().st_mode & 0o077 == 0


def test_a_node_that_leaves_keeps_none(federation, node):
    """Not even of the message with which it says so, for which it trains."""
    client = node.member(10).client
    node_settings = tomllib.loads(node.path.read_text())
    node.path.write_text(tomli_w.dumps({**node_settings, "leave": True}))
    model = {"head.weight": torch.zeros(10, 5), "head.bias": torch.zeros(10)}
    asker(federation, "choose")((model, model))
    assert not FeatureStore.at(node.features).holds(client.name)
