"""Sums under masks and with noise of nodes: the bits of the simulation, and who is told what."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message, RecordDict

import covey
from covey import ConfigError, Run, RunError
from covey.algorithms.client_requests import ClientRequest
from covey.base.events import (
    AnswerRefused,
    AnswersMissing,
    BudgetSpent,
    ClientsWaited,
    ExposuresLimited,
    HeadsSolved,
    SharesPerturbed,
    SumGivenUp,
    SumPerturbed,
    UpdatesPerturbed,
)
from covey.ridge.sums import Sums
from covey.runs.folder import RunFolder
from covey.secure_sums.messages import Reason
from covey_flower.client import Node, client_app
from covey_flower.messages import LETTER, Question, letter_in, with_letter
from flower.conftest import Built, all_of, settings_with
from flower.inprocess import reply_from
from flower.test_federation import PowerCut, question_in
from flower.test_ridge import LAST, proof_of, ridge, stored_sums, without_last

LIAR = "client-00001"
SLOW = pytest.mark.slow


def masked(
    rounds: int = 2, least: int = 3, risk: str = "none", **method: object
) -> dict[str, object]:
    privacy = {"secure_sums": True, "min_cohort": least}
    return {**ridge(rounds, risk, **method), "privacy": privacy}


ONE = masked(num_clusters=1)


def own_sums(federation: Built, result: Run, names: list[str]) -> Sums:
    """The sums over these clients' records, of weight 1, as each node makes them."""
    d = len(stored_sums(result).sums[0].targets)
    sums = Sums.nothing(d, 10)
    for name in names:
        member = Node(federation.path / name / "node.toml").member(10)
        assert member.records is not None
        sums += member.records.sums([member.client.train], d)
    return sums


def names_without(*without: str) -> list[str]:
    return [n for n in (f"client-{i:05}" for i in range(4)) if n not in without]


def step_of(question: Message) -> tuple[Question, str]:
    received = question_in(question)
    return received, received.request.sums.step if received.request.sums else ""


def bits(result: Run) -> list[tuple[str, ...]]:
    return [event.sums for event in all_of(HeadsSolved, result)]


def losing(federation: Built, gone: Collection[str], at: str) -> None:
    """What these send in a step of the first round is lost."""

    def wire(question: Message, reply: Message) -> list[Message]:
        received, step = step_of(question)
        lost = received.name in gone and step == at and received.request.path[1] == 0
        return [] if lost else [reply]

    federation.wire = wire


def tasks_of(federation: Built) -> set[str]:
    """Return a set that fills with what nodes are asked for."""
    tasks: set[str] = set()

    def wire(question: Message, reply: Message) -> list[Message]:
        tasks.add(step_of(question)[0].request.task)
        return [reply]

    federation.wire = wire
    return tasks


@pytest.mark.parametrize("step", ["masked", pytest.param("unmasking", marks=SLOW)])
def test_who_drops_out_of_a_step_costs_its_own_sums_at_most(build, step):
    federation = build(ONE)
    losing(federation, (LIAR,), step)
    result = federation.play(nodes=4)
    handle = result.names[LIAR]
    counted = step == "unmasking"  # its numbers had come
    assert all_of(AnswersMissing, result)[0] == AnswersMissing("masked", (handle,))
    names = names_without() if counted else names_without(LIAR)
    assert stored_sums(result).sums == (own_sums(federation, result, names),)
    waiting = [event.clients for event in all_of(ClientsWaited, result)]
    assert waiting == ([] if counted else [(handle,)])  # alone it would stand out


@SLOW
def test_a_forged_share_is_refused_by_name_and_the_sum_goes_on(build):
    federation = build(ONE)

    def wire(question: Message, reply: Message) -> list[Message]:
        received, at = step_of(question)
        if (received.name, at, received.request.round_index) != (LIAR, "unmasking", 0):
            return [reply]
        letter = json.loads(letter_in(reply.content, 1e9))
        letter["shares"][0]["share"] = letter["shares"][1]["share"]
        content = RecordDict(dict(reply.content))
        content[LETTER] = with_letter(json.dumps(letter).encode())
        return [Message(content, reply_to=question)]

    federation.wire = wire
    result = federation.play(nodes=4)
    (refused,) = all_of(AnswerRefused, result)
    assert refused == AnswerRefused(result.names[LIAR], Reason.FORGED_SHARE.value)
    assert stored_sums(result).sums == (own_sums(federation, result, names_without()),)


@pytest.mark.slow
def test_a_node_takes_no_step_twice_however_often_it_starts(build):
    federation = build(ONE)
    again: dict[str, str] = {}

    def wire(question: Message, reply: Message) -> list[Message]:
        received, at = step_of(question)
        if received.name == LIAR and at not in ("", "keys"):
            context = Context(1, 101, {"file": federation.files[101]}, RecordDict(), {})
            twice = reply_from(client_app, question, context)
            again[at] = json.loads(str(twice.content["covey"]["json"]))["failed"]
        return [reply]

    federation.wire = wire
    result = federation.play(nodes=4)
    steps = dict.fromkeys(("shares", "masked", "agreements"), "REPEATED")
    assert again == {**steps, "unmasking": "LATE"}
    assert bits(result) == bits(federation.simulated())


