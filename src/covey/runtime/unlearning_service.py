"""What a person asks of a run: what is held on a client, and that it be let go."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from covey.build import BuiltRun
from covey.checkpoints import checkpointed_rounds
from covey.errors import RunError
from covey.history import History
from covey.ledger import Request
from covey.runtime.asking import Returning, asking, found
from covey.runtime.folder import RunFolder
from covey.runtime.loop import Observer, OnAnswer, carry_on
from covey.runtime.places import Sought, places_of
from covey.runtime.planning import planned, planned_jointly
from covey.runtime.session import Desk, opened
from covey.runtime.settling import erase_from_copies
from covey.runtime.unlearning_executor import Answered
from covey.runtime.updates import stored_rounds
from covey.types import Basis, ClientName, Handle
from covey.unlearning.jointly import Wish
from covey.unlearning.plan import Option

__all__ = [
    "Cost",
    "Forgotten",
    "Planned",
    "explained",
    "forget",
    "plans",
    "put_down",
]


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
    """One client's possible answers, each with its cost, and the one it would be given.

    Attributes:
        options: of this client, once those asked for with it and before it have left.
        chosen: with the rounds that are replayed for all; None where none would be true.
    """

    client: ClientName
    options: tuple[tuple[Option, Cost], ...]
    chosen: Option | None
    reason: str
    basis: Basis = "none"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A client's request, and what came of it.

    Attributes:
        seconds: from the request to the signed answers.
    """

    client: ClientName
    answered: Answered
    seconds: float


def plans(
    run: BuiltRun,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str = "auto",
    basis: Basis = "none",
) -> tuple[Planned, ...]:
    """Return what each client would be answered if all of them left now; nothing is done.

    Raises:
        RunError: a client is not known to the run, or they cannot all leave.
    """
    with opened(run, folder) as desk:
        desk, known = found(desk, run, clients)
        return _planned(desk, known, wanted, basis)


def forget(  # noqa: PLR0913, PLR0917 - the last three have defaults
    run: BuiltRun,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str = "auto",
    basis: Basis = "none",
    observe: Observer = lambda _: None,
    on_answer: OnAnswer = lambda _: None,
) -> tuple[History, tuple[Forgotten, ...]]:
    """Let clients leave, and play again, once for all, what has to be played again.

    An unfinished run is not carried on. `on_answer` is as in `carry_on`.

    Returns:
        The story, and what came of each request, but for those that requests from
            before made impossible.

    Raises:
        RunError: a client is not known, or an answer would not be true; nothing was
            done.
    """
    began = time.monotonic()
    with opened(run, folder) as desk:
        desk, known = found(desk, run, clients)
        requests = _put_down(desk, known, wanted, basis)
        last = desk.ledger.last_round()
        until = 0 if last is None else min(last + 1, run.config.rounds)
        history, answered = carry_on(desk, until, observe, on_answer=on_answer)
        given = {each.request: each for each in answered}
    seconds = time.monotonic() - began
    return history, tuple(
        Forgotten(name, given[request.id], seconds)
        for name, request in zip(known, requests, strict=True)
        if request.id in given
    )


def put_down(
    run: BuiltRun,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str = "auto",
    basis: Basis = "none",
) -> None:
    """Leave it to whoever plays the run next to let these clients leave.

    Raises:
        RunError: a client is not known, or an answer would not be true; nothing was
            done.
    """
    with opened(run, folder) as desk:
        desk, known = found(desk, run, clients)
        _put_down(desk, known, wanted, basis)


def explained(run: BuiltRun, folder: RunFolder, client: ClientName) -> dict[str, Any]:
    """Return what is held on a client, as it could be told to it: nobody else is named.

    Raises:
        RunError: the client is not known to the run.
    """
    with opened(run, folder) as desk:
        (handle,) = found(desk, run, [client])[1].values()
        held = planned(desk, handle).participation
        own = next(c for c in desk.run.population.clients if c.handle == handle)
        trained = held.trained.get(handle, {})
        first = held.first_round(handle)
        states = checkpointed_rounds(folder.checkpoints)
        known = frozenset(desk.ledger.names().values())
        search = places_of(
            Sought(folder, desk.run.config, client, handle, known, first)
        )
        return {
            "client": client,
            "handle": handle,
            "rounds_trained": sorted(trained),
            "clusters_trained": sorted(set(trained.values())),
            "risk_threshold": None
            if run.client_backend
            else own.preference.risk_threshold,
            "anonymity_sets": [
                {
                    "round": each.round_index,
                    "cluster": each.cluster,
                    "members": len(each.members),
                    "diameter": each.diameter,
                }
                for each in held.sets_of(handle)
            ],
            "risk_figures_that_count_it": list(held.counted["risks"]),
            "prices_that_count_it": list(held.counted["prices"]),
            "states_that_depend_on_it": [
                t for t in states if first is not None and t >= first
            ],
            "raw_updates_stored": [
                t for t in stored_rounds(folder.updates) if t in trained
            ],
            "requests": [
                {
                    "wanted": r.wanted,
                    "basis": r.basis,
                    "state": r.state,
                    "asked": r.asked_at,
                }
                for r in desk.ledger.requests()
                if r.handle == handle
            ],
            "places": [asdict(each) for each in search.places],
            "not_searched": list(search.not_searched),
        }


def _put_down(
    desk: Desk, known: Mapping[ClientName, Handle], wanted: str, basis: Basis
) -> list[Request]:
    """Put requests in the queue, all of them or none."""
    for each in _planned(desk, known, wanted, basis):
        if each.chosen is None:
            who = f"{each.client}: " if len(known) > 1 else ""
            raise RunError(f"{who}{each.reason}")
    names = desk.ledger.names()
    for name, handle in known.items():
        if handle not in names:  # nobody else knows the name of who comes back
            erase_from_copies(desk.folder, name, {*names.values(), name})
    return desk.ledger.ask_together(
        [
            asking(desk, name, Wish(handle, wanted, basis))
            for name, handle in known.items()
        ]
    )


def _planned(
    desk: Desk, known: Mapping[ClientName, Handle], wanted: str, basis: Basis
) -> tuple[Planned, ...]:
    wishes = [Wish(handle, wanted, basis) for handle in known.values()]
    choices = planned_jointly(desk, wishes)
    return tuple(
        Planned(
            client=name,
            options=tuple((option, _cost(desk, option)) for option in choice.options),
            chosen=choice.chosen,
            reason=choice.reason,
            basis=basis,
        )
        for name, choice in zip(known, choices, strict=True)
    )


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
