"""Writing a dossier: the document, its signature, and what lies beside it."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.atomic_io import make_folder, replace_whole
from covey.bounded_io import read_bounded
from covey.dossier.annex_iv import annex_iv
from covey.dossier.facts import dossier_facts, traces_of
from covey.dossier.likelihoods import likelihoods
from covey.dossier.lineage import lineage
from covey.errors import RunError
from covey.ledger import Ledger
from covey.report.auditing import audit_rows
from covey.report.page import rendered
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.unlearning import signing_key
from covey.unlearning.signature import sign

__all__ = ["AUDIT", "DOCUMENT", "FORMAT", "VERSION", "write_dossier"]

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
    files[PAGE] = rendered("dossier.html", {}, {"dossier": document}, "covey.dossier")
    hashes = {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    path = folder.config().secrets.key_path
    key = signing_key(Path(path) if path else None)
    signed = sign(key, {**document, "files": hashes})
    files[DOCUMENT] = (json.dumps(signed, indent=1, sort_keys=True) + "\n").encode()
    return files


def _document(
    folder: RunFolder,
    record: LedgerRecord,
    facts: Mapping[str, Any],
    files: Mapping[str, bytes],
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
