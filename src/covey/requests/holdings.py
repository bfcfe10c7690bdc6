"""Which runs know a name, and what of it a person has to see to."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.components.foreign_code import no_foreign_code
from covey.errors import CoveyError
from covey.ledger import Ledger
from covey.registry import RunEntry, found_runs
from covey.registry.reading import reader_url
from covey.runtime import RunFolder, explain_client, recorded_run
from covey.runtime.copies import copies_of
from covey.runtime.places.found import YOU
from covey.runtime.settling import BASELINE, unrecorded
from covey.types import ClientName

__all__ = ["ByHand", "Holdings", "by_hand", "path_of", "search_runs"]

KINDS = {"data": "source", "preferences": "source", "copy": "downstream"}
"""The kind of an item, by the kind of the place where something was found."""

NOT_TO_DO = "What a model has learnt"
"""How the sentence begins that asks nobody to do anything."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """The runs below some folders, by what they know of some names.

    Attributes:
        known: the names that each run knows, of those that were asked for.
        unreadable: runs of which nobody can say.
    """

    known: Mapping[str, tuple[RunEntry, frozenset[ClientName]]]
    unreadable: tuple[RunEntry, ...]

    def runs_of(self, name: ClientName) -> tuple[str, ...]:
        """Return the places of the runs that know one name."""
        return tuple(place for place, (_, names) in self.known.items() if name in names)


@dataclass(frozen=True, slots=True)
class ByHand:
    """Something that no answer does.

    Attributes:
        kind: one of `ITEM_KINDS`.
        text: what, where and how.
    """

    kind: str
    text: str


def search_runs(roots: Sequence[str | Path], names: Sequence[ClientName]) -> Holdings:
    """Return what the runs below these folders know of these names.

    A baseline inside a run is not one of them: it goes with the run's answer.
    """
    known: dict[str, tuple[RunEntry, frozenset[ClientName]]] = {}
    unreadable: list[RunEntry] = []
    entries = found_runs(roots)
    folders = {path_of(each) for each in entries}
    for entry in entries:
        path = path_of(entry)
        if Path(path).name == BASELINE and str(Path(path).parent) in folders:
            continue
        try:
            there = frozenset(names) & _names_in(entry)
        except CoveyError:
            unreadable.append(entry)
            continue
        if there:
            known[path] = (entry, there)
    return Holdings(known, tuple(unreadable))


def path_of(entry: RunEntry) -> str:
    """Return where a run is, wherever it was looked for from."""
    return entry.place if entry.folder is None else str(entry.folder.resolve())


def by_hand(
    path: Path, name: ClientName, others: Collection[str] = ()
) -> tuple[ByHand, ...]:
    """Return what a person has to do about one client in one run, before it is answered.

    Args:
        path: the run's folder.
        name: the client's.
        others: runs that are answered too, which nobody has to be told of.

    Raises:
        CoveyError: the run does not know the client, or cannot be read.
    """
    folder = RunFolder(path)
    with no_foreign_code():
        told = explain_client(recorded_run(folder, reason=""), folder, name)
    found = (*_places(told, others), *_recipients(folder), *_unsearched(told))
    return tuple(dict.fromkeys(found))


def _names_in(entry: RunEntry) -> frozenset[ClientName]:
    """Return the names that a run knows; a damaged one may still tell.

    Raises:
        CoveyError: it does not.
    """
    if entry.folder is None or entry.state == "unreadable":
        raise RunUnknownError(entry.reason)
    folder = RunFolder(entry.folder)
    place = reader_url(folder.ledger)
    if not Ledger.exists(place):
        return frozenset()
    with Ledger.read(place) as ledger:
        return frozenset(ledger.names().values())


class RunUnknownError(CoveyError):
    """Nobody can say what a run knows."""


def _places(told: Mapping[str, Any], others: Collection[str]) -> Iterator[ByHand]:
    for each in told["places"]:
        if each["who_must_act"] == YOU and each["path"] not in others:
            kind = KINDS.get(each["kind"], "other")
            yield ByHand(kind, f"{each['path']}: {each['what']}. {each['how']}")


def _recipients(folder: RunFolder) -> Iterator[ByHand]:
    for copy in (*copies_of(folder), *unrecorded(folder)):
        if copy.recipient and copy.what == "model":
            yield ByHand(
                "recipient",
                f"{copy.recipient} was given a model on {copy.written[:10]} (SHA-256 "
                f"{copy.sha256[:16]}). If the answer changes the model, send the notice.",
            )


def _unsearched(told: Mapping[str, Any]) -> Iterator[ByHand]:
    for sentence in told["not_searched"]:
        if sentence.startswith(NOT_TO_DO):
            continue
        backup = "backup" in sentence.lower() or "log" in sentence.lower()
        yield ByHand("backup" if backup else "other", f"Not searched: {sentence}")
