"""FedAvg of pfl-research, as its benchmarks write it: one process, so many threads."""

import sys
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend  # pyright: ignore[reportMissingImports]
from pfl.algorithm.base import NNAlgorithmParams  # pyright: ignore[reportMissingImports]
from pfl.algorithm.federated_averaging import FederatedAveraging  # pyright: ignore[reportMissingImports]
from pfl.callback.base import TrainingProcessCallback  # pyright: ignore[reportMissingImports]
from pfl.data.dataset import Dataset  # pyright: ignore[reportMissingImports]
from pfl.data.federated_dataset import FederatedDataset  # pyright: ignore[reportMissingImports]
from pfl.data.sampling import get_user_sampler  # pyright: ignore[reportMissingImports]
from pfl.hyperparam import NNTrainHyperParams  # pyright: ignore[reportMissingImports]
from pfl.metrics import Metrics  # pyright: ignore[reportMissingImports]
from pfl.model.pytorch import PyTorchModel  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

from benchmarks.peers.peer_task import Turns, read_task

FOREVER = 10**9


class _Model(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(
        self,
        inputs: Tensor,
        labels: Tensor,
        is_eval: bool = False,  # noqa: ARG002, FBT001, FBT002 - as pfl calls it
    ) -> Tensor:
        return nn.functional.cross_entropy(self.module(inputs), labels)

    def metrics(self, *_: Tensor) -> dict[str, object]:
        return {}


class _Rounds(TrainingProcessCallback):
    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def on_train_begin(
        self,
        *,
        model: object,  # noqa: ARG002
    ) -> Any:  # noqa: ANN401 - pfl's Metrics
        self._turns.begin()
        return Metrics()

    def after_central_iteration(
        self,
        aggregate_metrics: object,  # noqa: ARG002
        model: object,  # noqa: ARG002
        *,
        central_iteration: int,  # noqa: ARG002
    ) -> tuple[bool, Any]:
        return not self._turns.begin(), Metrics()


def _main(path: str, threads: int) -> None:
    turns, task = Turns(), read_task(path)
    torch.set_num_threads(threads)
    sampler = get_user_sampler("minimize_reuse", list(range(len(task["clients"]))))
    data = FederatedDataset(
        lambda user: Dataset(raw_data=task["clients"][user], user_id=str(user)), sampler
    )
    module = _Model(task["model"])
    model = PyTorchModel(
        module,
        torch.optim.SGD,
        torch.optim.SGD(module.parameters(), lr=1.0),
        amp_dtype=torch.bfloat16 if task["precision"] == "bfloat16" else None,
    )
    np.random.seed(0)  # noqa: NPY002 - pfl draws globally
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=FOREVER,
            evaluation_frequency=FOREVER,
            train_cohort_size=task["cohort"],
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_learning_rate=task["learning_rate"],
            local_num_epochs=task["epochs"],
            local_batch_size=task["batch"],
        ),
        callbacks=[_Rounds(turns)],
    )


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
