"""Where a client's name and data are: inside a run's folder and outside of it."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from covey.base.errors import CoveyError
from covey.base.names import ClientName, Handle
from covey.components.parts import Unread, create
from covey.data.source import DataSource, data_folder
from covey.ledger.store import Ledger
from covey.runtime.copies import BASELINE, RENDERED, Copy, Mention, copies_of, masked, unrecorded
from covey.runtime.folder import FederationMetadata, RunFolder, records_of, rounds_in
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
        settings: the run's, as they are written.
        known: the names of all clients that the run knows.
        first_round: in which the client's data were used; None: in none.
    """

    folder: RunFolder
    settings: Mapping[str, Any]
    name: ClientName
    handle: Handle
    known: frozenset[ClientName]
    first_round: int | None

    @property
    def mention(self) -> Mention:
        """How the name is looked for."""
        return Mention.of(self.name, self.known)

    def display_path(self, path: Path, root: Path | None = None) -> str:
        """Return a path for the client's eyes: what lies below `root` names nobody else.

        By default that is the run's folder; of what lies elsewhere, the whole path is masked.
        """
        top, whole = (root or self.folder.path).absolute(), path.absolute()
        if not whole.is_relative_to(top):
            top = Path(whole.anchor)
        return str(top / self.without_other_names(str(whole.relative_to(top))))

    def place(
        self, path: Path, what: str, kind: Kind, who: Actor, how: str, root: Path | None = None
    ) -> Place:
        """Return a place, its path for the client's eyes."""
        return Place(self.display_path(path, root), what, kind, who, how)

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
        template: what every place is; its path is filled in.
        without: files and folders that were searched already.
        data: of files that are no text, only the names are looked at.
    """
    mention, skipped = target.mention, list[Path]()
    shown = target.display_path(top, top)
    done = {path.absolute() for path in without}
    for count, path in enumerate(_below(top.absolute(), mention, done, skipped)):
        if count == MAX_FILES:
            yield f"More than {MAX_FILES:,} files in {shown}: the others were not searched."
            break
        named = path.is_dir() or mention.in_text(path.name)
        if not named and data and path.suffix not in TEXT:
            continue
        try:
            too_large = not named and path.stat().st_size > MAX_FILE_SIZE
            found = named or (not too_large and mention.in_file(path))
        except OSError:
            too_large, found = True, False
        if too_large:
            skipped.append(path)
        if found:
            what = f"{template.what}, in its own name" if named else template.what
            yield replace(template, path=target.display_path(path, top), what=what)
    if skipped:
        yield (
            f"{len(skipped)} files and folders in {shown} that are larger than "
            f"{MAX_FILE_SIZE >> 20} MiB or cannot be read, first "
            f"{target.display_path(skipped[0], top)}."
        )


def _below(
    top: Path, mention: Mention, done: Collection[Path], skipped: list[Path]
) -> Iterator[Path]:
    """Yield folders of the name, and files; what cannot be listed is put aside."""
    aside: list[OSError] = []
    for folder, inner, files in os.walk(top, onerror=aside.append):
        here = Path(folder)
        named = [each for each in sorted(inner) if mention.in_text(each)]
        yield from (here / each for each in named if here / each not in done)
        inner[:] = sorted(each for each in inner if each not in named and here / each not in done)
        paths = (here / each for each in sorted(files))
        yield from (path for path in paths if path not in done and not path.is_symlink())
    skipped += [Path(str(error.filename)) for error in aside]


def _inside_run(target: SearchTarget) -> Findings:
    """Yield what is in the run's folder, and in its ledger wherever that is."""
    folder, place = target.folder, target.place
    yield from _ledger(target)
    if any(request.client == target.name for request in folder.queued_requests()):
        how = "Whoever plays the run takes it away, and answers."
        yield place(folder.request_queue, "its name, in a request to leave", "request", COVEY, how)
    for path in records_of(folder, target.handle):
        how = "Every answer deletes it."
        yield place(path, "its records, as it brought them", "data", COVEY, how)
    yield from _trained(target)
    for path in (folder.path / name for name in RENDERED):
        if path.exists():
            how = "Every answer deletes it; it can be made again, without the client."
            if path.name == BASELINE:
                yield place(path, "a run on the same data", "run", COVEY, how)
            else:
                yield place(path, "what shows the run with it", "page", COVEY, how)
    yield from _copied(target)
    if target.settings["secrets"]["source"] == "seeded":
        what = "the seed: with it, who guesses the name computes its handle"
        how = "Delete the whole run; for real clients set secrets.source = 'os'."
        yield place(folder.config_path, what, "secret", YOU, how)
    elif (path := secret_path(folder.secret_marker)) is not None:
        what = "the key by which covey knows the name again after it left"
        how = "Delete it together with the run, which cannot go on without it."
        yield place(path, what, "secret", YOU, how, path.parent)
    if folder.copies.is_dir():
        record = Place("", "its name", "copy", COVEY, "Every answer takes it out.")
        yield from mentions_below(target, folder.copies, record)
    searched = [folder.request_queue, folder.copies, *(folder.path / each for each in RENDERED)]
    if isinstance(own := folder.ledger, Path):
        searched += [own.with_name(own.name + each) for each in ("", "-journal", "-wal", "-shm")]
    other = Place("", "its name", "file", YOU, "Take it out, or delete the file.")
    yield from mentions_below(target, folder.path, other, searched)


