"""One round, at a server and at a client, by hand."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from pydantic import TypeAdapter

from algorithms.conftest import OneWeight
from covey import Config, Examples, Params, Recipe, ReferenceEngine, RiskEstimate, __version__
from covey.algorithms.client_requests import (
    ClientContext,
    ClientRequest,
    ClientResponse,
    RequestType,
)
from covey.base.events import AnswerRefused, AnswersMissing, Event
from covey.base.figure import Figure
from covey_flower.client import client_app
from covey_flower.client_runtime import ClientRuntime, ClusterChoice
from covey_flower.identity import InvalidMessageError
from covey_flower.messages import (
    Counts,
    Hello,
    PendingQuestion,
    Question,
    Reply,
    encode,
    make_message,
    question_of,
    reply_of,
)
from covey_flower.server import AdmissionPolicy, FlowerServer
from flower.conftest import Wire, answering, as_sent, settings_with
from flower.inprocess import InProcessGrid, outside_a_run, reply_from

Ask = Callable[..., tuple[Sequence[ClientResponse], Sequence[Event]]]


@pytest.fixture
def ask(make_client) -> Ask:
    """Ask nodes that announced four examples each, and answer by these weights and numbers."""

    def answers_to(
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

    return answers_to


@pytest.mark.parametrize(("weight", "taken"), [(4.0, True), (4.5, False), (40.0, False)])
def test_nobody_weighs_more_than_the_examples_that_it_announced(
    ask: Ask, weight: float, *, taken: bool
):
    answers, events = ask([weight, 1.0])
    assert [answer.weight for answer in answers] == [weight, 1.0][not taken :]
    assert [type(event) for event in events] == [AnswerRefused] * (not taken)


def is_hello(question: Message) -> bool:
    return question_of(question.content).request.task == "hello"


def test_who_answers_twice_counts_once_and_is_not_missing(ask: Ask):
    def twice(question: Message, reply: Message) -> list[Message]:
        spoilt = Message(RecordDict({"covey": reply.content["covey"]}), reply_to=question)
        if is_hello(question):
            return [reply]
        return [spoilt, reply] if question.metadata.dst_node_id else [reply, reply]

    answers, events = ask([2.0, 1.0], twice)
    assert [answer.weight for answer in answers] == [2.0, 1.0]
    again, spoilt = events
    assert again == AnswerRefused("N0", "it has answered already")
    assert isinstance(spoilt, AnswerRefused)
    assert spoilt.handle == "N1"


def test_nobody_answers_in_the_place_of_another_node(ask: Ask):
    requests: list[Message] = []

    def forging(question: Message, reply: Message) -> list[Message]:
        """The last node answers in the name of the first, and knows its token."""
        requests.append(question)
        if is_hello(question) or question.metadata.dst_node_id == 0:
            return [reply]
        victim = next(q for q in requests if q.metadata.dst_node_id == 0 and not is_hello(q))
        record = reply.content["covey"]
        token = question_of(victim.content).token
        said = {**json.loads(str(record["json"])), "name": "n0", "token": token}  # type: ignore[index]
        words = ConfigRecord({"json": json.dumps(said)})
        content = RecordDict({"covey": words, "update": reply.content["update"]})
        forged = Message(content, reply_to=victim)
        forged.metadata.__dict__["_src_node_id"] = 1
        return [forged, reply]

    answers, events = ask([2.0, 1.0], forging)
    assert [answer.weight for answer in answers] == [2.0, 1.0]
    assert events == ()


def test_who_does_not_answer_is_missing(ask: Ask):
    def silent(question: Message, reply: Message) -> list[Message]:
        return [reply] if is_hello(question) or question.metadata.dst_node_id else []

    answers, events = ask([1.0, 1.0], silent)
    assert len(answers) == 1
    assert events == (AnswersMissing("choose", ("N0",)),)


@pytest.mark.parametrize(
    ("updates", "limited"),
    [
        ([1.0, -2.0, 3.0, 12.5], 4),  # 5 x median(1, 2, 3, 12.5) = 12.5
        ([1.0, -2.0, 3.0, -12.75], 3),
        ([1.0, 1.0, 5.25], 2),
        ([0.0, 0.0, 1.0], 3),
        ([1.0, 100.0], 2),
    ],
)
def test_an_update_five_times_as_long_as_the_median_is_the_longest(ask: Ask, updates, limited):
    def taken(**terms: bool) -> list[float]:
        answers, _ = ask([1.0] * len(updates), updates=updates, **terms)
        return [float(answer.update["w"]) for answer in answers if answer.update is not None]

    assert taken() == updates[:limited]
    assert taken(compares_norms=False) == updates  # where updates are clipped


@pytest.mark.parametrize(
    ("members", "held_out", "fits"), [(4, 2, True), (5, 2, False), (4, 3, False)]
)
def test_counts_are_of_no_more_examples_than_were_announced(
    members: int, held_out: int, *, fits: bool
):
    def table(count: int) -> Counts:
        return ((count, *(0,) * 80), *((0,) * 81,) * 4)

    request = ClientRequest("count", ({"w": torch.zeros(1)},), (True,))
    pending = PendingQuestion("h", Question(__version__, "run", "t", "n", request), 4, 2)
    reply = Reply(__version__, "t", "n", members=table(members), held_out=table(held_out))
    with nullcontext() if fits else pytest.raises(InvalidMessageError, match=r"at most its [42]"):
        reply_of(encode(reply), pending)


# With x = 1 and label 1 the loss is ln(1 + e^-w): 0.693, 0.288 and 0.105.
MODELS = tuple({"w": torch.tensor([math.log(odds)])} for odds in (1.0, 3.0, 9.0))
RISKS = tuple(
    RiskEstimate(Figure(risk, 0.0), round_index=1, inside=False) for risk in (0.5, 0.6, 0.9)
)
ONE = Examples(torch.ones(1, 1), torch.ones(1, dtype=torch.int64))
FOUR = Examples(torch.tensor([[1.0], [1.0], [-1.0], [1.0]]), torch.tensor([1, 0, 0, 1]))


@pytest.fixture
def member(make_client):
    def of(
        method: Mapping[str, Any] | None = None,
        preference: tuple[float, float] = (0.0, 0.8),
        holdout: Examples | None = None,
        weights: str = "equal",
        **sections: Mapping[str, Any],
    ) -> ClientRuntime:
        merge = {"weights": weights}
        settings = {"method": dict(method or {}), "aggregation": merge, **sections}
        config = Config.of({**settings, "engine": {"name": "flower"}})
        examples = {} if holdout is None else {"holdout": holdout}
        client = make_client("one", ONE, preference=preference, **examples)
        return ClientRuntime(client, config, ReferenceEngine(OneWeight()), 2, seed=0)

    return of


def request_of(
    task: RequestType, models: tuple[Params, ...] = MODELS, offered: tuple[bool, ...] = (True,) * 3
) -> ClientRequest:
    recipe = Recipe(local_steps=1, learning_rate=1.0)
    return ClientRequest(task, models, offered, ("round", 3), {"ONE": ClientContext()}, recipe)


@pytest.mark.parametrize(
    ("method", "preference", "slip", "cluster"),
    [
        ({"selection": "loss"}, (0.0, 0.8), ClientContext(risks=RISKS), 2),
        ({"name": "ifca"}, (1.0, 0.0), ClientContext(), 2),
        # (1 - beta) loss + beta risk: 0.597, 0.444 and 0.503
        ({"selection": "weighted"}, (0.5, 0.8), ClientContext(risks=RISKS), 1),
        ({"selection": "weighted"}, (1.0, 0.8), ClientContext(risks=RISKS), 0),
        ({"selection": "weighted"}, (0.5, 0.8), ClientContext(), 2),
        ({"selection": "threshold"}, (0.0, 0.8), ClientContext(risks=RISKS), 1),
        ({"selection": "threshold"}, (0.0, 0.5), ClientContext(risks=RISKS), 0),
        ({"selection": "loss"}, (0.0, 0.8), ClientContext(assigned=1), 1),
    ],
    ids=[
        "loss", "ifca", "weighted", "risk-alone", "no-risk-known", "threshold",
        "nothing-below", "given",
    ],
)  # fmt: skip
def test_a_client_takes_what_the_rule_says(member, method, preference, slip, cluster):
    mine = member(method, preference)
    for task in "choose", "reassign":
        assert mine.choose(request_of(task), slip) == ClusterChoice(cluster, slip.risks)


def test_what_is_not_offered_is_not_chosen_though_it_may_be_the_place(member):
    call = request_of("choose", offered=(True, True, False))
    assert member({"selection": "loss"}).choose(call, ClientContext()).cluster == 1
    diverged = {"w": torch.tensor([math.nan])}
    for models in MODELS, (diverged, *MODELS[:2]):
        call = request_of("place", models, (True, True, False))
        assert member(preference=(1.0, 0.5)).choose(call, ClientContext(risks=RISKS)).cluster == 2


@pytest.mark.parametrize(("source", "repeats"), [("seeded", True), ("os", False)])
def test_noise_repeats_for_one_question_only_where_it_is_seeded(member, source, repeats):
    # Under so much noise the clusters are about alike, so 40 fresh draws that name one
    # cluster are a matter of 3^-39.
    method = {"name": "ifca", "initialisation": "random"}
    noise, secrets = {"selection_noise": 1000.0}, {"source": source}
    mine = member(method, privacy=noise, secrets=secrets)
    chosen = {mine.choose(request_of("choose"), ClientContext()).cluster for _ in range(40)}
    assert (len(chosen) == 1) is repeats


def test_one_step_from_a_half_moves_by_a_half(member):
    made = member().train(request_of("choose"), 0)
    assert made.update["w"].tolist() == [0.5]  # 1 - P(1 | x) = 1 - 1/2
    assert (made.weight, made.kept) == (1, None)


@pytest.mark.parametrize(("weights", "weight"), [("equal", 1.0), ("examples", 4.0)])
def test_an_app_of_ones_own_returns_the_model_not_the_update(make_client, member, weights, weight):
    client = make_client("one", FOUR)
    mine = ClientRuntime(client, member(weights=weights).config, member().engine, 2, seed=0)
    call = request_of("train", ({"w": torch.tensor([2.0])},), (True,))
    made = mine.train(call, 0, lambda *_: {"w": torch.tensor([5.0])})
    assert (made.update["w"].tolist(), made.weight) == ([3.0], weight)


@pytest.mark.parametrize(("tau", "above"), [(0.55, True), (0.6, False)])
def test_a_risk_is_above_what_is_accepted_or_not(tau, above):
    assert ClusterChoice(1, RISKS).above(tau) is above
    assert ClusterChoice(1, (None, None, None)).above(tau) is None
    assert ClusterChoice(1, ()).above(tau) is None


def hello(node, run):
    """What a node answers to who it is, by what it is told and what its run is."""
    outside_a_run()
    question = Question(__version__, "run", "token", "", ClientRequest("hello"))
    message = make_message(question, 7, 60.0)
    message.metadata.__dict__["_message_id"] = "message"
    reply = reply_from(client_app, message, Context(1, 7, node, RecordDict(), run))
    return TypeAdapter(Hello).validate_json(str(reply.content["covey"]["json"]))


def test_a_node_finds_its_file_by_itself_or_by_its_number_or_answers_nothing_else(build):
    folder = build(settings_with(rounds=1), clients=range(3)).path
    pattern = {"file": f"{folder}/client-{{partition-id:05}}/node.toml"}
    assert hello({"partition-id": 2}, pattern).name == "client-00002"
    own = {"file": f"{folder}/client-00001/node.toml", "partition-id": 2}
    assert hello(own, pattern).name == "client-00001"  # and is not told another one
    for node, run in (({}, {"file": "node.toml"}), ({"partition-id": 2}, {})):
        answer = hello(node, run)
        assert (answer.name, answer.failed) == ("", "ConfigError")
