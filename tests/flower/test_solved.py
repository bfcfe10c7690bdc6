"""Heads that are solved from clients' messages: the bits of their simulation."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict

import covey
from covey import ConfigError, Examples, Run, RunError
from covey.base.events import AnswerRefused, AnswersMissing, ClientsAssigned, HeadsSolved
from covey.ledger.store import Ledger
from covey.models.ridge_state import ClusterSums
from covey.runtime.folder import RunFolder, checkpoint_paths
from covey.runtime.states import load_state
from flower.conftest import Built, all_of, same_risks, settings_with
from flower.test_federation import question_in

FEATURES = {"filters": 8, "size": 3, "pool": 2}
SLOW = pytest.mark.slow
LAST = "client-00005"


def solved(rounds: int = 4, risk: str = "none", **method: object) -> dict[str, object]:
    return settings_with(
        rounds=rounds,
        model={"name": "linear-head", "features": FEATURES},
        method={"name": "solved", "selection": "loss", **method},
        risk={"name": risk},
    )


RANDOM = solved(initialisation="random")
SAME = {
    "one head": solved(2, num_clusters=1),
    "a random start": RANDOM,
    "a warm start": solved(risk="federated"),
    "on what is held out": solved(initialisation="random", select_on="holdout"),
    "pooled": solved(initialisation="random", pooling=0.3),
    "some at a time": {**solved(initialisation="random"), "train": {"participation": 0.7}},
    "by the risk that each finds": solved(
        risk="client", initialisation="random", selection="threshold"
    ),
}
OFTEN = ("a random start",)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(each, id=name, marks=() if name in OFTEN else SLOW)
        for name, each in SAME.items()
    ],
)
def test_the_same_settings_end_in_the_same_bits(build, settings):
    federation = build(settings)
    there, here = federation.play(nodes=6), federation.simulated()
    assert there.summary.model_hash == here.summary.model_hash
    assert there.history.assignment == here.history.assignment
    same_risks(there, here)
    assert [e.sums for e in all_of(HeadsSolved, there)] == [
        e.sums for e in all_of(HeadsSolved, here)
    ]


def listened(federation: Built) -> list[tuple[str, int, str]]:
    """Who is asked what in which round, from now on."""
    asked: list[tuple[str, int, str]] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        told = question_in(question)
        if told.request.task != "hello":
            asked.append((told.request.task, int(told.request.path[1]), told.name))
        return [reply]

    federation.wire = wire
    return asked


@pytest.mark.parametrize(
    ("settings", "until"),
    [pytest.param(solved(3, initialisation="random"), 3, marks=SLOW), (solved(4), 2)],
)
def test_who_moves_is_asked_for_sums_and_nobody_once_nobody_moves(build, settings, until):
    federation = build(settings)
    asked = listened(federation)
    result = federation.play(nodes=6)
    names = {handle: name for name, handle in result.names.items()}
    before: Mapping[str, int] = {}
    choices = [e for e in all_of(ClientsAssigned, result) if e.by != "final"]
    for t, each in enumerate(choices):
        moved = {names[h] for h, j in each.clusters.items() if before.get(h) != j}
        assert {n for task, at, n in asked if (task, at) == ("sum", t)} == moved
        before = each.clusters
    assert max(at for _, at, _ in asked if at < len(choices)) == until - 1


@SLOW
def test_only_who_is_in_a_head_is_sent_what_leaves_it_out(build):
    federation = build(RANDOM)
    seen: dict[tuple[int, str], set[int]] = {}

    def wire(question: Message, reply: Message) -> list[Message]:
        told = question_in(question)
        if told.request.task == "compare":
            sent = [question.content[f"model-{j}"] for j in range(2)]
            roots = {j for j, each in enumerate(sent) if "root" in each}
            seen[int(told.request.path[1]), told.name] = roots
        return [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    choices = [e.clusters for e in all_of(ClientsAssigned, result) if e.by != "final"]
    assert seen
    for (t, name), roots in seen.items():
        assert roots == {choices[t - 1][result.names[name]]}


Change = Any


def sent_with(reply: Message, question: Message, change: Change) -> Message:
    """A reply with other arrays."""
    record = reply.content["update"]
    assert isinstance(record, ArrayRecord)
    arrays = {name: np.array(value.numpy()) for name, value in record.items()}
    changed = {name: Array(value) for name, value in change(arrays).items()}
    content = RecordDict({"covey": reply.content["covey"], "update": ArrayRecord(changed)})
    return Message(content, reply_to=question)


def one_more(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays["gram"][-1] += 2**20
    arrays["targets"][-1, 0] += 2**10
    return arrays


def far(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Features that are all but the bias eight times as long."""
    d = len(arrays["targets"])
    rows, columns = np.tril_indices(d)
    factor = np.where(rows < d - 1, 8, 1) * np.where(columns < d - 1, 8, 1)
    arrays["targets"][:-1] *= 8
    return {**arrays, "gram": arrays["gram"] * factor}


