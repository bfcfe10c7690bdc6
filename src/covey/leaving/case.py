"""Requests that are answered together, phase by phase, between the rounds of a run.

    requested -- record -->  answers are in the ledger, in one transaction, and names are erased
    recorded  -- tidy   -->  what the answers made obsolete is deleted
    tidied    -- replay -->  rounds that were taken back are played again, if any were
    replayed  -- sign   -->  a proof of each answer is on the disk
    signed    -- close  -->  requesters were told, and what only their proofs needed is dropped

Each step can be carried out again. Whatever kills the process, the next one finds out of the
ledger and the folder which phase was reached (`case_of`), and goes on from there.

A subtraction plays one round again, the last one, from the state after it less the sums of
who leaves. That state is on the disk before the answer is recorded, so that the round begins with
the same bits. Should it be damaged, the state that it came of does as well, as the sums can be
made anew from the records of those who stay.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024, 3.1.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Literal

from covey.algorithms.state import ServerState
from covey.base import events
from covey.base.errors import RunError
from covey.base.events import ClientLeft, Event, RunRolledBack
from covey.base.files import delete_whole
from covey.base.names import Handle, round_number
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.leaving.copies import RENDERED, erase_from_copies
from covey.leaving.facts import AnswerInProgress
from covey.leaving.handover import fresh_mark
from covey.leaving.plan import Option, replay_kind
from covey.leaving.planning import choose_answers, current_rules
from covey.leaving.requests import take_up, unrecorded, with_simulated
from covey.leaving.signing import AnsweredRequest, served_request, sign_answers
from covey.ledger.requests import LeaveRequest
from covey.models.feature_store import FeatureStore
from covey.runs.evaluation import OnRound
from covey.runs.folder import checkpoint_path, checkpoint_paths, round_of
from covey.runs.inputs import input_hashes
from covey.runs.ledger_terms import own_parts
from covey.runs.loop import Position, begin, conclude, ended_early, play_round, record_round, save
from covey.runs.session import Session, no_op
from covey.runs.states import (
    delete_from,
    kept_state,
    load_state,
    set_aside_from,
    state_bytes,
    state_problem,
)
from covey.settings.clients import ClientReports
from covey.settings.run import BuiltRun

Phase = Literal["requested", "recorded", "tidied", "replayed", "signed"]

OnAnswer = Callable[[AnsweredRequest], None]
"""Called with an answer that was signed, before its salt is forgotten."""

BeforeAnswer = Callable[[Session, LeaveRequest], None]
"""Called before a request is served, while everything on the disk is as it was."""

log = logging.getLogger(__name__)

_SUBTRACTED = "subtracted"
"""What the ledger calls the file of the state that a round is solved from again."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Requests that are answered together, and how far that is.

    Attributes:
        requests: those that wait ("requested"), or those of one answer.
        served: what their proofs need, once answers are recorded.
        clients: by request, the data of who leaves, where this process had them.
        answers: what was signed.
    """

    phase: Phase
    requests: Sequence[LeaveRequest]
    served: Sequence[AnswerInProgress] = ()
    clients: Mapping[str, Client | None] = field(default_factory=dict[str, Client | None])
    answers: Sequence[AnsweredRequest] = ()

    @classmethod
    def recorded(
        cls, requests: Sequence[LeaveRequest], clients: Mapping[str, Client | None] | None = None
    ) -> "Case":
        """Return the case of requests whose answers are recorded."""
        return cls("recorded", requests, tuple(map(AnswerInProgress.of, requests)), clients or {})

    @property
    def first(self) -> int | None:
        """The first round that is played again; None: none is."""
        starts = (answer.option.first_replayed_round for answer in self.served)
        return next((first for first in starts if first is not None), None)

    @property
    def until(self) -> int:
        """The round before which all of them have been played."""
        return max((answer.until for answer in self.served), default=0)

    @property
    def subtracts(self) -> bool:
        """Whether the last round is solved again from sums."""
        return any(answer.subtracts for answer in self.served)


def case_of(session: Session) -> Case | None:
    """Return the case that is open, in the phase that the ledger says; None: nobody waits."""
    roster = session.roster
    if not roster.serving:
        return Case("requested", roster.pending) if roster.pending else None
    case = Case.recorded(roster.serving)
    begun = case.first is not None and session.record.next_round > case.first
    return replace(case, phase="tidied") if begun else case


def play(
    session: Session,
    until: int | None = None,
    *,
    before_answer: BeforeAnswer = no_op,
    on_answer: OnAnswer = no_op,
    on_round: OnRound | None = None,
) -> tuple[AnsweredRequest, ...]:
    """Play rounds up to the round `until` or the run's end, and answer who asks between them.

    Rounds that are owed to who left are played in any case.

    Args:
        session: the run, open to be written.
        until: the round before which to stop; None: its end.
        before_answer: called before a request is served.
        on_answer: called with each answer as it is signed, however long the replays of
            others still take; its salt is forgotten right afterwards.
        on_round: called once with each round that is recorded.

    Returns:
        The requests that were answered.

    Raises:
        LedgerMismatch: a replayed round is not the recorded one.
    """
    until = session.run.config.rounds if until is None else until
    case, answered = case_of(session), list[AnsweredRequest]()
    at = _position(session, case)
    while True:
        if case is None and at.is_new:
            at = replace(at, session=_with_requests(at))
            case = case_of(at.session)
        if case is not None and (at.is_new or case.phase != "requested"):
            if case.phase == "requested":
                at = at if at.is_saved else save(at)
                for request in case.requests:
                    before_answer(at.session, request)
            case, at = advance(case, at, on_answer, on_round)
            if case is not None and case.phase == "signed":
                answered += case.answers
            continue
        if at.replay is None and at.round_index < until and at.is_new:
            at = ended_early(at)
        if at.round_index >= min(until, at.rounds) and at.is_new:
            break
        at = _one_more_round(at, on_round)
    conclude(at)
    if answered:
        session.ledger.scrub()  # of the salts as well
    return tuple(answered)


def advance(
    case: Case, at: Position, on_answer: OnAnswer = no_op, on_round: OnRound | None = None
) -> tuple[Case | None, Position]:
    """Carry out the next step of a case; None: it is closed."""
    match case.phase:
        case "requested":
            return record(case, at)
        case "recorded":
            return tidy(case, at)
        case "tidied":
            return replay(case, at, on_round)
        case "replayed":
            return sign(case, at)
        case "signed":
            return close(case, at, on_answer)


def record(case: Case, at: Position) -> tuple[Case | None, Position]:
    """Record the answers that go together in one transaction, with what outlives a crash."""
    session, state = at.session, at.state
    delete_whole(session.folder.subtracted)  # of an answer that a kill kept from being recorded
    answers, refused = plan(session, case.requests)
    for request, reason in refused:
        session.ledger.refused(request.id, reason)
    if not answers:
        session = session.with_roster()
        return case_of(session), replace(at, session=session)
    clients = {request.id: session.client(request.handle) for request, _ in answers}
    names, options = session.roster.names, [option for _, option in answers]
    leaving, present = {request.handle for request, _ in answers}, session.run.population.clients
    stay = tuple(client for client in present if client.handle not in leaving)
    changes = len(stay) < len(present)
    rest = replace(session, run=session.run.with_clients(stay)) if changes else session
    marks = {e.id: e.mark or fresh_mark(e.handle, names[e.handle]) for e, _ in answers}
    data = None if rest.run.data_hash is None else session.secrets.keyed(rest.run.data_hash)
    events: list[Event] = [*unrecorded(session, [request for request, _ in answers])]
    for request, option in answers:
        # no one has the salt of drawn requests, and equal runs have equal chains
        subject = marks[request.id].subject if request.after_round is None else ""
        events.append(ClientLeft(request.handle, option.answer, data, request.id, subject))
    first = options[0].first_replayed_round
    if first is not None:
        kind = replay_kind(options)
        events.append(RunRolledBack(first, state.round_index, kind))
        if kind == "subtracted":
            events += keep_subtracted(session, state, leaving)
    erased = {
        request.handle: names[request.handle]
        for request, option in answers
        if request.handle in names and option.answer != "stop"
    }
    for name in erased.values():
        erase_from_copies(session.folder, name, names.values())
    session.ledger.files.note(input_hashes(rest.run, session.secrets))
    served = [
        served_request(session, request, option, marks[request.id], state).noted(
            request, None if option.answer == "retrain" else marks[request.id].sealed
        )
        for request, option in answers
    ]
    tombstones = {handle: session.secrets.tombstone(name) for handle, name in erased.items()}
    links = session.ledger.serve(served, tombstones, session.following(events))
    session = rest.with_written(links)
    case = Case.recorded(session.roster.serving, clients)
    return case, _position(session, case)


def plan(
    session: Session, waiting: Sequence[LeaveRequest]
) -> tuple[list[tuple[LeaveRequest, Option]], list[tuple[LeaveRequest, str]]]:
    """Return the answers that go together and come next, and which requests are refused, and why.

    Who needs no replay is answered first, so that its proof is about the model as it is; then
    those who are subtracted, and all others share one replay. The others wait on.
    """
    together, refused = _compatible_requests(session, waiting)
    rules = current_rules(session.run.config, session.folder, session.record.history)
    plans = choose_answers(session.record.participation, together, rules)
    chosen = [(request, plan.chosen) for request, plan in zip(together, plans, strict=True)]
    refused += [(r, p.reason) for r, p in zip(together, plans, strict=True) if p.chosen is None]
    group = [(request, option) for request, option in chosen if option is not None]
    at_once = [answer for answer in group if answer[1].first_replayed_round is None]
    subtracted = [answer for answer in group if answer[1].answer == "subtract"]
    answers = at_once or subtracted or group
    leavers, options = [request.handle for request, _ in answers], [o for _, o in answers]
    if problem := carried_over(session, leavers, options):
        return [], refused + [(request, problem) for request, _ in answers]
    return answers, refused


def tidy(case: Case, at: Position) -> tuple[Case, Position]:
    """Delete what the answers made obsolete.

    States of which sums were subtracted are set aside until the answer is signed.
    """
    session, folder, first = at.session, at.session.folder, case.first
    if any(answer.option.answer != "stop" for answer in case.served):
        session.ledger.scrub()
        shown = (folder.path / name for name in RENDERED)
        cut_off = (place.glob("*.unfinished") for place in (folder.copies, folder.exports))
        for path in (*shown, *chain.from_iterable(cut_off)):
            delete_whole(path)
    for store, request in product(FeatureStore.all_at(folder.features), case.requests):
        store.forget(request.handle)
    if first is not None:
        if case.subtracts:
            set_aside_from(folder.checkpoints, first, folder.superseded)
        delete_from(folder.checkpoints, first)
        if any(answer.option.answer != "calibrate" for answer in case.served):
            delete_from(folder.updates, first)
        session.secrets.restart_at(first)
    return replace(case, phase="tidied"), at


def replay(case: Case, at: Position, on_round: OnRound | None) -> tuple[Case, Position]:
    """Play the rounds that were taken back; then the state is on the disk."""
    while at.round_index < case.until or not at.is_new:
        at = _one_more_round(at, on_round)
    return replace(case, phase="replayed"), at if at.is_saved else save(at)


def sign(case: Case, at: Position) -> tuple[Case, Position]:
    """Prove what was answered; until the case is closed this may be done again."""
    answers = sign_answers(at.session, case.requests, at.state, case.clients)
    return replace(case, phase="signed", answers=answers), at


def close(case: Case, at: Position, on_answer: OnAnswer) -> tuple[Case | None, Position]:
    """Hand the answers over, and drop what only their proofs needed."""
    for answer in case.answers:
        on_answer(answer)
        at.session.ledger.answered(answer.request, answer.option.answer)
        log.info("request of %s answered: %s", answer.handle, answer.option.answer)
    session = at.session.with_roster()
    return case_of(session), replace(at, session=session)


def _position(session: Session, case: Case | None) -> Position:
    """Return where a run goes on: where rounds were taken back, before the first of them."""
    if case is None or case.first is None:
        return begin(session)
    is_tidied = case.phase == "tidied"
    if case.subtracts and not (is_tidied and is_solved_again(session, case.first)):
        return begin(session, unsolved_state(session, case.first), solves=True)
    return begin(session, before=None if is_tidied else case.first, solves=case.subtracts)


def _with_requests(at: Position) -> Session:
    """Take up requests, before the next round; where nobody waits one may be drawn."""
    session = take_up(at.session)
    return session if session.roster.pending else with_simulated(session, at.round_index)


def _one_more_round(at: Position, on_round: OnRound | None) -> Position:
    """Play a round; nodes' requests to leave are recorded before it is."""
    at, played = play_round(at, wants_losses=on_round is not None)
    if played.leaving:
        at = replace(at, session=take_up(at.session, played.leaving))
    return record_round(at, played.result, on_round)


