"""Your own model and your own clients' data, with a risk figure for every cluster."""

import sys

import torch
from torch import nn

import covey


def make_client(turned: bool, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand-in for your data: two kinds of clients label the same points differently."""
    points = torch.randn(60, 2, generator=torch.Generator().manual_seed(seed))
    labels = (points[:, 0] > 0) ^ turned
    return points, labels.long()


def main(out: str) -> None:
    clients = [make_client(turned=i % 4 == 0, seed=i) for i in range(12)]
    run = covey.run(
        model=lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2)),
        clients=clients,
        config=covey.Config.of({"rounds": 12, "train": {"learning_rate": 0.5}}),
        out=out,
    )
    print(f"accuracy on held-out examples: {run.summary.accuracy.overall:.2f}")
    for cluster in run.summary.clusters:
        print(f"{cluster.clients} clients, risk {cluster.risk}: {cluster.reason}")
    params = run.params(run.cluster_of("client-00000"))
    print(f"client-00000 uses {sum(p.numel() for p in params.values())} parameters")
    (answer,) = run.forget("client-00007", answer="retrain")
    print(f"client-00007 has left: {answer.answered.proof}")
    print(f"its salt, for itself alone: {answer.answered.salt}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/own-model")
