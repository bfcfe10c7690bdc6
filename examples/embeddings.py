"""Vectors of a frozen backbone, a head solved over clients; one leaves in a second."""

import sys

import torch

import covey

TURN = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)) / 4


def backbone(points: torch.Tensor) -> torch.Tensor:
    """Stand-in for a frozen network: its vectors."""
    return (points @ TURN).tanh()


def client(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand-in for a client's data: what its backbone makes of them, and labels."""
    points = torch.randn(50, 20, generator=torch.Generator().manual_seed(seed))
    return backbone(points), (points[:, 0] > points[:, 1]).long()


def main(out: str) -> None:
    config = covey.Config.of(
        {
            "rounds": 2,
            "model": {"name": "linear-head", "options": {"features": "none"}},
            "method": {"name": "solved", "num_clusters": 1},
            "redteam": {"source": "leave-one-out", "every": 1},
        }
    )
    run = covey.run(clients=[client(i) for i in range(20)], config=config, out=out)
    print(f"accuracy on held-out examples: {run.summary['accuracy']['overall']:.2f}")
    (answer,) = run.forget("client-00007", answer="subtract")
    print(f"client-00007 has left: {answer.answered.proof}")
    print(
        f"its proof holds: {all(check.ok for check in run.verify(answer.answered.proof))}"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/embeddings")
