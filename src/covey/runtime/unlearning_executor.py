"""Clients that leave: planning is pure, and this is how answers are carried out.

Answers that go together are one transaction of the ledger: what was answered to each,
that the run goes on before some round, the clients' names erased, their tombstones set.
Whatever kills the process then, resuming the run deletes what the answers made obsolete,
plays the rounds again, once for all, and signs a proof for each.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from covey.algorithms import ServerState
from covey.build import anonymity_of, has_independent_clusters
from covey.checkpoints import (
    checkpoint_of,
    checkpointed_rounds,
    delete_from,
    set_aside_from,
)
from covey.config import Config
from covey.data import Client
from covey.events import (
    AnswerRefused,
    ClientLeft,
    Event,
    RunRolledBack,
    kind_and_body,
)
from covey.ledger import Record, Request, Serving
from covey.runtime.asking import mark_of, wish_of
from covey.runtime.folder import RunFolder
from covey.runtime.planning import Plan, read_plan
from covey.runtime.proof_builder import before, prove, recorded
from covey.runtime.session import Desk
from covey.runtime.settling import (
    RENDERED,
    Settled,
    copies_told,
    erase_from_copies,
    settled,
)
from covey.runtime.state_io import load_state
from covey.runtime.updates import delete_updates, drop_client, stored_rounds
from covey.types import Basis, Handle, Params
from covey.unlearning.influence import touched_by
from covey.unlearning.jointly import How, jointly, replayed_as
from covey.unlearning.participation import Participation
from covey.unlearning.plan import Option

__all__ = [
    "Answered",
    "drawn",
    "finish",
    "kept_models",
    "serve",
    "tidy",
    "usual_wish",
]


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered.

    Attributes:
        salt: hex; together with its name it tells the requester its own proof. It is
            kept nowhere else.
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
    copies: tuple[Settled, ...] = ()

    @property
    def told(self) -> str:
        """What whoever plays the run is told of it, once."""
        lines = (
            f"request {self.request} was finished: {self.option.answer}, proof "
            f"{self.proof}, salt for the requester, shown once: {self.salt}",
            *copies_told([each.told() for each in self.copies]),
        )
        return "\n".join(lines)


def drawn(desk: Desk, t: int) -> Request | None:
    """Return the request that a simulation draws before round t, unless it is answered."""
    config = desk.run.config
    chance, clients = config.unlearning.request_probability, desk.run.population.clients
    if chance == 0 or t == 0 or len(clients) < 2 or desk.run.data_hash is None:
        return None  # of a run that cannot be played on, nothing is drawn
    generator = desk.run.streams.at("request", t - 1).generator()
    if generator.random() >= chance:
        return None
    leaver = clients[int(generator.integers(len(clients)))]
    request = desk.ledger.ask(leaver.handle, usual_wish(config), after_round=t - 1)
    return request if request.state == "pending" else None


def usual_wish(config: Config) -> str:
    """Return the answer for a client that only says that it leaves."""
    if anonymity_of(config):
        return "auto"
    return "calibrate" if config.unlearning.store_updates else "retrain"


def serve(desk: Desk, asked: Sequence[Request], state: ServerState) -> Desk:
    """Answer requests, as many of them as go together, and return the run without them.

    Who needs no replay is answered first, so that its proof is about the model as it
    is; all who need one share it. The others stay pending, and come next.

    What the answers made obsolete is still there: whoever carries the run on tidies
    first, after a crash as well. If rounds have to be played again, the answers are
    finished once they are.
    """
    plan, rules = read_plan(desk)
    together = _of_one_kind(desk, asked)
    wishes = [wish_of(each) for each in together]
    choices = jointly(plan.participation, wishes, rules)
    group: list[tuple[Request, Option]] = []
    for request, choice in zip(together, choices, strict=True):
        if choice.chosen is None:
            desk.ledger.refused(request.id, choice.reason)
        else:
            group.append((request, choice.chosen))
    at_once = [each for each in group if each[1].first_replayed_round is None]
    answers = at_once or group
    return _serve(desk, _Turn.of(plan, answers), state) if answers else desk


def _of_one_kind(desk: Desk, asked: Sequence[Request]) -> list[Request]:
    """Return the requests that can be planned together with the first one.

    Somebody has to stay: the last one is refused. So is a client's second request, if
    it was put down before the first one was served.
    """
    names, here = desk.ledger.names(), {c.handle for c in desk.run.population.clients}
    calibrated = asked[0].wanted == "calibrate"
    together: list[Request] = []
    for each in asked:
        gone = each.handle not in names and each.note is None
        if gone or any(each.handle == other.handle for other in together):
            desk.ledger.refused(
                each.id, "An earlier request of this client came first."
            )
        elif (each.wanted == "calibrate") == calibrated:
            together.append(each)
    if here <= {each.handle for each in together}:
        last = [each for each in together if each.handle in here][-1]
        desk.ledger.refused(last.id, "A run needs somebody to go on with.")
        together.remove(last)
    return together


@dataclass(frozen=True, slots=True)
class _Turn:
    """Requests that are answered in one transaction.

    Attributes:
        plan: of the run, with all of them among those who left.
        how: rounds are played again; None: none is.
    """

    plan: Plan
    answers: Sequence[tuple[Request, Option]]
    how: How | None

    @classmethod
    def of(cls, plan: Plan, answers: Sequence[tuple[Request, Option]]) -> "_Turn":
        """Return the turn of these answers, whose replay is one."""
        found = plan.participation
        left = dict.fromkeys((*found.left, *(each.handle for each, _ in answers)))
        chosen = [option for _, option in answers]
        again = chosen[0].first_replayed_round is not None
        plan = replace(plan, participation=replace(found, left=tuple(left)))
        return cls(plan, answers, replayed_as(chosen) if again else None)


def _serve(desk: Desk, turn: _Turn, state: ServerState) -> Desk:
    """Record the answers in one transaction, with what has to outlive a crash."""
    rest = desk.without({request.handle for request, _ in turn.answers})
    facts: list[Event] = [
        ClientLeft(request.handle, option.answer, rest.run.data_hash)
        for request, option in turn.answers
    ]
    first = turn.answers[0][1].first_replayed_round
    if first is not None and turn.how is not None:
        facts.append(RunRolledBack(first, state.round_index, turn.how))
    names = desk.ledger.names()
    for request, _ in turn.answers:
        if request.handle in names:
            erase_from_copies(desk.folder, names[request.handle], names.values())
    desk.ledger.serve(
        [_serving(desk, turn, each, state) for each in turn.answers],
        [Record(None, *kind_and_body(fact)) for fact in facts],
    )
    return rest


def _serving(
    desk: Desk, turn: _Turn, given: tuple[Request, Option], state: ServerState
) -> Serving:
    """Return what is kept of one request until it is answered, and what after that."""
    request, option = given
    handle, first = request.handle, option.first_replayed_round
    mark, name = mark_of(desk, request), desk.ledger.names().get(handle)
    kept = option.answer != "retrain"
    found = turn.plan.participation
    note = {
        "first": first,
        "until": state.round_index if first is not None else 0,
        "salt": mark.salt,
        "cluster": None if _refused(turn.plan) else _apart(desk, state, handle),
        "facts": {
            "asked": request.asked_at,
            "basis": request.basis,
            "subject": mark.subject,
            "replayed": turn.how,
            "sealed_record_kept": kept,
            "superseded_deleted": _superseded(desk.folder, option),
            "touched": [asdict(each) for each in touched_by(turn.plan.story, handle)],
            **recorded(desk, found, option, handle),
            **before(desk, desk.client(handle), _placed(state, found, handle)),
        },
    }
    tombstone = None if name is None else desk.secrets.tombstone(name)
    return Serving(request, tombstone, note, mark.sealed if kept else None)


def _placed(state: ServerState, found: Participation, handle: Handle) -> ServerState:
    """Return the state with who has returned in the cluster that it trained last."""
    trained = found.trained.get(handle)
    if handle in state.assignment or not trained:
        return state
    return state.with_choices({handle: trained[max(trained)]})


def tidy(desk: Desk) -> None:
    """Delete what answers that are being served made obsolete; any number of times.

    States that still hold for the other clusters are set aside until the answer is signed.
    """
    requests = desk.ledger.requests()
    notes = [r.note for r in requests if r.state == "serving" and r.note is not None]
    if notes:
        desk.ledger.scrub()
        for path in _shown_or_cut_off(desk.folder):
            _delete(path)
    for note in notes:
        first, last = note["first"], desk.ledger.last_round()
        if first is not None and (last is None or last < first):
            if note.get("cluster") is not None:
                set_aside_from(desk.folder.checkpoints, first, desk.folder.superseded)
            delete_from(desk.folder.checkpoints, first)
            if note["facts"]["answer"] != "calibrate":
                delete_updates(desk.folder.updates, first)
            desk.secrets.begin_again_at(first)


def _shown_or_cut_off(folder: RunFolder) -> Iterator[Path]:
    """Yield what shows the run as it was, and files whose writing a kill cut off."""
    yield from (folder.path / name for name in RENDERED)
    for place in (folder.copies, folder.path / "exports"):
        yield from place.glob("*.unfinished")


def kept_models(desk: Desk, t: int) -> Mapping[int, Params]:
    """Return the models after round t, as it was, of clusters that met nobody who leaves.

    They are what they would be again, so only the other clusters have to be trained.
    Empty where that does not hold of this run, or its state was not kept.
    """
    path = checkpoint_of(desk.folder.superseded, t)
    notes = [each.note for each in desk.ledger.requests() if each.state == "serving"]
    left = {note.get("cluster") for note in notes if note}
    if path is None or None in left:
        return {}
    clusters = load_state(path)[0].clusters
    return {j: model for j, model in enumerate(clusters) if j not in left}


def finish(
    desk: Desk, request: Request, state: ServerState, leaver: Client | None
) -> Answered:
    """Sign what was answered; until the request is closed this may be done again."""
    note = request.note or {}
    told = note["facts"]
    drop_client(desk.folder.updates, request.handle)
    _delete(desk.folder.superseded)
    copies = settled(desk.folder, request, state.clusters)
    path, document = prove(desk, request, state, leaver, copies)
    return Answered(
        request=request.id,
        handle=request.handle,
        option=Option(
            told["answer"],
            first_affected_round=told["first_affected_round"],
            first_replayed_round=told["first_replayed_round"],
            rounds_replayed=told["rounds_replayed"],
        ),
        model_changed=document["model_changed"],
        model_hash=document["model_after"],
        proof=path,
        salt=note["salt"],
        basis=request.basis,
        sealed_record_kept=told.get("sealed_record_kept", False),
        copies=copies,
    )


def _apart(desk: Desk, state: ServerState, handle: Handle) -> int | None:
    """Return the one cluster that ever met this client; None where there may be more."""
    apart = has_independent_clusters(desk.run.config, desk.run.engine)
    return state.assignment.get(handle) if apart else None


def _refused(plan: Plan) -> bool:
    """Say whether an update was ever refused: a replay may not take its sender as in."""
    return any(isinstance(event, AnswerRefused) for _, event in plan.story)


def _superseded(folder: RunFolder, option: Option) -> dict[str, int]:
    first = option.first_replayed_round
    gone = {
        "of report, figures, metrics, audit and baseline": sum(
            (folder.path / name).exists() for name in RENDERED
        )
    }
    if first is None:
        return gone
    states = [t for t in checkpointed_rounds(folder.checkpoints) if t >= first]
    updates = [t for t in stored_rounds(folder.updates) if t >= first]
    gone |= {"states": len(states)}
    return gone if option.answer == "calibrate" else gone | {"updates": len(updates)}


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
