"""Questions and answers survive their way; anything else is refused, by a sentence."""

import dataclasses
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor

from covey import Params
from covey.algorithms.client_requests import ClientContext, ClientRequest, RequestType
from covey.flower.identity import InvalidMessageError
from covey.flower.messages import (
    Hello,
    PendingQuestion,
    Question,
    Reply,
    encode,
    hello_of,
    make_message,
    question_of,
    reply_of,
)
from covey.flower.server import AdmissionPolicy, FlowerServer
from covey.membership.estimators import EDGES, FOLDS
from flower.inprocess import InProcessGrid, outside_a_run

VERSION = "0.2.0"
OPEN = AdmissionPolicy("run", "same")
NOBODY = Question(VERSION, "run", "token", "", ClientRequest("hello"))

names = st.text(max_size=9)
shares = st.floats(0, 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64]))
    size = math.prod(shape) * dtype.itemsize
    raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
    empty = torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else empty


models = st.dictionaries(st.text(min_size=1, max_size=9), tensors(), max_size=3)
estimates = st.fixed_dictionaries(
    {
        "figure": st.fixed_dictionaries({"value": finite, "error": finite.map(abs)}),
        "round_index": st.integers(0, 9),
        "inside": st.booleans(),
    }
)
slips = st.fixed_dictionaries(
    {
        "assigned": st.none() | st.integers(0, 2),
        "risks": st.lists(st.none() | estimates, max_size=3),
        "current": st.integers(-1, 2),
    }
)
recipes = st.fixed_dictionaries(
    {
        "local_epochs": st.integers(),
        "learning_rate": finite,
        "record_clip": st.floats(0.1, 9),
        "record_noise": shares,
    }
)
requests = st.fixed_dictionaries(
    {
        "task": st.sampled_from(["choose", "train", "place", "reassign", "count"]),
        "available": st.lists(st.booleans(), max_size=3),
        "path": st.lists(names | st.integers(), max_size=3),
        "recipe": recipes,
        "round_index": st.integers(),
    }
)
questions = st.fixed_dictionaries(
    {
        "covey_version": st.just(VERSION),
        "run": names,
        "token": names,
        "name": names,
        "classes": st.integers(),
    }
)
"""Fields, not questions: beartype draws at random when covey builds something."""


def assert_same_bits(found: Params, expected: Params):
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].numpy().tobytes() == value.numpy().tobytes()


REQUEST_FIELDS = {field.name for field in dataclasses.fields(ClientRequest)}


