"""Clients that leave: planning is pure, and this is how answers are carried out.

Answers that go together are one transaction of the ledger: what was answered to each,
that the run goes on before some round, the clients' names erased, their tombstones set.
Whatever kills the process then, resuming the run deletes what the answers made obsolete,
plays the rounds again, once for all, and signs a proof for each.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from covey.algorithms.state import ServerState
from covey.base.events import AnswerRefused, ClientLeft, Event, RunRolledBack, kind_and_body
from covey.base.files import delete_whole
from covey.base.names import Basis, Handle, Params
from covey.build.aggregators import anonymity_of, sums_of
from covey.build.algorithms import has_independent_clusters
from covey.config.settings import Config
from covey.data.examples import Client
from covey.ledger.chain import Record
from covey.ledger.requests import NewRequest, Request, ServedRequest
from covey.runtime.copies import (
    RENDERED,
    CopyOutcome,
    erase_from_copies,
    outcome_lines,
    settle_copies,
)
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import input_hashes, note_inputs
from covey.runtime.planning import UnlearningPlan, read_plan
from covey.runtime.proofs import ChosenAnswer, recorded_facts, write_proof
from covey.runtime.receipts import (
    as_recorded,
    key_of,
    mark_of,
    put_down,
    recorded_requests,
    wanted_answer_of,
)
from covey.runtime.record_changes import is_subtracting, keep_subtracted, tend_change
from covey.runtime.secrets import Handover, keep_handover
from covey.runtime.session import Session
from covey.runtime.states import (
    checkpoint_of,
    delete_before,
    delete_from,
    delete_updates,
    drop_client,
    load_state,
    set_aside_from,
    state_problem,
)
from covey.unlearning.plan import Option, ReplayKind, replay_kind
from covey.unlearning.proof import Served


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that was answered.

    Attributes:
        salt: hex; together with its name it tells the requester its own proof. It is
            kept sealed until it is acknowledged, and nowhere after that.
        basis: what the request rests on.
        sealed_record_kept: whether name and salt together still find the client.
        copies: what had been exported or shown, and what became of it.
    """

    request: str
    handle: Handle
    option: Option
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
            *outcome_lines([each.describe() for each in self.copies]),
        )
        return "\n".join(lines)


def simulated_request(session: Session, t: int) -> Request | None:
    """Return the request that a simulation draws before round t, unless it is answered."""
    config = session.run.config
    chance, clients = (config.unlearning.request_probability, session.run.population.clients)
    if chance == 0 or t == 0 or len(clients) < 2 or session.run.data_hash is None:
        return None  # of a run that cannot be played on, nothing is drawn
    generator = session.run.streams.at("request", t - 1).generator()
    if generator.random() >= chance:
        return None
    leaver = clients[int(generator.integers(len(clients)))]
    drawn = f"{leaver.handle} after round {t - 1}"  # equal runs have equal chains
    new = NewRequest(
        leaver.handle,
        default_answer(config),
        after_round=t - 1,
        id=hashlib.sha256(drawn.encode()).hexdigest()[:16],
    )
    known = session.ledger.requests()
    if any(each.after_round == new.after_round for each in known):
        (request,) = session.ledger.ask_all([new])
    else:
        (request,) = put_down(session, [new])
    return request if request.state == "pending" else None


def default_answer(config: Config) -> str:
    """Return the answer for a client that only says that it leaves."""
    if anonymity_of(config) or sums_of(config) == "exact":
        return "auto"
    return "calibrate" if config.unlearning.store_updates else "retrain"


def serve_requests(session: Session, pending: Sequence[Request], state: ServerState) -> Session:
    """Answer requests, as many of them as go together, and return the run without them.

    Who needs no replay is answered first, so that its proof is about the model as it
    is; then those who are subtracted, and all others share one replay. The others stay
    pending, and come next.

    What the answers made obsolete is still there: whoever carries the run on tidies
    first, after a crash as well. If rounds have to be played again, the answers are
    finished once they are.
    """
    plan, rules = read_plan(session)
    compatible = _compatible_requests(session, pending)
    wanted_answers = [wanted_answer_of(each) for each in compatible]
    choices = session.record().answers(wanted_answers, rules)
    group: list[tuple[Request, Option]] = []
    for request, choice in zip(compatible, choices, strict=True):
        if choice.chosen is None:
            session.ledger.refused(request.id, choice.reason)
        else:
            group.append((request, choice.chosen))
    at_once = [each for each in group if each[1].first_replayed_round is None]
    subtracted = [each for each in group if each[1].answer == "subtract"]
    answers = at_once or subtracted or group
    return _serve(session, _Batch.of(plan, answers), state) if answers else session


