"""A statement of access: what a run holds on a client, and where its name and data are."""

import csv
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from covey.base.components import Unread, create
from covey.base.errors import CoveyError
from covey.base.events import Event, PricesSet, RiskMeasured, RunStarted
from covey.base.files import read_text
from covey.base.names import Basis, ClientName, Handle
from covey.base.own_code import no_foreign_code
from covey.data.source import DataSource, data_folder
from covey.ledger.store import Ledger
from covey.runtime.copies import BASELINE, RENDERED, Mention, copies_of, masked, unrecorded
from covey.runtime.folder import FederationMetadata, RunFolder, rounds_in
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.reading import checked_ledger, unknown_client
from covey.runtime.secrets import secret_path

Kind = Literal[
    "ledger",
    "request",
    "data",
    "preferences",
    "settings",
    "model",
    "updates",
    "page",
    "copy",
    "run",
    "deployment",
    "secret",
    "file",
]

Actor = Literal["covey deletes it with forget", "you"]
COVEY: Actor = "covey deletes it with forget"
YOU: Actor = "you"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client's name, or something that came of its data, was found.

    Attributes:
        path: a file, a folder, a database without its password, or a function.
        what: what stands there.
        who_must_act: whether `covey forget` deletes it, or a person has to.
        how: what to do, in one sentence.
    """

    path: str
    what: str
    kind: Kind
    who_must_act: Actor
    how: str


_HOW: Mapping[tuple[Kind, Actor], str] = {
    ("ledger", COVEY): "Every answer deletes the row, and overwrites what is left of it.",
    ("ledger", YOU): "No answer deletes it, and its handle leads to no name then. Delete the run.",
    ("request", COVEY): "The process that plays the run takes it away, and answers.",
    ("data", YOU): "Delete what is the client's after the answer: the run goes on without it.",
    ("preferences", YOU): "Delete the client's entry after the answer.",
    ("settings", YOU): "Take the name out, or delete that run.",
    ("model", COVEY): (
        "A retraining deletes them and plays the rounds again, a subtraction solves the "
        "newest one again; a roll back deletes only the later ones, and a denial nothing."
    ),
    ("updates", COVEY): "Every answer takes its own ones out.",
    ("page", COVEY): "Every answer deletes it; it can be made again, without the client.",
    ("copy", COVEY): "Every answer deletes it, but a model only one that changes the model.",
    ("copy", YOU): "Delete it; `covey forget` lists it, with the recipient who is to be notified.",
    ("run", COVEY): "Every answer deletes it; it can be made again, without the client.",
    ("run", YOU): "Let the client leave that run too, with `covey forget`.",
    ("deployment", YOU): "Delete it, or take the name out; make the node's key invalid.",
    ("secret", YOU): "Delete it together with the run, which cannot go on without it.",
    ("file", YOU): "Take it out, or delete the file.",
}
"""What becomes of a place, or is to be done about it, by who has to act."""

Findings = Iterator[Place | str]
"""Places; or, as a sentence, what could not be searched."""


@dataclass(frozen=True, slots=True)
class Search:
    """All that was found, and what was not searched, in sentences."""

    places: tuple[Place, ...]
    not_searched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """The client to search for, and the run.

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

    @property
    def mention(self) -> Mention:
        """How the name is looked for."""
        return Mention.of(self.name, self.known)

    def display_path(self, path: Path, root: Path | None = None) -> str:
        """Return a path for the client's eyes: what lies below `root` names no one else.

        By default that is the run's folder; of what lies elsewhere, the whole path is masked.
        """
        top, whole = (root or self.folder.path).absolute(), path.absolute()
        if not whole.is_relative_to(top):
            top = Path(whole.anchor)
        return str(top / self.without_other_names(str(whole.relative_to(top))))

    def place(
        self, kind: Kind, who: Actor, what: str, path: Path | str, root: Path | None = None
    ) -> Place:
        """Return a place, its path for the client's eyes: see `display_path`; text stays."""
        shown = path if isinstance(path, str) else self.display_path(path, root)
        return Place(shown, what, kind, who, _HOW[kind, who])

    def without_other_names(self, text: str) -> str:
        """Return a text without the names of the other clients."""
        return masked(text, self.known - {self.name}, "[another client]")


MAX_FILE_SIZE = 1 << 28
"""Bytes of a file that is searched."""

MAX_FILES = 20_000
"""Files of a folder that are searched."""

TEXT = frozenset({".csv", ".json", ".md", ".toml", ".tsv", ".txt", ".yaml", ".yml"})
"""How the names of files end that are searched where data files are passed over."""


