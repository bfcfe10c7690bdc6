"""Where a client's name and data are: inside a run's folder and outside of it."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from covey.base.errors import CoveyError
from covey.base.names import ClientName, Handle
from covey.components.parts import Unread
from covey.config.settings import Config
from covey.data.population import read_organisations, read_preferences
from covey.data.source import data_folder
from covey.ledger.store import Ledger
from covey.runtime.copies import BASELINE, RENDERED, Copy, Mention, copies_of, masked, unrecorded
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import FederationMetadata, records_of
from covey.runtime.secrets import secret_path
from covey.runtime.states import checkpointed_rounds, stored_rounds

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


Finding = Place | str
"""A place; or, as a sentence, what could not be searched."""

Findings = Iterator[Finding]


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
        config: its settings.
        known: the names of all clients that the run knows.
        first_round: in which the client's data were used; None: in none.
    """

    folder: RunFolder
    config: Config
    name: ClientName
    handle: Handle
    known: frozenset[ClientName]
    first_round: int | None

    @property
    def mention(self) -> Mention:
        """How the name is looked for."""
        return Mention.of(self.name, self.known)

    def display_path(self, path: Path, root: Path | None = None) -> str:
        """Return a path for the client's eyes: what lies below `root` names nobody else."""
        top = root.absolute() if root is not None else Path(path.anchor)
        whole = path.absolute()
        if not whole.is_relative_to(top):
            top = Path(whole.anchor)
        return str(top / self.without_other_names(str(whole.relative_to(top))))

    def without_other_names(self, text: str) -> str:
        """Return a text without the names of the other clients."""
        return masked(text, self.known - {self.name}, "[another client]")


MAX_FILE_SIZE = 1 << 28
"""Bytes of a file that is searched."""

MAX_FILES = 20_000
"""Files of a folder that are searched."""

TEXT = frozenset({".csv", ".json", ".md", ".toml", ".tsv", ".txt", ".yaml", ".yml"})
"""How the names of files end that are searched where data files are passed over."""


def mentions_below(
    target: SearchTarget,
    top: Path,
    template: Place,
    without: Collection[Path] = (),
    *,
    data: bool = False,
) -> Findings:
    """Yield the folders and files that hold the name, in their own name or inside.

    Links are not followed. A folder of that name is one place.

    Args:
        target: whom to look for.
        top: the folder.
        template: what every place is; its path and what stands there are filled in.
        without: files and folders that were searched already.
        data: of files that are no text, only the names are looked at.
    """
    done = {path.absolute() for path in without}
    skipped: list[Path] = []
    shown = target.display_path(top, top)
    for count, path in enumerate(_below(top.absolute(), target, done, skipped)):
        if count == MAX_FILES:
            yield (f"More than {MAX_FILES:,} files in {shown}: the others were not searched.")
            break
        yield from _mentions_in(target, path, top, template, data=data, skipped=skipped)
    if skipped:
        first = target.display_path(skipped[0], top)
        yield (
            f"{len(skipped)} files and folders in {shown} that are larger than "
            f"{MAX_FILE_SIZE >> 20} MiB or cannot be read, first {first}."
        )


def _below(
    top: Path, target: SearchTarget, done: Collection[Path], skipped: list[Path]
) -> Iterator[Path]:
    def aside(error: OSError) -> None:
        skipped.append(Path(str(error.filename)))

    mention = target.mention
    for folder, inner, files in os.walk(top, onerror=aside):
        here = Path(folder)
        named = [each for each in sorted(inner) if mention.in_text(each)]
        yield from (here / each for each in named if here / each not in done)
        inner[:] = sorted(each for each in inner if each not in named and here / each not in done)
        for each in sorted(files):
            path = here / each
            if path not in done and not path.is_symlink():
                yield path