def negative(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays["gram"][0] = -arrays["gram"].max()
    return arrays


FAULTS = {
    "of more examples": (one_more, "over the .* examples that it announced"),
    "as numbers with a point": (
        lambda arrays: {k: v.astype(float) for k, v in arrays.items()},
        "must be torch.int64 of shape",
    ),
    "of fewer features": (
        lambda arrays: {**arrays, "gram": arrays["gram"][1:]},
        "must be torch.int64 of shape",
    ),
    "no squares": (negative, "sums of squares"),
    "far away": (far, "far larger than the others'"),
    "without classes": (lambda arrays: {"gram": arrays["gram"]}, "model's names"),
    "lost": (None, ""),
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(*each, id=name, marks=() if name == "no squares" else SLOW)
        for name, each in FAULTS.items()
    ],
)
def test_who_sends_no_sums_in_order_comes_in_the_next_round(build, change, told):
    """It is not counted in this round, and the heads end as if nothing had happened."""
    federation = build(solved(2, num_clusters=1))
    liar = "client-00001"

    def wire(question: Message, reply: Message) -> list[Message]:
        asked = question_in(question)
        if asked.name != liar or asked.request.task != "sum" or asked.request.path[1] != 0:
            return [reply]
        return [] if change is None else [sent_with(reply, question, change)]

    federation.wire = wire
    result = federation.play(nodes=6)
    handle = result.names[liar]
    first, second, *_ = all_of(HeadsSolved, result)
    assert (first.clients, second.clients) == ((5,), (6,))
    assert handle not in all_of(ClientsAssigned, result)[0].clusters
    if change is None:
        assert all_of(AnswersMissing, result) == [AnswersMissing("sum", (handle,))]
    else:
        (refused,) = all_of(AnswerRefused, result)
        assert refused.handle == handle
        assert re.search(told, refused.reason)
    assert result.summary.model_hash == federation.simulated().summary.model_hash


@SLOW
def test_means_that_cannot_be_are_refused(build):
    federation = build(solved(2))

    def wire(question: Message, reply: Message) -> list[Message]:
        asked = question_in(question)
        if asked.name != "client-00001" or asked.request.task != "mean":
            return [reply]
        return [sent_with(reply, question, lambda a: {"mean": a["mean"] * 2})]

    federation.wire = wire
    result = federation.play(nodes=6)
    (refused,) = all_of(AnswerRefused, result)
    assert "mean" in refused.reason
    assert sum(all_of(HeadsSolved, result)[-1].clients) == 6


def test_features_are_the_servers_or_the_client_stays_away(build):
    federation = build(solved(2, num_clusters=1), clients=range(5))
    settings = (federation.path / "covey.toml").read_text()
    (federation.path / "other.toml").write_text(f"seed = 7\n{settings}")
    federation.node(LAST, config="../other.toml")
    result = federation.play(nodes=6)
    assert {e.reason for e in all_of(AnswerRefused, result)} == {
        "it failed with ConfigError: look into the node's log"
    }
    assert all_of(HeadsSolved, result)[-1].clients == (5,)


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize(("task", "t"), [pytest.param("sum", 0, marks=SLOW), ("compare", 2)])
def test_a_server_that_was_killed_ends_in_the_same_bits(build, task, t):
    federation = build(RANDOM)
    whole = federation.simulated()

    def wire(question: Message, reply: Message) -> list[Message]:
        asked = question_in(question)
        if (asked.request.task, *asked.request.path[1:2], asked.name) == (task, t, "client-00003"):
            raise PowerCut
        return [reply]

    federation.wire = wire
    with pytest.raises(PowerCut):
        federation.play("cut", nodes=6)
    federation.wire = lambda _, reply: [reply]
    result = federation.play("cut", nodes=6)
    assert result.summary.model_hash == whole.summary.model_hash
    assert [r.round_index for r in result.history.rounds] == list(range(4))


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


def without_last(federation: Built, answer: str = "subtract") -> tuple[Run, Run]:
    """The run after the last client left, and its simulation."""
    RunFolder(federation.path / "run").queue_request(LAST, answer, "erasure")
    there, here = federation.play(nodes=6), federation.simulated()
    here.forget(LAST, answer)
    return there, covey.load(here.folder)


def proof_of(result: Run) -> Path:
    (proof,) = (result.folder / "proofs").glob("*.json")
    found = covey.verify(proof, result.folder)
    assert found.failed == ()
    return proof


def kept_of(result: Run) -> ClusterSums:
    newest = max(checkpoint_paths(result.folder / "checkpoints"))
    return load_state(newest)[0].kept(ClusterSums)


def changed_data(federation: Built) -> None:
    """The leaver's examples are others than those in the sums."""
    number = next(n for n, file in federation.files.items() if LAST in file)
    del federation.files[number]
    federation.node(LAST, data="../data/client-00004.npz")


