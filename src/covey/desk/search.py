"""Which runs know a name, what they hold on it, and which runs open requests need."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from covey.base.as_json import json_of
from covey.base.errors import CoveyError, RunError
from covey.base.names import ClientName
from covey.base.rng import Streams
from covey.desk.pruning import prune, retention
from covey.desk.register import (
    FILE,
    Ending,
    Fact,
    Register,
    Request,
    RunOfRequest,
    ToDo,
    read_register,
    register_of,
    run_handle,
    text_handle,
)
from covey.desk.runs import RunEntry, find_runs, reader_url
from covey.ledger.store import Ledger
from covey.runtime.copies import BASELINE
from covey.runtime.folder import RunFolder
from covey.runtime.places import YOU, explain_client
from covey.runtime.secrets import secrets_of


@dataclass(frozen=True, slots=True)
class Holdings:
    """The runs below some folders, by what they know of some names.

    Attributes:
        known: by run, the names that it has.
        stopped: by run, those of them whose data no round uses any more.
        left: by run, the names of clients that left it.
        unreadable: runs of which that is unclear, with the reason.
    """

    known: Mapping[str, frozenset[ClientName]]
    stopped: Mapping[str, frozenset[ClientName]]
    left: Mapping[str, frozenset[ClientName]]
    unreadable: Mapping[str, str]

    def runs_of(self, name: ClientName) -> tuple[str, ...]:
        """Return the places of the runs that know one name."""
        return tuple(place for place, names in self.known.items() if name in names)


def search_runs(roots: Sequence[str | Path], names: Sequence[ClientName]) -> Holdings:
    """Return what the runs below these folders know of these names.

    A baseline inside a run is not one of them: it goes with the run's answer.
    """
    known, stopped, left = (dict[str, frozenset[ClientName]]() for _ in range(3))
    unreadable: dict[str, str] = {}
    wanted, entries = frozenset(names), {path_of(each): each for each in find_runs(roots)}
    for path, entry in entries.items():
        if Path(path).name == BASELINE and str(Path(path).parent) in entries:
            continue
        try:
            if entry.folder is None or entry.state == "unreadable":
                raise RunError(entry.reason or "only its ledger is here")
            folder = RunFolder(entry.folder)
            place = reader_url(folder.ledger)
            if not Ledger.exists(place):
                continue
            with Ledger.read(place) as ledger:
                known[path] = wanted & {*ledger.names().values()}
                stopped[path] = wanted & ledger.stopped().keys()
                left[path] = _left(folder, wanted - known[path], ledger.tombstones())
        except CoveyError as error:
            unreadable[path] = str(error)
    return Holdings(known, stopped, left, unreadable)


def path_of(entry: RunEntry) -> str:
    """Return where a run is, wherever it was looked for from."""
    return entry.place if entry.folder is None else str(entry.folder.resolve())


def _left(
    folder: RunFolder, names: frozenset[ClientName], tombstones: Collection[str]
) -> frozenset[ClientName]:
    """Return the names whose tombstones a run has."""
    config = folder.config()
    source, marker = config.secrets.source, folder.secret_marker
    if not (tombstones and names) or (source == "os" and not marker.is_file()):
        return frozenset()
    own = secrets_of(Streams(config.seed), source, marker).tombstones(names)
    return frozenset(name for name, mark in own.items() if mark in tombstones)


def searched(
    held: Register, request: Request, holdings: Holdings, *, look_up: bool
) -> tuple[list[Fact], dict[str, str]]:
    """Return what the search found for a request and is not put down yet, with new texts.

    Args:
        held: the register.
        request: whose names were searched for.
        holdings: what the search found.
        look_up: put down, too, what each run holds on a name, while that leads to it.
    """
    texts, facts, new = held.texts(), list[Fact](), dict[str, str]()
    is_access = request.entry.basis == "access"
    others = [r for r in held.requests().values() if r.closing is None and not is_access]
    for person in request.entry.names:
        name, mine = texts[person], [run for one, run in request.runs if one == person]
        places = (*holdings.known, *holdings.unreadable, *(texts[run] for run in mine))
        for place in dict.fromkeys(places):
            run = run_handle(place)
            about: dict[str, Any] = {"request": request.number, "person": person, "run": run}
            same = [each.noted[person, run] for each in others if (person, run) in each.noted]
            kept = [each.held for each in same if each.answer]
            now, fact = request.noted.get((person, run), RunOfRequest(**about)), None
            waits = look_up and is_access and not now.ended
            if name in holdings.known.get(place, ()) or (kept and run not in mine):
                handle = kept[0] if kept else ""
                if look_up and not (handle or now.held):
                    handle = text_handle()
                    new[handle] = json.dumps(held_in(place, name))
                if handle or run not in mine:
                    fact = RunOfRequest(held=handle, **about)
            elif run not in mine or (waits and not now.held):
                why: Ending = "gone" if place not in holdings.known else "elsewhere"
                if place in holdings.unreadable:
                    why = "unreadable"
                elif name in holdings.left.get(place, ()):
                    why = "before"
                if run in mine or why != "elsewhere":
                    fact = RunOfRequest(ended=why, **about)
            if fact is not None:
                new[run] = place
                facts.append(fact)
    return facts, new


def held_in(place: str, name: ClientName) -> dict[str, Any]:
    """Return what `covey explain` says of a client; with `problem`, why that is nothing."""
    try:
        return json_of(explain_client(RunFolder(Path(place)), name))
    except CoveyError as error:
        return {"problem": str(error)}


def by_hand(place: str, held: Mapping[str, Any], proof: Mapping[str, Any]) -> list[ToDo]:
    """Return what no answer does: places a person has to see to, and copies that went out.

    Args:
        place: the run.
        held: what it held on the person before the answer.
        proof: the answer's; empty: there is none yet.
    """
    if problem := held.get("problem"):
        return [ToDo("run", place, "unreadable", str(problem))]
    steps = [
        ToDo("place", each["path"], each["kind"], f"{each['what']}. {each['how']}")
        for each in held["places"]
        if each["who_must_act"] == YOU
    ]
    for copy in proof.get("copies", ()):
        if copy["notify"] and copy["recipient"]:
            where = f"{copy['recipient']} ({str(copy['sha256'])[:16]})"
            steps.append(ToDo("recipient", where, copy["what"], place))
    return [*steps, *(ToDo("not listed", each) for each in held["not_listed"])]


def needed_runs(
    folder: Path, roots: Sequence[str | Path], entries: Sequence[RunEntry]
) -> dict[str, str]:
    """Return why runs are needed, by their place; folder: the register's, if it is there.

    Raises:
        LedgerError: the register cannot be read: then it is unclear.
    """
    if not (folder / FILE).is_file():
        return {}
    with read_register(folder) as register:
        texts = register.texts()
        alive = [each for each in register.requests().values() if not each.is_closed]
    names = {r.number: [texts[n] for n in r.entry.names if n in texts] for r in alive}
    holdings = search_runs(roots, [name for each in names.values() for name in each])
    needed: dict[str, str] = {}
    for number, request in ((each.number, each) for each in alive):
        known = (path for name in names[number] for path in holdings.runs_of(name))
        for path in (*(texts[run] for _, run in request.runs if run in texts), *known):
            needed.setdefault(path, f"request {number} of the register is open")
    return {e.place: needed[path_of(e)] for e in entries if path_of(e) in needed}


def delete_run(path: Path) -> None:
    """Delete the run in this folder, whole; nothing, if there is none.

    Raises:
        RunError: somebody still needs it, or it cannot go with its folder.
        LedgerError: the register of requests beside it cannot be read.
    """
    if not RunFolder(path).config_path.is_file():
        return
    entries = find_runs([path])
    needed: dict[str, str] = {}  # by open requests: of the registers of the folders around it
    for root in path.resolve().parents:
        needed |= needed_runs(register_of(root), [path], entries)
    (run,) = (
        each
        for each in retention(entries, timedelta.min, "whole", needed=needed)
        if each.folder and each.folder.resolve() == path.resolve()
    )
    kept = run.kept
    if not kept and not RunFolder(path).ledger_path.is_file():
        kept = "its ledger is not in the folder, and would stay"
    if kept or not prune([run]):
        raise RunError(
            f"{path} was to be overwritten and must stay: {kept or 'it is being written'}. "
            f"Give another folder, or finish that first."
        )
