"""Clients that leave: planning is pure, and this is how answers are carried out.

Answers that go together are one transaction of the ledger: what was answered to each,
that the run goes on before some round, the clients' names erased, their tombstones set.
Whatever kills the process then, resuming the run deletes what the answers made obsolete,
plays the rounds again, once for all, and signs a proof for each.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from covey.algorithms.state import ServerState
from covey.base.as_json import HIDDEN, INLINE
from covey.base.errors import LedgerError
from covey.base.events import AnswerRefused, ClientLeft, Event, LeaveRequested, RunRolledBack
from covey.base.files import delete_whole
from covey.base.names import Basis, ClientName, Handle, Params
from covey.data.examples import Client
from covey.leaving.copies import (
    RENDERED,
    CopyOutcome,
    delete_obsolete_copies,
    erase_from_copies,
    outcome_lines,
)
from covey.leaving.exports import exported_hashes
from covey.leaving.handover import Handover, keep_handover
from covey.leaving.plan import Option
from covey.leaving.planning import current_rules
from covey.leaving.replays import carried_over, is_subtracting, keep_subtracted
from covey.leaving.requests import Served, choose_answers, fresh_mark, replay_kind
from covey.leaving.signing import served_request, write_proof
from covey.ledger.requests import Request
from covey.runs.folder import checkpoint_path
from covey.runs.inputs import input_hashes
from covey.runs.receipts import Receipt, key_of, sign_receipt
from covey.runs.session import Session
from covey.runs.states import (
    delete_before,
    delete_from,
    drop_client,
    load_state,
    set_aside_from,
    state_problem,
    whole_models,
)
from covey.settings.aggregation import anonymity_of
from covey.settings.algorithm import has_independent_clusters
from covey.settings.load import Config

OnReceipt = Callable[[ClientName, Receipt], None]
"""Called with a client's name and its receipt, before it is answered."""


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


def ask(session: Session, wanted: Sequence[Request]) -> list[Request]:
    """Put requests in the ledger's queue, all of them or none, and sign their receipts.

    Their marks are made now: the receipt holds them, and only the requester has
    the name of who left, so that a request that a crash cuts off is served without it.

    Raises:
        CoveyError: the signing key cannot be used, or the ledger cannot be written;
            nothing was done.
    """
    key = key_of(session.run.config)
    marks = {each.id: fresh_mark(each.handle, each.client) for each in wanted}
    requests = put_down(session, [replace(each, mark=marks[each.id]) for each in wanted])
    hashes = session.record().hashes
    for request in requests:
        mark = marks[request.id]
        keep_handover(session.folder, key, Handover(request.id, mark.salt))
        if hashes:  # before anything was recorded there is no tree to sign
            sign_receipt(session.folder, key, request, mark.subject, hashes)
    return requests


def put_down(session: Session, new: Sequence[Request]) -> list[Request]:
    """Put requests in the ledger's queue, and in its chain what they ask for.

    Before anything is recorded there is no chain: then they enter it with their answers.
    """
    records = session.following(map(_event, new)) if session.record().hashes else ()
    return session.ledger.ask_all(new, records)


def unrecorded(session: Session, requests: Sequence[Request]) -> Iterator[LeaveRequested]:
    """Yield what is still to be recorded of requests: what the chain does not hold.

    Raises:
        LedgerError: the chain has one of them otherwise.
    """
    events = (event for _, event in session.record().events)
    known = {each.request: each for each in events if isinstance(each, LeaveRequested)}
    for request in requests:
        event, recorded = _event(request), known.get(request.id)
        if recorded is None:
            yield event
        elif recorded != event:
            raise LedgerError(
                f"A request is answered as it was made, but of {request.id} the table of "
                f"requests says {event}, and the chain {recorded}: the table was changed. "
                f"Restore the ledger from a copy."
            )


def _event(request: Request) -> LeaveRequested:
    subject = request.mark.subject if request.mark else ""
    return LeaveRequested(request.id, request.handle, request.wanted, request.basis, subject)


