"""Runs over what people pass: settings, models, thresholds and data of their own."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import covey
from covey import Config, ConfigError, DataError, ModelError, Run
from covey.data.examples import Preference
from covey.settings.clients import Overrides
from covey.settings.run import build_run

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "train": {"learning_rate": 0.5},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
}


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1), nn.Linear(3, 2))


class Reader(nn.Module):
    """An embedding, attention that drops, and the mean over the words."""

    def __init__(self, words: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 4)
        self.attend = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.attend(self.embed(ids)).mean(dim=1))


def points(clients: int = 5) -> dict[str, tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(clients, 10, 4, generator=draws)
    return {f"c{i}": (x, (x[:, 0] > 0).long()) for i, x in enumerate(inputs)}


def texts(clients: int = 4) -> dict[str, tuple[Tensor, Tensor]]:
    """Clients whose texts are of class 1 where word 7 stands in front."""
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(8, 50, (clients, 10, 5), generator=draws)
    labels = torch.arange(10) % 2
    ids[:, labels == 1, 0] = 7
    return {f"c{i}": (x, labels) for i, x in enumerate(ids)}


class Raises(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        if len(input) > 2:
            raise IndexError("row 2")
        return super().forward(input)


def one_left() -> dict[str, Any]:
    clients = points()
    clients["c4"] = (torch.randn(33, 4), torch.arange(33) % 2)  # 26 train: 25 and 1
    return clients


def of_one() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))


SHAPES = [(torch.ones(4, 4), [0, 1, 0, 1]), (torch.ones(4, 5), [0, 1, 0, 1])]
BAD: list[tuple[Callable[[], dict[str, Any]], type[Exception], str]] = [
    (lambda: {"config": 3}, ConfigError, "covey.Config or a dict"),
    (lambda: {"config": {"seed.x": 4, "seed": 1}}, ConfigError, "set seed once"),
    (lambda: {"model": "mlp"}, ModelError, r"found a str.*model\.name"),
    (lambda: {"model": lambda: 3}, ModelError, "lambda.* found a int"),
    (lambda: {"model": nn.LazyLinear(2)}, ModelError, "lazy layers"),
    (lambda: {"model": nn.Linear(4, 3)}, ModelError, "2 outputs"),
    (lambda: {"model": nn.Linear(5, 2)}, ModelError, "Linear must take .*RuntimeError"),
    (lambda: {"model": lambda: Raises(4, 2)}, ModelError, "c0: .*Raises.*row 2"),
    (lambda: {"model": of_one, "clients": one_left()}, ModelError, "c4: .*train.drop_last"),
    (
        lambda: {"model": lambda: Reader(40), "clients": texts()},
        ModelError,
        ".*IndexError.*correct",
    ),
    (lambda: {"clients": {"ada": (torch.ones(4, 4), torch.ones(4))}}, DataError, "ada: model.task"),
    (lambda: {"clients": SHAPES}, DataError, "client-00001 must be .*, as client-00000, found"),
    (lambda: {"thresholds": {"zoe": 0.5}}, ConfigError, "one of c0, .*found 'zoe'"),
    (lambda: {"risk_weights": {"c0": np.nan}}, ConfigError, "numbers in .*for c0"),
    (
        lambda: {"thresholds": {"c0": 0.5}, "config": {"secrets.source": "os"}},
        ConfigError,
        r"population\.preferences",
    ),
]


def model_hash(result: Run) -> str:
    return result.summary.model_hash or ""


@pytest.mark.slow
def test_all_kinds_of_data_and_settings_make_the_same_run(tmp_path: Path):
    def made(name: str, clients: Any, config: Any) -> str:
        result = covey.run(net, clients, config, tmp_path / name)
        return f"{model_hash(result)} {result.ledger_head}"

    clients = points()
    config = Config.of(SETTINGS)
    tensors = made("tensors", clients, config)
    frames = {
        name: pd.DataFrame(x.numpy(), columns=list("abcd")).assign(y=y.numpy())
        for name, (x, y) in clients.items()
    }
    dotted = {"rounds": np.int64(2), "train.learning_rate": 0.5}
    dotted |= {"risk.name": "none", "method.name": "fedavg"}
    assert made("frames", frames, dotted) == tensors
    sets = {name: TensorDataset(*pair) for name, pair in clients.items()}
    assert made("sets", sets, SETTINGS) == tensors


@pytest.mark.slow
def test_ids_reach_an_embedding_whole_and_attention_drops_by_the_clients_streams(tmp_path: Path):
    state = torch.get_rng_state()
    made = [
        covey.run(Reader, texts(), {**SETTINGS, **engine}, tmp_path / str(index))
        for index, engine in enumerate(
            ({"engine.workers": 1}, {"engine.workers": 2}, {"engine.name": "reference"})
        )
    ]
    assert torch.equal(torch.get_rng_state(), state)
    one, two, reference = (run.params(0) for run in made)
    assert model_hash(made[0]) == model_hash(made[1])
    assert all(torch.equal(one[name], two[name]) for name in one)
    torch.testing.assert_close(dict(reference), dict(one), rtol=0, atol=1e-5)


def test_a_clients_test_examples_are_its_holdout(tmp_path: Path):
    clients = points()
    halves = {name: ((x[:7], y[:7]), (x[7:], y[7:])) for name, (x, y) in clients.items()}
    assembled = build_run(Config.of({"data": {"name": "python"}}), Overrides(net, halves))
    for client in assembled.population.clients:
        x, y = clients[client.name]
        assert torch.equal(client.train.inputs, x[:7])
        assert torch.equal(client.holdout.labels, y[7:])
    assert any("5 of 5 clients have test examples" in n for n in assembled.notes)
    # a class that only test examples have counts
    x, y = clients["c0"]
    halves = {"c0": ((x, y), (x[:3], torch.tensor([0, 1, 2])))}
    config = Config.of({"data": {"name": "python"}, "model": {"name": "linear"}})
    assert build_run(config, Overrides(None, halves)).population.num_classes == 3


def accepted(overrides: Overrides, **settings: Any) -> dict[str, Preference]:
    config = Config.of({"data": {"name": "python"}, **settings})
    clients = build_run(config, overrides).population.clients
    return {client.name: client.preference for client in clients}


def test_thresholds_and_weights_by_name():
    drawn = accepted(Overrides(net, points()))
    thresholds, weights = {"c0": 0.65, "c1": 0.5}, {"c1": 0.25, "c2": 0.75}
    preferences = accepted(Overrides(net, points(), thresholds=thresholds, risk_weights=weights))
    assert preferences["c0"].risk_threshold == 0.65
    assert preferences["c0"].risk_weight == pytest.approx(0.5)  # (0.8 - 0.65) / 0.3
    assert preferences["c1"] == Preference(risk_weight=0.25, risk_threshold=0.5)
    assert preferences["c2"].risk_threshold == drawn["c2"].risk_threshold
    assert preferences["c2"].risk_weight == 0.75
    assert preferences["c3"] == drawn["c3"]
    # a threshold leaves the weight that all have
    chosen = Overrides(net, points(), thresholds={"c0": 0.5})
    fixed = accepted(chosen, population={"risk_weight": 0.1})
    assert fixed["c0"] == Preference(risk_weight=0.1, risk_threshold=0.5)


def test_thresholds_are_kept_under_handles_for_a_run_that_is_carried_on(tmp_path: Path):
    class StopError(Exception):
        pass

    def stop(history: covey.History) -> None:
        if history.rounds:
            raise StopError

    clients = {f"patient-{name}": pair for name, pair in points().items()}
    thresholds = dict.fromkeys(clients, 0.5)
    config = {**SETTINGS, "method": {"selection": "threshold", "initialisation": "random"}}
    whole = covey.run(net, clients, config, tmp_path / "whole", thresholds=thresholds)
    with pytest.raises(StopError):
        covey.run(net, clients, config, tmp_path / "cut", stop, thresholds=thresholds)
    resumed = covey.resume(tmp_path / "cut", net, clients)
    assert resumed.ledger_head == whole.ledger_head
    written = (tmp_path / "cut" / "config.toml").read_text()
    assert "patient" not in written
    assert written.count('"h-') == len(clients)


@pytest.mark.parametrize(("overrides", "kind", "said"), BAD)
def test_bad_input_is_refused_with_its_name_and_a_remedy_before_anything_is_written(
    overrides: Callable[[], dict[str, Any]], kind: type[Exception], said: str, tmp_path: Path
):
    with pytest.raises(kind) as refused:
        covey.run(**{"model": net, "clients": points(), **overrides()}, out=tmp_path / "run")
    assert re.search(said, str(refused.value), re.DOTALL), refused.value
    assert re.search(r": [a-z`]", str(refused.value))  # what is wrong, and what to do
    assert not list(tmp_path.glob("run/*"))
