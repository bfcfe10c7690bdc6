"""Runs over what people pass: settings, models, thresholds and data of their own."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import covey
from covey import Config, ConfigError, Run, Streams
from covey.data.examples import Preference
from covey.membership.truth import Reference, beats_chance, blind_risk
from covey.settings.clients import Overrides
from covey.settings.run import build_run
from runtime.bad_input import BAD, Reader, net, points, texts

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "train": {"learning_rate": 0.5},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
}


def model_hash(result: Run) -> str:
    return result.summary.model_hash or ""


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


def test_ids_reach_an_embedding_whole_and_attention_drops_by_the_clients_streams(tmp_path: Path):
    state = torch.get_rng_state()
    made = [
        covey.run(Reader, texts(), {**SETTINGS, **engine}, tmp_path / str(index))
        for index, engine in enumerate(
            ({"engine.workers": 1}, {"engine.workers": 2}, {"engine.name": "reference"})
        )
    ]
    assert torch.equal(torch.get_rng_state(), state)
    one, two, reference = (each.params(0) for each in made)
    assert model_hash(made[0]) == model_hash(made[1])
    assert all(torch.equal(one[name], two[name]) for name in one)
    torch.testing.assert_close(dict(reference), dict(one), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"engine.name": "vmap"}, {"privacy": {"record_clip": 1.0, "record_noise": 0.1}}]
)
def test_ids_train_in_one_batch_and_under_noise(settings: dict[str, Any], tmp_path: Path):
    def flat() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(20, 2))

    result = covey.run(flat, texts(), {**SETTINGS, **settings}, tmp_path / "run")
    assert result.params(0)["0.weight"].isfinite().all()


def test_the_blind_baseline_reads_ids_as_numbers():
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(50, (300, 5), generator=draws)
    labels = torch.arange(300) % 2
    config = Config.of({"data": {"name": "python"}, "model": {"name": "python"}})
    for moved, beaten in ((0, False), (50, True)):
        halves = [((ids[:150], labels[:150]), (ids[150:] + moved, labels[150:]))]
        population = build_run(config, Overrides(lambda: Reader(100), halves)).population
        blind = blind_risk(population.clients, Reference(()), Streams(0))
        assert blind is not None
        assert beats_chance(blind) == beaten


def test_ids_in_files_reach_an_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "readers.py").write_text(
        "from torch import nn\n"
        "def bag():\n"
        "    return nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(20, 2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    for name, (ids, labels) in texts().items():
        np.savez(data / f"{name}.npz", x=ids.numpy(), y=labels.numpy())
    settings = {**SETTINGS, "data": {"name": "npz", "dir": str(data)}, "model.name": "readers:bag"}
    result = covey.run(config=settings, out=tmp_path / "run")
    assert result.params(0)["0.weight"].shape == (50, 4)


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


def test_a_module_is_copied_and_its_weights_are_every_start(tmp_path: Path):
    module = net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    given = Overrides(module, points())
    assembled = build_run(Config.of({"data": {"name": "python"}}), given)
    for seed in (1, 2):
        drawn = assembled.init(Streams(seed))
        assert all(torch.equal(drawn[name], before[name]) for name in before)
    result = covey.run(module, points(), SETTINGS, tmp_path / "run")
    assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)
    assert any("every cluster" in note for note in result.summary.notes)
    made = build_run(Config.of({"data": {"name": "python"}}), Overrides(net, points()))
    assert not any("as a module" in note for note in made.notes)


def test_a_module_and_different_starts_exclude_each_other(tmp_path: Path):
    config = {"method.initialisation": "random"}
    with pytest.raises(ConfigError, match="whose weights are the start of all"):
        covey.run(net(), points(), config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def accepted(given: Overrides, **settings: Any) -> dict[str, Preference]:
    config = Config.of({"data": {"name": "python"}, **settings})
    clients = build_run(config, given).population.clients
    return {client.name: client.preference for client in clients}


def test_thresholds_and_weights_by_name():
    drawn = accepted(Overrides(net, points()))
    thresholds, weights = {"c0": 0.65, "c1": 0.5}, {"c1": 0.25, "c2": 0.75}
    stated = accepted(Overrides(net, points(), thresholds=thresholds, risk_weights=weights))
    assert stated["c0"].risk_threshold == 0.65
    assert stated["c0"].risk_weight == pytest.approx(0.5)  # (0.8 - 0.65) / 0.3
    assert stated["c1"] == Preference(risk_weight=0.25, risk_threshold=0.5)
    assert stated["c2"].risk_threshold == drawn["c2"].risk_threshold
    assert stated["c2"].risk_weight == 0.75
    assert stated["c3"] == drawn["c3"]
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


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_refused_with_its_name_and_a_remedy_before_anything_is_written(
    name: str, tmp_path: Path
):
    given, kind, said = BAD[name]
    with pytest.raises(kind) as refused:
        covey.run(**given(), out=tmp_path / "run")
    assert re.search(said, str(refused.value), re.DOTALL), refused.value
    assert re.search(r"[.)] [A-Z`]", str(refused.value))  # what is wrong, and what to do
    assert not list(tmp_path.glob("run/*"))
