"""Vectors of a frozen backbone, a head solved over clients; one leaves in a second."""

import sys

import torch

import covey

TURN = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)) / 4
SETTINGS = {
    "rounds": 2,
    "model": {"name": "linear-head", "features": "none"},
    "method": {"name": "ridge", "num_clusters": 1},
    "risk": {"every": 1},
}


def client(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand-in for a client's data: what a frozen network makes of them, and labels."""
    points = torch.randn(50, 20, generator=torch.Generator().manual_seed(seed))
    return (points @ TURN).tanh(), (points[:, 0] > points[:, 1]).long()


def main(out: str) -> None:
    clients = [client(seed) for seed in range(20)]
    run = covey.run(clients=clients, config=covey.Config.of(SETTINGS), out=out)
    print(f"accuracy on held-out examples: {run.summary.accuracy.overall:.2f}")
    (answer,) = run.forget("client-00007", answer="subtract")
    print(f"client-00007 has left: {answer.answered.proof}")
    print(f"checks that failed: {list(run.verify(answer.answered.proof).failed)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/embeddings")