def _ledger(target: SearchTarget) -> Findings:
    try:
        with Ledger.read(target.folder.ledger) as ledger:
            where, names = ledger.location, ledger.names()
    except CoveyError as error:
        yield f"The run's own ledger: {error}"
        return
    path = where if "://" in where else target.display_path(Path(where))
    if target.name in names.values():
        how = "Every answer deletes the row, and overwrites what is left of it."
        yield Place(path, "its name, in the table of names", "ledger", COVEY, how)
    how = (
        "No answer deletes an event, and the handle then leads to no name. Delete the whole run "
        "to delete them."
    )
    yield Place(path, "what it did, in events under its handle", "ledger", YOU, how)


def _trained(target: SearchTarget) -> Findings:
    folder, first = target.folder, target.first_round
    if first is None:
        return
    how = (
        "A retraining deletes them and plays the rounds again, a subtraction solves the "
        "newest one again; a roll back deletes only the later ones, and a denial nothing."
    )
    for inner in (folder.checkpoints, folder.superseded):
        if states := sum(t >= first for t in rounds_in(inner)):
            what = f"{states} states of models that trained on its data"
            yield target.place(inner, what, "model", COVEY, how)
    if kept := sum(t >= first for t in rounds_in(folder.updates)):
        what = f"updates that clients sent, in {kept} rounds since it came"
        how = "Every answer takes its own ones out."
        yield target.place(folder.updates, what, "updates", COVEY, how)


def _copied(target: SearchTarget) -> Findings:
    folder, first = target.folder, target.first_round
    for copy in (*copies_of(folder), *unrecorded(folder)):
        seen = copy.round_index is None or (first is not None and copy.round_index > first)
        about = copy.subject in ("", target.handle) and (copy.what != "model" or seen)
        if about and not copy.deleted:
            yield _copy_place(copy, target, folder)
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        if not copy.is_inside and not copy.deleted:
            yield _copy_place(copy, target, inner)


def _copy_place(copy: Copy, target: SearchTarget, folder: RunFolder) -> Place:
    model = copy.what == "model"
    what = "an exported model" if model else f"a page: {copy.what}"
    if copy.recipient:
        what += ", given to a recipient on record"
    when = "An answer that changes the model" if model else "Every answer"
    who, how = COVEY, f"{when} deletes it."
    if not copy.is_inside:
        who, how = YOU, "Delete it; `covey forget` lists it, with the recipient who is to be told."
    return target.place(copy.location(folder), what, "copy", who, how, folder.path)


def _outside_run(target: SearchTarget) -> Findings:
    """Yield what is in the data, preferences, deployment and runs beside this one."""
    yield from _data(target)
    yield from _listed_in(target, "preferences", "its name and what it accepts")
    yield from _listed_in(target, "organisations", "its name and organisation")
    yield from _deployment(target)
    try:
        beside = list(_sibling_runs(target.folder))
    except OSError as error:
        yield f"The runs beside this one: their folder cannot be read ({error.strerror})."
        return
    for path in beside:
        yield from _in_run(target, path)


