"""A client's name belongs to the key that first came with it, over every restart."""

import pytest
from flwr.proto.node_pb2 import NodeInfo
from hypothesis import given
from hypothesis import strategies as st

from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey_flower.identity import InvalidMessageError, NameBindings, NodeIdentity, identity_of
from flower.conftest import Built, as_sent, reasons, settings_with, written

VICTIM, VICTIM_NODE, IMPOSTOR_NODE = "client-00003", 103, 200
TAKEN = "its name is another key's"


def info(node: int) -> NodeInfo:
    return NodeInfo(node_id=node, public_key=f"-----BEGIN PUBLIC KEY-----\n{node}\n".encode())


@pytest.fixture
def federation(build) -> Built:
    settings = settings_with(rounds=3, method={"name": "fedavg"}, risk={"name": "none"})
    found = build(settings, clients=range(4))
    found.identities = {node: info(node) for node in (*found.files, IMPOSTOR_NODE)}
    return found


def swap(federation: Built) -> None:
    """The victim's node goes, and an impostor comes with its name, and wants to leave."""
    told = federation.path / VICTIM / "node.toml"
    other = federation.path / "impostor.toml"
    other.write_text(f"leave = true\n{told.read_text()}".replace("../", ""))
    federation.files.pop(VICTIM_NODE, None)
    federation.files[IMPOSTOR_NODE] = str(other)


def test_another_key_takes_no_absent_name_and_expels_nobody(federation):
    def changing(question, reply):
        if written(question)["request"]["path"][:2] == ["round", 1]:
            swap(federation)
        return [reply]

    federation.wire = changing
    result = federation.play(nodes=4)
    assert VICTIM in result.names
    assert [r.participants for r in result.history.rounds] == [4, 3, 3]
    (reason,) = reasons(result)
    assert reason.startswith(TAKEN)


def test_a_server_that_starts_again_knows_the_keys(federation):
    def cut(question, reply):
        if written(question)["request"]["path"][:2] == ["round", 2]:
            raise KeyboardInterrupt
        return [reply]

    federation.wire = cut
    with pytest.raises(KeyboardInterrupt):
        federation.play(nodes=4)
    federation.wire = as_sent
    swap(federation)
    result = federation.play(nodes=3)
    assert VICTIM in result.names
    assert reasons(result)[-1].startswith(TAKEN)


def test_who_leaves_takes_its_key_along(federation):
    federation.node(VICTIM, leave=True)
    result = federation.play(nodes=4)
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        assert set(ledger.keys()) == set(result.names)
    content = RunFolder(result.folder).ledger_path.read_bytes()
    assert VICTIM not in result.names
    assert identity_of(info(VICTIM_NODE)).key.encode() not in content


names = st.sampled_from(["a", "b", "c"])
nodes = st.builds(NodeIdentity, st.sampled_from(["", "1", "2", "3"]), names | st.just(""))


@given(st.lists(st.tuples(names, nodes), max_size=9))
def test_a_name_changes_its_key_only_by_the_operators_word(claims):
    bindings = NameBindings({"a": "1"}, enforced=True)
    for name, node in claims:
        before = dict(bindings.keys())
        try:
            bindings.bind(name, node)
        except InvalidMessageError:
            assert bindings.keys() == before
            continue
        after = bindings.keys()
        assert len(set(after.values())) == len(after)
        changed = {n for n in before if before[n] != after[n]}
        assert changed <= {node.name}
        assert node.name in ("", name)
        assert after.get(name, "") == node.key or not (node.key or name in before)


def test_a_simulated_node_has_no_key_that_lasts():
    assert identity_of(NodeInfo(node_id=1, public_key=b"\x00" * 32)) == NodeIdentity()