def _mentions_in(
    target: SearchTarget, path: Path, top: Path, template: Place, *, data: bool, skipped: list[Path]
) -> Iterator[Finding]:
    """Yield the place if there is one; what cannot be searched is put aside."""
    if path.is_dir() or target.mention.in_text(path.name):
        what = f"{template.what}, in its own name"
    elif data and path.suffix not in TEXT:
        return
    else:
        try:
            if path.stat().st_size > MAX_FILE_SIZE:
                skipped.append(path)
                return
            if not target.mention.in_file(path):
                return
        except OSError:
            skipped.append(path)
            return
        what = template.what
    shown = target.display_path(path, top)
    yield Place(shown, what, template.kind, template.who_must_act, template.how)


def inside_run(target: SearchTarget) -> Findings:
    """Yield what is in the run's folder, and in its ledger wherever that is."""
    yield from _ledger(target)
    yield from _queued(target)
    yield from _records(target)
    yield from _trained(target)
    yield from _rendered(target)
    yield from _copied(target)
    yield from _secret(target)
    yield from _mentioned(target)


def _ledger(target: SearchTarget) -> Findings:
    try:
        with Ledger.read(target.folder.ledger) as ledger:
            where, names = ledger.location, ledger.names()
    except CoveyError as error:
        yield f"The run's own ledger: {error}"
        return
    path = where if "://" in where else target.display_path(Path(where), target.folder.path)
    if target.name in names.values():
        how = "Every answer deletes the row, and overwrites what is left of it."
        yield Place(path, "its name, in the table of names", "ledger", COVEY, how)
    yield Place(
        path,
        "what it did, in events under its handle",
        "ledger",
        YOU,
        "No answer deletes an event, and the handle then leads to no name. Delete the "
        "whole run to delete them.",
    )


def _queued(target: SearchTarget) -> Findings:
    if any(word.client == target.name for word in target.folder.queued_requests()):
        path = target.display_path(target.folder.request_queue, target.folder.path)
        how = "Whoever plays the run takes it away, and answers."
        yield Place(path, "its name, in a request to leave", "request", COVEY, how)


def _records(target: SearchTarget) -> Findings:
    for path in records_of(target.folder, target.handle):
        shown = target.display_path(path, target.folder.path)
        how = "Every answer deletes it."
        yield Place(shown, "its records, as it brought them", "data", COVEY, how)


def _trained(target: SearchTarget) -> Findings:
    folder, first = target.folder, target.first_round
    if first is None:
        return
    replaced = (
        "A retraining deletes them and plays the rounds again, a subtraction solves the "
        "newest one again; a roll back deletes only the later ones, and a denial nothing."
    )
    for inner in (folder.checkpoints, folder.superseded):
        states = [t for t in checkpointed_rounds(inner) if t >= first]
        if states:
            what = f"{len(states)} states of models that trained on its data"
            shown = target.display_path(inner, folder.path)
            yield Place(shown, what, "model", COVEY, replaced)
    if kept := [t for t in stored_rounds(folder.updates) if t >= first]:
        what = f"updates that clients sent, in {len(kept)} rounds since it came"
        how = "Every answer takes its own ones out."
        shown = target.display_path(folder.updates, folder.path)
        yield Place(shown, what, "updates", COVEY, how)


def _rendered(target: SearchTarget) -> Findings:
    folder = target.folder
    how = "Every answer deletes it; it can be made again, without the client."
    for name in RENDERED:
        path = folder.path / name
        if not path.exists():
            continue
        run = name == BASELINE
        what = "a run on the same data" if run else "what shows the run with it"
        shown = target.display_path(path, folder.path)
        yield Place(shown, what, "run" if run else "page", COVEY, how)


def _copied(target: SearchTarget) -> Findings:
    folder = target.folder
    for copy in (*copies_of(folder), *unrecorded(folder)):
        if _depends(copy, target):
            yield _copy_place(copy, target, folder)
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        if not copy.is_inside and not copy.deleted:
            yield _copy_place(copy, target, inner)


def _depends(copy: Copy, target: SearchTarget) -> bool:
    if copy.deleted or copy.subject not in ("", target.handle):
        return False
    first = target.first_round
    if copy.what != "model" or copy.round_index is None:
        return True
    return first is not None and copy.round_index > first


