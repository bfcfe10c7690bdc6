"""A statement of access: what a run holds on a client, and the places where covey wrote it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from covey.base.components import UnloadedComponent, create
from covey.base.events import Event, PricesSet, RiskMeasured, RunStarted
from covey.base.names import Basis, ClientName, Handle
from covey.base.own_code import no_foreign_code
from covey.data.source import DataSource, data_folder
from covey.leaving.copies import BASELINE, RENDERED, Mention, copies_of, masked, unrecorded
from covey.models.feature_store import FeatureStore
from covey.runs.folder import FederationMetadata, RunFolder, rounds_in
from covey.runs.ledger_record import LedgerRecord
from covey.runs.reading import checked_ledger, unknown_client
from covey.runs.secrets import secret_path

PlaceKind = Literal[
    "ledger",
    "request",
    "record",
    "data",
    "preferences",
    "model",
    "updates",
    "features",
    "page",
    "copy",
    "run",
    "deployment",
    "secret",
]

Actor = Literal["covey deletes it with forget", "you"]
COVEY: Actor = "covey deletes it with forget"
YOU: Actor = "you"


_HOW: Mapping[tuple[PlaceKind, Actor], str] = {
    ("ledger", COVEY): "Every answer deletes the row, and overwrites what is left of it.",
    ("ledger", YOU): "No answer deletes it, and its handle leads to no name then. Delete the run.",
    ("request", COVEY): "The process that plays the run takes it away, and answers.",
    ("record", COVEY): "Every answer takes the name out.",
    ("data", YOU): "Delete what is the client's after the answer: the run goes on without it.",
    ("preferences", YOU): "Delete the client's entry after the answer.",
    ("model", COVEY): (
        "A retraining deletes them and plays the rounds again, a subtraction solves the "
        "newest one again; a roll back deletes only the later ones, and a denial nothing."
    ),
    ("updates", COVEY): "Every answer takes its own ones out.",
    ("features", COVEY): "Every answer deletes its rows.",
    ("page", COVEY): "Every answer deletes it; it can be made again, without the client.",
    ("copy", COVEY): "Every answer deletes it, but a model only one that changes the model.",
    ("copy", YOU): "Delete it; `covey forget` lists it, with the recipient who is to be notified.",
    ("run", COVEY): "Every answer deletes it; it can be made again, without the client.",
    ("deployment", YOU): "Take the name out, and make the node's key invalid.",
    ("secret", YOU): "Delete it together with the run, which cannot go on without it.",
}
"""What becomes of a place, or is to be done about it, by who has to act."""

ELSEWHERE = (
    "Other runs over the same data, and other files that somebody put into these folders.",
    "Backups and snapshots of all these places.",
    "Copies made without covey, models that a program wrote itself, and what trackers keep.",
    "Shell histories, process lists, logs of your own code, and printed output: they hold names.",
    "What a model has learnt from its data.",
)

POSTGRES = "The PostgreSQL server's write-ahead log, replicas, backups and logs of statements."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client's name, or something that came of its data, is.

    Attributes:
        path: a file, a folder, a database without its password, or a function.
        what: what stands there.
        who_must_act: whether `covey forget` deletes it, or a person has to.
        how: what to do, in one sentence.
    """

    path: str
    what: str
    kind: PlaceKind
    who_must_act: Actor
    how: str


Listed = Iterator[Place | str]
"""Places; or, as a sentence, what covey knows no place of."""


@dataclass(frozen=True, slots=True)
class ClientOfRun:
    """A client, and the run that holds something of it.

    Attributes:
        folder: the run's.
        settings: as they are written.
        ledger: where its ledger is, without a password.
        known: the names of all clients of the run.
        first_round: in which the client's data were used; None: in none.
    """

    folder: RunFolder
    settings: Mapping[str, Any]
    ledger: str
    name: ClientName
    handle: Handle
    known: frozenset[ClientName]
    first_round: int | None

    def place(
        self, kind: PlaceKind, actor: Actor, what: str, path: Path | str, root: Path | None = None
    ) -> Place:
        """Return a place, whose path below `root` names no one else; text stays.

        By default `root` is the run's folder; of what lies elsewhere, the whole path is masked.
        """
        if isinstance(path, Path):
            top, whole = (root or self.folder.path).absolute(), path.absolute()
            if not whole.is_relative_to(top):
                top = Path(whole.anchor)
            path = str(top / self.without_other_names(str(whole.relative_to(top))))
        return Place(path, what, kind, actor, _HOW[kind, actor])

    def without_other_names(self, text: str) -> str:
        """Return a text without the names of the other clients."""
        return masked(text, self.known - {self.name}, "[another client]")


