"""FedProx, and what clients keep for an objective of their own."""

import torch

import covey
from covey import ClientUpdate
from covey.algorithms.fedavg import FedProx
from covey.algorithms.state import ClientMemory, initial_state, with_memory

SMALL = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "minority_share": 0.25},
    "model.name": "linear",
    "train.local_epochs": 2,
    "risk.name": "none",
}


def test_the_pull_is_the_objective_of_the_settings(tmp_path):
    objective = {"method.name": "fedavg", "train.objective": {"name": "proximal", "mu": 1.0}}
    prox, same = (
        covey.run(config={**SMALL, **how}, out=tmp_path / str(i)).summary.model_hash
        for i, how in enumerate(({"method": FedProx(mu=1)}, objective))
    )
    assert prox == same


def update(handle: str, kept: float | None) -> ClientUpdate:
    memory = None if kept is None else {"h": {"w": torch.tensor([kept])}}
    return ClientUpdate(handle, 0, {"w": torch.zeros(1)}, 1.0, memory)


def test_a_memory_leaves_with_its_client():
    old = {"A": {"h": {"w": torch.tensor([1.0])}}}
    state = initial_state(({"w": torch.zeros(1)},)).with_state(ClientMemory(kept=old))
    after = with_memory(state, {"B": update("B", 3.0).kept or {}}, 0)
    found = {
        handle: float(each["h"]["w"]) for handle, each in after.get_state(ClientMemory).kept.items()
    }
    assert found == {"A": 1.0, "B": 3.0}
    assert state.without(["A"]).get_state(ClientMemory).kept == {}
