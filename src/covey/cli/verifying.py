"""`covey verify`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.app import FAILED_CHECK, JsonOption, app, stated
from covey.runtime.verification import verify as check_proof
from covey.unlearning import Check

__all__ = ["shown_checks", "verify"]


@app.command()
def verify(
    proof: Annotated[
        Path, typer.Argument(help="A proof, as JSON, or a dossier's folder or archive.")
    ],
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
    """Check a proof or a dossier offline; exit code 1 if a check fails."""
    if proof.is_dir() or proof.suffix == ".zip" or proof.name == "dossier.json":
        # what a proof alone does not need
        from covey.dossier import check_dossier

        shown_checks(check_dossier(proof, ledger, key), as_json=as_json)
        return
    checks = check_proof(proof, ledger, key, mine, receipt, witness)
    shown_checks(checks, as_json=as_json)


def shown_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print checks, and end with exit code 1 if one failed."""
    valid = all(check.ok is not False for check in checks)
    told = {"valid": valid, "checks": [asdict(check) for check in checks]}
    stated(told, "\n".join(map(_check_text, checks)), as_json=as_json)
    if not valid:
        raise typer.Exit(FAILED_CHECK)


def _check_text(check: Check) -> str:
    mark = {True: "ok", False: "FAILED", None: "open"}[check.ok]
    return f"{mark:7} {check.name}: {check.detail}"
