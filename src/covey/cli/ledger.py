"""`covey verify`, `head`, `witness` and `keys`: what holds history and proofs fast."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.base.files import read_bounded, replace_whole
from covey.cli.app import FAILED_CHECK, JsonOption, app, stated
from covey.runtime.verification import verify as check_proof
from covey.unlearning.signature import Check


@app.command()
def verify(
    proof: Annotated[Path, typer.Argument(help="A proof or a signed report, as JSON.")],
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The folder of the run it is of.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="The signer's public keys, from elsewhere, as PEM.")
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
        typer.Option(metavar="HEAD KEY", help="A cosigned head, and that witness's public keys."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a proof or a signed report offline; exit code 1 if a check fails."""
    if _is_report(proof):
        from covey.report.signed import check_report  # what a proof does not need

        shown_checks(check_report(proof, ledger, key), as_json=as_json)
        return
    checks = check_proof(proof, ledger, key, mine, receipt, witness)
    shown_checks(checks, as_json=as_json)


def _is_report(path: Path) -> bool:
    """Say whether a file calls itself a signed report; what is wrong with it, a check says."""
    try:
        return b'"format": "covey-report"' in read_bounded(path)
    except OSError:
        return False


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


@app.command()
def head(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    since: Annotated[int, typer.Option(help="Events that the witness knows.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A file for the witness.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign the head of a run's ledger, for a witness."""
    from covey.runtime.folder import RunFolder
    from covey.runtime.witness import head_update

    update = head_update(RunFolder.existing(run), since)
    if out is not None:
        replace_whole(out, update.text().encode())
    told = {"run": str(run), "size": update.head.size, "checkpoint": update.head.note()}
    stated(told, update.head.note().rstrip() if out else update.text().rstrip(), as_json=as_json)


@app.command()
def witness(
    folder: Annotated[Path, typer.Argument(help="The witness's own folder.")],
    source: Annotated[
        Path, typer.Argument(help="What `covey head` wrote, or the folder of a run.")
    ],
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The operator's public keys, from elsewhere, as PEM."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Cosign the head of a ledger that grew, and refuse one that was rewritten."""
    from covey.runtime.folder import RunFolder
    from covey.runtime.witness import head_update, read_update, witness_head, witnessed_size

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if source.is_dir():
        run = RunFolder.existing(source)
        update = head_update(run)
        if known := witnessed_size(folder, update.head.origin):
            update = head_update(run, known)
    else:
        update = read_update(source)
    seen = witness_head(folder, update, key)
    told = {"size": seen.size, "origin": seen.origin, "checkpoint": seen.note()}
    stated(told, seen.note().rstrip(), as_json=as_json)


@app.command()
def keys(
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Set the key aside and make another.")
    ] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="Nothing counts that it signs.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option(help="The private key's file; else the user's own.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the keys that sign proofs, replace the one in use, or revoke one."""
    from covey.unlearning.signature import (
        fingerprint,
        key_records,
        public_keys_path,
        revoke_key,
        rotate_key,
    )

    if revoke is not None:
        revoke_key(revoke, path)
    if rotate:
        rotate_key(path)
    place = public_keys_path(path)
    found = [
        {
            "fingerprint": fingerprint(each.public),
            **{
                name: moment.isoformat() if moment else None
                for name, moment in (
                    ("since", each.since),
                    ("until", each.until),
                    ("revoked", each.revoked),
                )
            },
        }
        for each in key_records(place)
    ]
    lines = ["  ".join(f"{k} {v}" for k, v in each.items() if v) for each in found]
    stated({"file": str(place), "keys": found}, "\n".join(lines), as_json=as_json)
