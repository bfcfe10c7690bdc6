"""FedProx, and what clients keep for an objective of their own."""

import torch

import covey
from covey import ClientUpdate
from covey.algorithms.fedavg import FedProx
from covey.algorithms.state import ClientMemory, initial_state, noting, with_memory

SMALL = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "minority_share": 0.25},
    "model.name": "linear",
    "train.local_epochs": 2,
    "risk.name": "none",
}


def test_the_pull_is_the_objective_of_the_settings_and_none_is_fedavg(tmp_path):
    def model_hash(name: str, **method: object) -> object:
        return covey.run(config={**SMALL, **method}, out=tmp_path / name).summary.model_hash

    fedavg = {"method.name": "fedavg"}
    objective = {"train.objective": {"name": "proximal", "mu": 1.0}}
    assert model_hash("prox", method=FedProx(mu=1)) == model_hash("same", **fedavg, **objective)
    assert model_hash("none", method=FedProx(mu=0)) == model_hash("plain", **fedavg)


def update(handle: str, kept: float | None) -> ClientUpdate:
    memory = None if kept is None else {"h": {"w": torch.tensor([kept])}}
    return ClientUpdate(handle, 0, {"w": torch.zeros(1)}, 1.0, memory)


def test_a_memory_follows_accepted_updates_alone_and_leaves_with_its_client():
    old = {"A": {"h": {"w": torch.tensor([1.0])}}}
    state = initial_state(({"w": torch.zeros(1)},)).keeping(ClientMemory(kept=old))
    noted = {}
    updates = [update("A", 2.0), update("B", 3.0), update("C", None)]
    assert list(noting(updates, noted)) == updates
    after = with_memory(state, noted, {"B", "C"}).kept(ClientMemory).kept
    found = {handle: float(each["h"]["w"]) for handle, each in after.items()}
    assert found == {"A": 1.0, "B": 3.0}  # A's update was refused
    assert with_memory(state, {}, {"A"}) is state
    assert state.without(["A"]).kept(ClientMemory).kept == {}
