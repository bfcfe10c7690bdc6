"""A proof of what was answered: what is known at its end, and signed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from covey.algorithms import ServerState
from covey.atomic_io import make_folder, replace_whole
from covey.build import algorithm_of
from covey.data import Client
from covey.dp import guarantee_status
from covey.dp.head_bounds import head_bounds
from covey.errors import RunError
from covey.history import History
from covey.ledger import REWIND, Request
from covey.params import model_hash
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.receipts import anchoring_facts
from covey.runtime.recorded_facts import attack_leaver, divergence
from covey.runtime.session import Session
from covey.runtime.settling import CopyOutcome
from covey.unlearning.key_files import signing_key
from covey.unlearning.participation import latest_models, latest_sums
from covey.unlearning.proof import proof_document, proof_json, proof_page
from covey.unlearning.proof_text import Facts
from covey.unlearning.signature import sign

__all__ = ["Document", "write_proof"]

Document = Mapping[str, Any]
"""A signed proof, in plain JSON values."""

GONE = "the answer was interrupted, and the data are gone since"


def write_proof(
    session: Session,
    request: Request,
    state: ServerState,
    leaver: Client | None,
    copies: Sequence[CopyOutcome] = (),
) -> tuple[Path, Document]:
    """Sign what was answered, and put it on the disk, as JSON and as a page.

    Args:
        session: the run, without the leaver.
        request: the one that is being served.
        state: after the answer was carried out.
        leaver: its data, to measure again; None if they are gone.
        copies: what had been exported or shown, and what became of it.
    """
    key_path = session.run.config.secrets.key_path
    key = signing_key(Path(key_path) if key_path else None)
    known = session.ledger.names().values() if copies else ()
    _check_models(session, state)
    before = asdict(request.being_served().facts)
    earlier = _value_or_reason(before.pop("measured_before"), before.pop("unmeasured"))
    measured = _measured(session, earlier, leaver, state)
    record, algorithm = session.record(), algorithm_of(session.run.config)
    facts = {
        **before,
        "covey_version": version("covey"),
        "request": request.id,
        "run": record.hashes[0][:16],
        "answered": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ledger_head": record.head,
        "ledger_events": len(record.hashes),
        "model_after": model_hash(state.clusters),
        "guarantee": _guarantee_facts(record.history),
        "measured": measured,
        "copies": [each.as_proof_fact(known) for each in copies],
        "subtracted": _subtracted(record) if before["replayed"] == "subtracted" else (),
        "own_sums_kept": before["answer"] == "subtract" and algorithm.keeps_own_sums,
        "earlier_heads": _earlier_heads(record.history, request, before["answer"]),
        **anchoring_facts(session.folder, request.id, record.hashes),
    }
    document = sign(
        key, proof_document(TypeAdapter(Facts).validate_json(json.dumps(facts)))
    )
    path = session.folder.proofs / f"{request.id}.json"
    make_folder(path.parent)
    replace_whole(path, proof_json(document).encode("ascii"), mode=0o600)
    page = proof_page(document).encode()
    replace_whole(path.with_suffix(".html"), page, mode=0o600)
    return path, document


def _subtracted(record: LedgerRecord) -> list[dict[str, Any]]:
    """Return every cluster's sums before the rewind that is newest, and as they are."""
    rewind = max(i for i, each in enumerate(record.records) if each.kind == REWIND)
    earlier = record.current(record.records[:rewind])
    before = latest_sums((t, event) for t, events in earlier for event in events)
    after = latest_sums(record.events)
    if before is None or after is None:
        raise RunError(
            "A proof of a subtraction names the sums before and after it, but no event "
            "HeadsSolved is recorded. An algorithm that `subtracts` tells it every round."
        )
    pairs = zip(before.sums, after.sums, before.clients, after.clients, strict=True)
    names = ("before", "after", "clients_before", "clients_after")
    return [
        {"cluster": j, **dict(zip(names, each, strict=True))}
        for j, each in enumerate(pairs)
    ]


def _earlier_heads(
    history: History, request: Request, answer: str
) -> dict[str, Any] | None:
    """Return what heads under noise still tell of who was subtracted."""
    bound = head_bounds(history.told).get(request.handle)
    return asdict(bound) if bound and answer == "subtract" else None


def _check_models(session: Session, state: ServerState) -> None:
    """Refuse to sign what a verifier with the ledger would reject."""
    entries = session.record().entries
    recorded = latest_models((t, event) for t, events in entries for event in events)
    if recorded not in (None, model_hash(state.clusters)):
        raise RunError(
            f"A proof names the model that the ledger recorded last, {recorded}, but the "
            f"state's is another one. Nothing was signed; `covey doctor "
            f"{session.folder.path}` says what is damaged."
        )


def _guarantee_facts(history: History) -> dict[str, Any]:
    """Return what the whole run guarantees now, rounds that were played again included."""
    found = guarantee_status(history)
    return _value_or_reason(asdict(found.holds) if found.holds else None, found.reason)


def _value_or_reason(value: object, reason: str) -> dict[str, Any]:
    return {"value": value, "reason": reason if value is None else ""}


def _measured(
    session: Session,
    earlier: dict[str, Any],
    leaver: Client | None,
    state: ServerState,
) -> dict[str, Any]:
    found = earlier["value"]
    if found is None:
        return earlier
    if leaver is None:
        return _value_or_reason(None, GONE)
    placed = state.with_choices({leaver.handle: int(found["cluster"])})
    if later := divergence(session, leaver, placed):
        return _value_or_reason(None, f"after the answer the model {later}")
    return _value_or_reason(
        {"before": found, "after": attack_leaver(session, leaver, placed)}, ""
    )
