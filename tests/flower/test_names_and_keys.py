"""A client's name belongs to the key that first came with it, over every restart."""

from pathlib import Path
from typing import Any

import pytest
from flwr.proto.node_pb2 import NodeInfo
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples, Run
from covey.flower.identity import InvalidMessageError, NameBindings, NodeIdentity, identity_of
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from flower.inprocess import InProcessGrid
from flower.liars import NAMES, Ten, reasons, written

VICTIM, IMPOSTOR, VICTIM_NODE, IMPOSTOR_NODE = NAMES[3], "impostor", 103, 200
TAKEN = "its name belongs to another key"


def info(node: int, key: str, name: str = "") -> NodeInfo:
    pem = f"-----BEGIN PUBLIC KEY-----\n{key}\n".encode()
    return NodeInfo(node_id=node, public_key=pem, name=name or None)


@pytest.fixture
def ten(tmp_path: Path, digits: Examples, monkeypatch: pytest.MonkeyPatch) -> Ten:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    ten = Ten(tmp_path, digits)
    ten.write(rounds=4)
    ten.node(VICTIM, IMPOSTOR, leave=True, data=f"../{NAMES[4]}/mine.npz")
    grid = ten.grid()
    grid.files = {100 + i: grid.files[100 + i] for i in range(4)}
    grid.identities = {node: info(node, str(node)) for node in grid.files}
    grid.identities[IMPOSTOR_NODE] = info(IMPOSTOR_NODE, "impostor")
    ten.grid = lambda: grid  # type: ignore[method-assign]
    return ten


def swap(ten: Ten, grid: InProcessGrid) -> None:
    """The victim's node goes, and the impostor comes with its name."""
    grid.files.pop(VICTIM_NODE, None)
    grid.files[IMPOSTOR_NODE] = str(ten.path / IMPOSTOR / "node.toml")


def with_impostor(ten: Ten, **terms: Any) -> Run:
    grid = ten.grid()
    plain = ten.wire

    def changing(question, reply):
        if written(question)["asked"]["path"][:2] == ["round", 1]:
            swap(ten, grid)
        return plain(question, reply)

    grid._wire = changing
    return ten.play(nodes=4, **terms)


def test_another_key_takes_no_absent_name_and_expels_nobody(ten: Ten):
    result = with_impostor(ten)
    assert VICTIM in result.names
    assert [r.participants for r in result.history.rounds] == [4, 3, 3, 3]
    (reason,) = reasons(result)
    assert reason.startswith(TAKEN)


def test_without_keys_that_last_it_would(ten: Ten):
    assert VICTIM not in with_impostor(ten, binds_names=False).names


def test_a_server_that_starts_again_knows_the_keys(ten: Ten):
    grid = ten.grid()

    def cut(question, reply):
        if written(question)["asked"]["path"][:2] == ["round", 2]:
            raise KeyboardInterrupt
        return [reply]

    grid._wire = cut
    with pytest.raises(KeyboardInterrupt):
        ten.play(nodes=4)
    grid._wire = ten.wire
    swap(ten, grid)
    result = ten.play(nodes=3)
    assert VICTIM in result.names
    assert reasons(result)[-1].startswith(TAKEN)


def test_who_leaves_takes_its_key_along(ten: Ten):
    ten.node(VICTIM, leave=True)
    result = ten.play(nodes=4)
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        keys = ledger.keys()
    assert set(keys) == set(NAMES[:4]) - {VICTIM} == set(result.names)
    content = RunFolder(result.folder).ledger_path.read_bytes()
    assert identity_of(info(VICTIM_NODE, str(VICTIM_NODE))).key.encode() not in content


def test_a_key_that_is_registered_under_a_name_takes_it_over(ten: Ten):
    grid = ten.grid()
    ten.play(nodes=4)
    swap(ten, grid)
    ten.node(VICTIM, IMPOSTOR, data=f"../{NAMES[4]}/mine.npz")
    grid.identities[IMPOSTOR_NODE] = info(IMPOSTOR_NODE, "new", VICTIM)
    result = ten.play("run", nodes=4)
    assert reasons(result) == []


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
