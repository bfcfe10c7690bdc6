"""A federation in which too few take part says so, waits, and ends."""

from collections.abc import Collection
from typing import Any

import pytest
from flwr.app import Message

import covey
from covey import UnfinishedError, load
from covey.cli.app import exit_code
from covey.report.queries import round_line
from covey_flower.apps import Federated
from flower.conftest import Built, as_sent, settings_with, written
from flower.inprocess import InProcessGrid

PLAIN = settings_with(rounds=6, method={"name": "fedavg"}, risk={"name": "none"})
MASKED = {**PLAIN, "privacy": {"secure_sums": True, "min_cohort": 5}}


def test_a_federation_that_trains_nothing_ends_and_says_why(build):
    """Five clients are needed for a sum, and three are there."""
    result = build(MASKED, clients=range(3)).play(nodes=3)
    assert [each.participants for each in result.history.rounds] == [0, 0, 0]
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
    assert [each.participants for each in result.history.rounds] == [3, 3 - len(lost), 3, 3, 3, 3]


def test_a_run_with_too_few_from_the_start_ends_and_with_enough_begins(build, caplog):
    federation = build(PLAIN, clients=range(2))
    grid = federation.grid()
    grid.files = {100: grid.files[100]}
    listed = impatient(federation, invited=frozenset({"client-00000", "client-00001"}))
    with pytest.raises(UnfinishedError, match="there: client-00000; not there: client-00001\\)"):
        listed.start(grid, federation.path / "run", 2)
    assert not (federation.path / "run").exists()
    result = impatient(federation).start(federation.grid(), federation.path / "other", 3)
    assert [each.participants for each in result.history.rounds] == [2] * 6
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
    assert [each.participants for each in done.history.rounds] == [2] * 6
    (proof,) = (done.folder / "proofs").glob("*.json")
    assert covey.verify(proof, run=done.folder).valid
    assert sorted(done.names) == ["client-00000", "client-00002"]


def test_a_simulation_waits_for_nobody(tmp_path):
    settings = {**PLAIN, "rounds": 1, "data": {"name": "digits"}, "population": {"clients": 1}}
    settings["population"] |= {"examples_per_client": 20, "min_clients": 1}
    assert covey.run(config=settings, out=tmp_path / "run").history.finished
