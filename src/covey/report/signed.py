"""A report's summary, signed: `report.json` beside the page, to be checked by an outsider.

Its figures are a fold over the ledger, so a reader with the ledger folds them again and
compares. No client is named, by name or by handle: clients are counted.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.base.as_json import json_of
from covey.base.errors import LedgerError
from covey.base.files import file_hash, read_bounded, replace_whole
from covey.base.history import History
from covey.base.own_code import no_foreign_code
from covey.ledger.store import Ledger
from covey.report.summary import summary
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.unlearning.signature import Check, check_signature, key_records, sign, signing_key

FORMAT, VERSION = "covey-report", 1

SAYS = (
    "Figures of the run follow from its ledger, event by event, and a reader who has the "
    "ledger can fold them again. The page beside this has the hash that is recorded here. "
    "Nothing here decides whether a likelihood is insignificant, or whether a law is kept."
)


def write_signed(folder: RunFolder, page: Path) -> Path:
    """Sign what a run's ledger says and the hash of its page; return the JSON beside it.

    Raises:
        LedgerError: there is no ledger, or it is broken.
        ConfigError: the signing key cannot be used.
    """
    record = _record(folder)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "says": SAYS,
        "name": folder.path.name,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "ledger_events": len(record.hashes),
        "ledger_head": record.head,
        **_facts(record.history),
        "files": {page.name: file_hash(page)},
    }
    key = folder.config().secrets.key_path
    signed = sign(signing_key(Path(key) if key else None), document)
    out = page.with_suffix(".json")
    replace_whole(out, (json.dumps(signed, indent=1, sort_keys=True) + "\n").encode(), mode=0o600)
    return out


def _facts(history: History) -> dict[str, Any]:
    """Return all that the ledger says, as JSON holds it."""
    began, figures = history.started, json_of(summary(history))
    del figures["violations"]["clients"]
    keys = ("covey_version", "config_hash", "data_hash")
    run = {**{key: getattr(began, key, None) for key in keys}, "clients": len(history.clients)}
    return json.loads(json.dumps({"run": run, "summary": figures}, allow_nan=False))


def check_report(path: Path, run: Path | None = None, key: Path | None = None) -> list[Check]:
    """Check a signed report and the page beside it, and its figures against the ledger.

    Args:
        path: `report.json`.
        run: the folder of its run; None: the ledger is not compared.
        key: public keys of the signer, from elsewhere than the report, as PEM.
    """
    try:
        document = json.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        return [Check.failed("report", f"it must be JSON that can be read, but: {error}")]
    named = document if isinstance(document, dict) else {}
    form = named.get("format"), named.get("version")
    if form != (FORMAT, VERSION):
        detail = f"it must be of format {FORMAT!r}, version {VERSION}, found {form}"
        return [Check.failed("report", detail)]
    checks = [*check_signature(document, key_records(key) if key else None, "written")]
    checks.append(_check_files(document.get("files"), path.parent))
    if run is None:
        return [*checks, Check("ledger", None, "not compared: no run was named (--ledger)")]
    with no_foreign_code():
        return [*checks, _check_ledger(document, RunFolder.existing(run))]


def _check_files(files: object, beside: Path) -> Check:
    if not isinstance(files, dict) or not files:
        return Check.failed("files", "the report must hold the hash of its page")
    for name, digest in files.items():
        if not isinstance(name, str) or Path(name).name != name:
            return Check.failed("files", f"{name!r} must be a name, and no path")
        try:
            matches = file_hash(beside / name) == digest
        except (OSError, ValueError) as error:
            return Check.failed("files", f"{name} cannot be read: {error}")
        if not matches:
            return Check.failed("files", f"{name} is not the one that was signed for")
    return Check.passed("files", f"{', '.join(sorted(files))}: as signed for")


def _check_ledger(document: Mapping[str, Any], folder: RunFolder) -> Check:
    try:
        record = _record(folder)
    except LedgerError as error:
        return Check.failed("ledger", str(error))
    at = document.get("ledger_events")
    if not isinstance(at, int) or not 1 <= at <= len(record.hashes):
        detail = f"it must speak of 1 to {len(record.hashes)} events, found {at!r}"
        return Check.failed("ledger", detail)
    if record.hashes[at - 1] != document.get("ledger_head"):
        return Check.failed("ledger", f"event {at} has another hash there")
    then = _facts(record.until(at).history)
    if wrong := [name for name, facts in then.items() if document.get(name) != facts]:
        detail = f"{', '.join(wrong)}: other figures than events 1 to {at} make"
        return Check.failed("ledger", detail)
    return Check.passed("ledger", f"every figure follows from events 1 to {at}")


def _record(folder: RunFolder) -> LedgerRecord:
    with Ledger.read(folder.ledger) as ledger:
        return folder.reader.read(ledger)