def simulated_request(session: Session, t: int) -> Request | None:
    """Return the request that a simulation draws before round t, unless it is answered."""
    config = session.run.config
    chance, clients = (config.leaving.request_probability, session.run.population.clients)
    if chance == 0 or t == 0 or len(clients) < 2 or session.run.data_hash is None:
        return None  # of a run that cannot be played on, nothing is drawn
    generator = session.run.streams.at("request", t - 1).generator()
    if generator.random() >= chance:
        return None
    leaver = clients[int(generator.integers(len(clients)))]
    drawn = f"{leaver.handle} after round {t - 1}"  # equal runs have equal chains
    new = Request(
        leaver.handle,
        default_answer(config),
        after_round=t - 1,
        id=hashlib.sha256(drawn.encode()).hexdigest()[:16],
    )
    known = (each for each in session.ledger.requests() if each.after_round == new.after_round)
    request = next(known, None) or put_down(session, [new])[0]
    return request if request.state == "pending" else None


def default_answer(config: Config) -> str:
    """Return the answer for a client that only says that it leaves."""
    if anonymity_of(config) or config.method.vouches_for("subtracts"):
        return "auto"
    return "calibrate" if config.leaving.store_updates else "retrain"


def serve_requests(session: Session, pending: Sequence[Request], state: ServerState) -> Session:
    """Answer requests, as many of them as go together, and return the run without them.

    Who needs no replay is answered first, so that its proof is about the model as it
    is; then those who are subtracted, and all others share one replay. The others stay
    pending, and come next.

    What the answers made obsolete is still there: the process that carries the run on tidies
    first, after a crash as well. If rounds have to be played again, the answers are
    finished once they are.
    """
    record = session.record()
    rules = current_rules(session.run.config, session.folder, record.history)
    compatible = _compatible_requests(session, pending)
    group: list[tuple[Request, Option]] = []
    plans = choose_answers(record.participation, compatible, rules)
    for request, choice in zip(compatible, plans, strict=True):
        if choice.chosen is None:
            session.ledger.refused(request.id, choice.reason)
        else:
            group.append((request, choice.chosen))
    at_once = [each for each in group if each[1].first_replayed_round is None]
    subtracted = [each for each in group if each[1].answer == "subtract"]
    answers = at_once or subtracted or group
    if problem := carried_over(
        session, [request.handle for request, _ in answers], [o for _, o in answers]
    ):
        for request, _ in answers:
            session.ledger.refused(request.id, problem)
        return session
    return _serve(session, answers, state) if answers else session