def _compatible_requests(session: Session, pending: Sequence[Request]) -> list[Request]:
    """Return the requests that can be planned together with the first one.

    Somebody has to stay: the last one is refused. So is a client's second request, if
    it was put down before the first one was served.
    """
    present = {c.handle for c in session.run.population.clients}
    calibrated = pending[0].wanted == "calibrate"
    compatible: list[Request] = []
    served = [each for each in session.ledger.requests() if each.served_at]
    for each in pending:
        gone = session.ledger.name_of(each.handle) is None and any(
            other.handle == each.handle and (other.served_at or "") > each.asked_at
            for other in served
        )
        if gone or any(each.handle == other.handle for other in compatible):
            session.ledger.refused(each.id, "An earlier request of this client came first.")
        elif (each.wanted == "calibrate") == calibrated:
            compatible.append(each)
    if present <= {each.handle for each in compatible}:
        last = [each for each in compatible if each.handle in present][-1]
        session.ledger.refused(last.id, "A run needs somebody to go on with.")
        compatible.remove(last)
    return compatible


@dataclass(frozen=True, slots=True)
class _Batch:
    """Requests that are answered in one transaction.

    Attributes:
        plan: of the run, with all of them among those who left.
        replay_kind: rounds are played again; None: none is.
    """

    plan: UnlearningPlan
    answers: Sequence[tuple[Request, Option]]
    replay_kind: ReplayKind | None

    @classmethod
    def of(cls, plan: UnlearningPlan, answers: Sequence[tuple[Request, Option]]) -> "_Batch":
        """Return the turn of these answers, whose replay is one."""
        found = plan.participation
        left = dict.fromkeys((*found.left, *(each.handle for each, _ in answers)))
        chosen = [option for _, option in answers]
        replays = chosen[0].first_replayed_round is not None
        plan = replace(plan, participation=replace(found, left=tuple(left)))
        return cls(plan, answers, replay_kind(chosen) if replays else None)


def _serve(session: Session, batch: _Batch, state: ServerState) -> Session:
    """Record the answers in one transaction, with what has to outlive a crash."""
    rest = session.without_clients({request.handle for request, _ in batch.answers})
    known, names = recorded_requests(session), session.ledger.names()
    asked = [as_recorded(request, known) for request, _ in batch.answers]
    batch = replace(
        batch,
        answers=[
            (replace(each, mark=mark_of(each, names.get(each.handle))), option)
            for each, option in batch.answers
        ],
    )
    facts: list[Event] = [each for each in asked if each is not None]
    facts += [
        ClientLeft(
            request.handle,
            option.answer,
            rest.run.data_hash,
            request.id,
            # of drawn requests nobody has the salt, and equal runs have equal chains
            request.mark.subject if request.mark and request.after_round is None else "",
        )
        for request, option in batch.answers
    ]
    first = batch.answers[0][1].first_replayed_round
    if first is not None and batch.replay_kind is not None:
        facts.append(RunRolledBack(first, state.round_index, batch.replay_kind))
    leavers = [request.handle for request, _ in batch.answers]
    if batch.replay_kind == "subtracted":
        facts += keep_subtracted(session, state, leavers)
    for request, _ in batch.answers:
        if request.handle in names:
            erase_from_copies(session.folder, names[request.handle], names.values())
    note_inputs(input_hashes(rest.run), session.ledger)
    session.ledger.serve(
        [_serving(session, batch, each, state) for each in batch.answers],
        [Record(None, *kind_and_body(fact)) for fact in facts],
    )
    return rest


