"""One round of a server whose nodes answer in its own process: who weighs what, who is missing."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from covey.algorithms.client_requests import ClientContext, ClientRequest, ClientResponse
from covey.base.events import AnswerRefused, AnswersMissing, Event
from covey.flower.identity import InvalidMessageError
from covey.flower.messages import (
    Counts,
    Hello,
    PendingQuestion,
    Question,
    Reply,
    encode,
    question_of,
    reply_of,
)
from covey.flower.server import AdmissionPolicy, FlowerServer
from flower.inprocess import InProcessGrid, Wire

VERSION = "0.2.0"
Ask = Callable[..., tuple[Sequence[ClientResponse], Sequence[Event]]]


@pytest.fixture
def ask(make_client: Callable[..., Any]) -> Ask:
    """Ask nodes that announced four examples each, and weigh so much."""

    def asked(weights: Sequence[float], wire: Wire = lambda _, reply: [reply]):
        app = ClientApp()

        @app.train()
        def _answer(message: Message, context: Context) -> Message:
            question, node = question_of(message.content), context.node_id
            if question.request.task == "hello":
                who = (VERSION, question.token, f"n{node}", "same", (1,), False, 2)
                return Message(encode(Hello(*who, examples=4)), reply_to=message)
            reply = Reply(VERSION, question.token, question.name, weight=weights[node])
            return Message(encode(reply, {"w": torch.ones(1)}), reply_to=message)

        grid = InProcessGrid(app, dict.fromkeys(range(len(weights)), ""), wire)
        server = FlowerServer(grid, AdmissionPolicy("run", "same"))
        cohort = tuple(make_client(name, None) for name in sorted(server.available_clients()))
        contexts = {client.handle: ClientContext() for client in cohort}
        request = ClientRequest("train", ({"w": torch.zeros(1)},), (True,), (), contexts)
        return server.ask(request, cohort), server.reports().events

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
        return [reply] * (1 if is_hello(question) else 2)

    answers, events = ask([2.0, 1.0], twice)
    assert [each.weight for each in answers] == [2.0, 1.0]
    again = "it has answered already"
    assert events == (AnswerRefused("N0", again), AnswerRefused("N1", again))


def test_who_does_not_answer_is_missing(ask: Ask):
    def silent(question: Message, reply: Message) -> list[Message]:
        return [reply] if is_hello(question) or question.metadata.dst_node_id else []

    answers, events = ask([1.0, 1.0], silent)
    assert len(answers) == 1
    assert events == (AnswersMissing("train", ("N0",)),)


@pytest.mark.parametrize(
    ("members", "held_out", "fits"), [(4, 2, True), (5, 2, False), (4, 3, False)]
)
def test_counts_are_of_no_more_examples_than_were_announced(
    members: int, held_out: int, *, fits: bool
):
    def table(count: int) -> Counts:
        return ((count, *(0,) * 80), *((0,) * 81,) * 4)

    asked = ClientRequest("count", ({"w": torch.zeros(1)},), (True,))
    pending = PendingQuestion("h", Question(VERSION, "run", "t", "n", asked), 4, 2)
    reply = Reply(VERSION, "t", "n", members=table(members), held_out=table(held_out))
    with nullcontext() if fits else pytest.raises(InvalidMessageError, match=r"at most the [42]"):
        reply_of(encode(reply), pending)
