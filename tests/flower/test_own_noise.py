"""Noise that nodes add themselves: the bits of the simulation, and what leaves a node."""

from pathlib import Path
from typing import Any

import pytest
import torch

from covey import ConfigError
from covey.algorithms.client_requests import ClientRequest
from covey.base.events import (
    AnswersMissing,
    BudgetSpent,
    SharesPerturbed,
    SumPerturbed,
    UpdatesPerturbed,
)
from covey_flower.client import Node
from flower.conftest import all_of, settings_with
from flower.test_masked import tasks_of


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
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("shares", "shares for records")]


@pytest.mark.parametrize("case", ["local", "records", *SLOW])
def test_seeded_noise_of_nodes_is_that_of_the_simulation(build, case):
    federation = build(CASES[case], clients=range(6))
    tasks = tasks_of(federation)
    there, here = federation.play(nodes=6), federation.simulated()
    assert there.summary.model_hash == here.summary.model_hash
    for kind in (SharesPerturbed, SumPerturbed, UpdatesPerturbed):
        assert all_of(kind, there) == all_of(kind, here)
    assert [f.estimate for f in there.history.measured] == [
        f.estimate for f in here.history.measured
    ]
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
    apart = sent[0] - sent[1]  # what is clipped is the same, and cancels
    assert float(apart.std()) == pytest.approx(2**0.5 * 0.1 * 0.5, rel=0.15)  # 5 of its errors
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
