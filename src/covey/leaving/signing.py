"""A proof of what was answered: what no event holds is measured, then the facts are signed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from covey.algorithms.round import divergences
from covey.algorithms.state import ServerState
from covey.base.as_json import HIDDEN, INLINE
from covey.base.errors import LedgerError, RunError
from covey.base.figure import Z
from covey.base.files import delete_whole, make_folder, path_inside, replace_whole
from covey.base.names import Basis, Handle
from covey.base.params import model_hash
from covey.base.signature import SigningKey, document_json
from covey.data.examples import Client
from covey.leaving.copies import (
    RENDERED,
    CopyOutcome,
    delete_obsolete_copies,
    exported_hashes,
    outcome_lines,
)
from covey.leaving.evidence import facts, find_answer
from covey.leaving.facts import (
    AnswerInProgress,
    AttackFigure,
    Facts,
    Measurement,
    Superseded,
    Unmeasured,
    ValueOrReason,
    Word,
    known,
)
from covey.leaving.handover import Handover, keep_handover
from covey.leaving.plan import Option
from covey.leaving.proof import proof_page, read_proof, signed_proof
from covey.ledger.requests import LeaveRequest, Mark
from covey.membership.estimators import ClientEstimator, RiskContext
from covey.membership.truth import no_better_than_guessing
from covey.runs.folder import RunFolder, now, rounds_in
from covey.runs.receipts import anchors_of, key_of
from covey.runs.session import Session
from covey.runs.states import delete_before, drop_client, whole_models


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that was answered.

    Attributes:
        salt: hex; together with its name it leads the requester to its own proof. It is
            kept sealed until it is acknowledged, and nowhere after that.
        basis: what the request rests on.
        sealed_record_kept: whether name and salt together still find the client.
        copies: what had been exported or shown, and what became of it.
    """

    request: str
    handle: Handle = field(metadata=HIDDEN)
    option: Option = field(metadata=INLINE)
    model_changed: bool
    model_hash: str
    proof: Path
    salt: str
    basis: Basis
    sealed_record_kept: bool
    copies: tuple[CopyOutcome, ...] = ()

    @property
    def message(self) -> str:
        """The message about the answer, shown once to the operator of the run."""
        lines = (
            f"request {self.request} was finished: {self.option.answer}, proof "
            f"{self.proof}, salt for the requester: {self.salt}",
            *outcome_lines(self.copies),
        )
        return "\n".join(lines)


def sign_answers(
    session: Session,
    requests: Sequence[LeaveRequest],
    state: ServerState,
    clients: Mapping[str, Client | None],
) -> tuple[AnsweredRequest, ...]:
    """Delete what the run kept until now of those who left, and prove each answer.

    Args:
        session: the run, without them.
        requests: those that are being served, of one answer.
        state: after it was carried out.
        clients: by request, the data of who left, where they are at hand.

    Raises:
        CoveyError: the key cannot be used, or a verifier would reject a proof.
    """
    folder = session.folder
    served = [AnswerInProgress.of(request) for request in requests]
    for request, answer in zip(requests, served, strict=True):
        if answer.option.answer != "stop":
            drop_client(folder.updates, request.handle, session.ledger.files)
    delete_whole(folder.superseded)
    delete_whole(folder.subtracted)
    for answer in served:
        if answer.subtracts and answer.option.first_replayed_round is not None:
            delete_before(folder.checkpoints, answer.option.first_replayed_round)
    models = exported_hashes(whole_models(session.record.history, folder, state.clusters))
    key = key_of(session.run.config)
    return tuple(
        _signed(session, key, request, state, clients.get(request.id), models)
        for request in requests
    )


def _signed(
    session: Session,
    key: SigningKey,
    request: LeaveRequest,
    state: ServerState,
    leaver: Client | None,
    models: Collection[str],
) -> AnsweredRequest:
    served, folder = AnswerInProgress.of(request), session.folder
    stops = served.option.answer == "stop"
    copies = () if stops else delete_obsolete_copies(folder, request, models)
    path, facts = _write_proof(session, key, request, state, leaver, copies)
    if request.after_round is None:  # a person made the request, and waits for it
        keep_handover(folder, key, Handover(request.id, served.salt, facts.answer, str(path)))
    return AnsweredRequest(
        request=request.id,
        handle=request.handle,
        option=served.option,
        model_changed=facts.model_changed,
        model_hash=facts.model_after,
        proof=path,
        salt=served.salt,
        basis=request.basis,
        sealed_record_kept=facts.sealed_record_kept,
        copies=copies,
    )


def served_request(
    session: Session, request: LeaveRequest, option: Option, mark: Mark, state: ServerState
) -> AnswerInProgress:
    """Return what an answer's proof needs, and nothing holds once it is carried out.

    Args:
        session: the run, the leaver included.
        request: the one that was answered.
        option: its answer.
        mark: the requester's.
        state: the newest one.
    """
    placed, handle = state, request.handle
    trained = session.record.participation.trained.get(handle)
    if handle not in state.assignment and trained:  # who comes back, where it was last
        placed = state.with_choices({handle: trained[max(trained)]})
    return AnswerInProgress(
        option=option,
        until=state.round_index if option.first_replayed_round is not None else 0,
        salt=mark.salt,
        subject=mark.subject,
        model_before=model_hash(placed.clusters),
        measured_before=_measured(session, session.client(handle), placed, "diverged-before"),
        updates_stored=bool(rounds_in(session.folder.updates)),
        superseded=_superseded(session.folder, option),
    )