def _compatible_requests(
    session: Session, waiting: Sequence[LeaveRequest]
) -> tuple[list[LeaveRequest], list[tuple[LeaveRequest, str]]]:
    """Return the requests that can be planned together with the first one, and the impossible.

    Somebody has to stay: the last one is refused. So is a client's second request, if
    it was recorded before the first one was served.
    """
    present, names = {c.handle for c in session.run.population.clients}, session.roster.names
    calibrated = waiting[0].wanted == "calibrate"
    served = [request for request in session.roster.requests if request.served_at]
    together, refused = list[LeaveRequest](), list[tuple[LeaveRequest, str]]()
    for request in waiting:
        gone = request.handle not in names and any(
            other.handle == request.handle and (other.served_at or "") > request.requested_at
            for other in served
        )
        if gone or any(request.handle == other.handle for other in together):
            refused.append((request, "An earlier request of this client came first."))
        elif (request.wanted == "calibrate") == calibrated:
            together.append(request)
    if present <= {request.handle for request in together}:
        last = [request for request in together if request.handle in present][-1]
        refused.append((last, "The last client cannot be removed."))
        together.remove(last)
    return together, refused


def carried_over(session: Session, leavers: Sequence[Handle], answers: Sequence[Option]) -> str:
    """Say which parts of a user's own would carry a leaver over a replay; "": none is seen to.

    The first round that is to be played again is played twice: a part that keeps something
    outside of the run's state makes other models the second time. A part that does not show
    itself so is named in the proof.
    """
    replaying = [answer for answer in answers if answer.first_replayed_round is not None]
    own = own_parts(session.run.config)
    if not own or not replaying or replay_kind(replaying) not in ("anew", "recorded"):
        return ""
    first = min(option.first_replayed_round or 0 for option in replaying)
    stay = tuple(c for c in session.run.population.clients if c.handle not in leavers)
    run = session.run.with_clients(stay)
    if run.client_backend is not None or session.secrets.source != "seeded":
        return ""
    streams = session.secrets.at_round(first).at("round", first)

    def played() -> tuple[str, Sequence[Event]]:
        state = run.algorithm.init(run.streams)
        if first:
            earlier = kept_state(session.folder, session.ledger, after=first - 1)
            state = earlier.without(leavers)
        result = run.algorithm.round(state, run.clients(stay, first), streams)
        return model_hash(result.state.clusters), result.events

    if played() == played():
        return ""
    parts = ", ".join(f"{setting} = {name!r}" for setting, name in sorted(own.items()))
    return (
        f"A round that is played twice must come out the same, found another round "
        f"{round_number(first)}, as a part that is not covey's keeps something outside of the "
        f"run's state ({parts}): keep it in that state, or ask with --answer stop."
    )


