"""A client's own half of a round, worked by hand on a model with one weight."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from algorithms.conftest import OneWeight
from covey import Config, Examples, Params, Recipe, ReferenceEngine, RiskEstimate
from covey.algorithms.client_requests import ClientContext, ClientRequest, RequestType
from covey.base.figure import Figure
from covey_flower.client_runtime import ClientRuntime, ClusterChoice

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


def asking(
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
        assert mine.choose(asking(task), slip) == ClusterChoice(cluster, slip.risks)


def test_what_is_not_offered_is_not_chosen_though_it_may_be_the_place(member):
    call = asking("choose", offered=(True, True, False))
    assert member({"selection": "loss"}).choose(call, ClientContext()).cluster == 1
    diverged = {"w": torch.tensor([math.nan])}
    for models in MODELS, (diverged, *MODELS[:2]):
        call = asking("place", models, (True, True, False))
        assert member(preference=(1.0, 0.5)).choose(call, ClientContext(risks=RISKS)).cluster == 2


@pytest.mark.parametrize(("source", "repeats"), [("seeded", True), ("os", False)])
def test_noise_repeats_for_one_question_only_where_it_is_seeded(member, source, repeats):
    # Under so much noise the clusters are about alike, so 40 fresh draws that name one
    # cluster are a matter of 3^-39.
    method = {"name": "ifca", "initialisation": "random"}
    noise, secrets = {"selection_noise": 1000.0}, {"source": source}
    mine = member(method, privacy=noise, secrets=secrets)
    chosen = {mine.choose(asking("choose"), ClientContext()).cluster for _ in range(40)}
    assert (len(chosen) == 1) is repeats


def test_one_step_from_a_half_moves_by_a_half(member):
    made = member().train(asking("choose"), 0)
    assert made.update["w"].tolist() == [0.5]  # 1 - P(1 | x) = 1 - 1/2
    assert (made.weight, made.kept) == (1, None)


@pytest.mark.parametrize(("weights", "weight"), [("equal", 1.0), ("examples", 4.0)])
def test_an_app_of_ones_own_returns_the_model_not_the_update(make_client, member, weights, weight):
    client = make_client("one", FOUR)
    mine = ClientRuntime(client, member(weights=weights).config, member().engine, 2, seed=0)
    call = asking("train", ({"w": torch.tensor([2.0])},), (True,))
    made = mine.train(call, 0, lambda *_: {"w": torch.tensor([5.0])})
    assert (made.update["w"].tolist(), made.weight) == ([3.0], weight)


@pytest.mark.parametrize(("tau", "above"), [(0.55, True), (0.6, False)])
def test_a_risk_is_above_what_is_accepted_or_not(tau, above):
    assert ClusterChoice(1, RISKS).above(tau) is above
    assert ClusterChoice(1, (None, None, None)).above(tau) is None
    assert ClusterChoice(1, ()).above(tau) is None