def _serving(
    session: Session, batch: _Batch, answered: tuple[Request, Option], state: ServerState
) -> ServedRequest:
    """Return what is kept of one request until it is answered, and what after that."""
    request, option = answered
    handle, first = request.handle, option.first_replayed_round
    name = session.ledger.name_of(handle)
    mark = mark_of(request, name)
    chosen = ChosenAnswer(request, option, mark, batch.replay_kind)
    served = Served(
        first=first,
        until=state.round_index if first is not None else 0,
        salt=mark.salt,
        facts=recorded_facts(session, batch.plan, chosen, state),
        cluster=None if _had_refusals(batch.plan) else _independent_cluster(session, state, handle),
    )
    tombstone = None if name is None else session.secrets.tombstone(name)
    kept = mark.sealed if chosen.keeps_sealed_record else None
    return ServedRequest(request, tombstone, served, kept)


def cleanup(session: Session) -> None:
    """Delete what answers that are being served made obsolete; any number of times.

    States that still hold for the other clusters, or of which sums were subtracted, are
    set aside until the answer is signed.
    """
    served = _being_served(session)
    subtracting = is_subtracting(session)
    changing = tend_change(session)
    if not (subtracting or changing):  # what a kill left of what was never recorded
        delete_whole(session.folder.subtracted)
    if served:
        session.ledger.scrub()
        for path in _obsolete_files(session.folder):
            delete_whole(path)
    for each in served:
        first, last = each.first, session.ledger.last_round()
        if first is not None and (last is None or last < first):
            if each.cluster is not None or subtracting:
                set_aside_from(session.folder.checkpoints, first, session.folder.superseded)
            delete_from(session.folder.checkpoints, first)
            if each.facts.answer != "calibrate":
                delete_updates(session.folder.updates, first)
            session.secrets.restart_at(first)


def _being_served(session: Session) -> list[Served]:
    requests = session.ledger.requests()
    return [each.served for each in requests if each.served is not None]


def _obsolete_files(folder: RunFolder) -> Iterator[Path]:
    """Yield what shows the run as it was, and files whose writing a kill cut off."""
    yield from (folder.path / name for name in RENDERED)
    for place in (folder.copies, folder.path / "exports"):
        yield from place.glob("*.unfinished")


def unaffected_models(session: Session, t: int) -> Mapping[int, Params]:
    """Return the models after the original round t of clusters without a leaving client.

    They are what they would be again, so only the other clusters have to be trained.
    Empty where that does not hold of this run, or its state was not kept.
    """
    path = checkpoint_of(session.folder.superseded, t)
    left = {each.cluster for each in _being_served(session)}
    if path is None or None in left or state_problem(path, session.ledger):
        return {}
    clusters = load_state(path)[0].clusters
    return {j: model for j, model in enumerate(clusters) if j not in left}


def finish_request(
    session: Session, request: Request, state: ServerState, leaver: Client | None
) -> AnsweredRequest:
    """Sign what was answered; until the request is closed this may be done again."""
    served = request.being_served()
    facts = served.facts
    drop_client(session.folder.updates, request.handle, session.ledger.files)
    delete_whole(session.folder.superseded)
    delete_whole(session.folder.subtracted)
    if facts.replayed == "subtracted" and served.first is not None:
        delete_before(session.folder.checkpoints, served.first)
    copies = settle_copies(session.folder, request, state.clusters)
    path, document = write_proof(session, request, state, leaver, copies)
    if request.after_round is None:  # somebody asked, and waits for it
        handover = Handover(request.id, served.salt, facts.answer, str(path))
        keep_handover(session.folder, key_of(session), handover)
    return AnsweredRequest(
        request=request.id,
        handle=request.handle,
        option=Option(
            facts.answer,
            first_affected_round=facts.first_affected_round,
            first_replayed_round=facts.first_replayed_round,
            rounds_replayed=facts.rounds_replayed,
        ),
        model_changed=document["model_changed"],
        model_hash=document["model_after"],
        proof=path,
        salt=served.salt,
        basis=request.basis,
        sealed_record_kept=facts.sealed_record_kept,
        copies=copies,
    )


def _independent_cluster(session: Session, state: ServerState, handle: Handle) -> int | None:
    """Return the one cluster that ever met this client; None where there may be more."""
    independent = has_independent_clusters(session.run.config, session.run.engine)
    return state.assignment.get(handle) if independent else None


def _had_refusals(plan: UnlearningPlan) -> bool:
    """Say whether an update was ever refused: a replay may not take its sender as in."""
    return any(isinstance(event, AnswerRefused) for _, event in plan.events)