@pytest.mark.usefixtures("own_keys")
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda _: None, marks=SLOW),
        lambda federation: federation.files.pop(105),
        pytest.param(changed_data, marks=SLOW),
    ],
    ids=["it sends its sums again", "its node is gone", "it sends others"],
)
def test_who_leaves_is_subtracted_to_the_bit(build, before):
    """By its own sums, or where it does not send them, from those of all who stay."""
    federation = build(solved(3, initialisation="random", pooling=0.3))
    federation.play(nodes=6)
    before(federation)
    asked = listened(federation)
    there, here = without_last(federation)
    assert there.summary.model_hash == here.summary.model_hash
    assert kept_of(there).sums == kept_of(here).sums
    assert LAST not in there.names
    assert all_of(HeadsSolved, there)[-1].sums == all_of(HeadsSolved, here)[-1].sums
    assert not all_of(AnswersMissing, there)
    proof_of(there)
    sent = {name for task, _, name in asked if task == "sum"}
    assert (LAST in sent) == (105 in federation.files)


@pytest.mark.usefixtures("own_keys")
def test_where_sums_are_kept_nobody_is_asked_twice(build):
    """Neither who moves nor who leaves, and neither do those who stay."""
    federation = build(solved(3, initialisation="random", pooling=0.3, keep_sums=True))
    asked = listened(federation)
    federation.play(nodes=6)
    del federation.files[105]
    there, here = without_last(federation)
    sent = [name for task, _, name in asked if task == "sum"]
    assert sorted(sent) == sorted({*sent, LAST})
    assert there.summary.model_hash == here.summary.model_hash
    assert kept_of(there).sums == kept_of(here).sums
    assert json.loads(proof_of(there).read_text())["own_sums_kept"]


@SLOW
def test_nobody_brings_records_to_a_federation_by_hand(build):
    result = build(solved(1, num_clusters=1)).play(nodes=6)
    some = Examples(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4))
    with pytest.raises(RunError, match="by starting their node"):
        result.update(LAST, some)


@SLOW
@pytest.mark.usefixtures("own_keys")
def test_a_retraining_without_a_client_is_that_of_the_simulation(build):
    federation = build(solved(3, initialisation="random"))
    federation.play(nodes=6)
    there, here = without_last(federation, "retrain")
    assert there.summary.model_hash == here.summary.model_hash
    proof_of(there)


@SLOW
@pytest.mark.usefixtures("own_keys")
@pytest.mark.parametrize("task", ["sum", "reassign"])
def test_a_subtraction_that_was_cut_is_finished(build, task):
    """Before anything is recorded, and after all of it is."""
    federation = build(solved(2, num_clusters=2, initialisation="random"))
    federation.play(nodes=6)

    def wire(question: Message, reply: Message) -> list[Message]:
        if question_in(question).request.task == task:
            raise PowerCut
        return [reply]

    RunFolder(federation.path / "run").queue_request(LAST, "subtract", "erasure")
    federation.wire = wire
    with pytest.raises(PowerCut):
        federation.play(nodes=6)
    federation.wire = lambda _, reply: [reply]
    there, here = federation.play(nodes=6), federation.simulated()
    here.forget(LAST, "subtract")
    assert there.summary.model_hash == covey.load(here.folder).summary.model_hash
    proof_of(there)


@pytest.mark.usefixtures("own_keys")
def test_who_leaves_by_its_file_is_subtracted_while_the_run_goes_on(build):
    federation = build(solved(4, initialisation="random"))

    def wire(question: Message, reply: Message) -> list[Message]:
        asked = question_in(question)
        if asked.request.task == "compare" and asked.request.path[1] == 1:
            federation.node(LAST, leave=True)
        return [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    proof_of(result)
    assert LAST not in result.names
    assert sum(all_of(HeadsSolved, result)[-1].clients) == 5
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        assert [each.state for each in ledger.requests()] == ["done"]


@SLOW
@pytest.mark.usefixtures("own_keys")
def test_who_stays_and_does_not_answer_is_missing_and_told(build):
    federation = build(solved(2, num_clusters=1))
    federation.play(nodes=6)
    for number in (104, 105):
        del federation.files[number]
    RunFolder(federation.path / "run").queue_request(LAST, "subtract", "erasure")
    result = federation.play(nodes=4)
    missing = result.names["client-00004"]
    assert all_of(AnswersMissing, result) == [AnswersMissing("sum", (missing,))]
    assert all_of(HeadsSolved, result)[-1].clients == (4,)
    proof_of(result)


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"method": {"initialisation": "groups"}}, "to know every client's group")],
)
def test_what_no_server_can_see_is_refused(changed: dict[str, Any], told: str):
    settings: dict[str, Any] = {**solved(), "engine": {"name": "flower"}}
    method = {**settings["method"], **changed.pop("method", {})}
    with pytest.raises(ConfigError, match=told):
        covey.Config.of({**settings, "method": method, **changed})