def _written_by_covey(client: ClientOfRun) -> Listed:
    """Yield what is in the run's folder, in its ledger, and in copies on record."""
    folder, first, place = client.folder, client.first_round, client.place
    ledger = client.ledger if "://" in client.ledger else Path(client.ledger)
    yield place("ledger", COVEY, "its name, in the table of names", ledger)
    yield place("ledger", YOU, "what it did, in events under its handle", ledger)
    if any(request.client == client.name for request in folder.queued_requests()):
        yield place("request", COVEY, "its name, in a request to leave", folder.request_queue)
    for inner in (folder.checkpoints, folder.superseded, folder.updates):
        if count := sum(first is not None and t >= first for t in rounds_in(inner)):
            if inner == folder.updates:
                what = f"updates that clients sent, in {count} rounds since it came"
                yield place("updates", COVEY, what, inner)
            else:
                what = f"{count} states of models that trained on its data"
                yield place("model", COVEY, what, inner)
    for store in FeatureStore.all_at(folder.features):
        if store.holds(client.handle):
            what = "what a frozen network makes of its records"
            yield place("features", COVEY, what, store.path, store.path.parent)
    for path in (folder.path / name for name in RENDERED):
        if path.name == BASELINE and path.exists():
            yield place("run", COVEY, "a run on the same data", path)
        elif path.exists():
            yield place("page", COVEY, "what shows the run with it", path)
    yield from _copies(client)
    if client.settings["secrets"]["source"] == "seeded":
        what = "the seed: anybody who has it and guesses the name can compute the pseudonym"
        yield place("secret", YOU, what, folder.config_path)
    elif path := secret_path(folder.secret_marker):
        what = "the key by which covey recognises the name after it left"
        yield place("secret", YOU, what, path, path.parent)
    else:
        yield f"The run's secret: {folder.secret_marker}, which names it, is gone."


def _copies(client: ClientOfRun) -> Listed:
    folder, inner = client.folder, RunFolder(client.folder.path / BASELINE)
    recorded, mention = copies_of(folder), Mention.of(client.name, client.known)
    if any(
        mention.in_text(f"{mention_of.path}\n{mention_of.recipient}") for mention_of in recorded
    ):
        yield client.place("record", COVEY, "its name, in the record of copies", folder.copies)
    held = [(inner, copy) for copy in copies_of(inner) if not copy.is_inside]
    for copy in (*recorded, *unrecorded(folder)):
        if copy.holds(client.handle, client.first_round):
            held.append((folder, copy))
    for run, copy in held:
        if not copy.deleted:
            what = "an exported model" if copy.what == "model" else f"a page: {copy.what}"
            what += ", sent to a recipient on record" if copy.recipient else ""
            actor = COVEY if copy.is_inside else YOU
            yield client.place("copy", actor, what, copy.location(run), run.path)


def _named_by_settings(client: ClientOfRun) -> Listed:
    """Yield where data and preferences come from; none of these files is read."""
    if client.folder.federation.is_file():
        roster = FederationMetadata.of(client.folder)
        yield "The machine of the client's own node: its data, its node.toml, its key and its logs."
        yield "Flower's own database and logs, of the server and of every node."
        if roster and roster.home:
            home = Path(roster.home)
            yield client.place("deployment", YOU, "the deployment, with its nodes", home, home)
    else:
        yield _data(client)
    if file := client.settings["population"]["preferences"]:
        path, what = Path(file), "population.preferences, which may have its name"
        yield client.place("preferences", YOU, what, path, path.parent)


