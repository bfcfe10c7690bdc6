"""What an algorithm sends along reaches every client's objective, and no further round."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from algorithms.playing import clients_with
from covey import Examples, Objective, Recipe, ReferenceEngine, Streams
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import initial_state
from covey.engine.recipe import REGRESSION

STREAMS = Streams(0)


class Push(Objective):
    """Add what was sent to the gradient, and keep what was seen of it."""

    def correction(self, weights, start, memory):
        return memory.get("push")

    def remember(self, memory, start, trained, steps, recipe):
        return {"seen": memory["push"]} if "push" in memory else {}


def test_it_reaches_everybody_by_hand_and_is_gone_in_the_next_round(make_client):
    # two clients with x = 1, and y = 1 or -1
    engine = ReferenceEngine(nn.Linear(1, 1, bias=False), REGRESSION)
    recipe = Recipe(local_steps=1, learning_rate=0.1, objective=Push())
    cohort = tuple(
        make_client(name, Examples(torch.ones(1, 1), torch.tensor([y])))
        for name, y in (("a", 1.0), ("b", -1.0))
    )
    clients = clients_with(Simulated(engine, recipe)).among(cohort)
    start = initial_state(({"weight": torch.zeros(1, 1)},))
    sent = clients.sent_along(push={"weight": torch.full((1, 1), 3.0)})
    everybody = sent.all_in(0, "shared")
    asked = replace(sent, wants_losses=True)
    updates = list(asked.train(start.clusters, everybody.clusters, STREAMS))
    known = {each.handle: each.loss for each in updates}
    # w = 0 - 0.1 ((0 - y) + 3): -0.2 for y = 1 and -0.4 for y = -1
    assert [float(u.update["weight"]) for u in updates] == pytest.approx([-0.2, -0.4])
    assert all(float((u.kept or {})["seen"]["weight"]) == 3.0 for u in updates)
    # the first step's loss at w = 0 is known as somebody asks: half of (0 - y)^2
    assert known == pytest.approx({"A": 0.5, "B": 0.5})
    first = sent.train_and_aggregate(start, everybody, STREAMS).state
    assert float(first.clusters[0]["weight"]) == pytest.approx(-0.3)
    second = clients.train_and_aggregate(first, everybody, STREAMS).state
    # w = -0.3 - 0.1 (-0.3 - y), mean over y = 1 and -1
    assert float(second.clusters[0]["weight"]) == pytest.approx(-0.27)