def _measured(
    session: Session, leaver: Client | None, state: ServerState, diverged: Unmeasured
) -> ValueOrReason[AttackFigure, Unmeasured]:
    """Return how well the model gives the leaver away, or why that is not known."""
    if leaver is None or not len(leaver.train):
        return ValueOrReason(None, "not-at-hand")
    if _is_diverged(session, leaver, state):
        return ValueOrReason(None, diverged)
    return known(_attacked(session, leaver, state), "too-few")


def _is_diverged(session: Session, leaver: Client, state: ServerState) -> bool:
    """Say whether the model that the leaver uses is none: attacks on it mean nothing."""
    j = state.assignment.get(leaver.handle, 0)
    if j in divergences(state):
        return True
    if not state.round_index or session.run.config.method.traits.subtracts:
        return False  # no training could diverge
    users = [c for c in session.run.population.clients if state.assignment.get(c.handle) == j]
    engine, model = session.run.engine, state.clusters[j]
    return bool(no_better_than_guessing(engine, model, users or [leaver]))


def _attacked(session: Session, leaver: Client, state: ServerState) -> AttackFigure | None:
    """Attack the leaver's own records with its holdout, under the model it uses."""
    j = state.assignment.get(leaver.handle, 0)
    streams = session.run.streams.at("leaving", state.round_index)
    models, engine = (state.clusters[j],), session.run.engine
    context = RiskContext(engine)
    figure = ClientEstimator().judge(models, (leaver,), context, streams)[leaver.handle][0]
    if figure is None:
        return None
    reach = Z * figure.standard_error
    low, high = max(0.0, figure.risk - reach), min(1.0, figure.risk + reach)
    return AttackFigure(j, figure.risk, low, high)


def _superseded(folder: RunFolder, option: Option) -> Mapping[Superseded, int]:
    first = option.first_replayed_round
    if option.answer == "stop":
        return {}
    counts: dict[Superseded, int] = {
        "pages": sum((folder.path / name).exists() for name in RENDERED)
    }
    if first is None:
        return counts
    counts["states"] = sum(map(option.obsoletes_state, rounds_in(folder.checkpoints)))
    if option.answer != "calibrate":
        counts["updates"] = sum(map(option.obsoletes_updates, rounds_in(folder.updates)))
    return counts


def _write_proof(
    session: Session,
    key: SigningKey,
    request: LeaveRequest,
    state: ServerState,
    leaver: Client | None,
    copies: Sequence[CopyOutcome],
) -> tuple[Path, Facts]:
    """Sign what was answered, and put it on the disk, as JSON and as a page."""
    served, record = AnswerInProgress.of(request), session.record
    at, names = len(record.hashes), session.roster.names.values() if copies else ()
    receipt, consistency = anchors_of(session.folder, request.id, record.hashes)
    times = session.ledger.times()
    word = Word(
        covey_version=version("covey"),
        answered=max(now(), *times.values()),
        subject=served.subject,
        model_before=served.model_before,
        model_after=model_hash(state.clusters),
        raw_updates_deleted=known(
            (served.option.answer != "stop") if served.updates_stored else None, "none-stored"
        ),
        superseded_deleted=served.superseded,
        measured=_before_and_after(session, served, leaver, state),
        copies=tuple(copy.as_proof_fact(names) for copy in copies),
        receipt=receipt,
        consistency=consistency,
    )
    answer = find_answer(record, times, request, at)
    if answer is None:
        raise LedgerError(
            f"A proof must be of a request and its answer, each once in the ledger, found no such "
            f"{request.id}: restore it from a copy."
        )
    signed = facts(answer, record, session.run.config, word)
    if signed.model_after != word.model_after:
        raise RunError(
            f"A proof must name the model recorded last, {signed.model_after}, found another in "
            f"the state: see `covey ledger doctor {session.folder.path}`; nothing was signed."
        )
    written = document_json(signed_proof(key, signed)).encode("ascii")
    path = path_inside(session.folder.proofs, f"{request.id}.json")
    make_folder(path.parent)
    replace_whole(path, written, mode=0o600)
    page = proof_page(read_proof(written)).encode()
    replace_whole(path.with_suffix(".html"), page, mode=0o600)
    return path, signed


def _before_and_after(
    session: Session, served: AnswerInProgress, leaver: Client | None, state: ServerState
) -> ValueOrReason[Measurement, Unmeasured]:
    before = served.measured_before.value
    if before is None:
        return ValueOrReason(None, served.measured_before.reason)
    if leaver is None:
        return ValueOrReason(None, "gone")
    placed = state.with_choices({leaver.handle: before.cluster})
    if _is_diverged(session, leaver, placed):
        return ValueOrReason(None, "diverged-after")
    return ValueOrReason(Measurement(before, _attacked(session, leaver, placed)), "")
