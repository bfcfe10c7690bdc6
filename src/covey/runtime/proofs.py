"""A proof of what was answered: what the record shows, and what is measured, then signed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from covey.algorithms.round_steps import divergences
from covey.algorithms.state import ServerState
from covey.base.errors import RunError
from covey.base.files import make_folder, replace_whole
from covey.base.history import History
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.base.risk import DIVERGED
from covey.build.aggregators import anonymity_of
from covey.build.training import algorithm_of
from covey.data.examples import Client
from covey.dp.current_guarantee import guarantee_status, head_bounds
from covey.ledger.chain import REWIND
from covey.ledger.requests import Request
from covey.membership.estimators import self_estimates
from covey.membership.truth import no_better_than_guessing
from covey.runtime.copies import RENDERED, CopyOutcome
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.planning import UnlearningPlan
from covey.runtime.receipts import anchoring_facts
from covey.runtime.session import Session
from covey.runtime.states import checkpointed_rounds, stored_rounds
from covey.unlearning.participation import (
    Participation,
    latest_models,
    latest_sums,
    representative_probability,
)
from covey.unlearning.plan import Option, ReplayKind, influences_on, sizes_left
from covey.unlearning.proof import (
    TOO_FEW,
    Mark,
    MeasuredFacts,
    proof_document,
    proof_json,
    proof_page,
    refutation_success,
)
from covey.unlearning.proof_text import Facts, HeldRound, ValueOrReason
from covey.unlearning.signature import sign, signing_key

T = TypeVar("T")

NOT_AT_HAND = "the requester's data were not at hand"


@dataclass(frozen=True, slots=True)
class ChosenAnswer:
    """One request and its answer, before that is carried out.

    Attributes:
        mark: the requester's.
        replayed: how rounds are played again for all answers of the turn; None: none is.
    """

    request: Request
    option: Option
    mark: Mark
    replayed: ReplayKind | None

    @property
    def keeps_sealed_record(self) -> bool:
        """Whether the requester's name and salt will find it again."""
        return self.option.answer != "retrain"


def recorded_facts(
    session: Session, plan: UnlearningPlan, chosen: ChosenAnswer, state: ServerState
) -> MeasuredFacts:
    """Return what is known of an answer before it is carried out.

    Args:
        session: the run, the leaver included.
        plan: of the run, with all who leave with this one among those who left.
        chosen: the answer.
        state: the newest one.
    """
    request, option = chosen.request, chosen.option
    found, handle = plan.participation, request.handle
    terms = anonymity_of(session.run.config)
    held = sizes_left(found, handle)
    sizes = [len(each.members) for each, _ in held]
    leaver, placed = session.client(handle), _placed(state, found, handle)
    attacked, why_not = _attacked(session, leaver, placed)
    return MeasuredFacts(
        asked=request.asked_at,
        subject=chosen.mark.subject,
        answer=option.answer,
        model_before=model_hash(placed.clusters),
        rounds=tuple(
            HeldRound(
                each.round_index,
                each.cluster,
                left,
                _known(each.diameter, "the partition tells no distances"),
            )
            for each, left in held
        ),
        deniability_threshold=terms.deniability_threshold if terms else None,
        min_anonymity=terms.min_anonymity if terms else None,
        max_distance=(terms.max_distance or None) if terms else None,
        first_round=found.first_round(handle),
        first_affected_round=option.first_affected_round,
        first_replayed_round=option.first_replayed_round,
        rounds_replayed=option.rounds_replayed,
        representative_probability=_known(
            representative_probability(sizes) if terms else None,
            "updates were not hidden in anonymity sets: every one of them was used",
        ),
        refutation=_refutation(session, [each.diameter for each, _ in held]),
        touched=tuple(influences_on(plan.events, handle)),
        secrets=session.secrets.source,
        raw_updates_deleted=_known(
            True if stored_rounds(session.folder.updates) else None,
            "this run stored no raw updates, so there were none to delete",
        ),
        superseded_deleted=_superseded_counts(session.folder, option),
        basis=request.basis,
        replayed=chosen.replayed,
        sealed_record_kept=chosen.keeps_sealed_record,
        measured_before=attacked,
        unmeasured=why_not,
    )


