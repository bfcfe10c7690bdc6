"""Who is there, under which key, and what becomes of a federation with too few."""

from collections.abc import Collection
from typing import Any

import pytest
from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import UnfinishedError, load
from covey.cli.app import exit_code
from covey.ledger.store import Ledger
from covey.report.queries import round_line
from covey.runs.folder import RunFolder
from covey_flower.apps import Federated
from covey_flower.identity import InvalidMessageError, NameBindings, NodeIdentity, identity_of
from flower.conftest import Built, as_sent, reasons, settings_with, written
from flower.inprocess import InProcessGrid

PLAIN = settings_with(rounds=6, method={"name": "fedavg"}, risk={"name": "none"})
MASKED = {**PLAIN, "privacy": {"secure_sums": True, "min_cohort": 5}}


def test_a_federation_that_trains_nothing_ends_and_says_why(build):
    """Five clients are needed for a sum, and three are there."""
    result = build(MASKED, clients=range(3)).play(nodes=3)
    assert [played_round.participants for played_round in result.history.rounds] == [0, 0, 0]
    assert "nobody took part in 3 rounds in a row" in result.summary.ended_early
    assert "participants 0" in round_line(result.history)


@pytest.mark.parametrize(("rounds", "most", "played"), [(6, 1, 1), (6, 9, 6), (2, 3, 2)])
def test_so_many_rounds_are_played_as_are_set(build, rounds, most, played):
    settings = {**MASKED, "rounds": rounds, "stopping": {"empty_rounds": most}}
    result = build(settings, clients=range(3)).play(nodes=3)
    assert len(result.history.rounds) == played


def impatient(federation: Built, **more: Any) -> Federated:
    """A server that waits for nobody longer than it takes to look once."""
    return Federated(federation.path / "covey.toml", timeout=0.0, **more)


def losing(federation: Built, numbers: Collection[int], at: int) -> InProcessGrid:
    """A grid from which these nodes are gone after so many rounds."""
    grid = federation.grid()
    grid.files = dict(grid.files)

    def wire(question: Message, reply: Message) -> list[Message]:
        if written(question)["request"]["path"][:2] == ["round", at]:
            for number in numbers:
                grid.files.pop(number, None)
        return [reply]

    federation.wire = wire
    return grid


@pytest.mark.parametrize(
    ("fewest", "lost"), [(0, (101, 102)), (3, (102,)), (2, (101, 102))], ids=["usual", "3", "2"]
)
def test_a_round_waits_for_as_many_as_it_needs_by_name_and_the_run_goes_on_with_them(
    build, caplog, fewest, lost
):
    federation = build({**PLAIN, "population": {"min_clients": fewest}}, clients=range(3))
    grid = losing(federation, lost, 1)
    caplog.set_level("INFO")
    with pytest.raises(UnfinishedError) as ended:
        impatient(federation).start(grid, federation.path / "run", 3)
    here, gone = (
        ", ".join(f"client-{i:05}" for i in range(3) if (100 + i in lost) == left)
        for left in (False, True)
    )
    said = f"too few in time ({fewest or 2} nodes, there: {here}; not there: {gone}): "
    assert said in str(ended.value)
    assert f"not there: {gone}" in caplog.text
    assert exit_code(ended.value) == 1
    assert load(federation.path / "run").history.finished is None
    federation.wire = as_sent
    result = impatient(federation).start(federation.grid(), federation.path / "run", 3)
    assert [played_round.participants for played_round in result.history.rounds] == [
        3,
        3 - len(lost),
        3,
        3,
        3,
        3,
    ]


def test_a_run_with_too_few_from_the_start_ends_and_with_enough_begins(build, caplog):
    federation = build(PLAIN, clients=range(2))
    grid = federation.grid()
    grid.files = {100: grid.files[100]}
    listed = impatient(federation, invited=frozenset({"client-00000", "client-00001"}))
    with pytest.raises(UnfinishedError, match="there: client-00000; not there: client-00001\\)"):
        listed.start(grid, federation.path / "run", 2)
    assert not (federation.path / "run").exists()
    result = impatient(federation).start(federation.grid(), federation.path / "other", 3)
    assert [played_round.participants for played_round in result.history.rounds] == [2] * 6
    assert (
        "Waiting for 3 nodes, there: client-00000, client-00001; not there: none known."
        in caplog.text
    )
    assert "Going on without all nodes" in caplog.text


def test_who_is_refused_is_named_and_not_counted(build, caplog):
    federation = build(PLAIN, clients=range(2))
    (federation.path / "other.toml").write_text(
        (federation.path / "covey.toml").read_text() + "\n[privacy]\ndelta = 0.1\n"
    )
    federation.node("client-00001", config="../other.toml")
    invited = frozenset({"client-00000", "client-00001"})
    with pytest.raises(UnfinishedError, match="not there: client-00001"):
        impatient(federation, invited=invited).start(federation.grid(), federation.path / "run", 2)
    assert "its covey.toml differs" in caplog.text


def test_a_replay_for_who_left_waits_for_as_many_as_a_round(build):
    """Two are needed, and of two one leaves: no model is trained on the other one alone."""
    federation = build(PLAIN, clients=range(2))
    federation.node("client-00001", leave=True)
    with pytest.raises(UnfinishedError, match="there: client-00000; not there: none known"):
        impatient(federation).start(federation.grid(), federation.path / "run", 2)
    assert load(federation.path / "run").history.finished is None
    assert not list((federation.path / "run" / "proofs").glob("*.json"))
    federation.node("client-00002")
    done = impatient(federation).start(federation.grid(), federation.path / "run", 2)
    assert [played_round.participants for played_round in done.history.rounds] == [2] * 6
    (proof,) = (done.folder / "proofs").glob("*.json")
    assert covey.verify(proof, run=done.folder).valid
    assert sorted(done.names) == ["client-00000", "client-00002"]


def test_a_simulation_waits_for_nobody(tmp_path):
    settings = {**PLAIN, "rounds": 1, "data": {"name": "digits"}, "population": {"clients": 1}}
    settings["population"] |= {"examples_per_client": 20, "min_clients": 1}
    assert covey.run(config=settings, out=tmp_path / "run").history.finished


VICTIM, VICTIM_NODE, IMPOSTOR_NODE = "client-00003", 103, 200
TAKEN = "its name is another key's"


def info(node: int) -> NodeInfo:
    return NodeInfo(node_id=node, public_key=f"-----BEGIN PUBLIC KEY-----\n{node}\n".encode())


@pytest.fixture
def federation(build) -> Built:
    settings = settings_with(rounds=3, method={"name": "fedavg"}, risk={"name": "none"})
    built = build(settings, clients=range(4))
    built.identities = {node: info(node) for node in (*built.files, IMPOSTOR_NODE)}
    return built


def swap(federation: Built) -> None:
    """The victim's node goes, and an impostor comes with its name, and wants to leave."""
    node_file = federation.path / VICTIM / "node.toml"
    other = federation.path / "impostor.toml"
    other.write_text(f"leave = true\n{node_file.read_text()}".replace("../", ""))
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
