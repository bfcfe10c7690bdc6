"""DP-SGD of Opacus, with its defaults: Poisson batches, and gradients by hooks."""

import sys

import torch
from opacus import PrivacyEngine  # pyright: ignore[reportMissingImports]
from opacus.validators import ModuleValidator  # pyright: ignore[reportMissingImports]
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.peer_task import Turns, read_task


def _main(path: str, threads: int) -> None:
    turns, task = Turns(), read_task(path)
    torch.set_num_threads(threads)
    ((inputs, labels),) = task["clients"]
    module = ModuleValidator.fix(task["model"]).train()
    module, optimizer, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=task["learning_rate"]),
        data_loader=DataLoader(TensorDataset(inputs, labels), batch_size=task["batch"]),
        noise_multiplier=task["privacy"]["record_noise"],
        max_grad_norm=task["privacy"]["record_clip"],
    )
    while turns.begin():
        for _ in range(task["epochs"]):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x), y).backward()
                optimizer.step()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
