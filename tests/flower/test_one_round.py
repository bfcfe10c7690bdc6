"""One round of a server whose nodes answer in its own process: who weighs what, who is missing."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from covey import __version__
from covey.algorithms.client_requests import ClientContext, ClientRequest, ClientResponse
from covey.base.events import AnswerRefused, AnswersMissing, Event
from covey_flower.identity import InvalidMessageError
from covey_flower.messages import (
    Counts,
    PendingQuestion,
    Question,
    Reply,
    encode,
    question_of,
    reply_of,
)
from covey_flower.server import AdmissionPolicy, FlowerServer
from flower.conftest import Wire, answering, as_sent
from flower.inprocess import InProcessGrid

Ask = Callable[..., tuple[Sequence[ClientResponse], Sequence[Event]]]


@pytest.fixture
def ask(make_client) -> Ask:
    """Ask nodes that announced four examples each, and answer by these weights and numbers."""

    def asked(
        weights: Sequence[float],
        wire: Wire = as_sent,
        updates: Sequence[float] = (1.0,) * 9,
        **terms: Any,
    ):
        app = answering(weights.__getitem__, updates.__getitem__)
        grid = InProcessGrid(app, dict.fromkeys(range(len(weights)), ""), wire)
        server = FlowerServer(grid, AdmissionPolicy("run", "same", **terms))
        cohort = tuple(make_client(name, None) for name in sorted(server.available_clients()))
        contexts = {client.handle: ClientContext() for client in cohort}
        request = ClientRequest("choose", ({"w": torch.zeros(1)},), (True,), (), contexts)
        return server.send(request, cohort), server.reports().events

    return asked


@pytest.mark.parametrize(("weight", "taken"), [(4.0, True), (4.5, False), (40.0, False)])
def test_nobody_weighs_more_than_the_examples_that_it_announced(
    ask: Ask, weight: float, *, taken: bool
):
    answers, events = ask([weight, 1.0])
    assert [each.weight for each in answers] == [weight, 1.0][not taken :]
    assert [type(each) for each in events] == [AnswerRefused] * (not taken)


def is_hello(question: Message) -> bool:
    return question_of(question.content).request.task == "hello"


def test_who_answers_twice_counts_once_and_is_not_missing(ask: Ask):
    def twice(question: Message, reply: Message) -> list[Message]:
        spoilt = Message(RecordDict({"covey": reply.content["covey"]}), reply_to=question)
        if is_hello(question):
            return [reply]
        return [spoilt, reply] if question.metadata.dst_node_id else [reply, reply]

    answers, events = ask([2.0, 1.0], twice)
    assert [each.weight for each in answers] == [2.0, 1.0]
    again, spoilt = events
    assert again == AnswerRefused("N0", "it has answered already")
    assert isinstance(spoilt, AnswerRefused)
    assert spoilt.handle == "N1"


def test_nobody_answers_in_the_place_of_another_node(ask: Ask):
    asked: list[Message] = []

    def forging(question: Message, reply: Message) -> list[Message]:
        """The last node answers in the name of the first, and knows its token."""
        asked.append(question)
        if is_hello(question) or question.metadata.dst_node_id == 0:
            return [reply]
        victim = next(q for q in asked if q.metadata.dst_node_id == 0 and not is_hello(q))
        record = reply.content["covey"]
        token = question_of(victim.content).token
        said = {**json.loads(str(record["json"])), "name": "n0", "token": token}  # type: ignore[index]
        words = ConfigRecord({"json": json.dumps(said)})
        content = RecordDict({"covey": words, "update": reply.content["update"]})
        forged = Message(content, reply_to=victim)
        forged.metadata.__dict__["_src_node_id"] = 1
        return [forged, reply]

    answers, events = ask([2.0, 1.0], forging)
    assert [each.weight for each in answers] == [2.0, 1.0]
    assert events == ()


def test_who_does_not_answer_is_missing(ask: Ask):
    def silent(question: Message, reply: Message) -> list[Message]:
        return [reply] if is_hello(question) or question.metadata.dst_node_id else []

    answers, events = ask([1.0, 1.0], silent)
    assert len(answers) == 1
    assert events == (AnswersMissing("choose", ("N0",)),)


@pytest.mark.parametrize(
    ("updates", "kept"),
    [
        ([1.0, -2.0, 3.0, 12.5], 4),  # 5 x median(1, 2, 3, 12.5) = 12.5
        ([1.0, -2.0, 3.0, -12.75], 3),
        ([1.0, 1.0, 5.25], 2),
        ([0.0, 0.0, 1.0], 3),
        ([1.0, 100.0], 2),
    ],
)
def test_an_update_five_times_as_long_as_the_median_is_the_longest(ask: Ask, updates, kept):
    def taken(**terms: bool) -> list[float]:
        answers, _ = ask([1.0] * len(updates), updates=updates, **terms)
        return [float(each.update["w"]) for each in answers if each.update is not None]

    assert taken() == updates[:kept]
    assert taken(compares_norms=False) == updates  # where updates are clipped


@pytest.mark.parametrize(
    ("members", "held_out", "fits"), [(4, 2, True), (5, 2, False), (4, 3, False)]
)
def test_counts_are_of_no_more_examples_than_were_announced(
    members: int, held_out: int, *, fits: bool
):
    def table(count: int) -> Counts:
        return ((count, *(0,) * 80), *((0,) * 81,) * 4)

    asked = ClientRequest("count", ({"w": torch.zeros(1)},), (True,))
    pending = PendingQuestion("h", Question(__version__, "run", "t", "n", asked), 4, 2)
    reply = Reply(__version__, "t", "n", members=table(members), held_out=table(held_out))
    with nullcontext() if fits else pytest.raises(InvalidMessageError, match=r"at most its [42]"):
        reply_of(encode(reply), pending)