def test_a_sum_over_fewer_than_a_node_accepts_is_refused_by_the_node(build):
    federation = build(ONE)
    federation.node(LIAR, min_cohort=7)
    result = federation.play(nodes=4)
    refused = all_of(AnswerRefused, result)[0]
    reason = f"it refused: {Reason.TOO_FEW_CLIENTS.value}"
    assert (refused.handle, refused.reason) == (result.names[LIAR], reason)
    sums = own_sums(federation, result, names_without(LIAR))
    assert stored_sums(result).sums == (sums,)


@SLOW
def test_a_sum_of_which_too_few_are_left_is_given_up_and_asked_for_again(build):
    federation = build(masked(2, 4, num_clusters=1))
    losing(federation, (LIAR,), "masked")
    result = federation.play(nodes=4)
    (given_up,) = all_of(SumGivenUp, result)
    assert len(given_up.clients) == 4
    assert [event.clients for event in all_of(HeadsSolved, result)] == [(0,), (4,)]
    assert bits(result)[-1] == bits(federation.simulated())[-1]


@SLOW
@pytest.mark.parametrize("step", ["masked", "unmasking"])
def test_a_server_that_was_killed_begins_a_round_with_another_number(build, step):
    federation = build(ONE)
    sessions: list[str] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        received, at = step_of(question)
        if received.name == "client-00003" and received.request.task == "masked":
            sessions.append(received.context.session)
            if at == step and len(set(sessions)) == 1:
                raise PowerCut
        return [reply]

    federation.wire = wire
    with pytest.raises(PowerCut):
        federation.play(nodes=4)
    result = federation.play(nodes=4)
    assert len(set(sessions)) == 2
    assert bits(result) == bits(federation.simulated())


@SLOW
def test_who_leaves_gives_its_sums_once_if_it_wants_to(build):
    federation = build(ONE)
    federation.play(nodes=4)
    with pytest.raises(RunError, match="leave = true"):
        without_last(federation)
    federation.node(LAST, leave=True)
    result = federation.play(nodes=4)
    here = federation.simulated()
    here.forget(LAST, "subtract")
    assert bits(result)[-1] == bits(covey.load(here.folder))[-1]
    assert LAST not in result.names
    sums = own_sums(federation, result, names_without(LAST))
    assert stored_sums(result).sums == (sums,)
    proof_of(result)


@SLOW
def test_nobody_helps_to_single_out_a_client_that_is_said_to_have_left(build):
    federation = build(ONE)
    before = federation.play(nodes=4)
    del federation.files[103]
    RunFolder(federation.path / "run").queue_request(LAST, "subtract", "erasure")
    with pytest.raises(RunError, match="left"):
        federation.play(nodes=4)
    assert covey.load(before.folder).names == before.names


def averaged() -> dict[str, object]:
    """Updates are averaged under masks."""
    return settings_with(
        rounds=2,
        method={"name": "fedavg"},
        aggregation={"name": "mean", "weights": "examples"},
        privacy={"secure_sums": True, "min_cohort": 3},
        risk={"name": "none"},
    )


COUNTED = {**masked(3, num_clusters=1), "risk": {"name": "federated", "every": 1}}


@SLOW
@pytest.mark.parametrize(
    ("settings", "in_the_open"),
    [(ONE, {"sum", "mean"}), (COUNTED, {"count"}), (averaged(), {"train", "choose"})],
    ids=["sums", "counts of losses", "means of updates"],
)
def test_what_travels_under_masks_is_what_the_simulation_has(build, settings, in_the_open):
    federation = build(settings, clients=range(6))
    tasks = tasks_of(federation)
    federated, here = federation.play(nodes=6), federation.simulated()
    assert bits(federated) == bits(here)
    assert federated.summary.model_hash == here.summary.model_hash
    assert federated.history.assignment == here.history.assignment
    estimates, expected = ([f.estimate for f in run.history.measured] for run in (federated, here))
    assert estimates == expected
    assert bool(estimates) == (settings is COUNTED)
    assert "masked" in tasks
    assert not tasks & in_the_open


def test_a_node_reveals_nothing_of_itself_alone(build):
    federation = build(averaged(), clients=[0])
    node = Node(Path(federation.files[100]))
    for task in ("train", "count", "mean", "sum"):
        request = ClientRequest(task, path=("round", 0))
        with pytest.raises(ConfigError, match="nothing of its own but its sums"):
            node.sums("run").check_request(request, node.member(10))


