"""FedAvg of Flower's simulation, on its Ray backend: one process per core."""

import sys
from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.peers.peer_task import Turns, read_task

FOREVER = 10**6


class _OverError(Exception):
    """There is no next round."""


class _InTurns(FedAvg):
    """FedAvg that waits before every round."""

    def __init__(self, turns: Turns, clients: int) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=clients,
            min_available_nodes=clients,
        )
        self._turns = turns

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if not self._turns.begin():
            raise _OverError
        return super().configure_train(server_round, arrays, config, grid)


def _client_app(path: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        task = read_task(path)
        inputs, labels = task["clients"][int(context.node_config["partition-id"])]
        model: nn.Module = task["model"]
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # pyright: ignore
        optimizer = torch.optim.SGD(model.parameters(), task["learning_rate"])
        for _ in range(task["epochs"]):
            for batch in torch.randperm(len(labels)).split(task["batch"]):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimizer.step()
        content = {
            "arrays": ArrayRecord(model.state_dict()),  # pyright: ignore
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
        return Message(content=RecordDict(content), reply_to=message)  # pyright: ignore

    return app


def _server_app(path: str, turns: Turns) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Context) -> None:
        task = read_task(path)
        arrays = ArrayRecord(task["model"].state_dict())
        strategy = _InTurns(turns, len(task["clients"]))
        strategy.start(grid, arrays, num_rounds=FOREVER)

    return app


def _main(path: str, cores: int) -> None:
    run_simulation(
        _server_app(path, Turns()),
        _client_app(path),
        num_supernodes=len(read_task(path)["clients"]),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores},
        },
    )


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
