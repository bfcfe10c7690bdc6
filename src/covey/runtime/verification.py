"""Checking a proof: offline, or against the ledger of the run that it speaks of."""

import json
from pathlib import Path

from covey.bounded_io import read_bounded
from covey.errors import LedgerError, RunError
from covey.events import event_from
from covey.types import ClientName
from covey.unlearning import ChainView, Check, latest_models, trusted_keys
from covey.unlearning import verify as check_proof

__all__ = ["verify"]


def verify(
    proof: str | Path,
    run: str | Path | None = None,
    key: str | Path | None = None,
    name_and_salt: tuple[ClientName, str] | None = None,
) -> list[Check]:
    """Check a proof without the run's server, and against its ledger if that is given.

    Args:
        proof: the JSON file.
        run: the folder of the run that it speaks of.
        key: public keys of the signer, from elsewhere than the proof, as PEM.
        name_and_salt: the requester's name and the salt that it was given with the
            answer, to see that the proof is its own.
    """
    try:
        written = read_bounded(Path(proof))
        subject = _with_bytes(name_and_salt) if name_and_salt else None
    except (OSError, ValueError) as error:
        raise RunError(
            f"A proof must be a file that can be read, and a salt hexadecimal, but: "
            f"{error}. Check what was given."
        ) from error
    trusted = trusted_keys(Path(key)) if key is not None else None
    chain = _chain(Path(run), written) if run is not None else None
    return check_proof(written, trusted, chain, subject)


def _with_bytes(name_and_salt: tuple[ClientName, str]) -> tuple[ClientName, bytes]:
    name, salt = name_and_salt
    return name, bytes.fromhex(salt)


def _chain(folder: Path, proof: bytes) -> ChainView:
    """Return the ledger that a proof speaks of, as it stood at the proof's position."""
    # a database's library is needed by nobody who has only the proof
    from covey.ledger import Ledger, current_records
    from covey.runtime.folder import RunFolder

    try:
        position = int(json.loads(proof)["ledger_events"])
    except (ValueError, TypeError, KeyError, RecursionError):
        position = 0  # no proof: its own checks say so
    with Ledger.read(RunFolder.existing(folder).ledger) as ledger:
        try:
            links = ledger.links()
        except LedgerError:
            return ChainView((), verified=False)
    records = current_records([each.record() for each in links[:position]])
    events = [(r.round_index, event_from(r.kind, r.body)) for r in records]
    hashes = [each.hash for each in links]
    return ChainView(hashes, verified=True, head_model_hash=latest_models(events))
