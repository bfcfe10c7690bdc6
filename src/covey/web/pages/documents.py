"""Proofs of what was answered, verified in place, and what audits found."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.bounded_io import read_bounded
from covey.errors import CoveyError
from covey.report import audit_rows
from covey.runtime.verification import verify
from covey.unlearning import Check
from covey.web.followed_run import FollowedRun, Snapshot

__all__ = ["audit_page", "audit_picture", "proof_page", "proofs_page"]

SAID = {
    "done": "What was done",
    "left_to_do": "What is left to do",
    "limits": "What it does not say",
}


def proofs_page(run: FollowedRun) -> dict[str, Any]:
    """Return the list of a run's proofs, as they tell of themselves."""
    proofs = [_told(path) for path in _proofs(run)]
    proofs.sort(key=lambda each: str(each["answered"]), reverse=True)
    return {"run": run, "snapshot": run.look(), "proofs": proofs}


def proof_page(run: FollowedRun, name: str) -> dict[str, Any] | None:
    """Return one proof with every check of it; None: there is no such proof."""
    path = next((each for each in _proofs(run) if each.stem == name), None)
    if path is None:
        return None
    checks = run.made_later(f"proof {name}", lambda now: _checks(run, now, path))
    return {
        "run": run,
        "snapshot": run.look(),
        "proof": _told(path),
        "checks": checks,
        "claim": str(_document(path).get("claim", "")),
        "sentences": {title: _listed(path, key) for key, title in SAID.items()},
    }


def audit_page(run: FollowedRun) -> dict[str, Any]:
    """Return what the last audit found, or that there was none."""
    told: dict[str, Any] = {"run": run, "snapshot": run.look(), "audit": None}
    path = run.folder.path / "audit" / "audit.json"
    if not path.is_file():
        return {**told, "problem": ""}
    try:
        audit = json.loads(read_bounded(path))
        rows = audit_rows(audit)
        pictures = {
            str(each["cluster"])
            for each in audit["clusters"]
            if audit_picture(run, str(each["cluster"])) is not None
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {**told, "problem": f"{path.name} cannot be read: {error}"}
    return {**told, "audit": audit, "rows": rows, "pictures": pictures, "problem": ""}


def audit_picture(run: FollowedRun, cluster: str) -> Path | None:
    """Return the ROC figure of a cluster, as the audit drew it; None: there is none."""
    if not (cluster.isascii() and cluster.isdigit()):
        return None
    path = run.folder.path / "audit" / f"roc-cluster-{int(cluster)}.png"
    return path if path.is_file() and not path.is_symlink() else None


def _proofs(run: FollowedRun) -> Sequence[Path]:
    return sorted(path for path in run.folder.proofs.glob("*.json") if path.is_file())


def _told(path: Path) -> dict[str, Any]:
    """Return what a proof says of itself; each a text, "" where it says nothing."""
    keys = ("answer", "answered", "asked", "basis", "request", "ledger_events")
    found = _document(path)
    return {"name": path.stem, **{key: str(found.get(key, "")) for key in keys}}


def _listed(path: Path, key: str) -> list[str]:
    found = _document(path).get(key, [])
    return [str(each) for each in found] if isinstance(found, list) else []


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _checks(run: FollowedRun, snapshot: Snapshot, path: Path) -> list[Check]:
    del snapshot  # the ledger is read again, as an auditor would
    try:
        return verify(path, run.folder.path)
    except (CoveyError, OSError) as error:
        return [Check.failed("file", str(error))]