def keep_subtracted(
    session: Session, state: ServerState, leavers: Collection[Handle]
) -> tuple[events.Event, ...]:
    """Write the state from which the last round is played again without these clients.

    None of its models has seen them: all are those that the run begins with. Remote
    clients send the sums that are subtracted, or those who stay send theirs.

    Returns:
        What is to be recorded of those who stay and sent sums.
    """
    run, ledger = session.run, session.ledger
    known = (session.client(handle) for handle in leavers)
    present = tuple(client for client in known if client is not None)
    unknown = set(leavers) - {client.handle for client in present}
    less = run.algorithm.without(state.without(unknown), run.clients(present))
    unsolved, head = _unsolved(run, less), session.record.head_of(state.round_index - 1) or ""
    place = checkpoint_path(session.folder.subtracted, unsolved.round_index - 1)
    ledger.files.write(_SUBTRACTED, place, state_bytes(unsolved, head))
    backend = run.client_backend
    return () if backend is None else tuple(_of_others(backend.reports(), frozenset(leavers)))


def _of_others(reports: ClientReports, leavers: frozenset[Handle]) -> Iterator[events.Event]:
    """Yield what has to be recorded, with nothing in it of clients that leave."""
    for event in reports.events:
        match event:
            case events.AnswersMissing(handles=handles):
                if stay := tuple(h for h in handles if h not in leavers):
                    yield replace(event, handles=stay)
            case events.AnswerRefused(handle=handle) if handle in leavers:
                pass
            case events.ClientsReported():  # of no round, and said again in the next answer
                pass
            case _:
                yield event


