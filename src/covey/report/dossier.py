"""Writing and checking a dossier: the document, its signature, and what lies beside it."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from covey.base.errors import LedgerError, RunError
from covey.base.files import make_folder, read_bounded, replace_whole
from covey.components.registry import no_foreign_code
from covey.ledger.store import Ledger
from covey.report.dossier_facts import annex_iv, dossier_facts, likelihoods, lineage, traces_of
from covey.report.page import audit_rows, rendered
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.receipts import key_of
from covey.unlearning.signature import Check, KeyRecord, check_signature, key_records, sign

FORMAT, VERSION = "covey dossier", 1
DOCUMENT = "dossier.json"
PAGE, AUDIT = "dossier.html", "audit.json"

SAYS = (
    "Figures of the run follow from its ledger, event by event, and whoever has the ledger "
    "can fold them again. Counts of files, audits and proofs are as the operator's folder "
    "had them when this was written. Nothing here decides whether a likelihood is "
    "insignificant, or whether a law is kept."
)


def write_dossier(folder: RunFolder, out: Path | None = None) -> Path:
    """Write a signed dossier of a run into a new folder, or a new file `NAME.zip`.

    dossier.json  dossier.html  audit.json (where the run was audited)

    Args:
        folder: the run's.
        out: the folder or file; None: `dossiers/N` of the run's folder, for N events.

    Raises:
        LedgerError: there is no ledger, or it is broken.
        RunError: something is there already.
    """
    with Ledger.read(folder.ledger) as ledger:
        record = folder.reader.read(ledger)
    out = out or folder.path / "dossiers" / str(len(record.hashes))
    if out.exists():
        raise RunError(
            f"A dossier is written into a new place, and {out} is there already. "
            f"Give another one with --out, or move it away."
        )
    files = _files(folder, record)
    if out.suffix == ".zip":
        make_folder(out.parent)
        replace_whole(out, _zipped(files))
    else:
        make_folder(out)
        for name, content in files.items():
            replace_whole(out / name, content)
    return out


def _files(folder: RunFolder, record: LedgerRecord) -> dict[str, bytes]:
    """Return every file, by name; the document, which holds the others' hashes, last."""
    facts = dossier_facts(record)
    files: dict[str, bytes] = {}
    audit = folder.path / "audit" / AUDIT
    if audit.exists():
        files[AUDIT] = read_bounded(audit)
    document = _document(folder, record, facts, files)
    files[PAGE] = rendered("dossier.html", {}, {"dossier": document}, "covey.report")
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    signed = sign(key_of(folder.config()), {**document, "files": hashes})
    files[DOCUMENT] = (json.dumps(signed, indent=1, sort_keys=True) + "\n").encode()
    return files


def _document(
    folder: RunFolder, record: LedgerRecord, facts: Mapping[str, Any], files: Mapping[str, bytes]
) -> dict[str, Any]:
    audit = json.loads(files[AUDIT]) if AUDIT in files else None
    rows = audit_rows(audit) if audit else []
    return json.loads(
        json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "says": SAYS,
                "name": folder.path.name,
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "ledger_events": len(record.hashes),
                "ledger_head": record.head,
                "facts": facts,
                "traces": [asdict(each) for each in traces_of(record)],
                "audits": rows,
                "likelihoods": likelihoods(facts, rows),
                "lineage": lineage(folder, facts["models"]),
                "proofs": _proofs(folder),
                "annex_iv": annex_iv(facts),
            },
            allow_nan=False,
        )
    )


def _proofs(folder: RunFolder) -> list[dict[str, str]]:
    """Return what was answered to those who left: of each proof its hash, and no name."""
    found: list[dict[str, str]] = []
    for path in sorted(folder.proofs.glob("*.json")):
        content = read_bounded(path)
        told = json.loads(content)
        found.append(
            {
                "sha256": hashlib.sha256(content).hexdigest(),
                "answer": str(told.get("answer")),
                "answered": str(told.get("answered")),
            }
        )
    return found


def _zipped(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in files.items():
            archive.writestr(name, each)
    return content.getvalue()


MOST_BYTES = 64 * 2**20
"""Of one file in a zip archive; a longer one is refused unread."""

Reader = Callable[[str], bytes]


def check_dossier(path: Path, run: Path | None = None, key: Path | None = None) -> list[Check]:
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
    told: Mapping[str, Any], read: Reader, run: Path | None, trusted: Sequence[KeyRecord] | None
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
    expected = {"facts": dossier_facts(then), "traces": [asdict(each) for each in traces_of(then)]}
    plain = json.loads(json.dumps(expected))
    wrong = [name for name, each in plain.items() if told.get(name) != each]
    if wrong:
        detail = f"{', '.join(wrong)}: others than events 1 to {at} tell"
        return Check.failed("ledger", detail)
    return Check.passed("ledger", f"every figure follows from events 1 to {at}")
