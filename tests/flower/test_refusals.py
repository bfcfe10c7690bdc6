"""Whatever a node sends, an answer that is not in order is as good as a lost one."""

import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from covey import Config, Run, ScoringJob, __version__
from covey.algorithms.client_requests import ClientContext, ClientRequest
from covey.api.parts import playable
from covey.base.events import AnswerRefused, AnswersMissing, Event, WeightReduced
from covey.ridge.sums import FEATURE_STEPS
from covey.runs.folder import RunFolder
from covey.settings.clients import Overrides
from covey_flower.apps import Federated
from covey_flower.engine import shared_settings_hash
from covey_flower.identity import InvalidMessageError
from covey_flower.messages import PendingQuestion, Question, Reply, encode, reply_of
from covey_flower.server import NORM_FACTOR, NormRule, reduced_weights
from flower.conftest import all_of, events_of, reasons, settings_with, written
from flower.liars import Lie, announcing, lying, sets_all, weighing

LIAR = "client-00001"
TRAIN = {"local_epochs": 1, "batch_size": 20}
CHOOSING = settings_with(
    rounds=4,
    model={"name": "linear"},
    train=TRAIN,
    method={"name": "ifca", "initialisation": "random"},
    risk={"name": "none"},
)

Damage = Callable[[RecordDict], RecordDict]


def in_words(text: str) -> Damage:
    return lambda sent: RecordDict({**sent, "covey": ConfigRecord({"json": text})})


def saying(**changes: object) -> Damage:
    """The same reply with other values in its text."""
    return lambda sent: in_words(
        json.dumps({**json.loads(sent["covey"]["json"]), **changes})  # type: ignore[index]
    )(sent)


def holding(change: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]) -> Damage:
    """The same reply with another update."""

    def held(sent: RecordDict) -> RecordDict:
        record = sent["update"]
        assert isinstance(record, ArrayRecord)
        arrays = change({name: value.numpy().copy() for name, value in record.items()})
        update = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        return RecordDict({**sent, "update": update})

    return held


def with_bytes(data: bytes) -> Damage:
    """The same reply with other bytes in the place of one array."""

    def held(sent: RecordDict) -> RecordDict:
        update: dict[str, Any] = dict(sent["update"])  # type: ignore[arg-type]
        name, first = next(iter(update.items()))
        update[name] = Array(first.dtype, first.shape, first.stype, data)
        return RecordDict({**sent, "update": ArrayRecord(update)})

    return held