def unsolved_state(session: Session, round_index: int) -> ServerState:
    """Return the state from which a round is solved again.

    Raises:
        RunError: it is lost, and so is the one that it came of.
    """
    present = {client.handle for client in session.run.population.clients}
    state = _written(session, round_index)
    return replace(state.without(state.assignment.keys() - present), round_index=round_index)


def is_solved_again(session: Session, round_index: int) -> bool:
    """Say whether a round of which states were deleted was solved, and its state is there."""
    paths = checkpoint_paths(session.folder.checkpoints)
    later = (path for path in paths if round_of(path) >= round_index)
    return any(not state_problem(path, session.ledger) for path in later)


def _written(session: Session, round_index: int) -> ServerState:
    folder, ledger = session.folder, session.ledger
    path = checkpoint_path(folder.subtracted, round_index)
    if not ledger.files.problem(_SUBTRACTED, path):
        return load_state(path)[0]
    log.warning("sums are made anew: no whole state in %s", folder.subtracted)
    for place in (folder.superseded, folder.checkpoints):
        path = checkpoint_path(place, round_index)
        if not state_problem(path, ledger):
            return _unsolved(session.run, load_state(path)[0])
    raise RunError(
        f"The state after round {round_index} must be whole in {folder.subtracted} or "
        f"{folder.superseded}, found neither: restore one from a copy, and resume."
    )


def _unsolved(run: BuiltRun, state: ServerState) -> ServerState:
    return replace(state, clusters=run.algorithm.init(run.streams).clusters)
