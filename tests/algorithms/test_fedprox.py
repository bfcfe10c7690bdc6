"""FedProx, and what clients keep for an objective of their own."""

from pathlib import Path

import pytest
import torch

import covey
from covey import ClientUpdate, ConfigError
from covey.algorithms.fedavg import FedProx
from covey.algorithms.state import ClientMemory, initial_state, recording_kept, with_memory

SMALL = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "minority_share": 0.25},
    "model.name": "linear",
    "train.local_epochs": 2,
    "risk.name": "none",
}


def model_hash(out: Path, **method: object) -> str:
    run = covey.run(config={**SMALL, **method}, out=out)
    return run.summary.model_hash or ""


def test_no_pull_is_fedavg_bit_for_bit(tmp_path: Path):
    plain = model_hash(tmp_path / "plain", **{"method.name": "fedavg"})
    assert model_hash(tmp_path / "prox", method=FedProx(mu=0)) == plain


def test_the_pull_is_the_objective_of_the_settings(tmp_path: Path):
    settings = {"method.name": "fedavg", "train": {"objective": {"name": "proximal", "mu": 1.0}}}
    of_settings = model_hash(tmp_path / "settings", **settings)
    assert model_hash(tmp_path / "prox", method=FedProx(mu=1.0)) == of_settings
    assert model_hash(tmp_path / "weaker", method=FedProx(mu=0.5)) != of_settings


def test_two_objectives_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"objective of its own.*Leave one"):
        model_hash(tmp_path / "two", **{"method.name": "fedprox", "train.objective": "proximal"})


def update(handle: str, kept: float | None) -> ClientUpdate:
    memory = None if kept is None else {"h": {"w": torch.tensor([kept])}}
    return ClientUpdate(handle, 0, {"w": torch.zeros(1)}, 1.0, memory)


def test_a_memory_follows_accepted_updates_alone_and_leaves_with_its_client():
    old = {"A": {"h": {"w": torch.tensor([1.0])}}}
    state = initial_state(({"w": torch.zeros(1)},)).keeping(ClientMemory(kept=old))
    noted = {}
    updates = [update("A", 2.0), update("B", 3.0), update("C", None)]
    assert list(recording_kept(updates, noted)) == updates
    after = with_memory(state, noted, {"B", "C"}).kept(ClientMemory).kept
    assert {handle: float(each["h"]["w"]) for handle, each in after.items()} == {
        "A": 1.0,  # its update was refused
        "B": 3.0,
    }
    assert with_memory(state, {}, {"A"}) is state
    assert state.without(["A"]).kept(ClientMemory).kept == {}
