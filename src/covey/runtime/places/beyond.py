"""Where a run's settings lead to outside its folder, and what is there of a client."""

from collections.abc import Iterator
from pathlib import Path

from covey.config import Config, brings_clients, is_passed, kind_of
from covey.data import data_folder, read_preferences
from covey.errors import CoveyError
from covey.ledger import Ledger
from covey.runtime.federation_metadata import Roster
from covey.runtime.folder import RunFolder
from covey.runtime.places.found import YOU, Findings, Place, Sought
from covey.runtime.places.walk import mentions_below

__all__ = ["beyond_the_run"]


def beyond_the_run(sought: Sought) -> Findings:
    """Yield what is in the data, preferences, deployment and runs beside this one."""
    yield from _data(sought)
    yield from _preferences(sought)
    yield from _deployment(sought)
    try:
        beside = list(_runs_beside(sought.folder))
    except OSError as error:
        yield f"The runs beside this one: their folder cannot be read ({error.strerror})."
        return
    for path in beside:
        yield from _in_run(sought, path)


def _data(sought: Sought) -> Findings:
    name, source = sought.config.data.name, kind_of(sought.config.data, "name")
    if Roster.of(sought.folder) is not None:
        yield (
            "The machine of the client's own node: its data, its node.toml, its key and "
            "its logs."
        )
    elif source is None:
        what, how = "where its data come from", "Look where this function reads them."
        yield Place(name, what, "data", YOU, how)
    elif is_passed(sought.config.data):
        yield "Where the program that played this run has the client's data from."
    elif brings_clients(sought.config):
        folder = data_folder(sought.config.data.dir)
        yield from _files(sought, folder, source.file_of(sought.name, folder))
    else:
        yield (
            f"The published data set {name!r}, of which the settings make this simulated "
            f"client: it does not have its name."
        )


def _files(sought: Sought, folder: Path, own: Path | None) -> Findings:
    if not folder.is_dir():
        yield f"The data folder {folder.absolute()}: it is not there."
        return
    if own is not None and own.is_file():
        how = "Delete the file after the answer: the run goes on without it."
        yield Place(sought.shown(own, folder), "its data", "data", YOU, how)
    how = "Delete the file, or take the name out of it."
    template = Place("", "its name", "data", YOU, how)
    without = [sought.folder.path, *([own] if own else [])]
    yield from mentions_below(sought, folder, template, without, data=True)


def _preferences(sought: Sought) -> Findings:
    told = sought.config.population.preferences
    if not told:
        return
    path = Path(told)
    try:
        known = sought.name in read_preferences(path) or sought.mention.in_file(path)
    except (CoveyError, OSError):
        yield f"The file of population.preferences, {path.absolute()}: it cannot be read."
        return
    if known:
        how = "Delete the client's entry after the answer."
        shown = sought.shown(path, path.parent)
        yield Place(shown, "its name and what it accepts", "preferences", YOU, how)


def _deployment(sought: Sought) -> Findings:
    roster = Roster.of(sought.folder)
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
    played = [sought.folder.path.parent]  # each run in it is looked at by itself
    yield from mentions_below(sought, home, template, played)


def _runs_beside(folder: RunFolder) -> Iterator[Path]:
    """Yield the other runs in the same folder; of a run inside a run, the outer one.

    What is inside another run goes with its own answers.
    """
    own, parent = folder.path.absolute(), folder.path.absolute().parent
    for path in (parent, *sorted(parent.iterdir())):
        if path != own and (path / "config.toml").is_file():
            yield path


def _in_run(sought: Sought, path: Path) -> Findings:
    """Yield what another run knows of the client, if it is over the same data."""
    folder, shown = RunFolder(path), sought.shown(path, path.parent.parent)
    try:
        config = folder.config()
        if not _same_data(config, sought.config):
            return
        if sought.name in config.population.exclude:
            where = sought.shown(folder.config_path, path.parent.parent)
            how = "Take the name out, or delete that run."
            yield Place(where, "population.exclude", "settings", YOU, how)
        if not Ledger.exists(folder.ledger):
            return
        with Ledger.read(folder.ledger) as ledger:
            knows = sought.name in ledger.names().values()
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
