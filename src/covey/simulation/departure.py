"""What a person asks of a run: what is held on a client, and that it be let go."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from covey.assembly import Assembled
from covey.checkpoints import checkpointed_rounds
from covey.errors import RunError
from covey.history import History
from covey.simulation.desk import Desk, opened
from covey.simulation.folder import RunFolder
from covey.simulation.leaving import Answered, planned
from covey.simulation.loop import Observer, carry_on
from covey.simulation.updates import stored_rounds
from covey.types import ClientName, Handle
from covey.unlearning.plan import Option, cheapest

__all__ = ["Cost", "Forgotten", "Planned", "explained", "forget", "plans"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer takes.

    Attributes:
        seconds: predicted from how long the run's rounds took; None: no round did.
        bytes_deleted: of states and updates that the answer makes obsolete.
    """

    seconds: float | None
    bytes_deleted: int


@dataclass(frozen=True, slots=True)
class Planned:
    """One client's possible answers, each with its cost, and the one that "auto" gives.

    Attributes:
        chosen: None where none would be true.
    """

    client: ClientName
    options: tuple[tuple[Option, Cost], ...]
    chosen: Option | None
    reason: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A client's request, and what came of it.

    Attributes:
        seconds: from the request to the signed answer.
    """

    client: ClientName
    answered: Answered
    seconds: float


def plans(
    run: Assembled, folder: RunFolder, clients: Sequence[ClientName], wanted: str
) -> tuple[Planned, ...]:
    """Return what each client could be answered if it were the next; nothing is done.

    Raises:
        RunError: a client is not known to the run.
    """
    with opened(run, folder) as desk:
        handles = _handles(desk, clients)
        return tuple(
            _planned(desk, name, handle, wanted) for name, handle in handles.items()
        )


def forget(
    run: Assembled,
    folder: RunFolder,
    client: ClientName,
    wanted: str = "auto",
    observe: Observer = lambda _: None,
) -> tuple[History, Forgotten]:
    """Let a client leave, and play again what has to be played again.

    An unfinished run is not carried on.

    Raises:
        RunError: the client is not known, or the answer would not be true; nothing was
            done.
    """
    began = time.monotonic()
    with opened(run, folder) as desk:
        (handle,) = _handles(desk, [client]).values()
        cheapest(planned(desk, handle).options, wanted)
        last = desk.ledger.last_round()
        request = desk.ledger.ask(handle, wanted)
        until = 0 if last is None else min(last + 1, run.config.rounds)
        history, answered = carry_on(desk, until, observe)
    mine = next(each for each in answered if each.request == request.id)
    return history, Forgotten(client, mine, time.monotonic() - began)


def explained(run: Assembled, folder: RunFolder, client: ClientName) -> dict[str, Any]:
    """Return what is held on a client, as it could be told to it: nobody else is named.

    Raises:
        RunError: the client is not known to the run.
    """
    with opened(run, folder) as desk:
        (handle,) = _handles(desk, [client]).values()
        found = planned(desk, handle).participation
        own = next(c for c in desk.run.population.clients if c.handle == handle)
        trained = found.trained.get(handle, {})
        first = found.first_round(handle)
        states = checkpointed_rounds(folder.checkpoints)
        return {
            "client": client,
            "handle": handle,
            "name_is_kept_in": "the ledger's table of handles, and nowhere else",
            "rounds_trained": sorted(trained),
            "clusters_trained": sorted(set(trained.values())),
            "risk_threshold": None if run.federation else own.preference.risk_threshold,
            "anonymity_sets": [
                {
                    "round": each.round_index,
                    "cluster": each.cluster,
                    "members": len(each.members),
                    "diameter": each.diameter,
                }
                for each in found.sets_of(handle)
            ],
            "risk_figures_that_count_it": list(found.counted["risks"]),
            "prices_that_count_it": list(found.counted["prices"]),
            "states_that_depend_on_it": [
                t for t in states if first is not None and t >= first
            ],
            "raw_updates_stored": [
                t for t in stored_rounds(folder.updates) if t in trained
            ],
            "requests": [
                {"wanted": r.wanted, "state": r.state, "asked": r.asked_at}
                for r in desk.ledger.requests()
                if r.handle == handle
            ],
        }


def _planned(desk: Desk, name: ClientName, handle: Handle, wanted: str) -> Planned:
    plan = planned(desk, handle)
    try:
        chosen, reason = cheapest(plan.options, wanted), ""
    except RunError as error:
        chosen, reason = None, str(error)
    costs = tuple((option, _cost(desk, option)) for option in plan.options)
    return Planned(name, costs, chosen, reason)


def _cost(desk: Desk, option: Option) -> Cost:
    first = option.first_replayed_round
    if not option.possible or first is None:
        return Cost(0.0, 0)
    took = desk.ledger.seconds_per_round()
    folders = (desk.folder.checkpoints, desk.folder.updates)
    gone = [
        path
        for folder in folders
        for path in folder.glob("round-*.safetensors")
        if int(path.stem.removeprefix("round-")) >= first
    ]
    return Cost(
        seconds=option.rounds_replayed * median(took) if took else None,
        bytes_deleted=sum(path.stat().st_size for path in gone),
    )


def _handles(desk: Desk, clients: Sequence[ClientName]) -> Mapping[ClientName, Handle]:
    handles = {name: handle for handle, name in desk.ledger.names().items()}
    present = {client.handle for client in desk.run.population.clients}
    found = {name: handles.get(name) for name in clients}
    known = {name: h for name, h in found.items() if h is not None and h in present}
    if len(known) < len(set(clients)):
        raise RunError(
            f"Clients are asked for by the names that {desk.folder.path} knows, but it "
            f"knows no client {next(n for n in clients if n not in known)!r}: it never "
            f"did, or not any more. Check the spelling."
        )
    return known
