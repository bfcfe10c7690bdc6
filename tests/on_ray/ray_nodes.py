"""What a round takes on one and on two local nodes of Ray, against threads of one process.

    PYTHONPATH=src:tests python -m on_ray.ray_nodes [--clients 24] [--pairs 3]

Every engine trains the same clients in turn, and the ratios are of one turn each: median,
least and greatest. Nodes on one machine share its cores: two of them show what spreading
costs, and not what a second machine brings.
"""

import argparse
import gc
import os
import statistics
import sys
import time

import ray
import torch
from ray.cluster_utils import Cluster

from covey import Engine, Examples, Recipe, Streams, TrainingJob
from covey.engine.cpu import ParallelEngine
from covey.models.build import initial_params
from covey.models.networks import MnistCnn
from covey_ray.engine import RayEngine

IMAGES = 250


def clients(count: int, start: dict[str, torch.Tensor]) -> list[TrainingJob]:
    draws = torch.Generator().manual_seed(0)
    shape = (IMAGES, 1, 28, 28)
    return [
        TrainingJob(
            start,
            Examples(
                torch.randint(256, shape, dtype=torch.uint8, generator=draws),
                torch.randint(10, (IMAGES,), generator=draws),
            ),
            Streams(0).at(client),
            Recipe(),
        )
        for client in range(count)
    ]


def seconds(engine: Engine, jobs: list[TrainingJob]) -> float:
    begun = time.perf_counter()
    for _ in engine.train(jobs):
        pass
    return time.perf_counter() - begun


def print_ratios(name: str, ratios: list[float]) -> None:
    middle = statistics.median(ratios)
    sys.stdout.write(f"{name}: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    torch.set_num_threads(1)
    module = MnistCnn((1, 28, 28), 10)
    jobs = clients(arguments.clients, dict(initial_params(module)))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    on_ray = RayEngine(module, address=str(cluster.address))
    threads = {count: ParallelEngine(module, count) for count in (1, 2)}

    def pairs(workers: int) -> list[float]:
        engines = (on_ray, threads[workers])
        for engine in engines:
            seconds(engine, jobs)  # processes start, examples are placed
        turns = [[seconds(engine, jobs) for engine in engines] for _ in range(arguments.pairs)]
        return [remote / here for remote, here in turns]

    print_ratios("one node of one core against one thread, in time", pairs(1))
    cluster.add_node(num_cpus=1)
    print_ratios("two nodes of one core against two threads, in time", pairs(2))
    ray.shutdown()
    cluster.shutdown()
    gc.collect()


if __name__ == "__main__":
    main()