def _mentions_below(
    target: SearchTarget, kind: Kind, top: Path, without: Collection[Path] = ()
) -> Findings:
    """Yield the folders and files that hold the name, in their own name or inside.

    Links are not followed. A folder of that name is one place. Of data files that are no text,
    only the names are looked at.

    Args:
        target: whom to look for.
        kind: what every place is.
        top: the folder.
        without: files and folders that were searched already.
    """
    mention, skipped = target.mention, list[Path]()
    shown, who = target.display_path(top, top), COVEY if kind == "copy" else YOU
    done = {path.absolute() for path in without}
    for count, path in enumerate(_below(top.absolute(), mention, done, skipped)):
        if count == MAX_FILES:
            yield f"More than {MAX_FILES:,} files in {shown}: the others were not searched."
            break
        named = path.is_dir() or mention.in_text(path.name)
        if not named and kind == "data" and path.suffix not in TEXT:
            continue
        try:
            if not named and path.stat().st_size > MAX_FILE_SIZE:
                skipped.append(path)
            elif named or mention.in_file(path):
                what = "its name, in that of the file" if named else "its name"
                yield target.place(kind, who, what, path, top)
        except OSError:
            skipped.append(path)
    if skipped:
        of, first = MAX_FILE_SIZE >> 20, target.display_path(skipped[0], top)
        yield (
            f"{len(skipped)} files and folders in {shown} that are larger than {of} MiB or cannot "
            f"be read, first {first}."
        )


def _below(
    top: Path, mention: Mention, done: Collection[Path], skipped: list[Path]
) -> Iterator[Path]:
    """Yield folders of the name, and files; what cannot be listed is put aside."""

    def put_aside(error: OSError) -> None:
        skipped.append(Path(str(error.filename)))

    for folder, inner, files in os.walk(top, onerror=put_aside):
        here = Path(folder)
        there = [each for each in sorted(inner) if here / each not in done]
        inner[:] = [each for each in there if not mention.in_text(each)]
        yield from (here / each for each in there if each not in inner)
        paths = (here / each for each in sorted(files))
        yield from (path for path in paths if path not in done and not path.is_symlink())


def _inside_run(target: SearchTarget) -> Findings:
    """Yield what is in the run's folder, and in its ledger wherever that is."""
    folder, first, place = target.folder, target.first_round, target.place
    ledger = target.ledger if "://" in target.ledger else Path(target.ledger)
    yield place("ledger", COVEY, "its name, in the table of names", ledger)
    yield place("ledger", YOU, "what it did, in events under its handle", ledger)
    if any(request.client == target.name for request in folder.queued_requests()):
        yield place("request", COVEY, "its name, in a request to leave", folder.request_queue)
    for inner in (folder.checkpoints, folder.superseded, folder.updates):
        if count := sum(first is not None and t >= first for t in rounds_in(inner)):
            if inner == folder.updates:
                what = f"updates that clients sent, in {count} rounds since it came"
                yield place("updates", COVEY, what, inner)
            else:
                what = f"{count} states of models that trained on its data"
                yield place("model", COVEY, what, inner)
    rendered = [folder.path / name for name in RENDERED]
    for path in rendered:
        if path.name == BASELINE and path.exists():
            yield place("run", COVEY, "a run on the same data", path)
        elif path.exists():
            yield place("page", COVEY, "what shows the run with it", path)
    yield from _copies(target)
    if target.settings["secrets"]["source"] == "seeded":
        what = "the seed: who guesses the name computes its handle (secrets.source = 'os' has none)"
        yield place("secret", YOU, what, folder.config_path)
    elif path := secret_path(folder.secret_marker):
        what = "the key by which covey recognises the name after it left"
        yield place("secret", YOU, what, path, path.parent)
    else:
        yield f"The run's secret: {folder.secret_marker}, which names it, is gone."
    if folder.copies.is_dir():
        yield from _mentions_below(target, "copy", folder.copies)
    own = folder.ledger_path
    ledgers = (own.with_name(own.name + each) for each in ("", "-journal", "-wal", "-shm"))
    written = (copy.location(folder) for copy in copies_of(folder))
    searched = [folder.request_queue, folder.copies, *rendered, *ledgers, *written]
    yield from _mentions_below(target, "file", folder.path, searched)


def _copies(target: SearchTarget) -> Findings:
    inner = RunFolder(target.folder.path / BASELINE)
    held = [(inner, copy) for copy in copies_of(inner) if not copy.is_inside]
    for copy in (*copies_of(target.folder), *unrecorded(target.folder)):
        if copy.holds(target.handle, target.first_round):
            held.append((target.folder, copy))
    for folder, copy in held:
        if not copy.deleted:
            what = "an exported model" if copy.what == "model" else f"a page: {copy.what}"
            what += ", sent to a recipient on record" if copy.recipient else ""
            who = COVEY if copy.is_inside else YOU
            yield target.place("copy", who, what, copy.location(folder), folder.path)


def _outside_run(target: SearchTarget) -> Findings:
    """Yield what is in the data, preferences, deployment and runs beside this one."""
    if target.folder.federation.is_file():
        yield from _federation(target)
    else:
        yield from _data(target)
    file: str = target.settings["population"]["preferences"]
    path = Path(file)
    try:
        if file and (target.name in _listed(path) or target.mention.in_file(path)):
            what = "its entry in population.preferences"
            yield target.place("preferences", YOU, what, path, path.parent)
    except (OSError, ValueError, csv.Error, RecursionError):
        yield f"The file of population.preferences, {path.absolute()}: it cannot be read."
    this_run, parent = target.folder.path.absolute(), target.folder.path.absolute().parent
    try:
        # of a run inside a run the outer one; what is inside another goes with its own answers
        for path in (parent, *sorted(parent.iterdir())):
            if path != this_run and (path / "config.toml").is_file():
                yield from _in_run(target, path)
    except OSError as error:
        yield f"The runs beside this one: their folder cannot be read ({error.strerror})."


