"""Questions and answers survive their way; anything else is refused, by a sentence."""

import dataclasses
import math
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor

from covey import Params, __version__
from covey.algorithms.client_requests import ClientRequest, RequestType
from covey.membership.estimators import EDGES, FOLDS
from covey_flower.messages import (
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
from flower.inprocess import outside_a_run

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
        "local_epochs": st.integers(1),
        "learning_rate": finite.map(abs),
        "least_steps": st.integers(0, 9),
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
        "covey_version": st.just(__version__),
        "run": names,
        "token": names,
        "name": names,
        "classes": st.integers(),
    }
)
"""Fields, not questions: beartype draws at random when covey builds something."""


def assert_same_bits(tensors: Params, expected: Params):
    assert list(tensors) == list(expected)
    for name, value in expected.items():
        assert (tensors[name].dtype, tensors[name].shape) == (value.dtype, value.shape)
        assert tensors[name].numpy().tobytes() == value.numpy().tobytes()


REQUEST_FIELDS = {field.name for field in dataclasses.fields(ClientRequest)}


@given(
    questions,
    requests,
    slips,
    st.lists(models, min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    models,
)
def test_a_question_survives_its_way(fields, request_fields, slip, every, needed, broadcast):
    outside_a_run()
    request_fields = {**request_fields, "contexts": {fields["name"]: slip}}
    question = TypeAdapter(Question).validate_python({**fields, "request": request_fields})
    places = range(len(question.request.available))
    sent = tuple(every[j] if j in needed else {} for j in places)
    roots = {j: torch.ones(2) * j for j in places if sent[j]}
    arrays = {"models": sent, "broadcast": {"x": broadcast}, "roots": roots}
    letters = {question.name: b"letter"}
    question = replace(question, request=replace(question.request, **arrays, letters=letters))
    received = question_of(make_message(question, 7, 60.0).content)
    for name in REQUEST_FIELDS - {"models", "broadcast", "roots"}:
        assert getattr(received.request, name) == getattr(question.request, name), name
    assert replace(received, request=question.request) == question
    for model, expected in zip(received.request.models, sent, strict=True):
        assert_same_bits(model, expected)
    assert_same_bits(received.request.broadcast["x"], broadcast)
    assert {j: root.tolist() for j, root in received.request.roots.items()} == {
        j: root.tolist() for j, root in roots.items()
    }


def pending(task: RequestType, model: Params) -> PendingQuestion:
    request = ClientRequest(task, (model, model), (True, True))
    return PendingQuestion("h", Question(__version__, "run", "token", "n", request, 10))


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


@given(replies, models, tables, st.sampled_from(["choose", "count"]))
def test_an_answer_survives_its_way(fields, model, table, task):
    reply = Reply(__version__, "token", "n", members=table, held_out=table, **fields)
    update = {name: torch.nan_to_num(value) for name, value in model.items()}
    received, answer = reply_of(encode(reply, update), pending(task, model))
    assert received == reply
    assert (answer.handle, answer.cluster, answer.weight) == ("h", reply.cluster, reply.weight)
    if task == "choose":
        assert answer.update is not None
        assert_same_bits(answer.update, update)
    for counts in (answer.members, answer.held_out) if task == "count" else ():
        assert counts is not None
        assert tuple(map(tuple, counts.tolist())) == table


@given(
    st.text(max_size=9).filter(str.isprintable),
    st.tuples(*[st.integers(1, 9)] * 3),
    st.integers(1, 99),
)
def test_who_a_node_is_survives_its_way(name, shape, classes):
    hello = Hello(__version__, "token", f"n{name}", "same", shape, True, classes)  # noqa: FBT003
    assert hello_of(encode(hello), "token", "same") == hello
