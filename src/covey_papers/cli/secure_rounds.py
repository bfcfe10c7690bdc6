"""`covey bench secure-sums`: what do masks cost a client, and the server?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli import FAILED_CHECK, JsonOption, stated, tabled
from covey_papers import bench as benches

__all__ = ["secure_sums"]

HEADS = (
    "clients",
    "neighbours",
    "seconds of a client",
    "it sends beside its numbers",
    "it receives",
    "seconds of the server",
)


def secure_sums(
    clients: Annotated[int, typer.Option("--clients", min=3)] = 100,
    numbers: Annotated[
        int, typer.Option("--numbers", min=1, help="That each client sends.")
    ] = 1_640_711,
    drop_outs: Annotated[
        int, typer.Option("--drop-outs", min=0, help="Clients that stay away midway.")
    ] = 30,
    neighbours: Annotated[
        int, typer.Option("--neighbours", min=0, help="0: as many as are needed.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Play a round of secure sums with every message, and count seconds and bytes.

    Seconds are of this process, on as many threads as it has. Exit code 1 if the sum is
    not that of the numbers of those who stayed.
    """
    size = benches.SecureRoundSize(clients, numbers, drop_outs, neighbours)
    cost = benches.secure_round_cost(size, seed)
    row = (
        str(clients),
        str(cost.neighbours),
        f"{cost.client_seconds:.2f}",
        f"{cost.sent_bytes / 1e3:.1f} kB",
        f"{cost.received_bytes / 1e3:.1f} kB",
        f"{cost.server_seconds:.1f}",
    )
    exact = "the sum is exact" if cost.exact else "the sum is WRONG"
    told = f"{tabled(HEADS, [row])}\n\n{drop_outs} dropped out; {exact}"
    stated({"size": asdict(size), "cost": asdict(cost)}, told, as_json=as_json)
    if not cost.exact:
        raise typer.Exit(FAILED_CHECK)
