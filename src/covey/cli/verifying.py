"""`covey verify`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.app import FAILED_CHECK, JsonOption, app, stated
from covey.runtime.verification import verify as check_proof
from covey.unlearning import Check

__all__ = ["verify"]


@app.command()
def verify(
    proof: Annotated[Path, typer.Argument(help="A proof, as JSON.")],
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The folder of the run it is of.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The signer's public keys, from elsewhere, as PEM."),
    ] = None,
    mine: Annotated[
        tuple[str, str] | None,
        typer.Option("--mine", metavar="NAME SALT", help="Is the proof about you?"),
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option(help="What you were given when you asked.")
    ] = None,
    witness: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="HEAD KEY", help="A cosigned head, and that witness's public keys."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a proof offline; exit code 1 if a check fails."""
    checks = check_proof(proof, ledger, key, mine, receipt, witness)
    valid = all(check.ok is not False for check in checks)
    told = {"valid": valid, "checks": [asdict(check) for check in checks]}
    stated(told, "\n".join(map(_check_text, checks)), as_json=as_json)
    if not valid:
        raise typer.Exit(FAILED_CHECK)


def _check_text(check: Check) -> str:
    mark = {True: "ok", False: "FAILED", None: "open"}[check.ok]
    return f"{mark:7} {check.name}: {check.detail}"
