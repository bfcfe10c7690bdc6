"""Heads that are solved from clients' messages: the bits of their simulation."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

import covey
from covey import Run
from covey.base.events import AnswerRefused, AnswersMissing, ClientsAssigned, HeadsSolved
from covey.ridge.head import ClusterSums
from covey.runs.folder import RunFolder, checkpoint_paths
from covey.runs.states import load_state
from flower.conftest import Built, all_of, same_risks, settings_with
from flower.test_federation import PowerCut, question_in

FEATURES = {"filters": 8, "size": 3, "pool": 2}
SLOW = pytest.mark.slow
LAST = "client-00003"


def ridge(rounds: int = 4, risk: str = "none", **method: object) -> dict[str, object]:
    return settings_with(
        rounds=rounds,
        model={"name": "linear-head", "features": FEATURES},
        method={"name": "ridge", "selection": "loss", **method},
        risk={"name": risk},
    )


RANDOM = ridge(initialisation="random")


@pytest.mark.parametrize("settings", [RANDOM, pytest.param(ridge(risk="federated"), marks=SLOW)])
def test_the_same_settings_end_in_the_same_bits(build, settings):
    federation = build(settings)
    federated, here = federation.play(nodes=4), federation.simulated()
    assert federated.summary.model_hash == here.summary.model_hash
    assert federated.history.assignment == here.history.assignment
    same_risks(federated, here)


def listened(federation: Built) -> list[tuple[str, int, str]]:
    """Who is asked what in which round, from now on."""
    requests: list[tuple[str, int, str]] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        received = question_in(question)
        if received.request.task != "hello":
            requests.append((received.request.task, int(received.request.path[1]), received.name))
        return [reply]

    federation.wire = wire
    return requests


@SLOW
def test_who_moves_is_asked_for_sums_and_nobody_once_nobody_moves(build):
    federation = build(ridge(4, initialisation="warm"))
    requests = listened(federation)
    result = federation.play(nodes=4)
    names = {handle: name for name, handle in result.names.items()}
    before: Mapping[str, int] = {}
    choices = [e for e in all_of(ClientsAssigned, result) if e.by != "final"]
    for t, choice in enumerate(choices):
        moved = {names[h] for h, j in choice.clusters.items() if before.get(h) != j}
        assert {n for task, at, n in requests if (task, at) == ("sum", t)} == moved
        before = choice.clusters
    assert max(at for _, at, _ in requests if at < len(choices)) == 1


def far(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Features that are all but the bias eight times as long."""
    d = len(arrays["targets"])
    rows, columns = np.tril_indices(d)
    factor = np.where(rows < d - 1, 8, 1) * np.where(columns < d - 1, 8, 1)
    arrays["targets"][:-1] *= 8
    return {**arrays, "gram": arrays["gram"] * factor}


@SLOW
@pytest.mark.parametrize("lost", [False, True])
def test_who_sends_no_sums_in_order_comes_in_the_next_round(build, lost):
    """It is not counted in this round, and the heads end as if nothing had happened."""
    federation = build(ridge(2, num_clusters=1))
    liar = "client-00001"

    def wire(question: Message, reply: Message) -> list[Message]:
        request = question_in(question)
        if request.name != liar or request.request.task != "sum" or request.request.path[1] != 0:
            return [reply]
        record = reply.content["update"]
        assert isinstance(record, ArrayRecord)
        changed = far({name: np.array(value.numpy()) for name, value in record.items()})
        update = ArrayRecord({name: Array(value) for name, value in changed.items()})
        content = RecordDict({"covey": reply.content["covey"], "update": update})
        return [] if lost else [Message(content, reply_to=question)]

    federation.wire = wire
    result = federation.play(nodes=4)
    handle = result.names[liar]
    first, second, *_ = all_of(HeadsSolved, result)
    assert (first.clients, second.clients) == ((3,), (4,))
    assert handle not in all_of(ClientsAssigned, result)[0].clusters
    assert all_of(AnswersMissing, result) == [AnswersMissing("sum", (handle,))] * lost
    for refused in all_of(AnswerRefused, result):
        assert refused.handle == handle
        assert "far larger than the others'" in refused.reason
    assert result.summary.model_hash == federation.simulated().summary.model_hash


def test_features_are_the_servers_or_the_client_stays_away(build):
    federation = build(ridge(2, num_clusters=1), clients=range(3))
    settings = (federation.path / "covey.toml").read_text()
    (federation.path / "other.toml").write_text(f"seed = 7\n{settings}")
    federation.node(LAST, config="../other.toml")
    result = federation.play(nodes=4)
    assert {e.reason for e in all_of(AnswerRefused, result)} == {
        "it failed with ConfigError: look into the node's log"
    }
    assert all_of(HeadsSolved, result)[-1].clients == (3,)


def without_last(federation: Built) -> tuple[Run, Run]:
    """The run after the last client left, and its simulation."""
    RunFolder(federation.path / "run").queue_request(LAST, "subtract", "erasure")
    federated, here = federation.play(nodes=4), federation.simulated()
    here.forget(LAST, "subtract")
    return federated, covey.load(here.folder)


def proof_of(result: Run) -> Path:
    (proof,) = (result.folder / "proofs").glob("*.json")
    verification = covey.verify(proof, result.folder)
    assert verification.failed == ()
    return proof


def stored_sums(result: Run) -> ClusterSums:
    newest = max(checkpoint_paths(result.folder / "checkpoints"))
    return load_state(newest)[0].get_state(ClusterSums)


def changed_data(federation: Built) -> None:
    """The leaver's examples are others than those in the sums."""
    number = next(n for n, file in federation.files.items() if LAST in file)
    del federation.files[number]
    federation.node(LAST, data=str(federation.data / "client-00004.npz"))


@SLOW
@pytest.mark.parametrize(
    "before",
    [lambda federation: federation.files.pop(103), changed_data],
    ids=["its node is gone", "it sends others"],
)
def test_who_leaves_is_subtracted_to_the_bit(build, before):
    """By its own sums, or where it does not send them, from those of all who stay."""
    federation = build(ridge(2, initialisation="random", pooling=0.3))
    federation.play(nodes=4)
    before(federation)
    requests = listened(federation)
    federated, here = without_last(federation)
    assert federated.summary.model_hash == here.summary.model_hash
    assert stored_sums(federated).sums == stored_sums(here).sums
    assert LAST not in federated.names
    assert all_of(HeadsSolved, federated)[-1].sums == all_of(HeadsSolved, here)[-1].sums
    assert not all_of(AnswersMissing, federated)
    proof_of(federated)
    sent = {name for task, _, name in requests if task == "sum"}
    assert (LAST in sent) == (103 in federation.files)


@SLOW
def test_a_subtraction_that_was_cut_is_finished(build):
    """After all of it is recorded."""
    federation = build(ridge(2, num_clusters=2, initialisation="random"))
    federation.play(nodes=4)

    def wire(question: Message, reply: Message) -> list[Message]:
        if question_in(question).request.task == "reassign":
            raise PowerCut
        return [reply]

    RunFolder(federation.path / "run").queue_request(LAST, "subtract", "erasure")
    federation.wire = wire
    with pytest.raises(PowerCut):
        federation.play(nodes=4)
    federation.wire = lambda _, reply: [reply]
    federated, here = federation.play(nodes=4), federation.simulated()
    here.forget(LAST, "subtract")
    assert federated.summary.model_hash == covey.load(here.folder).summary.model_hash
    proof_of(federated)
