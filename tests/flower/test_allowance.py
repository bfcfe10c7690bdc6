"""How often a node answers: a server of its own mind learns no more than the rounds need."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.optimize import root_scalar

from covey import ConfigError, Params, __version__
from covey.algorithms.client_requests import ClientContext, ClientRequest
from covey.secure_sums.messages import Reason
from covey_flower.client import Node, answer_message
from covey_flower.messages import Question, make_message
from covey_flower.node_file import NodeFile
from flower.conftest import Built, reasons, settings_with
from flower.inprocess import outside_a_run
from flower.malicious import RefusedByNodeError
from flower.test_masked import hidden, masked

NAME = "client-00000"
LINEAR = "1.weight", "1.bias"
HEAD = "head.weight", "head.bias"


def asker(federation: Built, task: Any, **more: Any) -> Callable[..., dict[str, Any]]:
    """How a server asks one node, in its words: returns what the node says."""
    outside_a_run()
    context = more.pop("context", ClientContext())

    def ask(models: tuple[Params, ...], **changes: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"path": ("round", 0), **more, **changes}
        run = fields.pop("run", "first")
        request = ClientRequest(
            task, models, (True,) * len(models), contexts={NAME: context}, **fields
        )
        sent = make_message(Question(__version__, run, "token", NAME, request, 10), 1, 60.0)
        sent.metadata.__dict__["_message_id"] = "1"
        reply = answer_message(sent, lambda: Node(Path(federation.files[100])))
        said = json.loads(str(reply.content["covey"]["json"]))
        if said["failed"]:
            raise RefusedByNodeError(said["failed"])
        return said

    return ask


def leaning(names: tuple[str, str], features: int, place: int, slope: float) -> Params:
    """A model that has the same answer for every record, and leans to one class."""
    weight, bias = names
    leans = torch.zeros(10)
    leans[place] = slope
    return {weight: torch.zeros(10, features), bias: leans}


def class_counts(
    choose: Callable[[tuple[Params, ...]], int], names: tuple[str, str], features: int, records: int
) -> list[int]:
    """Find how many records a client has of each class, from its choices alone.

    Of two models the one that leans to a class by b has the lower loss where the share of the
    class is above ln((e^b + 9) / 10) / b: a search by halves over b.
    """

    def holds_more(place: int, count: int) -> bool:
        share = (count + 0.5) / records

        def surplus(b: float) -> float:
            return (math.log((math.exp(b) + 9) / 10) if b else 0.0) - share * b

        start = (1e-6, 60.0) if share > 0.1 else (-60.0, -1e-6)
        slope = float(root_scalar(surplus, bracket=start).root)
        even = leaning(names, features, place, 0.0)
        leans = leaning(names, features, place, slope)
        return choose((even, leans)) == (1 if share > 0.1 else 0)

    refusals = []
    for place in range(10):
        low, high = 0, records
        while low < high:
            middle = (low + high) // 2
            more = holds_more(place, middle)
            low, high = (middle + 1, high) if more else (low, middle)
        refusals.append(low)
    return refusals


IFCA = settings_with(
    rounds=4, method={"name": "ifca", "initialisation": "random"}, risk={"name": "none"}
)
CASES: Mapping[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "bare": (IFCA, LINEAR),
    "local noise": (hidden("local"), LINEAR),
    "masks and noise": (hidden("distributed"), LINEAR),
    "masked ridge heads": (masked(4, num_clusters=1), HEAD),
}


@pytest.mark.parametrize("limit", [None, 0.01])
@pytest.mark.parametrize("task", ["place", "compare", "reassign", "choose", "train"])
@pytest.mark.parametrize("case", CASES)
def test_no_server_counts_a_client_s_records_by_its_choices(build, case, task, limit):
    """Seventy choices among models of the server's own give the counts, were they answered."""
    settings, names = CASES[case]
    federation = build(settings)
    if limit:
        federation.node(NAME, epsilon_limit=limit)
    member = Node(Path(federation.files[100])).member(10)
    features = (
        64
        if member.records is None
        else member.records.rows(member.client.train).features.shape[1] - 1
    )
    more = {} if member.records is None else {"features": member.records.fingerprint}
    ask, answered = asker(federation, task, **more), 0

    def choose(models: tuple[Params, ...]) -> int:
        nonlocal answered
        # under ever new names of runs, in ever later rounds
        said = ask(models, run=f"run{answered}", round_index=answered % 5)
        answered += 1
        return int(said["cluster"])

    with pytest.raises(RefusedByNodeError, match=r"NOT_NEEDED|TOO_OFTEN|SPENT"):
        class_counts(choose, names, features, len(member.client.train))
    needed = {"choose": 4, "reassign": 1}.get(task, 0) if case == "bare" and not limit else 0
    assert answered == 2 * needed  # the rounds, and all of them once more


