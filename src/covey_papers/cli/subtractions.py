"""`covey bench subtract`: how long does a client wait that leaves by subtraction?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from covey.cli import FAILED_CHECK, JsonOption, stated, tabled
from covey_papers import bench as benches

__all__ = ["subtract"]


def subtract(
    clients: Annotated[int, typer.Option("--clients", min=20)] = 10_000,
    features: Annotated[int, typer.Option("--features", min=1)] = 1_800,
    answers: Annotated[
        int, typer.Option("--answers", min=1, help="Clients that leave.")
    ] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Time answers from the request to the signed proof, in a run that is made for it.

    Exit code 1 if a proof does not verify against the run's ledger.
    """
    size = benches.SubtractionSize(clients, features, answers)
    with TemporaryDirectory() as folder:
        waited = list(benches.waits(size, Path(folder), seed))
    failed = sorted({name for each in waited for name in each.failed})
    middle = median(each.seconds for each in waited)
    answer = {
        "size": asdict(size),
        "answers": [asdict(each) for each in waited],
        "median_seconds": middle,
        "median_process_seconds": median(each.process_seconds for each in waited),
        "failed": failed,
    }
    rows = [(f"{e.seconds:.2f}", f"{e.process_seconds:.2f}") for e in waited]
    proofs = f"failed: {', '.join(failed)}" if failed else "all proofs verify"
    table = tabled(("seconds to the proof", "of this process"), rows)
    told = f"{table}\n\nmedian {middle:.2f} seconds; {proofs}"
    stated(answer, told, as_json=as_json)
    if failed:
        raise typer.Exit(FAILED_CHECK)
