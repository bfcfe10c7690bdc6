"""`covey verify`, `head`, `witness` and `keys`: what holds history and proofs fast."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from covey.base.files import read_bounded, replace_whole
from covey.cli.answer import HIDDEN, Answer, Verdict
from covey.cli.app import app
from covey.runtime.verification import verify as check_proof
from covey.unlearning.signature import Check


@dataclass(frozen=True, slots=True)
class Checked(Verdict):
    """Checks of a proof or a signed report.

    Attributes:
        valid: no check failed.
    """

    checks: list[Check]

    def lines(self) -> Iterator[str]:
        """Yield a line per check."""
        marks = {True: "ok", False: "FAILED", None: "open"}
        for check in self.checks:
            yield f"{marks[check.ok]:7} {check.name}: {check.detail}"


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
) -> Checked:
    """Check a proof or a signed report offline; exit code 1 if a check fails."""
    text = b""
    with suppress(OSError):  # what is wrong with the file, a check says
        text = read_bounded(proof)
    if b'"format": "covey-report"' in text:
        from covey.report.signed import check_report  # what a proof does not need

        checks = check_report(proof, ledger, key)
    else:
        checks = check_proof(proof, ledger, key, mine, receipt, witness)
    return Checked(all(check.ok is not False for check in checks), [*checks])


@dataclass(frozen=True, slots=True)
class HeadSigned(Answer):
    """The head of a run's ledger, signed by its operator.

    Attributes:
        size: events under it.
        checkpoint: the signed note.
        update: what a witness reads, where no file of it was written.
    """

    run: Path
    size: int
    checkpoint: str
    update: str = field(metadata=HIDDEN)

    def lines(self) -> Iterator[str]:
        """Yield the note, or all that a witness reads."""
        yield (self.update or self.checkpoint).rstrip()


@dataclass(frozen=True, slots=True)
class HeadWitnessed(Answer):
    """A head that a witness cosigned.

    Attributes:
        size: events under it.
        origin: which ledger it is of.
        checkpoint: the cosigned note.
    """

    size: int
    origin: str
    checkpoint: str

    def lines(self) -> Iterator[str]:
        """Yield the note."""
        yield self.checkpoint.rstrip()


@app.command()
def head(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    since: Annotated[int, typer.Option(help="Events that the witness knows.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A file for the witness.")] = None,
) -> HeadSigned:
    """Sign the head of a run's ledger, for a witness."""
    from covey.runtime.folder import RunFolder
    from covey.runtime.witness import head_update

    update = head_update(RunFolder.existing(run), since)
    if out is not None:
        replace_whole(out, update.text().encode())
    return HeadSigned(
        run, update.head.size, update.head.note(), update="" if out else update.text()
    )


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
) -> HeadWitnessed:
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
    return HeadWitnessed(seen.size, seen.origin, seen.note())


@dataclass(frozen=True, slots=True)
class Key:
    """A key that signs proofs, or did; moments in ISO 8601."""

    fingerprint: str
    since: str | None
    until: str | None
    revoked: str | None


@dataclass(frozen=True, slots=True)
class KeysListed(Answer):
    """The keys that sign proofs.

    Attributes:
        file: of the public keys.
    """

    file: Path
    keys: list[Key]

    def lines(self) -> Iterator[str]:
        """Yield a line per key."""
        for key in self.keys:
            yield "  ".join(f"{k} {v}" for k, v in asdict(key).items() if v)


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
) -> KeysListed:
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
        Key(fingerprint(each.public), *map(_iso, (each.since, each.until, each.revoked)))
        for each in key_records(place)
    ]
    return KeysListed(place, found)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