def two_models() -> tuple[Params, Params]:
    return leaning(LINEAR, 64, 0, 0.0), leaning(LINEAR, 64, 3, 1.0)


NOISY = {**IFCA, "privacy": {"selection_noise": 50.0}, "secrets": {"source": "os"}}


def test_a_repeated_question_gets_the_same_choice_and_costs_nothing_more(build):
    """Fresh draws under so much noise would differ: forty alike are a matter of 2^-39."""
    federation = build(NOISY)
    federation.node(NAME, epsilon_limit=0.2)
    ask = asker(federation, "reassign", round_index=4)
    assert len({ask(two_models(), run=f"run{i}")["cluster"] for i in range(40)}) == 1
    (first, second), other = two_models(), leaning(LINEAR, 64, 5, 1.0)
    ask((second, first))  # the one repetition of the last choice
    with pytest.raises(RefusedByNodeError, match="TOO_OFTEN"):
        ask((other, first))


def test_choices_under_noise_are_paid_for_out_of_the_nodes_budget(build):
    """Each costs 2 / 50, and what is trained has no noise, which no budget allows."""
    federation = build(NOISY)
    federation.node(NAME, epsilon_limit=0.2)
    asker(federation, "reassign")(two_models())
    with pytest.raises(RefusedByNodeError, match="SPENT"):
        asker(federation, "choose")(two_models())
    spent = json.loads((federation.path / NAME / "memory" / "budget.json").read_text())["spent"]
    assert spent == [["choice", 0.04]] * 2
    federation.node(NAME, epsilon_limit=0.001)
    with pytest.raises(RefusedByNodeError, match="SPENT"):
        asker(federation, "reassign")(two_models()[::-1])


@pytest.mark.parametrize("task", ["mean", "sum", "count", "place", "compare"])
def test_a_node_answers_nothing_that_its_method_does_not_need(build, task):
    model, *_ = two_models()
    ask = asker(build(IFCA), task, context=ClientContext(assigned=0))
    with pytest.raises(RefusedByNodeError, match="NOT_NEEDED"):
        ask((model,), width=65)


def test_no_choice_hides_in_a_task_with_a_cluster_of_the_servers_or_among_more_models(build):
    federation = build(IFCA)
    with pytest.raises(RefusedByNodeError, match="NOT_NEEDED"):
        asker(federation, "train")(two_models())
    with pytest.raises(RefusedByNodeError, match="NOT_NEEDED"):
        asker(federation, "reassign")((*two_models(), *two_models()))
    with pytest.raises(RefusedByNodeError, match="NOT_NEEDED"):
        asker(federation, "reassign")(two_models(), round_index=5)


def test_a_third_run_needs_the_owners_word(build):
    federation = build({**IFCA, "rounds": 2, "secrets": {"source": "os"}}, clients=range(2))
    file, runs = federation.path / "covey.toml", []
    settings = file.read_text()
    for seed in range(3):
        file.write_text(f"seed = {seed}\n{settings}")
        runs.append(federation.play(f"run-{seed}", nodes=2))
    refused = Reason.TOO_OFTEN.value
    assert [any(refused in reason for reason in reasons(run)) for run in runs] == [
        False,
        False,
        True,
    ]
    for index in range(2):
        federation.node(f"client-{index:05}", repeats=3)
    assert not reasons(federation.play("another", nodes=2))


def test_a_limit_and_answers_without_noise_do_not_go_together(build):
    federation = build(IFCA)
    federation.node(NAME, epsilon_limit=1.0, report_accuracy=True)
    with pytest.raises(ConfigError, match="epsilon_limit pays for no answer without noise"):
        NodeFile.read(Path(federation.files[100]))