def _compatible_requests(session: Session, pending: Sequence[Request]) -> list[Request]:
    """Return the requests that can be planned together with the first one.

    Somebody has to stay: the last one is refused. So is a client's second request, if
    it was put down before the first one was served.
    """
    present, names = {c.handle for c in session.run.population.clients}, session.ledger.names()
    calibrated = pending[0].wanted == "calibrate"
    compatible: list[Request] = []
    served = [each for each in session.ledger.requests() if each.served_at]
    for each in pending:
        gone = each.handle not in names and any(
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


def _serve(
    session: Session, answers: Sequence[tuple[Request, Option]], state: ServerState
) -> Session:
    """Record answers in one transaction, with what has to outlive a crash."""
    leaving, present = {each.handle for each, _ in answers}, session.run.population.clients
    stay = tuple(each for each in present if each.handle not in leaving)
    changes = len(stay) < len(present)
    rest = replace(session, run=session.run.with_clients(stay)) if changes else session
    names = session.ledger.names()
    marked = [
        (each, option, each.mark or fresh_mark(each.handle, names[each.handle]))
        for each, option in answers
    ]
    events: list[Event] = [*unrecorded(session, [request for request, _ in answers])]
    data = rest.run.data_hash
    events += [
        ClientLeft(
            request.handle,
            option.answer,
            None if data is None else session.secrets.keyed(data),
            request.id,
            # no one has the salt of drawn requests, and equal runs have equal chains
            mark.subject if request.after_round is None else "",
        )
        for request, option, mark in marked
    ]
    first = answers[0][1].first_replayed_round
    if first is not None:
        kind = replay_kind([option for _, option in answers])
        events.append(RunRolledBack(first, state.round_index, kind))
        if kind == "subtracted":
            events += keep_subtracted(session, state, [each.handle for each, _ in answers])
    erased = {
        request.handle: names[request.handle]
        for request, option in answers
        if request.handle in names and option.answer != "stop"
    }
    for name in erased.values():
        erase_from_copies(session.folder, name, names.values())
    session.ledger.files.note(input_hashes(rest.run, session.secrets))
    served = [
        served_request(
            session, request, option, mark, state, _independent_cluster(session, state, request)
        ).noted(request, None if option.answer == "retrain" else mark.sealed)
        for request, option, mark in marked
    ]
    tombstones = {handle: session.secrets.tombstone(name) for handle, name in erased.items()}
    session.ledger.serve(served, tombstones, session.following(events))
    return rest


def cleanup(session: Session) -> None:
    """Delete what answers that are being served made obsolete; any number of times.

    States that still hold for the other clusters, or of which sums were subtracted, are
    set aside until the answer is signed.
    """
    served, folder = _being_served(session), session.folder
    subtracting = is_subtracting(session)
    if not subtracting:  # what a kill left of what was never recorded
        delete_whole(folder.subtracted)
    if any(each.option.answer != "stop" for each in served):
        session.ledger.scrub()
        shown = (folder.path / name for name in RENDERED)
        cut_off = (place.glob("*.unfinished") for place in (folder.copies, folder.exports))
        for path in (*shown, *chain.from_iterable(cut_off)):
            delete_whole(path)
    for each in served:
        first, last = each.option.first_replayed_round, session.ledger.last_round()
        if first is not None and (last is None or last < first):
            if each.cluster is not None or subtracting:
                set_aside_from(folder.checkpoints, first, folder.superseded)
            delete_from(folder.checkpoints, first)
            if each.option.answer != "calibrate":
                delete_from(folder.updates, first)
            session.secrets.restart_at(first)


def _being_served(session: Session) -> list[Served]:
    return [Served.of(each) for each in session.ledger.requests() if each.served]


def unaffected_models(session: Session, t: int) -> Mapping[int, Params]:
    """Return the models after the original round t of clusters without a leaving client.

    They are what they would be again, so only the other clusters have to be trained.
    Empty where that does not hold of this run, or its state was not kept.
    """
    path = checkpoint_path(session.folder.superseded, t)
    left = {each.cluster for each in _being_served(session)}
    if None in left or state_problem(path, session.ledger):
        return {}
    clusters = load_state(path)[0].clusters
    return {j: model for j, model in enumerate(clusters) if j not in left}


def finish_request(
    session: Session, request: Request, state: ServerState, leaver: Client | None
) -> AnsweredRequest:
    """Sign what was answered; until the request is closed this may be done again."""
    served = Served.of(request)
    stops = served.option.answer == "stop"
    if not stops:
        drop_client(session.folder.updates, request.handle, session.ledger.files)
    delete_whole(session.folder.superseded)
    delete_whole(session.folder.subtracted)
    first = served.option.first_replayed_round
    if served.subtracts and first is not None:
        delete_before(session.folder.checkpoints, first)
    models = whole_models(session.folder, session.ledger, state.clusters)
    copies = (
        () if stops else delete_obsolete_copies(session.folder, request, exported_hashes(models))
    )
    path, facts = write_proof(session, request, state, leaver, copies)
    if request.after_round is None:  # a person made the request, and waits for it
        handover = Handover(request.id, served.salt, facts.answer, str(path))
        keep_handover(session.folder, key_of(session.run.config), handover)
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


def _independent_cluster(session: Session, state: ServerState, request: Request) -> int | None:
    """Return the one cluster that ever met this client; None where there may be more.

    Where an update was ever refused, a replay may not take its sender as in.
    """
    if any(isinstance(event, AnswerRefused) for _, event in session.record().events):
        return None
    independent = has_independent_clusters(session.run.config, session.run.engine)
    return state.assignment.get(request.handle) if independent else None