def _copy_place(copy: Copy, target: SearchTarget, folder: RunFolder) -> Place:
    root = folder.path if copy.is_inside else None
    path = target.display_path(copy.location(folder), root)
    model = copy.what == "model"
    what = "an exported model" if model else f"a page: {copy.what}"
    if copy.recipient:
        what += ", given to a recipient on record"
    if copy.is_inside:
        when = "An answer that changes the model" if model else "Every answer"
        return Place(path, what, "copy", COVEY, f"{when} deletes it.")
    how = "Delete it; `covey forget` lists it, with the recipient who is to be told."
    return Place(path, what, "copy", YOU, how)


def _secret(target: SearchTarget) -> Findings:
    if target.config.secrets.source == "seeded":
        yield Place(
            target.display_path(target.folder.config_path, target.folder.path),
            "the seed: with it, who guesses the name computes its handle",
            "secret",
            YOU,
            "Delete the whole run; for real clients set secrets.source = 'os'.",
        )
    elif (path := secret_path(target.folder.secret_marker)) is not None:
        yield Place(
            target.display_path(path, path.parent),
            "the key by which covey knows the name again after it left",
            "secret",
            YOU,
            "Delete it together with the run, which cannot go on without it.",
        )


def _mentioned(target: SearchTarget) -> Findings:
    folder = target.folder
    record = Place("", "its name", "copy", COVEY, "Every answer takes it out.")
    if folder.copies.is_dir():
        yield from mentions_below(target, folder.copies, record)
    found = Place("", "its name", "file", YOU, "Take it out, or delete the file.")
    yield from mentions_below(target, folder.path, found, list(_searched(folder)))


def _searched(folder: RunFolder) -> Iterator[Path]:
    yield from (folder.request_queue, folder.copies)
    yield from (folder.path / name for name in RENDERED)
    if isinstance(folder.ledger, Path):
        yield folder.ledger
        for more in ("-journal", "-wal", "-shm"):
            yield folder.ledger.with_name(folder.ledger.name + more)


def outside_run(target: SearchTarget) -> Findings:
    """Yield what is in the data, preferences, deployment and runs beside this one."""
    yield from _data(target)
    yield from _preferences(target)
    yield from _organisations(target)
    yield from _deployment(target)
    try:
        beside = list(_sibling_runs(target.folder))
    except OSError as error:
        yield f"The runs beside this one: their folder cannot be read ({error.strerror})."
        return
    for path in beside:
        yield from _in_run(target, path)


def _data(target: SearchTarget) -> Findings:
    source = target.config.data
    name = source.name
    if FederationMetadata.of(target.folder) is not None:
        yield (
            "The machine of the client's own node: its data, its node.toml, its key and its logs."
        )
    elif isinstance(source, Unread):
        kind_of_data, how = ("where its data come from", "Look where this function reads them.")
        yield Place(name, kind_of_data, "data", YOU, how)
    elif source.is_passed:
        yield "Where the program that played this run has the client's data from."
    elif not source.simulates:
        folder = data_folder(target.config.data.dir)
        yield from _files(target, folder, source.file_of(target.name, folder))
    else:
        yield (
            f"The published data set {name!r}, of which the settings make this simulated "
            f"client: it does not have its name."
        )


def _files(target: SearchTarget, folder: Path, client_file: Path | None) -> Findings:
    if not folder.is_dir():
        yield f"The data folder {folder.absolute()}: it is not there."
        return
    if client_file is not None and client_file.is_file():
        how = "Delete the file after the answer: the run goes on without it."
        yield Place(target.display_path(client_file, folder), "its data", "data", YOU, how)
    how = "Delete the file, or take the name out of it."
    template = Place("", "its name", "data", YOU, how)
    without = [target.folder.path, *([client_file] if client_file else [])]
    yield from mentions_below(target, folder, template, without, data=True)


def _preferences(target: SearchTarget) -> Findings:
    held = "its name and what it accepts"
    yield from _listed_in(target, "preferences", read_preferences, held)


def _organisations(target: SearchTarget) -> Findings:
    held = "its name and organisation"
    yield from _listed_in(target, "organisations", read_organisations, held)