def _data(client: ClientOfRun) -> Place | str:
    source = create("data", client.settings["data"], "data.name", DataSource)
    if isinstance(source, UnloadedComponent):
        return client.place("data", YOU, "where its data come from", source.name)
    if source.is_passed:
        return "Where the program that played this run has the client's data from."
    if source.simulates:
        return f"The data set {source.name!r}, which does not hold this simulated client's name."
    folder = data_folder(source.dir)
    file = source.file_of(client.name, folder)
    return client.place("data", YOU, "its data", file or folder, folder)


@dataclass(frozen=True, slots=True)
class PlaceList:
    """The places that covey knows of, and what it knows no place of, in sentences."""

    places: tuple[Place, ...]
    not_listed: tuple[str, ...]


def places_of(client: ClientOfRun) -> PlaceList:
    """List the places that covey wrote to and that the settings name; no disk is searched.

    No one else is named in what is returned. What is listed in several ways is one place, for
    everybody who has to act.
    """
    places: dict[tuple[str, Actor], Place] = {}
    unknown: list[str] = []
    for place in (*_written_by_covey(client), *_named_by_settings(client)):
        if isinstance(place, str):
            unknown.append(client.without_other_names(place))
        else:
            places.setdefault((place.path, place.who_must_act), place)
    postgres = [POSTGRES] if client.settings["ledger"]["url"] else []
    return PlaceList(tuple(places.values()), (*unknown, *postgres, *ELSEWHERE))


@dataclass(frozen=True, slots=True)
class Recipient:
    """Somebody who received what shows a client, or a model that was trained on its data."""

    recipient: str
    what: str
    sha256: str = ""
    written: str = ""


def recipients_of(client: ClientOfRun) -> Iterator[Recipient]:
    """Yield who received something of a client, by the record of copies; no one else is named."""
    for folder in (client.folder, RunFolder(client.folder.path / BASELINE)):
        for copy in copies_of(folder):
            if copy.recipient and copy.holds(client.handle, client.first_round):
                actor = client.without_other_names(copy.recipient)
                yield Recipient(actor, copy.what, copy.sha256, copy.written)
    if client.folder.federation.is_file() and client.first_round is not None:
        yield Recipient("the nodes of the deployment, which train the model", "model")


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
        requested: when, ISO 8601.
    """

    wanted: str
    basis: Basis
    state: str
    requested: str


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
        not_listed: what covey knows no place of, a sentence each.
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
    recipients: tuple[Recipient, ...]
    not_listed: tuple[str, ...]


def _rounds_with(kind: type[Event], record: LedgerRecord) -> tuple[int, ...]:
    rounds = (t for t, event in record.events if isinstance(event, kind) and t is not None)
    return tuple(dict.fromkeys(rounds))


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
        raise unknown_client(folder, client, names.values())
    began = next((e for _, e in record.events if isinstance(e, RunStarted)), None)
    held = record.participation
    trained, first = held.trained.get(handle, {}), held.first_round(handle)
    known = frozenset(names.values())
    of_run = ClientOfRun(folder, settings, location, client, handle, known, first)
    listed = places_of(of_run)
    return Explanation(
        client=client,
        handle=handle,
        rounds_trained=tuple(sorted(trained)),
        clusters_trained=tuple(sorted(set(trained.values()))),
        risk_threshold=began.risk_thresholds.get(handle) if began else None,
        anonymity_sets=tuple(
            SetOfClient(hidden.round_index, hidden.cluster, len(hidden.members), hidden.diameter)
            for hidden in held.sets_of(handle)
        ),
        risk_figures_that_count_it=_rounds_with(RiskMeasured, record),
        prices_that_count_it=_rounds_with(PricesSet, record),
        states_that_depend_on_it=tuple(
            t for t in rounds_in(folder.checkpoints) if first is not None and t >= first
        ),
        raw_updates_stored=tuple(t for t in rounds_in(folder.updates) if t in trained),
        requests=tuple(
            RequestOfClient(r.wanted, r.basis, r.state, r.requested_at)
            for r in requests
            if r.handle == handle
        ),
        places=listed.places,
        recipients=tuple(recipients_of(of_run)),
        not_listed=listed.not_listed,
    )
