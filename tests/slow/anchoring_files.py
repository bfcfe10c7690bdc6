"""Readers of what holds a run's history fast.

They read the run that `run_readers` played.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from covey import verify
from covey.base.signature import fingerprint, key_records, public_keys_path, revoke_key, signing_key
from covey.leaving.handover import unacknowledged
from covey.runs.folder import RunFolder
from slow.mutations import of_json
from slow.reading import Reader, reader_of


def anchoring_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    home, key = RunFolder(folder / "run"), signing_key()
    (proof,), (receipt,) = home.proofs.glob("*.json"), home.receipts.glob("*.json")
    yield "receipts", reader_of(receipt, _changed_fails(proof, receipt), of_json)
    (salt,) = home.unacknowledged.iterdir()
    yield "unacknowledged salts", reader_of(salt, lambda: unacknowledged(home, key))
    revoked = folder / "keys" / "signing-key.pem"
    revoked.parent.mkdir()
    revoke_key(fingerprint(signing_key(revoked).public_key()), revoked)
    keys = public_keys_path(revoked)
    yield "key lists", reader_of(keys, lambda: key_records(keys))


def _changed_fails(proof: Path, receipt: Path) -> Callable[[], None]:
    honest = receipt.read_bytes()

    def check() -> None:
        verification = verify(proof, receipt=receipt)
        assert receipt.read_bytes() == honest or not verification.valid

    return check