def _listed_in(
    target: SearchTarget,
    setting: Literal["preferences", "organisations"],
    read: Callable[[Path], Mapping[ClientName, object]],
    held: str,
) -> Findings:
    """Look for the client in a file that the population's settings name."""
    told = getattr(target.config.population, setting)
    if not told:
        return
    path = Path(told)
    try:
        known = target.name in read(path) or target.mention.in_file(path)
    except (CoveyError, OSError):
        yield f"The file of population.{setting}, {path.absolute()}: it cannot be read."
        return
    if known:
        how = "Delete the client's entry after the answer."
        shown = target.display_path(path, path.parent)
        yield Place(shown, held, "preferences", YOU, how)


def _deployment(target: SearchTarget) -> Findings:
    roster = FederationMetadata.of(target.folder)
    if roster is None:
        return
    yield "Flower's own database and logs, of the server and of every node."
    if not roster.home:
        return
    home = Path(roster.home)
    if not home.is_dir():
        yield f"The deployment's folder {home}: it is not there."
        return
    how = "Delete it, or take the name out of it, and make the node's key invalid."
    template = Place("", "its name", "deployment", YOU, how)
    played = [target.folder.path.parent]  # each run in it is looked at by itself
    yield from mentions_below(target, home, template, played)


def _sibling_runs(folder: RunFolder) -> Iterator[Path]:
    """Yield the other runs in the same folder; of a run inside a run, the outer one.

    What is inside another run goes with its own answers.
    """
    this_run, parent = folder.path.absolute(), folder.path.absolute().parent
    for path in (parent, *sorted(parent.iterdir())):
        if path != this_run and (path / "config.toml").is_file():
            yield path


def _in_run(target: SearchTarget, path: Path) -> Findings:
    """Yield what another run knows of the client, if it is over the same data."""
    folder, shown = RunFolder(path), target.display_path(path, path.parent.parent)
    try:
        config = folder.config()
        if not _same_data(config, target.config):
            return
        if target.name in config.population.exclude:
            where = target.display_path(folder.config_path, path.parent.parent)
            how = "Take the name out, or delete that run."
            yield Place(where, "population.exclude", "settings", YOU, how)
        if not Ledger.exists(folder.ledger):
            return
        with Ledger.read(folder.ledger) as ledger:
            knows = target.name in ledger.names().values()
    except (CoveyError, ValueError, OSError) as error:
        yield f"The run in {shown}: it cannot be read ({type(error).__name__})."
        return
    if knows:
        yield Place(
            shown,
            "another run over the same data, which knows it",
            "run",
            YOU,
            "Let the client leave that run too, with `covey forget`.",
        )


def _same_data(one: Config, other: Config) -> bool:
    """Say whether a client of some name has the same examples under both settings."""
    same = one.data == other.data
    return same and (one.brings_clients or one.seed == other.seed)


NEVER_SEARCHED = (
    "Backups and snapshots of all these places.",
    "Copies that were made without covey, models that a program wrote itself, and runs "
    "in other folders.",
    "Shell histories, process lists, logs of your own code, and the printed output of "
    "commands: arguments and --json hold the name.",
    "What a model has learnt: files of states and of examples are not understood, only "
    "searched for the name.",
)

POSTGRES = (
    "The write-ahead log, replicas, backups and logs of statements of the ledger's "
    "PostgreSQL server."
)


def search_places(target: SearchTarget) -> Search:
    """Search every place that a run's settings lead to; nothing is written.

    Nobody else is named in what is returned.
    """
    places: list[Place] = []
    open_ends: list[str] = []
    for finder in (inside_run, outside_run):
        for found in finder(target):
            if isinstance(found, str):
                open_ends.append(found)
            elif found not in places:
                places.append(found)
    if target.config.ledger.url:
        open_ends.append(POSTGRES)
    unique = tuple(dict.fromkeys((*open_ends, *NEVER_SEARCHED)))
    return Search(tuple(places), tuple(map(target.without_other_names, unique)))
