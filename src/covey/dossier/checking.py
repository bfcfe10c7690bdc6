"""Checking a dossier: its signature, its files, and every figure against the ledger."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from covey.bounded_io import read_bounded
from covey.components.foreign_code import no_foreign_code
from covey.dossier.annex_iv import annex_iv
from covey.dossier.facts import dossier_facts, traces_of
from covey.dossier.likelihoods import likelihoods
from covey.dossier.writing import AUDIT, DOCUMENT, FORMAT, VERSION
from covey.errors import LedgerError
from covey.ledger import Ledger
from covey.report.auditing import audit_rows
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.unlearning import Check, KeyRecord, key_records
from covey.unlearning.signature import check_signature

__all__ = ["check_dossier"]

MOST_BYTES = 64 * 2**20
"""Of one file in a zip archive; a longer one is refused unread."""

Reader = Callable[[str], bytes]


def check_dossier(
    path: Path, run: Path | None = None, key: Path | None = None
) -> list[Check]:
    """Check a dossier offline, and against the run's ledger if that is given.

    Args:
        path: its folder, archive, or `dossier.json`.
        run: the folder of the run that it speaks of.
        key: public keys of the signer, from elsewhere than the dossier, as PEM.
    """
    try:
        read = _reader(path)
        document = json.loads(read(DOCUMENT))
    except (OSError, ValueError, KeyError, RecursionError, zipfile.BadZipFile) as error:
        return [Check.failed("dossier", f"it cannot be read: {error}")]
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return [Check.failed("dossier", f"it must be of format {FORMAT!r}")]
    told = cast("Mapping[str, Any]", document)
    if told.get("version") != VERSION:
        found = told.get("version")
        detail = f"it must be of version {VERSION}, found {found!r}"
        return [Check.failed("dossier", detail)]
    trusted = key_records(key) if key is not None else None
    return list(_checks(told, read, run, trusted))


def _checks(
    told: Mapping[str, Any],
    read: Reader,
    run: Path | None,
    trusted: Sequence[KeyRecord] | None,
) -> Iterator[Check]:
    yield from check_signature(told, trusted, "written")
    yield _check_files(told, read)
    yield _check_text(told, read)
    if run is None:
        yield Check("ledger", None, "not compared: no run was given (--ledger)")
        return
    with no_foreign_code():
        yield _check_ledger(told, RunFolder.existing(run))


def _reader(path: Path) -> Reader:
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(path)

        def from_archive(name: str) -> bytes:
            if archive.getinfo(name).file_size > MOST_BYTES:
                raise ValueError(f"{name} is longer than {MOST_BYTES} bytes")
            return archive.read(name)

        return from_archive
    folder = path if path.is_dir() else path.parent
    return lambda name: read_bounded(folder / name)


def _check_files(told: Mapping[str, Any], read: Reader) -> Check:
    files = told.get("files")
    if not isinstance(files, dict) or not files:
        return Check.failed("files", "the document must hold the hashes of its files")
    for name, digest in cast("Mapping[str, object]", files).items():
        if Path(name).name != name:
            return Check.failed("files", f"{name!r} must be a name, and no path")
        try:
            found = hashlib.sha256(read(name)).hexdigest()
        except (OSError, ValueError, KeyError) as error:
            return Check.failed("files", f"{name} cannot be read: {error}")
        if found != digest:
            return Check.failed("files", f"{name} is not the one that was signed for")
    return Check.passed("files", f"{', '.join(sorted(files))}: as signed for")


def _check_text(told: Mapping[str, Any], read: Reader) -> Check:
    """Compare every sentence with what the document's own figures make it."""
    try:
        audited = AUDIT in told["files"]
        expected = {
            "audits": audit_rows(json.loads(read(AUDIT))) if audited else [],
            "likelihoods": likelihoods(told["facts"], told["audits"]),
            "annex_iv": annex_iv(told["facts"]),
        }
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Check.failed("text", f"the figures are incomplete: {error!r}")
    wrong = [name for name, each in expected.items() if told.get(name) != each]
    if wrong:
        detail = f"{', '.join(wrong)}: another text than the figures make"
        return Check.failed("text", detail)
    return Check.passed("text", "every sentence follows from the figures")


def _check_ledger(told: Mapping[str, Any], folder: RunFolder) -> Check:
    try:
        with Ledger.read(folder.ledger) as ledger:
            record = folder.reader.read(ledger)
    except LedgerError as error:
        return Check.failed("ledger", str(error))
    at = told.get("ledger_events")
    if not isinstance(at, int) or not 1 <= at <= len(record.hashes):
        detail = f"it must speak of 1 to {len(record.hashes)} events, found {at!r}"
        return Check.failed("ledger", detail)
    if record.hashes[at - 1] != told.get("ledger_head"):
        return Check.failed("ledger", f"event {at} has another hash there")
    then = LedgerRecord(record.hashes[:at], record.records[:at])
    expected = {
        "facts": dossier_facts(then),
        "traces": [asdict(each) for each in traces_of(then)],
    }
    plain = json.loads(json.dumps(expected))
    wrong = [name for name, each in plain.items() if told.get(name) != each]
    if wrong:
        detail = f"{', '.join(wrong)}: others than events 1 to {at} tell"
        return Check.failed("ledger", detail)
    return Check.passed("ledger", f"every figure follows from events 1 to {at}")
