"""What an algorithm sends along reaches every client's objective, and no further round."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from algorithms.playing import clients_with
from covey import Clients, Examples, Objective, Recipe, ReferenceEngine, Streams
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import initial_state
from covey.base.names import Handle
from covey.engine.recipe import REGRESSION

STREAMS = Streams(0)


class Push(Objective):
    """Add what was sent to the gradient, and keep what was seen of it."""

    def correction(self, weights, start, memory):
        return memory.get("push")

    def remember(self, memory, start, trained, steps, recipe):
        return {"seen": memory["push"]} if "push" in memory else {}


@pytest.fixture
def clients(make_client) -> Clients:
    """Two clients with x = 1, and y = 1 or -1."""
    engine = ReferenceEngine(nn.Linear(1, 1, bias=False), REGRESSION)
    recipe = Recipe(local_steps=1, learning_rate=0.1, objective=Push())
    one = torch.ones(1, 1)
    cohort = (
        make_client("a", Examples(one, torch.ones(1))),
        make_client("b", Examples(one, -torch.ones(1))),
    )
    return clients_with(Simulated(engine, recipe)).among(cohort)


def test_it_reaches_everybody_by_hand(clients):
    # w = 0 - 0.1 ((0 - y) + 3): -0.2 for y = 1 and -0.4 for y = -1
    start = initial_state(({"weight": torch.zeros(1, 1)},))
    sent = clients.sent_along(push={"weight": torch.full((1, 1), 3.0)})
    where = {client.handle: 0 for client in clients.cohort}
    updates = list(sent.train(start.clusters, where, STREAMS))
    assert [float(u.update["weight"]) for u in updates] == pytest.approx([-0.2, -0.4])
    assert all(float((u.kept or {})["seen"]["weight"]) == 3.0 for u in updates)
    played = sent.train_and_aggregate(start, sent.all_in(0, "shared"), STREAMS)
    assert float(played.state.clusters[0]["weight"]) == pytest.approx(-0.3)


def test_what_was_sent_is_gone_in_the_next_round_and_what_is_kept_is_not(clients):
    start = initial_state(({"weight": torch.zeros(1, 1)},))
    sent = clients.sent_along(push={"weight": torch.full((1, 1), 3.0)})
    everybody = sent.all_in(0, "shared")
    first = sent.train_and_aggregate(start, everybody, STREAMS).state
    second = clients.train_and_aggregate(first, everybody, STREAMS).state
    # w = -0.3 - 0.1 (-0.3 - y), mean over y = 1 and -1
    assert float(second.clusters[0]["weight"]) == pytest.approx(-0.27)
    # what the server sends is no longer there if it sends something else
    other = clients.sent_along(other={"weight": torch.ones(1, 1)})
    third = replace(second, round_index=0)
    same = clients.train_and_aggregate(third, everybody, STREAMS).state.clusters
    unheeded = other.train_and_aggregate(third, everybody, STREAMS).state.clusters
    assert torch.equal(same[0]["weight"], unheeded[0]["weight"])


def test_losses_of_training_are_known_only_if_somebody_asks(clients):
    # the first step's loss at w = 0: half of (0 - y)^2
    start = initial_state(({"weight": torch.zeros(1, 1)},))
    where = {client.handle: 0 for client in clients.cohort}
    unasked = list(clients.train(start.clusters, where, STREAMS))
    assert [each.loss for each in unasked] == [None, None]
    known: dict[Handle, float] = {}
    asking = clients.recording_losses(known)
    asked = list(asking.train(start.clusters, where, STREAMS))
    assert set(known) == set(where)
    assert list(known.values()) == pytest.approx([0.5, 0.5])
    for one, other in zip(unasked, asked, strict=True):
        assert torch.equal(one.update["weight"], other.update["weight"])
