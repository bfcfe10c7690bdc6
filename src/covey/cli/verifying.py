"""`covey verify`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.app import FAILED_CHECK, JsonOption, app, stated
from covey.errors import ConfigError
from covey.runtime.verification import verify as check_proof
from covey.unlearning import Check

__all__ = ["shown_checks", "verify", "with_root"]


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
    timestamp: Annotated[
        Path | None,
        typer.Option(help="An authority's time stamp; the head lies beside it."),
    ] = None,
    tsa_root: Annotated[
        Path | None, typer.Option(help="That authority's root certificates, as PEM.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a proof or a dossier offline; exit code 1 if a check fails."""
    if proof.is_dir() or proof.suffix == ".zip" or proof.name == "dossier.json":
        # what a proof alone does not need
        from covey.dossier import check_dossier

        shown_checks(check_dossier(proof, ledger, key), as_json=as_json)
        return
    stamp = with_root(timestamp, tsa_root)
    checks = check_proof(proof, ledger, key, mine, receipt, witness, stamp)
    shown_checks(checks, as_json=as_json)


def with_root(timestamp: Path | None, root: Path | None) -> tuple[Path, Path] | None:
    """Return a time stamp and the certificates to check it by; None: neither is given.

    Raises:
        ConfigError: only one of them is given.
    """
    if timestamp is not None and root is not None:
        return timestamp, root
    if timestamp is root:
        return None
    raise ConfigError(
        "A time stamp is checked by its authority's root certificates, so --timestamp "
        "and --tsa-root go together, found one of them. Fetch the certificates from the "
        "authority itself."
    )


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