def of_all(change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    return holding(lambda update: {name: change(value) for name, value in update.items()})


def filled(value: float) -> Damage:
    return of_all(lambda v: np.where(np.arange(v.size).reshape(v.shape), v, v.dtype.type(value)))


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", b"")
    return buffer.getvalue()


def counts(first: int = 0, rows: int = 5, bins: int = 81) -> list[list[int]]:
    table = [[0] * bins for _ in range(rows)]
    table[0][0] = first
    return table


def negative(sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**sums, "gram": sums["gram"] * np.array([-1, 1, 1])}


FINITE, CLUSTERS = "finite numbers only", "must name one of the clusters"
READABLE, TEXT = "must be readable", f"written as covey {__version__} does"
POSITIVE, TABLE = "must be a positive number", r"counts of shape \(5, 81\), from 0"
NAMES, ARRAYS = "must have the model's names", "must hold arrays called 'update'"
ACCURACY, SUMS = r"lie in \[0, 1\]", "must be torch.int64 of shape"
WRONG: dict[str, dict[str, tuple[Damage, str]]] = {
    "choose": {
        "not a number": (filled(np.nan), FINITE),
        "infinite": (filled(-np.inf), FINITE),
        "flat": (of_all(np.ravel), r"must be torch.float32 of shape \(\d+, \d+\)"),
        "half precision": (of_all(lambda v: v.astype(np.float16)), "must be torch.float32"),
        "a name too few": (holding(lambda u: dict(list(u.items())[1:])), NAMES),
        "a name too many": (holding(lambda u: {**u, "more": np.zeros(1)}), NAMES),
        "larger than the model": (of_all(lambda v: np.tile(v, 2048)), "as large as the model's"),
        "garbage": (with_bytes(b"\x93NUMPY garbage"), READABLE),
        "an archive": (with_bytes(zipped()), READABLE),
        "words": (of_all(lambda v: v.astype("U1")), READABLE),
        "no update": (lambda sent: RecordDict({"covey": sent["covey"]}), ARRAYS),
        "text for arrays": (lambda s: RecordDict({**s, "update": ConfigRecord({"x": 1})}), ARRAYS),
        "arrays for text": (lambda s: RecordDict({**s, "covey": s["update"]}), TEXT),
        "no text": (lambda sent: RecordDict({"update": sent["update"]}), TEXT),
        "no JSON": (in_words("{"), TEXT),
        "a field missing": (in_words('{"token": "x"}'), TEXT),
        "an unknown cluster": (saying(cluster=2), CLUSTERS),
        "a negative cluster": (saying(cluster=-1), CLUSTERS),
        "another's name": (saying(name="client-00002"), "for another client"),
        "another version": (saying(covey_version="0.0.1"), "the server 0"),
        "an error in the node": (saying(failed="OSError"), "with OSError"),
        "no weight": (saying(weight=0), POSITIVE),
        "a weight that is none": (saying(weight=np.nan), POSITIVE),
        "an endless weight": (saying(weight=np.inf), POSITIVE),
        "more than accurate": (saying(accuracy=1.01), ACCURACY),
        "no accuracy": (saying(accuracy=np.nan), ACCURACY),
    },
    "train": {"not the given cluster": (saying(cluster=0), r"one of the clusters \[1\]")},
    "count": {
        "no counts": (saying(members=None), TABLE),
        "a fold too few": (saying(members=counts(rows=4)), TABLE),
        "a bin too many": (saying(held_out=counts(bins=82)), TABLE),
        "a ragged table": (saying(members=[[], *counts(rows=4)]), TABLE),
        "a negative count": (saying(held_out=counts(-1)), TABLE),
        "a count beyond all": (saying(members=counts(2**63)), TABLE),
    },
    "sum": {
        "of more examples": (holding(lambda u: {k: 2 * v for k, v in u.items()}), "announced"),
        "with a point": (of_all(lambda v: v.astype(float)), SUMS),
        "of fewer features": (holding(lambda u: {**u, "gram": u["gram"][1:]}), SUMS),
        "no squares": (holding(negative), "sums of squares"),
        "without classes": (holding(lambda u: {"gram": u["gram"]}), NAMES),
    },
    "mean": {"a mean that cannot be": (of_all(lambda v: 2 * v), "mean")},
}


def in_order(task: Any) -> tuple[PendingQuestion, RecordDict]:
    """A question of a kind about two features, and a reply of three examples."""
    model = {"w": torch.ones(2, 3), "b": torch.ones(1, 2)}
    width = 1 if task == "train" else None
    slips = {"n": ClientContext(assigned=width)}
    request = ClientRequest(task, (model, model), (True, True), (), slips, width=2)
    pending = PendingQuestion("h", Question(__version__, "run", "t", "n", request, 2), 3, 3)
    f = FEATURE_STEPS  # of x = 1, 1, 0 and the bias, in classes 0, 1, 1
    update = {
        "sum": {
            "gram": torch.tensor([2, 2, 3]) * f**2,
            "targets": torch.tensor([[1, 1], [1, 2]]) * f,
        },
        "mean": {"mean": torch.tensor([0.5, 1.0], dtype=torch.float64) * f},
    }.get(task, model)
    table = tuple(map(tuple, counts(3)))
    reply = Reply(__version__, "t", "n", width or 0, members=table, held_out=table)
    return pending, encode(reply, update)


@pytest.mark.parametrize("task", WRONG)
def test_what_is_not_in_order_is_refused(task: str):
    pending, sent = in_order(task)
    assert reply_of(sent, pending)[1].handle == "h"
    for name, (damage, wanted) in WRONG[task].items():
        with pytest.raises(InvalidMessageError) as refused:
            reply_of(damage(sent), pending)
        assert re.search(wanted, str(refused.value)), name


def effects(result: Run) -> list[Event]:
    """All that is recorded, but who was refused or missed."""
    return [e for e in events_of(result) if not isinstance(e, AnswerRefused | AnswersMissing)]


def refusals(result: Run) -> list[tuple[str | None, str]]:
    """Who was refused and why, in order; who gave no answer, with an empty reason."""
    names = {handle: name for name, handle in result.names.items()}
    refused: list[tuple[str | None, str]] = []
    for event in events_of(result):
        if isinstance(event, AnswerRefused):
            refused.append((names.get(event.handle or ""), event.reason))
        elif isinstance(event, AnswersMissing):
            refused += [(names[handle], "") for handle in event.handles]
    return refused


def test_an_answer_not_in_order_is_refused_and_nothing_else_changes(build):
    """The run is the one in which these answers got lost."""
    federation = build(CHOOSING, clients=range(4))
    sent: list[RecordDict] = []

    def spoilt(question: Message, reply: Message) -> list[Message]:
        match written(question)["request"]["path"][1]:
            case 0:
                return [Message(Error(2, "told by nobody"), reply_to=question)]
            case 1:
                return [Message(filled(np.nan)(reply.content), reply_to=question)]
            case 2:
                return [Message(of_all(lambda v: 10 * v)(reply.content), reply_to=question)]
            case _:
                return [Message(sent[0], reply_to=question)]  # a replay

    def play(out: str, damage: Callable[[Message, Message], list[Message]]) -> Run:
        def wire(question: Message, reply: Message) -> list[Message]:
            fields_sent = written(question)
            if (fields_sent["name"], fields_sent["request"]["task"]) != (LIAR, "choose"):
                return [reply]
            sent.append(reply.content)
            return damage(question, reply)

        federation.wire = wire
        return federation.play(out, nodes=4)

    expected, result = play("lost", lambda *_: []), play("spoilt", spoilt)
    assert result.summary.model_hash == expected.summary.model_hash
    assert effects(result) == effects(expected)
    wanted = ("", FINITE, "far larger than the others'", "an answer to another question")
    for (name, reason), said in zip(refusals(result), wanted, strict=False):
        assert name == LIAR
        assert said in reason
        assert bool(said) == bool(reason)


def test_who_does_not_fit_in_is_told_why_and_the_run_goes_on(build):
    settings = {**CHOOSING, "rounds": 2}
    federation = build(settings, clients=range(3))
    alone = federation.play("alone", nodes=3)
    other = {**settings, "train": {**TRAIN, "learning_rate": 0.07}}
    (federation.path / "other.toml").write_text(tomli_w.dumps(other))
    federation.node("client-00003", config="../other.toml")
    twin = federation.path / "twin"
    twin.mkdir()
    first = federation.path / "client-00000"
    (twin / "node.toml").write_text((first / "node.toml").read_text())
    federation.files[104] = str(twin / "node.toml")
    federation.node("client-00005")
    small = {"x": np.zeros((9, 6, 6), np.uint8), "y": np.arange(9)}
    np.savez(federation.path / "small.npz", allow_pickle=False, **small)
    federation.node("client-00006", data="../small.npz")
    federation.node("client-00007", data="../absent.npz")
    invited = frozenset(f"client-0000{index}" for index in (0, 1, 2, 3, 6, 7))
    federated = Federated(federation.path / "covey.toml", invited=invited)
    result = federated.start(federation.grid(), federation.path / "run", 3)
    assert result.summary.model_hash == alone.summary.model_hash
    assert effects(result) == effects(alone)
    assert refusals(result) == [
        (None, reason)
        for reason in (
            "its covey.toml differs in data, model, train, method, aggregation, risk, "
            "privacy or secrets.source: give it the server's",
            "it failed with DataError: look into the node's log",
            "another node has its name: give it one of its own",
            "it must be on the list of nodes: add it (`covey deploy add`), or correct it",
            "its examples must be (1, 8, 8), like the others', found (1, 6, 6)",
        )
    ]


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        ({"secrets": {"source": "os"}}, False),
        ({"train": {"learning_rate": 0.07}}, False),
        ({"secrets": {"key_path": "own.pem"}}, True),
        ({"data": {"dir": "elsewhere"}}, True),
    ],
    ids=["secrets", "training", "own-key", "own-folder"],
)
def test_settings_are_agreed_on_but_for_what_lies_where(other, agrees):
    settings_hash, expected = (
        shared_settings_hash(Config.of(other)),
        shared_settings_hash(Config.of({})),
    )
    assert (settings_hash == expected) is agrees


