"""Which runs know a name, and what they hold on it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from covey import CoveyError, RunError, Streams
from covey.api.listing import RunEntry, find_runs
from covey.base.as_json import json_of
from covey.base.names import ClientName
from covey.data.population import handle_of
from covey.leaving.copies import BASELINE
from covey.leaving.handover import unsealed
from covey.leaving.places import YOU, explain_client
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.secrets import secrets_of
from covey_desk.request import EXACT, Ending, Request, RunOfRequest, ToDo

LASTING = ("ledger", "secret")
UNLISTED = "backups, logs, other runs and copies made without covey, which has no list of them"


@dataclass(frozen=True, slots=True)
class Holdings:
    """The runs below some folders, by what they know of some names.

    Attributes:
        known: by run, the names that it has.
        stopped: by run, those of them whose data no round uses any more.
        left: by run, the names of clients that left it, and how that was answered; "": a salt is
            here with which they come back.
        names: of all their clients.
        unreadable: runs of which that is unclear, with the reason.
    """

    known: Mapping[str, frozenset[ClientName]]
    stopped: Mapping[str, frozenset[ClientName]]
    left: Mapping[str, Mapping[ClientName, Ending | Literal[""]]]
    names: frozenset[ClientName]
    unreadable: Mapping[str, str]

    def runs_of(self, name: ClientName) -> tuple[str, ...]:
        """Return the places of the runs that know one name."""
        return tuple(place for place, names in self.known.items() if name in names)


def search_runs(
    roots: Sequence[str | Path], names: Sequence[ClientName], salts: Sequence[str] = ()
) -> Holdings:
    """Return what the runs below these folders know of these names.

    A baseline inside a run is not one of them: it goes with the run's answer.
    """
    known, stopped = dict[str, frozenset[ClientName]](), dict[str, frozenset[ClientName]]()
    left: dict[str, Mapping[ClientName, Ending | Literal[""]]] = {}
    unreadable, clients = dict[str, str](), frozenset[ClientName]()
    wanted, entries = frozenset(names), {path_of(run): run for run in find_runs(roots)}
    for path, entry in entries.items():
        if Path(path).name == BASELINE and str(Path(path).parent) in entries:
            continue
        try:
            if entry.folder is None or entry.state == "unreadable":
                raise RunError(entry.reason or "only its ledger is here")
            folder = RunFolder(entry.folder)
            place = folder.ledger
            if not Ledger.exists(place):
                continue
            with Ledger.read(place) as ledger:
                here = {*ledger.names().values()}
                known[path], clients = wanted & here, clients | here
                stopped[path] = wanted.intersection(ledger.roster().stopped)
                left[path] = _left(folder, wanted - known[path], ledger, salts)
        except CoveyError as error:
            unreadable[path] = str(error)
    return Holdings(known, stopped, left, clients, unreadable)


def path_of(entry: RunEntry) -> str:
    """Return where a run is, wherever it was looked for from."""
    return entry.place if entry.folder is None else str(entry.folder.resolve())


def _left(
    folder: RunFolder, names: frozenset[ClientName], ledger: Ledger, salts: Sequence[str]
) -> dict[ClientName, Ending | Literal[""]]:
    """Return the names whose tombstones a run has, and how they left.

    Only a seed leads from a name to its handle: without one, where clients left by several
    answers, no one can say which of them this client had.
    """
    config, tombstones = folder.config(), ledger.roster().tombstones
    source, marker, streams = config.secrets.source, folder.secret_marker, Streams(config.seed)
    if not (tombstones and names) or (source == "os" and not marker.is_file()):
        return {}
    last = {request.handle: request.answer for request in ledger.requests() if request.answer}

    def why(name: ClientName) -> Ending | Literal[""]:
        handle = "" if source == "os" else handle_of(name, streams)
        answers = {last[handle]} if handle in last else {*last.values()} - {"stop"}
        if salt_of(ledger, name, salts):
            return ""
        if answers and answers <= {*EXACT}:
            return "before"
        return "denied" if answers == {"deny"} else "unclear"

    own = secrets_of(streams, source, marker).tombstones(names)
    return {name: why(name) for name, mark in own.items() if mark in tombstones}


def salt_of(ledger: Ledger, name: ClientName, salts: Iterable[str]) -> str:
    """Return which salt finds a client that left; "": none does."""
    sealed = [request.sealed for request in ledger.requests() if request.sealed]
    opened = (e for e in salts if any(unsealed(s, name, bytes.fromhex(e)) for s in sealed))
    return next(opened, "")


def searched(
    requests: Mapping[str, Request], number: str, holdings: Holdings, *, look_up: bool
) -> list[RunOfRequest]:
    """Return what the search found for a request and is not noted yet.

    Args:
        requests: all that the register has.
        number: of the request whose names were searched for.
        holdings: what the search found.
        look_up: find out, too, what each run holds on a name, while that leads to it.
    """
    request, new = requests[number], list[RunOfRequest]()
    is_access = request.entry.basis == "access"
    others = [] if is_access else [e for e in requests.values() if e.is_open and e is not request]
    for index, name in enumerate(request.entry.names, 1):
        mine = {run.run: run for run in request.runs if run.index == index}
        for run in dict.fromkeys((*holdings.known, *holdings.unreadable, *mine)):
            fresh = RunOfRequest(request=number, person=name, run=run, index=index)
            now, entry = mine.get(run, fresh), None
            left = holdings.left.get(run, {}).get(name)
            answered = (
                listed.held
                for other in others
                for listed in other.runs
                if (listed.person, listed.run) == (name, run) and listed.answer
            )
            held = next(answered, "")  # before another request was answered
            waits = look_up and is_access and not now.ended
            if name in holdings.known.get(run, ()) or (held and run not in mine):
                if look_up and not (held or now.held):
                    held = json.dumps(held_in(run, name))
                if run not in mine or held not in ("", now.held):
                    entry = replace(fresh, held=held)
            elif (
                run not in mine
                or (waits and not now.held)
                or (now.ended and left not in (None, now.ended))
            ):
                why: Ending | Literal[""] = "gone" if run not in holdings.known else "elsewhere"
                if run in holdings.unreadable:
                    why = "unreadable"
                elif left is not None:
                    why = left
                if run in mine or why != "elsewhere":
                    entry = replace(fresh, ended=why)
            if entry is not None:
                new.append(entry)
    return new


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
        held: what it held on the person before the answer; empty: that is not known.
        proof: the answer's.
    """
    if problem := held.get("problem"):
        return [ToDo("run", place, "unreadable", str(problem))]
    steps = [
        ToDo(
            "stays" if place["kind"] in LASTING else "place",
            place["path"],
            place["kind"],
            f"{place['what']}. {place['how']}",
        )
        for place in held.get("places", ())
        if place["who_must_act"] == YOU and proof["answer"] != "stop"
    ]
    received = [*held.get("recipients", ())]
    received += [copy for copy in proof["copies"] if copy["notify"] and copy["recipient"]]
    for copy in received:
        where = f"{copy['recipient']} ({str(copy['sha256'])[:16] or 'no file'})"
        steps.append(ToDo("recipient", where, copy["what"], place))
    return steps if proof["answer"] == "stop" else [*steps, ToDo("not listed", UNLISTED)]