def _data(target: SearchTarget) -> Findings:
    source = _source(target.settings)
    if isinstance(source, Unread):
        yield target.place("data", YOU, "where its data come from", source.name)
    elif source.is_passed:
        yield "Where the program that played this run has the client's data from."
    elif source.simulates:
        yield f"The data set {source.name!r}, which does not hold this simulated client's name."
    else:
        folder = data_folder(source.dir)
        if not folder.is_dir():
            yield f"The data folder {folder.absolute()}: it is not there."
            return
        without, file = [target.folder.path], source.file_of(target.name, folder)
        if file is not None and file.is_file():
            yield target.place("data", YOU, "its data", file, folder)
            without.append(file)
        yield from _mentions_below(target, "data", folder, without)


def _source(settings: Mapping[str, Any]) -> DataSource:
    return create("data", settings["data"], "data.name", DataSource)


def _federation(target: SearchTarget) -> Findings:
    roster = FederationMetadata.of(target.folder)
    yield "The machine of the client's own node: its data, its node.toml, its key and its logs."
    yield "Flower's own database and logs, of the server and of every node."
    home = Path(roster.home) if roster and roster.home else None
    if home and home.is_dir():  # each run in it is looked at by itself
        yield from _mentions_below(target, "deployment", home, [target.folder.path.parent])
    elif home:
        yield f"The deployment's folder {home}: it is not there."


def _listed(path: Path) -> Collection[object]:
    """Return the names in a file of the population's settings, and other words of it."""
    text = read_text(path)
    if path.suffix != ".csv":
        return tomllib.loads(text)
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return {cell.strip() for row in rows for cell in row}


def _in_run(target: SearchTarget, path: Path) -> Findings:
    """Yield what another run holds of the client, if it is over the same data."""
    folder, root = RunFolder(path), path.parent.parent
    try:
        settings, own = folder.settings(), target.settings
        source = _source(settings)
        # a client of some name has the same examples in both
        own_data = isinstance(source, Unread) or not source.simulates
        if source != _source(own) or not (own_data or settings["seed"] == own["seed"]):
            return
        if target.name in settings["population"]["exclude"]:
            yield target.place("settings", YOU, "population.exclude", folder.config_path, root)
        if Ledger.exists(folder.ledger):
            with Ledger.read(folder.ledger) as ledger:
                if target.name in ledger.names().values():
                    what = "another run over the same data, which has its name"
                    yield target.place("run", YOU, what, path, root)
    except (CoveyError, ValueError, OSError) as error:
        shown = target.display_path(path, root)
        yield f"The run in {shown}: it cannot be read ({type(error).__name__})."


NEVER_SEARCHED = (
    "Backups and snapshots of all these places.",
    "Copies made without covey, models that a program wrote itself, and runs in other folders.",
    "Shell histories, process lists, logs of your own code, and printed output: they hold names.",
    "What a model has learnt: states and examples are searched for the name alone.",
)

POSTGRES = "The PostgreSQL server's write-ahead log, replicas, backups and logs of statements."


def search_places(target: SearchTarget) -> Search:
    """Search every place that a run's settings lead to; nothing is written.

    No one else is named in what is returned. What is found in several ways is one place, for
    everybody who has to act.
    """
    places: dict[tuple[str, Actor], Place] = {}
    unsearched: list[str] = []
    for each in (*_inside_run(target), *_outside_run(target)):
        if isinstance(each, str):
            unsearched.append(each)
        else:
            places.setdefault((each.path, each.who_must_act), each)
    postgres = [POSTGRES] if target.settings["ledger"]["url"] else []
    unique = dict.fromkeys((*unsearched, *postgres, *NEVER_SEARCHED))
    return Search(tuple(places.values()), tuple(map(target.without_other_names, unique)))


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
        raise unknown_client(folder, client)
    began = next((e for _, e in record.events if isinstance(e, RunStarted)), None)
    held = record.participation
    trained, first = held.trained.get(handle, {}), held.first_round(handle)
    known = frozenset(names.values())
    search = search_places(SearchTarget(folder, settings, location, client, handle, known, first))
    return Explanation(
        client=client,
        handle=handle,
        rounds_trained=tuple(sorted(trained)),
        clusters_trained=tuple(sorted(set(trained.values()))),
        risk_threshold=began.risk_thresholds.get(handle) if began else None,
        anonymity_sets=tuple(
            SetOfClient(each.round_index, each.cluster, len(each.members), each.diameter)
            for each in held.sets_of(handle)
        ),
        risk_figures_that_count_it=_rounds_with(RiskMeasured, record),
        prices_that_count_it=_rounds_with(PricesSet, record),
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