@given(
    questions,
    requests,
    slips,
    st.lists(models, min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    models,
)
def test_a_question_survives_its_way(told, asked, slip, every, needed, broadcast):
    outside_a_run()
    asked = {**asked, "contexts": {told["name"]: slip}}
    question = TypeAdapter(Question).validate_python({**told, "request": asked})
    places = range(len(question.request.available))
    sent = tuple(every[j] if j in needed else {} for j in places)
    roots = {j: torch.ones(2) * j for j in places if sent[j]}
    arrays = {"models": sent, "broadcast": {"x": broadcast}, "roots": roots}
    letters = {question.name: b"letter"}
    question = replace(question, request=replace(question.request, **arrays, letters=letters))
    found = question_of(make_message(question, 7, 60.0).content)
    for name in REQUEST_FIELDS - {"models", "broadcast", "roots"}:
        assert getattr(found.request, name) == getattr(question.request, name), name
    assert replace(found, request=question.request) == question
    for model, expected in zip(found.request.models, sent, strict=True):
        assert_same_bits(model, expected)
    assert_same_bits(found.request.broadcast["x"], broadcast)
    assert {j: root.tolist() for j, root in found.request.roots.items()} == {
        j: root.tolist() for j, root in roots.items()
    }


def asking(task: RequestType, model: Params) -> PendingQuestion:
    asked = ClientRequest(task, (model, model), (True, True))
    return PendingQuestion("h", Question(VERSION, "run", "token", "n", asked, 10))


replies = st.fixed_dictionaries(
    {
        "cluster": st.integers(0, 1),
        "weight": st.floats(0, exclude_min=True, allow_infinity=False),
        "accuracy": st.none() | shares,
        "above": st.none() | st.booleans(),
        "leave": st.booleans(),
    }
)
tables = st.lists(st.integers(0, 10**6), min_size=FOLDS, max_size=FOLDS).map(
    lambda first: tuple((n,) + (0,) * len(EDGES) for n in first)
)


@given(replies, tables, tables)
def test_counts_survive_their_way(told, members, held_out):
    asked = asking("count", {})
    reply = Reply(VERSION, "token", "n", members=members, held_out=held_out, **told)
    found, answer = reply_of(encode(reply), asked)
    assert found == reply
    assert answer.update is None
    for counts, expected in (answer.members, members), (answer.held_out, held_out):
        assert counts is not None
        assert tuple(map(tuple, counts.tolist())) == expected


@given(replies, models, st.sampled_from(["choose", "train"]))
def test_an_update_survives_its_way(told, model, task):
    asked = asking(task, model)
    reply = Reply(VERSION, "token", "n", **told)
    update = {name: torch.nan_to_num(value) for name, value in model.items()}
    found, answer = reply_of(encode(reply, update), asked)
    assert found == reply
    assert (answer.handle, answer.cluster) == ("h", reply.cluster)
    assert answer.weight == reply.weight
    assert answer.update is not None
    assert_same_bits(answer.update, update)
    assert answer.members is None


@given(
    st.text(max_size=9).filter(str.isprintable),
    st.tuples(*[st.integers(1, 9)] * 3),
    st.integers(1, 99),
)
def test_who_a_node_is_survives_its_way(name, shape, classes):
    hello = Hello(VERSION, "token", f"n{name}", "same", shape, True, classes)  # noqa: FBT003
    assert hello_of(encode(hello), "token", "same") == hello


requests_of_any_kind = st.dictionaries(
    st.sampled_from([field.name for field in dataclasses.fields(ClientRequest)]),
    st.deferred(lambda: anything),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
fields = [
    "classes", "request",
    "cluster", "weight", "members", "held_out", "accuracy", "shape", "images", "failed",
]  # fmt: skip
in_order = {
    **json.loads(str(encode(NOBODY)["covey"]["json"])),  # type: ignore[index]
    "agreement": "same",
    "shape": [1],
    "images": True,
    "name": "n",
}
in_request = {"task": "train", "available": [True]}  # fmt: skip
texts = (
    st.text()
    | anything.map(json.dumps)
    | st.dictionaries(st.sampled_from(fields), anything).map(
        lambda told: json.dumps({**in_order, **told})
    )
    | requests_of_any_kind.map(
        lambda told: json.dumps({**in_order, "request": {**in_request, **told}})
    )
    | st.sampled_from(
        [
            json.dumps({**in_order, "request": {**in_request, "recipe": {"record_noise": 1.0}}}),
            json.dumps({**in_order, "classes": 10**400}),
            "[" * 10_000,
            '{"covey_version": "\\ud800"}',
        ]
    )
)


def config_record(told: dict[str, Any]) -> ConfigRecord:
    return ConfigRecord(told)


def record_dict(told: dict[str, Any]) -> RecordDict:
    return RecordDict(told)


scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary()
array = st.builds(
    Array,
    st.text(max_size=5),
    st.tuples(st.integers(0, 9)),
    st.sampled_from(["numpy.ndarray", "torch", ""]),
    st.binary(max_size=99) | st.binary(max_size=9).map(lambda tail: b"\x93NUMPY" + tail),
)
array_records = st.dictionaries(st.text(max_size=3), array, max_size=2).map(ArrayRecord)
records = (
    texts.map(lambda text: ConfigRecord({"json": text}))
    | st.dictionaries(st.sampled_from(["json", "x"]), scalars).map(config_record)
    | array_records
)
contents = st.dictionaries(
    st.sampled_from(["covey", "update", "model-0", f"model-{'1' * 5_000}"]), records
).map(record_dict)


@given(contents)
def test_whatever_a_message_holds_it_is_read_or_refused(content):
    asked = asking("train", {"w": torch.zeros(2)})
    for read in (
        lambda: question_of(content),
        lambda: reply_of(content, asked),
        lambda: hello_of(content, "token", "same"),
    ):
        with suppress(InvalidMessageError):
            read()


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"covey_version": "0.0.1"}, "has covey 0.0.1"),
        ({"request": {**in_request, "available": 10**9}}, "written as covey 0.2.0 does"),
        ({"request": {**in_request, "recipe": {"record_noise": 1.0}}}, "written as covey"),
        ({"request": {"task": "obey"}}, "written as covey 0.2.0 does"),
        ({"request": {**in_request, "models": [{"w": [1.0]}]}}, "written as covey 0.2.0 does"),
    ],
    ids=["version", "available", "recipe", "task", "models as text"],
)
def test_a_question_that_is_not_in_order_is_refused(told: dict[str, Any], reason: str):
    text = json.dumps({**in_order, **told})
    with pytest.raises(InvalidMessageError, match=reason):
        question_of(RecordDict({"covey": ConfigRecord({"json": text})}))


@pytest.fixture
def taken(make_client, digits):
    """Ask nodes whose updates are these numbers; return those that are taken."""

    def of(updates: Sequence[float], terms: AdmissionPolicy = OPEN) -> list[float]:
        app = ClientApp()

        @app.train()
        def _answer(message: Message, context: Context) -> Message:
            question = question_of(message.content)
            number = context.node_id
            if question.request.task == "hello":
                who = (VERSION, question.token, f"n{number}", "same", (1,), False, 2)
                return Message(encode(Hello(*who)), reply_to=message)
            reply = Reply(VERSION, question.token, question.name)
            update = {"w": torch.tensor([updates[number]])}
            return Message(encode(reply, update), reply_to=message)

        grid = InProcessGrid(app, dict.fromkeys(range(len(updates)), ""))
        nodes = FlowerServer(grid, terms)
        cohort = tuple(make_client(name, digits) for name in sorted(nodes.available_clients()))
        slips = {client.handle: ClientContext() for client in cohort}
        call = ClientRequest("choose", ({"w": torch.zeros(1)},), (True,), (), slips)
        answers = nodes.ask(call, cohort)
        return [float(each.update["w"]) for each in answers if each.update is not None]

    return of


@pytest.mark.parametrize(
    ("updates", "kept"),
    [
        ([1.0, -2.0, 3.0, 12.5], [1.0, -2.0, 3.0, 12.5]),  # 5 x median(1, 2, 3, 12.5) = 12.5
        ([1.0, -2.0, 3.0, -12.75], [1.0, -2.0, 3.0]),
        ([1.0, 1.0, 5.0], [1.0, 1.0, 5.0]),
        ([1.0, 1.0, 5.25], [1.0, 1.0]),
        ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
        ([1.0, 100.0], [1.0, 100.0]),
        ([100.0], [100.0]),
    ],
)
def test_an_update_five_times_as_long_as_the_median_is_the_longest(taken, updates, kept):
    assert taken(updates) == kept


def test_where_updates_are_clipped_no_norms_are_compared(taken):
    terms = replace(OPEN, compares_norms=False)
    assert taken([1.0, 1.0, 100.0], terms) == [1.0, 1.0, 100.0]
