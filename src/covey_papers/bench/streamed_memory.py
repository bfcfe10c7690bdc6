"""How much memory a round of many clients takes whose updates are added up as they come."""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covey.aggregation import mean_per_cluster
from covey.algorithms import (
    Clients,
    FedAvg,
    LocalClients,
    Steps,
    evaluate_with,
    initial_state,
    train_with,
)
from covey.data import Client, Examples, Preference
from covey.engine import ParallelEngine, Recipe
from covey.rng import Streams
from covey_papers.bench.anonymity_scale import peak_bytes

__all__ = ["StreamedMemory", "StreamedSize", "streamed_memory", "streamed_memory_apart"]


@dataclass(frozen=True, slots=True)
class StreamedSize:
    """A round of FedAvg in which each client takes one step with one example."""

    clients: int
    parameters: int
    workers: int = 2


@dataclass(frozen=True, slots=True)
class StreamedMemory:
    """What the round held at most.

    Attributes:
        model_bytes: of the model.
        before_bytes: peak of the process before the round, the model included.
        peak_bytes: peak of the process.
        models: how many times the model the round took beyond what was there before.
        limit: 3 x (workers + clusters).
    """

    size: StreamedSize
    model_bytes: int
    before_bytes: int
    peak_bytes: int
    models: float
    limit: int


class _Square(nn.Module):
    """One matrix of so many parameters; its first two outputs are the classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix = nn.Linear(width, width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.matrix(inputs)[:, :2]


def streamed_memory(size: StreamedSize, seed: int = 0) -> StreamedMemory:
    """Play one round, and return what this process held at most."""
    width = math.isqrt(size.parameters)
    with Streams(seed).at("model").lent_to_torch():
        module = _Square(width)
    engine = ParallelEngine(module, size.workers)
    recipe = Recipe(local_steps=1, batch_size=1, learning_rate=0.1)
    steps = Steps(
        LocalClients(evaluate_with(engine, "train", 0)),
        train_with(engine, recipe, "equal"),
        mean_per_cluster,
    )
    one = Examples(torch.ones(1, width), torch.zeros(1, dtype=torch.long))
    names = [f"{i:06d}" for i in range(size.clients)]
    own = Preference(risk_weight=0.0, risk_threshold=0.8)
    cohort = tuple(Client(each, each, None, one, one, own) for each in names)
    model = {name: value.detach() for name, value in module.state_dict().items()}
    state = initial_state((model,))
    before = peak_bytes()
    FedAvg().round(state, Clients(cohort, steps), Streams(seed))
    model_bytes = sum(value.nbytes for value in model.values())
    return StreamedMemory(
        size=size,
        model_bytes=model_bytes,
        before_bytes=before,
        peak_bytes=peak_bytes(),
        models=(peak_bytes() - before) / model_bytes,
        limit=3 * (size.workers + 1),
    )


def streamed_memory_apart(size: StreamedSize, seed: int = 0) -> StreamedMemory:
    """Return the same of a process of its own."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(streamed_memory, size, seed).result()
