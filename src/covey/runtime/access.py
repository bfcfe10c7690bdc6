"""A statement of access: what is held on one client and where, from a run's record alone.

Nothing is written, and neither the run's model nor anybody's data are needed.
"""

from dataclasses import dataclass

from covey.base.events import RecordsChanged, RunStarted
from covey.base.names import Basis, ClientName, Handle
from covey.components.own_code import no_foreign_code
from covey.runtime.folder import RunFolder, rounds_in
from covey.runtime.places import Place, SearchTarget, search_places
from covey.runtime.reading import checked_ledger, unknown_client


@dataclass(frozen=True, slots=True)
class SetOfClient:
    """An anonymity set that held a client.

    Attributes:
        members: how many clients.
        diameter: the largest L2 distance between two of its updates.
    """

    round: int
    cluster: int
    members: int
    diameter: float | None


@dataclass(frozen=True, slots=True)
class RequestOfClient:
    """A request to leave.

    Attributes:
        wanted: the answer that it names.
        asked: when, ISO 8601.
    """

    wanted: str
    basis: Basis
    state: str
    asked: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is held on one client, and where; no other client is named.

    Attributes:
        handle: by which the ledger's events name it.
        rounds_trained: in which its examples were used.
        risk_threshold: that it accepts; None: the client keeps it to itself.
        risk_figures_that_count_it: rounds.
        prices_that_count_it: rounds.
        states_that_depend_on_it: rounds.
        raw_updates_stored: rounds.
        not_searched: where covey could not look, a sentence each.
    """

    client: ClientName
    handle: Handle
    rounds_trained: tuple[int, ...]
    clusters_trained: tuple[int, ...]
    risk_threshold: float | None
    anonymity_sets: tuple[SetOfClient, ...]
    risk_figures_that_count_it: tuple[int, ...]
    prices_that_count_it: tuple[int, ...]
    states_that_depend_on_it: tuple[int, ...]
    raw_updates_stored: tuple[int, ...]
    requests: tuple[RequestOfClient, ...]
    places: tuple[Place, ...]
    not_searched: tuple[str, ...]


def explain_client(folder: RunFolder, client: ClientName) -> Explanation:
    """Return what is held on a client.

    Raises:
        RunError: the client is not known to the run, or the settings are not those that
            began it.
        LedgerError: there is no ledger, or its history is not the one that was signed for.
    """
    settings = folder.settings()
    with no_foreign_code(), checked_ledger(folder) as ledger:
        record, names = folder.reader.read(ledger), ledger.names()
        requests, location = ledger.requests(), ledger.location
    handle = next((h for h, name in names.items() if name == client), None)
    if handle is None:
        raise unknown_client(folder, client)
    thresholds: list[float | None] = []
    for _, event in record.events:
        if isinstance(event, RunStarted):
            thresholds.append(event.risk_thresholds.get(handle))
        elif isinstance(event, RecordsChanged) and event.handle == handle:
            thresholds.append(event.risk_threshold)
    held = record.participation
    trained, first = held.trained.get(handle, {}), held.first_round(handle)
    known = frozenset(names.values())
    search = search_places(SearchTarget(folder, settings, location, client, handle, known, first))
    return Explanation(
        client=client,
        handle=handle,
        rounds_trained=tuple(sorted(trained)),
        clusters_trained=tuple(sorted(set(trained.values()))),
        risk_threshold=next((tau for tau in reversed(thresholds) if tau is not None), None),
        anonymity_sets=tuple(
            SetOfClient(each.round_index, each.cluster, len(each.members), each.diameter)
            for each in held.sets_of(handle)
        ),
        risk_figures_that_count_it=tuple(held.counted["risks"]),
        prices_that_count_it=tuple(held.counted["prices"]),
        states_that_depend_on_it=tuple(
            t for t in rounds_in(folder.checkpoints) if first is not None and t >= first
        ),
        raw_updates_stored=tuple(t for t in rounds_in(folder.updates) if t in trained),
        requests=tuple(
            RequestOfClient(r.wanted, r.basis, r.state, r.asked_at)
            for r in requests
            if r.handle == handle
        ),
        places=search.places,
        not_searched=search.not_searched,
    )
