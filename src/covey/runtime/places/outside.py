"""Where a run's settings lead to outside its folder, and what is there of a client."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from covey.config import Config, brings_clients, is_passed, kind_of
from covey.data import data_folder, read_organisations, read_preferences
from covey.errors import CoveyError
from covey.ledger import Ledger
from covey.runtime.federation_metadata import FederationMetadata
from covey.runtime.folder import RunFolder
from covey.runtime.places.found import YOU, Findings, Place, SearchTarget
from covey.runtime.places.walk import mentions_below
from covey.types import ClientName

__all__ = ["outside_run"]


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
    name, source = target.config.data.name, kind_of(target.config.data, "name")
    if FederationMetadata.of(target.folder) is not None:
        yield (
            "The machine of the client's own node: its data, its node.toml, its key and "
            "its logs."
        )
    elif source is None:
        kind_of_data, how = (
            "where its data come from",
            "Look where this function reads them.",
        )
        yield Place(name, kind_of_data, "data", YOU, how)
    elif is_passed(target.config.data):
        yield "Where the program that played this run has the client's data from."
    elif brings_clients(target.config):
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
        yield Place(
            target.display_path(client_file, folder), "its data", "data", YOU, how
        )
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
    return same and (brings_clients(one) or one.seed == other.seed)
