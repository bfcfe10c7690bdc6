"""A run as its folder tells it: its record, and what it holds on one client.

Quick to import, as nothing here learns: a list of runs and an explanation load no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from covey.base.errors import RunError
from covey.base.history import History
from covey.base.names import Basis, ClientName, Handle
from covey.components.own_code import no_foreign_code
from covey.ledger.store import Ledger
from covey.runtime.folder import FederationMetadata, RunFolder, rounds_in
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.places import Place, SearchTarget, search_places
from covey.runtime.receipts import check_anchors


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as its events tell it.

    Attributes:
        names: the handle of every client that has not left.
    """

    history: History
    ledger_head: str
    names: Mapping[ClientName, Handle]


def read_run_record(folder: RunFolder) -> RunRecord:
    """Read a run's ledger, without its data.

    Raises:
        LedgerError: there is none, it cannot be read, or its history is not the one that
            receipts were signed for.
        RunError: the settings are not those that began the run.
    """
    with Ledger.read(folder.ledger) as ledger:
        record = _checked_record(folder, ledger)
        names = {name: handle for handle, name in ledger.names().items()}
        return RunRecord(record.history, record.head, names)


def _checked_record(folder: RunFolder, ledger: Ledger) -> LedgerRecord:
    check_anchors(folder, ledger)
    record = folder.reader.read(ledger)
    if not folder.is_checked(ledger):
        from covey.runtime.session import check_settings

        check_settings(folder.config(), record.history, folder)
    return record


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
    """Return what is held on a client; nothing is written, and none of a user's code is run.

    Raises:
        CoveyError: the run does not know the client, or its record cannot be read.
    """
    with no_foreign_code(), Ledger.read(folder.ledger) as ledger:
        record, names = _checked_record(folder, ledger), ledger.names()
        handle = next((each for each, name in names.items() if name == client), None)
        if handle is None:
            raise unknown_client(folder, client)
        held, began = record.participation, record.history.started
        trained, first = held.trained.get(handle, {}), held.first_round(handle)
        known = frozenset(names.values())
        search = search_places(
            SearchTarget(folder, folder.settings(), client, handle, known, first)
        )
        roster = FederationMetadata.of(folder)
        accepted = None
        if began is not None and not (roster and roster.profile):
            accepted = began.risk_thresholds.get(handle, 1.0)
        return Explanation(
            client=client,
            handle=handle,
            rounds_trained=tuple(sorted(trained)),
            clusters_trained=tuple(sorted(set(trained.values()))),
            risk_threshold=accepted,
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
                for r in ledger.requests()
                if r.handle == handle
            ),
            places=tuple(search.places),
            not_searched=tuple(search.not_searched),
        )


def unknown_client(folder: RunFolder, name: ClientName) -> RunError:
    """Return what is said where a run knows no client of this name."""
    return RunError(
        f"Clients are asked for by the names that {folder.path} knows, but it knows no client "
        f"{name!r}: it never did, or not any more. Check the spelling; who left comes back with "
        f"--salt and the salt of the last answer, unless that was a retraining."
    )