def _data(target: SearchTarget) -> Findings:
    source = _source(target.settings)
    if FederationMetadata.of(target.folder) is not None:
        yield (
            "The machine of the client's own node: its data, its node.toml, its key and its logs."
        )
    elif isinstance(source, Unread):
        how = "Look where this function reads them."
        yield Place(source.name, "where its data come from", "data", YOU, how)
    elif source.is_passed:
        yield "Where the program that played this run has the client's data from."
    elif not source.simulates:
        folder = data_folder(source.dir)
        yield from _files(target, folder, source.file_of(target.name, folder))
    else:
        yield (
            f"The published data set {source.name!r}, of which the settings make this simulated "
            f"client: it does not have its name."
        )


def _files(target: SearchTarget, folder: Path, client_file: Path | None) -> Findings:
    if not folder.is_dir():
        yield f"The data folder {folder.absolute()}: it is not there."
        return
    if client_file is not None and client_file.is_file():
        how = "Delete the file after the answer: the run goes on without it."
        yield target.place(client_file, "its data", "data", YOU, how, folder)
    template = Place("", "its name", "data", YOU, "Delete the file, or take the name out of it.")
    without = [target.folder.path, *([client_file] if client_file else [])]
    yield from mentions_below(target, folder, template, without, data=True)


def _source(settings: Mapping[str, Any]) -> DataSource:
    return create("data", settings["data"], "data.name", DataSource)


def _listed_in(target: SearchTarget, setting: str, held: str) -> Findings:
    """Look for the client in a file that the population's settings name."""
    path = Path(target.settings["population"][setting])
    if path == Path():
        return
    from covey.data.population import read_organisations, read_preferences

    read = read_preferences if setting == "preferences" else read_organisations
    try:
        known = target.name in read(path) or target.mention.in_file(path)
    except (CoveyError, OSError):
        yield f"The file of population.{setting}, {path.absolute()}: it cannot be read."
        return
    if known:
        how = "Delete the client's entry after the answer."
        yield target.place(path, held, "preferences", YOU, how, path.parent)


def _deployment(target: SearchTarget) -> Findings:
    roster = FederationMetadata.of(target.folder)
    if roster is None:
        return
    yield "Flower's own database and logs, of the server and of every node."
    home = Path(roster.home)
    if roster.home and home.is_dir():
        how = "Delete it, or take the name out of it, and make the node's key invalid."
        template = Place("", "its name", "deployment", YOU, how)
        played = [target.folder.path.parent]  # each run in it is looked at by itself
        yield from mentions_below(target, home, template, played)
    elif roster.home:
        yield f"The deployment's folder {home}: it is not there."


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
    folder, root = RunFolder(path), path.parent.parent
    try:
        settings, own = folder.settings(), target.settings
        source = _source(settings)
        # a client of some name has the same examples in both
        brought = isinstance(source, Unread) or not source.simulates
        if source != _source(own) or not (brought or settings["seed"] == own["seed"]):
            return
        if target.name in settings["population"]["exclude"]:
            how = "Take the name out, or delete that run."
            yield target.place(folder.config_path, "population.exclude", "settings", YOU, how, root)
        if not Ledger.exists(folder.ledger):
            return
        with Ledger.read(folder.ledger) as ledger:
            knows = target.name in ledger.names().values()
    except (CoveyError, ValueError, OSError) as error:
        shown = target.display_path(path, root)
        yield f"The run in {shown}: it cannot be read ({type(error).__name__})."
        return
    if knows:
        what = "another run over the same data, which knows it"
        how = "Let the client leave that run too, with `covey forget`."
        yield target.place(path, what, "run", YOU, how, root)


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
    findings = dict.fromkeys((*_inside_run(target), *_outside_run(target)))
    open_ends = [each for each in findings if isinstance(each, str)]
    postgres = [POSTGRES] if target.settings["ledger"]["url"] else []
    unique = dict.fromkeys((*open_ends, *postgres, *NEVER_SEARCHED))
    return Search(
        places=tuple(each for each in findings if not isinstance(each, str)),
        not_searched=tuple(map(target.without_other_names, unique)),
    )
