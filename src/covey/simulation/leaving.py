"""Clients that leave: planning is pure, and this is how an answer is carried out.

An answer is one transaction of the ledger: what was answered, that the run goes on before
some round, the client's name erased, its tombstone set. Whatever kills the process then,
resuming the run deletes what the answer made obsolete, plays the rounds again, and signs.
"""

import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from covey.assembly import hangs_on_everybody, keeps_clusters_apart
from covey.checkpoints import (
    checkpoint_of,
    checkpointed_rounds,
    delete_from,
    set_aside_from,
)
from covey.config import Config
from covey.data import Client
from covey.errors import RunError
from covey.events import (
    ClientLeft,
    Event,
    RunRolledBack,
    kind_and_body,
)
from covey.ledger import Record, Request
from covey.simulation.desk import Desk, read_events
from covey.simulation.folder import RunFolder
from covey.simulation.proving import before, prove, recorded
from covey.simulation.states import load_state
from covey.simulation.updates import delete_updates, drop_client, stored_rounds
from covey.strategies import ServerState
from covey.types import Handle, Params
from covey.unlearning.participation import Participation, participation_of
from covey.unlearning.plan import Option, Rules, cheapest, options
from covey.unlearning.proof import subject_mark
from covey.unlearning.touched import touched_by

__all__ = [
    "Answered",
    "Plan",
    "drawn",
    "finish",
    "kept_models",
    "planned",
    "serve",
    "tidy",
    "usual_wish",
]

REPLAYED = {"roll_back": "recorded", "retrain": "anew", "calibrate": "calibrated"}
RENDERED = ("report.html", "metrics.csv", "figures", "audit", "baseline")
"""What shows a run as it was, and can be made again: it goes with every answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that could be answered to one client, now."""

    story: Sequence[tuple[int | None, Event]]
    participation: Participation
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered.

    Attributes:
        salt: hex; together with its name it tells the requester its own proof. It is
            kept nowhere else.
    """

    request: str
    handle: Handle
    option: Option
    model_changed: bool
    model_hash: str
    proof: Path
    salt: str

    @property
    def told(self) -> str:
        """What whoever plays the run is told of it, once."""
        return (
            f"request {self.request} was finished: {self.option.answer}, proof "
            f"{self.proof}, salt for the requester, shown once: {self.salt}"
        )


def planned(desk: Desk, handle: Handle, x: int | None = None) -> Plan:
    """Return every answer that this client could be given, without giving any.

    `x` instead of the run's own deniability threshold asks what another one would mean.

    Raises:
        RunError: nobody can leave this run.
    """
    run, folder = desk.run, desk.folder
    if run.config.method.name == "local":
        raise RunError(
            "Clients leave a model that they share, but with method.name = 'local' each "
            "has its own. Delete that client's model instead."
        )
    if len(run.population.clients) < 2:
        raise RunError(
            "A run needs somebody to go on with, but this client is the last one. Delete "
            "the run's folder instead."
        )
    story = [(t, e) for t, events in read_events(desk.ledger) for e in events]
    participation = participation_of(story)
    last, merge = desk.ledger.last_round(), run.config.merge
    hidden = merge.name == "anonymity-sets"
    rules = Rules(
        deniability_threshold=(x or merge.deniability_threshold) if hidden else None,
        stored_updates=bool(stored_rounds(folder.updates)),
        restorable=(0, *(t + 1 for t in checkpointed_rounds(folder.checkpoints))),
        next_round=0 if last is None else min(last + 1, run.config.rounds),
        alike_from_the_start=not hangs_on_everybody(run.config),
    )
    return Plan(story, participation, options(participation, handle, rules))


def drawn(desk: Desk, t: int) -> Request | None:
    """Return the request that a simulation draws before round t, unless it is answered."""
    config = desk.run.config
    chance, clients = config.unlearning.request_probability, desk.run.population.clients
    if chance == 0 or t == 0 or len(clients) < 2:
        return None
    generator = desk.run.streams.at("request", t - 1).generator()
    if generator.random() >= chance:
        return None
    leaver = clients[int(generator.integers(len(clients)))]
    request = desk.ledger.ask(leaver.handle, usual_wish(config), after_round=t - 1)
    return request if request.state == "pending" else None


def usual_wish(config: Config) -> str:
    """Return the answer for a client that only says that it leaves."""
    if config.merge.name == "anonymity-sets":
        return "auto"
    return "calibrate" if config.unlearning.store_updates else "retrain"


def serve(desk: Desk, request: Request, state: ServerState) -> Desk:
    """Answer a request, and return the run without the client.

    What the answer made obsolete is still there: whoever carries the run on tidies
    first, after a crash as well. If rounds have to be played again, the answer is
    finished once they are.
    """
    handle = request.handle
    plan = planned(desk, handle)
    try:
        option = cheapest(plan.options, request.wanted)
    except RunError as error:
        desk.ledger.refused(request.id, str(error))
        return desk
    leaver, rest = desk.client(handle), desk.without(handle)
    first, until = option.first_replayed_round, state.round_index
    facts: list[Event] = [ClientLeft(handle, option.answer, rest.run.data_hash)]
    if first is not None:
        facts.append(RunRolledBack(first, until, REPLAYED[option.answer]))
    salt = secrets.token_bytes(16)
    note = {
        "first": first,
        "until": until if first is not None else 0,
        "salt": salt.hex(),
        "cluster": _apart(desk, state, handle),
        "facts": {
            "asked": request.asked_at,
            "subject": subject_mark(leaver.name, salt),
            "superseded_deleted": _superseded(desk.folder, option),
            "touched": [asdict(each) for each in touched_by(plan.story, handle)],
            **recorded(desk, plan.participation, option, handle),
            **before(desk, leaver, state),
        },
    }
    desk.ledger.serve(
        request.id,
        [Record(None, *kind_and_body(fact)) for fact in facts],
        erase=handle,
        tombstone=desk.secrets.tombstone(leaver.name),
        note=note,
    )
    return rest


def tidy(desk: Desk) -> None:
    """Delete what answers that are being served made obsolete; any number of times.

    States that still hold for the other clusters are set aside until the answer is signed.
    """
    requests = desk.ledger.requests()
    notes = [r.note for r in requests if r.state == "serving" and r.note is not None]
    if notes:
        desk.ledger.scrub()
        for name in RENDERED:
            _delete(desk.folder.path / name)
    for note in notes:
        first, last = note["first"], desk.ledger.last_round()
        if first is not None and (last is None or last < first):
            if note.get("cluster") is not None:
                set_aside_from(desk.folder.checkpoints, first, desk.folder.superseded)
            delete_from(desk.folder.checkpoints, first)
            if note["facts"]["answer"] != "calibrate":
                delete_updates(desk.folder.updates, first)
            desk.secrets.begin_again_at(first)


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
    """Sign what was answered, and close the request."""
    note = request.note or {}
    told = note["facts"]
    drop_client(desk.folder.updates, request.handle)
    _delete(desk.folder.superseded)
    path, document = prove(desk, request, state, leaver)
    desk.ledger.answered(request.id, told["answer"])
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
    )


def _apart(desk: Desk, state: ServerState, handle: Handle) -> int | None:
    """Return the one cluster that ever met this client; None where there may be more."""
    apart = keeps_clusters_apart(desk.run.config, desk.run.engine)
    return state.assignment[handle] if apart else None


def _superseded(folder: RunFolder, option: Option) -> dict[str, int]:
    first = option.first_replayed_round
    gone = {
        "report, figures, metrics, audit, baseline": sum(
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