def test_an_error_in_a_node_reveals_nothing_but_its_kind(build, own_data):
    federation = build(CHOOSING, clients=range(3))
    ward = federation.path / "ward-seven" / "patients.npz"
    ward.parent.mkdir()
    shutil.copy(own_data / "client-00003.npz", ward)
    federation.node("client-00003", data="../ward-seven/patients.npz")

    def removed(question: Message, reply: Message) -> list[Message]:
        if written(question)["request"]["path"][:2] == ["round", 1]:  # the first answer of it
            ward.unlink(missing_ok=True)
        return [reply]

    federation.wire = removed
    result = federation.play(nodes=4)
    assert [r.participants for r in result.history.rounds] == [4, 3, 3, 3]
    assert set(refusals(result)) == {
        ("client-00003", "it failed with DataError: look into the node's log")
    }
    for file in result.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"ward-seven" not in content
            assert b"patients" not in content


BY_EXAMPLES = {"weights": "examples"}
FOUR = tuple(f"client-{index:05}" for index in range(10))


def settings(rounds: int, **sections: Mapping[str, Any]) -> dict[str, object]:
    return settings_with(
        rounds=rounds, method={"name": "fedavg"}, risk={"name": "none"}, **sections
    )


ALL_ROUNDS = {
    "a weight of 1e308": (1, BY_EXAMPLES, {"train": weighing(1e308)}),
    "two at 3e38": (2, {}, {"train": sets_all(3e38)}),
    "six at 0": (6, {}, {"train": sets_all(0)}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("liars", "merge", "lies"), ALL_ROUNDS.values(), ids=ALL_ROUNDS.keys())
def test_who_lies_about_weight_or_length_spoils_no_model(
    build, digits, tmp_path, liars: int, merge: Mapping[str, Any], lies: Mapping[str, Lie]
):
    """Ten clients have 80 handwritten digits each."""
    (tmp_path / "eighty").mkdir()
    for index, name in enumerate(FOUR):
        own = digits.take(torch.arange(80 * index, 80 * (index + 1)))
        arrays = {"x": own.inputs[:, 0].numpy(), "y": own.labels.numpy()}
        np.savez(tmp_path / "eighty" / f"{name}.npz", allow_pickle=False, **arrays)
    more = {"model": {"name": "mlp"}, "train": {"local_epochs": 2}, "aggregation": merge}
    federation = build(settings(10, **more), range(10), tmp_path / "eighty")
    federation.wire = lying(FOUR[:liars], lies)
    result = federation.play(nodes=10)
    engine = playable(RunFolder(result.folder), Overrides(), "").engine
    unseen = digits.take(torch.arange(len(digits))[-500:])
    (scored,) = engine.score([ScoringJob(result.params(0), unseen)])
    assert scored.correct is not None
    assert float(scored.correct.mean()) > 0.75


def test_who_announces_far_more_than_most_moves_the_mean_by_five_of_them(build):
    federation = build(settings(1, aggregation=BY_EXAMPLES), clients=range(6))
    lies = {"train": weighing(1e9), "hello": announcing(examples=10**9)}
    federation.wire = lying(FOUR[:1], lies)
    result = federation.play(nodes=6)
    (reduced,) = all_of(WeightReduced, result)
    assert (reduced.handle, reduced.weight) == (result.names[FOUR[0]], 1e9)
    assert reduced.counted == pytest.approx(80 * 5 / 4, rel=0.5)  # four times as long


def test_finite_updates_whose_sum_is_not_move_no_model(build):
    federation = build(settings(2), clients=range(2))  # too few to compare
    federation.wire = lying(FOUR[:2], {"train": sets_all(3e38)})
    result = federation.play(nodes=2)
    assert all(v.isfinite().all() for v in result.params(0).values())
    assert reasons(result)
    assert all(reason.endswith("must hold finite numbers only") for reason in reasons(result))
    assert result.summary.diverged


lengths = st.floats(1e-30, 1e30)


def outsized(rule: NormRule, norms: list[float]) -> set[str]:
    updates = {
        f"h{i}": {"w": torch.tensor([length], dtype=torch.float64)}
        for i, length in enumerate(norms)
    }
    return set(rule.outsized("choose", updates))


@given(st.lists(st.floats(1.0, NORM_FACTOR), min_size=3, max_size=9), st.data())
def test_fewer_liars_than_honest_clients_have_none_of_these_refused(honest, data):
    lies = data.draw(st.lists(lengths, max_size=len(honest) - 1))
    refused = outsized(NormRule(), honest + lies)
    assert not refused & {f"h{i}" for i in range(len(honest))}


@given(st.lists(st.floats(1.0, NORM_FACTOR), min_size=3, max_size=5), lengths)
def test_a_round_full_of_tiny_updates_refuses_no_usual_one(honest, tiny):
    rule = NormRule()
    outsized(rule, [1.0, 2.0, 3.0])
    assert outsized(rule, [1.0] + [min(tiny, 1e-3)] * len(honest)) == set()


@given(st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), min_size=3, max_size=9), st.data())
def test_no_minority_moves_the_mean_by_more_than_five_honest_clients_each(honest, data):
    either = st.tuples(lengths, lengths)
    every = honest + data.draw(st.lists(either, max_size=len(honest) - 1))
    weights = {f"h{i}": weight for i, (weight, _) in enumerate(every)}
    updates = {
        f"h{i}": {"w": torch.tensor([length], dtype=torch.float64)}
        for i, (_, length) in enumerate(every)
    }
    counted = weights | reduced_weights(weights, updates)
    most = max(weight * length for weight, length in honest)
    for weight, (claimed, length) in zip(counted.values(), every, strict=True):
        assert weight <= claimed
        assert weight * length <= NORM_FACTOR * most * (1 + 1e-9)


def test_two_clients_cannot_be_compared():
    updates = {name: {"w": torch.ones(1)} for name in "ab"}
    assert reduced_weights({"a": 1.0, "b": 1e9}, updates) == {}