def _placed(state: ServerState, found: Participation, handle: Handle) -> ServerState:
    """Return the state with a returning client in the cluster that it trained last."""
    trained = found.trained.get(handle)
    if handle in state.assignment or not trained:
        return state
    return state.with_choices({handle: trained[max(trained)]})


def _attacked(
    session: Session, leaver: Client | None, state: ServerState
) -> tuple[Mapping[str, float] | None, str]:
    """Return how well the model gives the leaver away, or why that is not known."""
    if leaver is None or not len(leaver.train):
        return None, NOT_AT_HAND
    if diverged := divergence(session, leaver, state):
        return None, f"before the answer the model {diverged}"
    return attack_leaver(session, leaver, state), TOO_FEW


def _refutation(session: Session, diameters: Sequence[float | None]) -> ValueOrReason[float]:
    """Say how well the holder of two candidates' updates tells which one was used."""
    terms = anonymity_of(session.run.config)
    known = [d for d in diameters if d is not None]
    if terms is None or not diameters:
        return ValueOrReason(None, "no anonymity set held the requester")
    if terms.noise == 0:
        return ValueOrReason(1.0)
    if terms.noise is None or len(known) < len(diameters):
        return ValueOrReason(None, "how far the noise reaches is not recorded")
    return ValueOrReason(refutation_success(max(known), terms.noise))


def _known(value: T | None, reason: str) -> ValueOrReason[T]:
    return ValueOrReason(value, reason if value is None else "")


def _superseded_counts(folder: RunFolder, option: Option) -> dict[str, int]:
    first = option.first_replayed_round
    counts = {
        "of report, figures, metrics, audit and baseline": sum(
            (folder.path / name).exists() for name in RENDERED
        )
    }
    if first is None:
        return counts
    from_ = 0 if option.answer == "subtract" else first
    states = [t for t in checkpointed_rounds(folder.checkpoints) if t >= from_]
    updates = [t for t in stored_rounds(folder.updates) if t >= first]
    counts |= {"states": len(states)}
    return counts if option.answer == "calibrate" else counts | {"updates": len(updates)}


def divergence(session: Session, leaver: Client, state: ServerState) -> str:
    """Say why the model that the leaver uses is none, and attacks on it tell nothing."""
    j = state.assignment.get(leaver.handle, 0)
    reason = divergences(state).get(j, "")
    solved = algorithm_of(session.run.config).subtracts  # no training could diverge
    if not reason and state.round_index and not solved:
        users = [c for c in session.run.population.clients if _uses(state, c, j)]
        engine, model = session.run.engine, state.clusters[j]
        reason = no_better_than_guessing(engine, model, users or [leaver])
    return f"{DIVERGED}: {reason}" if reason else ""


def _uses(state: ServerState, client: Client, cluster: int) -> bool:
    return state.assignment.get(client.handle) == cluster


def attack_leaver(session: Session, leaver: Client, state: ServerState) -> dict[str, float] | None:
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
    document = sign(key, proof_document(TypeAdapter(Facts).validate_json(json.dumps(facts))))
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
    return [{"cluster": j, **dict(zip(names, each, strict=True))} for j, each in enumerate(pairs)]


def _earlier_heads(history: History, request: Request, answer: str) -> dict[str, Any] | None:
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
    session: Session, earlier: dict[str, Any], leaver: Client | None, state: ServerState
) -> dict[str, Any]:
    found = earlier["value"]
    if found is None:
        return earlier
    if leaver is None:
        return _value_or_reason(None, GONE)
    placed = state.with_choices({leaver.handle: int(found["cluster"])})
    if later := divergence(session, leaver, placed):
        return _value_or_reason(None, f"after the answer the model {later}")
    return _value_or_reason({"before": found, "after": attack_leaver(session, leaver, placed)}, "")