def hidden(model: str, risk: str = "none", **privacy: Any):
    """Settings under noise of the clients' own."""
    masks = {"secure_sums": True, "min_cohort": 6} if model == "distributed" else {}
    return settings_with(
        rounds=2,
        model={"name": "linear"},
        method={"name": "fedavg"},
        aggregation={"name": "mean"},
        risk={"name": risk, "every": 1} if risk != "none" else {"name": risk},
        privacy={"client_clip": 0.5, "client_noise": 0.1, "noise_model": model, **masks, **privacy},
    )


RECORDS = {
    "client_clip": 0.0,
    "client_noise": 0.0,
    "record_clip": 0.5,
    "record_noise": 2.0,
    "exposure": "accepted",
    "expected_records": 150,
}
CASES = {
    "shares": hidden("distributed", risk="federated", colluders=1),
    "local": hidden("local"),
    "records": {**hidden("central", **RECORDS), "train": {"learning_rate": 0.5}},
    "shares for records": {**hidden("distributed", **RECORDS), "train": {"learning_rate": 0.5}},
}
SLOW_NOISE = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("shares", "shares for records")
]


@pytest.mark.parametrize("case", ["local", "records", *SLOW_NOISE])
def test_seeded_noise_of_nodes_is_that_of_the_simulation(build, case):
    federation = build(CASES[case], clients=range(6))
    tasks = tasks_of(federation)
    federated, here = federation.play(nodes=6), federation.simulated()
    assert federated.summary.model_hash == here.summary.model_hash
    for kind in (SharesPerturbed, SumPerturbed, UpdatesPerturbed):
        assert all_of(kind, federated) == all_of(kind, here)
    assert [f.estimate for f in federated.history.measured] == [
        f.estimate for f in here.history.measured
    ]
    # what a node accepts is known to it alone
    assert bool(all_of(ExposuresLimited, here)) == ("records" in case)
    assert not all_of(ExposuresLimited, federated)
    if "shares" in case:
        assert not tasks & {"sum", "mean", "count", "train", "choose"}


def test_what_leaves_a_node_is_clipped_and_noisy_and_never_the_same_twice(build):
    federation = build({**CASES["local"], "secrets": {"source": "os"}}, clients=[0])
    member = Node(Path(federation.files[100])).member(10)
    start = {"fc.weight": torch.zeros(10, 64), "fc.bias": torch.zeros(10)}
    request = ClientRequest("train", (start,), (True,), ("round", 0))

    def loud(request: ClientRequest, cluster: int):
        return {name: value + 1e3 for name, value in request.models[cluster].items()}

    sent = [member.train(request, 0, loud).update["fc.weight"] for _ in range(20)]
    differences = sent[0] - sent[1]  # what is clipped is the same, and cancels
    assert float(differences.std()) == pytest.approx(
        2**0.5 * 0.1 * 0.5, rel=0.15
    )  # 5 of its errors
    mean = float(torch.stack(sent).mean())  # of one answer, two of its errors would be .2
    assert mean == pytest.approx(0.5 / 650**0.5, rel=0.2)


def test_a_node_under_noise_gives_its_own_sums_to_nobody_even_where_it_leaves(build):
    federation = build(CASES["shares"], clients=[0])
    federation.node("client-00000", leave=True)
    node = Node(Path(federation.files[100]))
    with pytest.raises(ConfigError, match="nothing of its own but its sums"):
        node.sums("run").check_request(ClientRequest("sum", path=("round", 0)), node.member(10))


def spending(build, limit: float, **privacy: Any):
    """A federation of which one node has a budget."""
    federation = build({**hidden("local", client_noise=4.0, **privacy), "rounds": 4})
    federation.node("client-00001", epsilon_limit=limit)
    return federation


def test_a_node_answers_no_more_once_its_budget_is_spent(build):
    """By hand: two Gaussian releases of multiplier 2 cost epsilon 3.0, three 3.7."""
    federation = spending(build, 3.3)
    result = federation.play()
    done = result.names["client-00001"]
    assert [fact.clients for fact in all_of(BudgetSpent, result)] == [(done,)]
    took = [done in fact.clients for fact in all_of(UpdatesPerturbed, result)]
    assert took == [True, True, False, False]
    assert not all_of(AnswersMissing, result)
    other = federation.play("another run")  # what was spent stays spent
    assert not any(done in fact.clients for fact in all_of(UpdatesPerturbed, other))


def test_a_budget_pays_for_nothing_that_has_no_noise(build):
    federation = build({**hidden("local", risk="federated"), "rounds": 2})
    federation.node("client-00001", epsilon_limit=1e6)
    result = federation.play()
    assert all_of(BudgetSpent, result)[0].clients == (result.names["client-00001"],)


def test_a_run_ends_when_too_few_have_any_budget_left(build):
    federation = spending(build, 3.3)
    for name in ("client-00000", "client-00002"):
        federation.node(name, epsilon_limit=3.3)
    result = federation.play()
    ended = result.history.ended_early
    assert ended is not None
    assert (ended.rounds, ended.planned, ended.clients) == (3, 4, 1)
    assert result.guarantee.guarantee is None  # its noise is seeded, and nothing else is wrong
    assert "seed" in result.guarantee.guarantee_reason
