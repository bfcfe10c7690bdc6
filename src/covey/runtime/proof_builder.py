"""What a proof says of an answer: read and measured around it, and signed at its end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from covey.algorithms import ServerState, divergences
from covey.atomic_io import replace_whole
from covey.build import anonymity_of
from covey.data import Client
from covey.dp import guarantee_status
from covey.ledger import Request
from covey.membership import DIVERGED, no_better_than_guessing, self_estimates
from covey.params import model_hash
from covey.runtime.session import Session, read_history
from covey.runtime.settling import CopyOutcome
from covey.runtime.updates import stored_rounds
from covey.types import Handle
from covey.unlearning.deniability_probability import representative_probability
from covey.unlearning.participation import Participation
from covey.unlearning.plan import Option, sizes_left
from covey.unlearning.proof import (
    proof_document,
    proof_json,
    proof_page,
    refutation_success,
)
from covey.unlearning.proof_text import Facts
from covey.unlearning.signature import sign, signing_key

__all__ = ["Document", "model_before", "recorded_facts", "write_proof"]

TOO_FEW = "the requester holds too few examples to attack"
NOT_AT_HAND = "the requester's data were not at hand"

Document = Mapping[str, Any]
"""A signed proof, in plain JSON values."""

GONE = "the answer was interrupted, and the data are gone since"


def recorded_facts(
    session: Session, found: Participation, option: Option, handle: Handle
) -> dict[str, Any]:
    """Return what the record says of an answer, before it is carried out."""
    terms = anonymity_of(session.run.config)
    held = sizes_left(found, handle)
    sizes = [len(each.members) for each, _ in held]
    return {
        "answer": option.answer,
        "rounds": [
            {
                "round_index": each.round_index,
                "cluster": each.cluster,
                "size_left": left,
                "diameter": _value_or_reason(
                    each.diameter, "the partition tells no distances"
                ),
            }
            for each, left in held
        ],
        "deniability_threshold": terms.deniability_threshold if terms else None,
        "min_anonymity": terms.min_anonymity if terms else None,
        "max_distance": (terms.max_distance or None) if terms else None,
        "first_round": found.first_round(handle),
        "first_affected_round": option.first_affected_round,
        "first_replayed_round": option.first_replayed_round,
        "rounds_replayed": option.rounds_replayed,
        "representative_probability": _value_or_reason(
            representative_probability(sizes) if terms else None,
            "updates were not hidden in anonymity sets: every one of them was used",
        ),
        "refutation": _refutation(session, [each.diameter for each, _ in held]),
        "secrets": session.secrets.source,
        "raw_updates_deleted": _value_or_reason(
            True if stored_rounds(session.folder.updates) else None,
            "this run stored no raw updates, so there were none to delete",
        ),
    }


def model_before(
    session: Session, leaver: Client | None, state: ServerState
) -> dict[str, Any]:
    """Return the model as it was, and how well it gives the leaver away."""
    found, why_not = None, NOT_AT_HAND
    if leaver is not None and len(leaver.train) > 0:
        diverged = _diverged(session, leaver, state)
        why_not = f"before the answer the model {diverged}" if diverged else TOO_FEW
        found = None if diverged else _attack_leaver(session, leaver, state)
    return {
        "model_before": model_hash(state.clusters),
        "measured_before": found,
        "unmeasured": why_not,
    }


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
        request: the one that is being served; its note holds what was said before.
        state: after the answer was carried out.
        leaver: its data, to measure again; None if they are gone.
        copies: what had been exported or shown, and what became of it.
    """
    known = session.ledger.names().values()
    facts_before = dict((request.note or {})["facts"])
    earlier = _value_or_reason(
        facts_before.pop("measured_before"), facts_before.pop("unmeasured", TOO_FEW)
    )
    measured = _measured(session, earlier, leaver, state)
    hashes = session.ledger.hashes()
    facts = {
        **facts_before,
        "covey_version": version("covey"),
        "request": request.id,
        "run": hashes[0][:16],
        "answered": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ledger_head": hashes[-1],
        "ledger_events": len(hashes),
        "model_after": model_hash(state.clusters),
        "guarantee": _guarantee_facts(session),
        "measured": measured,
        "copies": [each.as_proof_fact(known) for each in copies],
    }
    key_path = session.run.config.secrets.key_path
    key = signing_key(Path(key_path) if key_path else None)
    document = sign(
        key, proof_document(TypeAdapter(Facts).validate_json(json.dumps(facts)))
    )
    path = session.folder.proofs / f"{request.id}.json"
    path.parent.mkdir(exist_ok=True)
    replace_whole(path, proof_json(document).encode("ascii"))
    replace_whole(path.with_suffix(".html"), proof_page(document).encode())
    return path, document


def _guarantee_facts(session: Session) -> dict[str, Any]:
    """Return what the whole run guarantees now, rounds that were played again included."""
    found = guarantee_status(read_history(session.ledger))
    return _value_or_reason(asdict(found.holds) if found.holds else None, found.reason)


def _value_or_reason(value: object, reason: str) -> dict[str, Any]:
    return {"value": value, "reason": reason if value is None else ""}


def _refutation(session: Session, diameters: Sequence[float | None]) -> dict[str, Any]:
    """Say how well the holder of two candidates' updates tells which one was used."""
    terms = anonymity_of(session.run.config)
    known = [d for d in diameters if d is not None]
    if terms is None or not diameters:
        return _value_or_reason(None, "no anonymity set held the requester")
    if terms.noise == 0:
        return _value_or_reason(1.0, "")
    if terms.noise is None or len(known) < len(diameters):
        return _value_or_reason(None, "how far the noise reaches is not recorded")
    return _value_or_reason(refutation_success(max(known), terms.noise), "")


def _diverged(session: Session, leaver: Client, state: ServerState) -> str:
    """Say why the model that the leaver uses is none, and attacks on it tell nothing."""
    j = state.assignment.get(leaver.handle, 0)
    reason = divergences(state).get(j, "")
    if not reason and state.round_index:
        users = [c for c in session.run.population.clients if _uses(state, c, j)]
        engine, model = session.run.engine, state.clusters[j]
        reason = no_better_than_guessing(engine, model, users or [leaver])
    return f"{DIVERGED}: {reason}" if reason else ""


def _uses(state: ServerState, client: Client, cluster: int) -> bool:
    return state.assignment.get(client.handle) == cluster


def _attack_leaver(
    session: Session, leaver: Client, state: ServerState
) -> dict[str, float] | None:
    """Attack the leaver's own records with its holdout, under the model it uses."""
    j = state.assignment.get(leaver.handle, 0)
    streams = session.run.streams.at("leaving", state.round_index)
    models, engine = (state.clusters[j],), session.run.engine
    figure = self_estimates(engine, models, (leaver,), streams)[leaver.handle][0]
    if figure is None:
        return None
    half = 1.96 * figure.standard_error
    return {
        "cluster": float(j),
        "mia_accuracy": figure.risk,
        "low": figure.risk - half,
        "high": figure.risk + half,
    }


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
    if later := _diverged(session, leaver, placed):
        return _value_or_reason(None, f"after the answer the model {later}")
    return _value_or_reason(
        {"before": found, "after": _attack_leaver(session, leaver, placed)}, ""
    )
