"""The list of nodes: an added one has a folder like the others', a removed one comes no more."""

import shutil
import tomllib

import numpy as np
import pytest
import tomli_w
from flwr.app import ConfigRecord, Message
from flwr.proto.node_pb2 import NodeInfo

import covey
from covey import ConfigError, RunError, load
from covey_flower.apps import Federated
from covey_flower.client import client_app
from covey_flower.deployment import Declaration, list_node
from covey_flower.folder_check import check
from deploy.test_check import bad, edited
from flower.conftest import reasons
from flower.inprocess import InProcessGrid

pytestmark = pytest.mark.usefixtures("programs")

TEXT = """
rounds = 2
[data]
name = "npz"
[model]
name = "linear"
[method]
name = "fedavg"
[risk]
name = "none"
"""


def give_data(folder, seed=0):
    random = np.random.default_rng(seed)
    x, y = random.random((20, 4), dtype=np.float32), np.arange(20) % 3
    np.savez(folder / "mine.npz", x=x, y=y)
    edited("node.toml", '# data = "examples.npz"', 'data = "mine.npz"')(folder)


def test_an_added_node_is_on_the_list_with_a_folder_like_the_others(federate, now):
    home = federate(TEXT)
    assert list_node(home, "carol") == ("alice", "bob", "carol")
    folders = [home / "nodes" / name for name in ("alice", "bob", "carol")]
    for folder in folders:
        give_data(folder)
    files = [{path.name: path.stat().st_mode for path in folder.iterdir()} for folder in folders]
    assert files[0] == files[2]
    public = [(folder / "key.pub").read_bytes() for folder in folders]
    assert {(folder / "peers").read_bytes() for folder in folders} == {b"".join(public)}
    assert Declaration.read(home).plan.node_port("carol") == 9096
    assert bad(check(folders[2], now)) == [("warning", "127.0.0.1:8443")]
    assert bad(check(home, now)) == []


def test_a_removed_node_is_off_the_list_and_its_name_is_not_given_again(federate, now):
    home = federate(TEXT, more=("carol",))
    assert list_node(home, "bob", removes=True) == ("alice", "carol")
    assert list_node(home, "dave") == ("alice", "carol", "dave")
    plan = Declaration.read(home).plan
    assert [plan.node_port(name) for name in plan.invited] == [9094, 9096, 9097]
    assert not (home / "nodes" / "bob" / "key.pub").exists()
    assert (home / "nodes" / "dave" / "peers").read_text().count("\n") == 3
    give_data(home / "nodes" / "bob")
    assert ("error", "nodes/bob") in bad(check(home / "nodes" / "bob", now))
    assert bad(check(home, now)) == []


@pytest.mark.parametrize(
    ("place", "name", "removes", "said"),
    [
        ("", "alice", False, "each name once"),
        ("", "a/b", False, "A node's name has"),
        ("", "carol", True, "list 'carol', found alice, bob:"),
        ("nodes/alice", "carol", False, "must be the server's"),
        ("nodes/alice", "bob", True, "must be the server's"),
        ("nodes", "carol", False, "must be the folder of a federation"),
    ],
)
def test_what_is_no_change_of_the_list_is_refused(federate, place, name, removes, said):
    home = federate(TEXT)
    before = (home / "deploy.toml").read_bytes()
    with pytest.raises((ConfigError, RunError), match=said):
        list_node(home / place, name, removes=removes)
    assert (home / "deploy.toml").read_bytes() == before
    list_node(home, "bob", removes=True)
    with pytest.raises(ConfigError, match="At least one node"):
        list_node(home, "alice", removes=True)


def older(folder):
    written = tomllib.loads((folder / "deploy.toml").read_text())
    (folder / "deploy.toml").write_text(tomli_w.dumps({**written, "version": "0.1.9"}))


def others(folder):
    shutil.copy(folder.parent.parent / "certificates" / "server.pem", folder / "ca.crt")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (older, f"covey 0.1.9, the server {covey.__version__}"),
        (edited("covey.toml", "learning_rate = 0.05", "learning_rate = 0.06"), "other settings"),
        (edited("covey.toml", 'name = "linear"', 'name = "mlp"'), "other settings"),
        (others, "another certificate in ca.crt"),
    ],
    ids=["version", "training", "model", "certificate"],
)
def test_a_node_that_differs_from_the_server_is_found_from_both_folders(
    federate, now, change, said
):
    home = federate(TEXT)
    change(home / "nodes" / "bob")
    for place in (home, home / "nodes" / "bob"):
        (finding,) = [finding for finding in check(place, now) if finding.about == "nodes/bob"]
        assert (finding.level, said in finding.detail) == ("error", True), finding.detail
        assert 'node "bob"' in finding.detail


def test_a_running_server_reads_the_list_in_every_round_and_names_whom_it_refuses(
    federate, tmp_path, caplog, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    caplog.set_level("INFO")
    home = federate(TEXT.replace("rounds = 2", "rounds = 6"))
    folders = {n: home / "nodes" / name for n, name in enumerate(("alice", "bob", "carol", "dave"))}
    for number in (0, 1):
        give_data(folders[number], number)
    files = {n: str(folders[n] / "node.toml") for n in (0, 1)}
    names = {n: NodeInfo(node_id=n, name=folder.name) for n, folder in folders.items()}
    calls: list[int] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        node = question.metadata.dst_node_id
        calls.append(node)
        if node == 0 and calls.count(0) == 3:  # a hello and two rounds
            list_node(home, "carol")
            shutil.copytree(folders[2], folders[3])
            for number, name in ((2, "carol"), (3, "dave")):
                give_data(folders[number], number)
                edited("node.toml", 'name = "carol"', f'name = "{name}"')(folders[number])
                grid.files[number] = str(folders[number] / "node.toml")
        if node == 0 and calls.count(0) == 5:
            list_node(home, "bob", removes=True)
        return [reply]

    grid = InProcessGrid(client_app, files, wire, names)
    result = Federated(home / "covey.toml", binds_names=False).start(grid, tmp_path / "run", 2)
    assert [played_round.participants for played_round in load(result.folder).history.rounds] == [
        2,
        2,
        3,
        3,
        2,
        2,
    ]
    where = f"The list of nodes: {home / 'deploy.toml'}."
    assert 'Refused: node "dave" must be on the list of nodes: add it (`covey' in caplog.text
    assert 'Refused: node "bob" must be on the list' in caplog.text
    assert where in caplog.text
    assert not any("dave" in reason or str(home) in reason for reason in reasons(result))


def test_another_version_is_named_with_the_servers(federate, tmp_path, caplog, monkeypatch):
    home = federate(TEXT)
    folders = [home / "nodes" / name for name in ("alice", "bob")]
    for number, folder in enumerate(folders):
        give_data(folder, number)
    files = {n: str(folder / "node.toml") for n, folder in enumerate(folders)}
    names = {n: NodeInfo(node_id=n, name=folder.name) for n, folder in enumerate(folders)}

    def wire(question: Message, reply: Message) -> list[Message]:
        if question.metadata.dst_node_id == 1:
            words = reply.content["covey"]
            assert isinstance(words, ConfigRecord)
            words["json"] = str(words["json"]).replace(covey.__version__, "0.1.9")
        return [reply]

    grid = InProcessGrid(client_app, files, wire, names)
    with pytest.raises(covey.UnfinishedError, match="there: alice; not there: bob"):
        Federated(home / "covey.toml", timeout=0.0, binds_names=False).start(
            grid, tmp_path / "run", 2
        )
    assert f'node "bob" has covey 0.1.9, the server {covey.__version__}' in caplog.text
