"""What happens to the recorded copies when a request is answered: deletion, or notice."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from covey.atomic_io import delete_whole
from covey.ledger import Request
from covey.runtime.copies import (
    Copy,
    copies_of,
    erase_copy,
    hash_of,
    keep_copy,
    model_bytes,
    moved_up,
    timestamp,
)
from covey.runtime.folder import RunFolder
from covey.runtime.mentions import Mention, masked
from covey.types import ClientName, Params
from covey.unlearning.proof_text import Fate, SettledCopy

__all__ = [
    "BASELINE",
    "RENDERED",
    "CopyOutcome",
    "erase_from_copies",
    "outcome_lines",
    "settle_copies",
    "unrecorded",
]

BASELINE = "baseline"
RENDERED = ("report.html", "metrics.csv", "figures", "audit", BASELINE)
"""What shows a run as it was, and can be made again: it goes with every answer."""

FATE_WORDS: Mapping[Fate, str] = MappingProxyType(
    {
        "deleted": "deleted",
        "unchanged": "stays, as the answer did not change it",
        "outside": "to be deleted by you",
        "missing": "to be found by you, as it is not there any more",
    }
)

REQUESTER = "[requester]"
"""What replaces a leaving client's name in a record."""

LEGACY_EXPORTS = "cluster-[0-9]*.safetensors"
"""Where exports lay by default before they had a folder and a record."""


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """A copy on record, and what an answer makes of it.

    Attributes:
        notify: whether its recipient is to be told that it holds a superseded model.
    """

    copy: Copy
    fate: Fate
    notify: bool

    def describe(self) -> dict[str, Any]:
        """Return it for the operator; a relative path is inside the run's folder."""
        copy = self.copy
        return {
            "what": copy.what,
            "cluster": copy.cluster,
            "path": copy.path,
            "sha256": copy.sha256 or None,
            "written": copy.written,
            "recipient": copy.recipient or None,
            "fate": self.fate,
            "notify": self.notify,
        }

    def as_proof_fact(self, known: Collection[ClientName]) -> dict[str, Any]:
        """Return it for a proof: no path, and no client's name."""
        recipient = masked(self.copy.recipient, known, "[a client of the run]")
        path = self.copy.path.encode("utf-8", "surrogatepass")
        fact = SettledCopy(
            what=self.copy.what,
            sha256=self.copy.sha256 or None,
            path_sha256=hashlib.sha256(path).hexdigest(),
            recipient=recipient or None,
            fate=self.fate,
            notify=self.notify,
        )
        return asdict(fact)


def outcome_lines(copies: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines for a person: what became of each copy, and what is still to be done.

    Args:
        copies: as `CopyOutcome.describe` returns them.
    """
    for each in copies:
        of = "" if each["cluster"] is None else f" of cluster {each['cluster']}"
        what = f"{each['what']}{of} in {each['path']}, written {each['written']}"
        yield f"{FATE_WORDS[each['fate']]}: {what}"
        if each["notify"]:
            yield f"  to notify (GDPR Art. 19): {each['recipient']}"


def erase_from_copies(
    folder: RunFolder, leaver: ClientName, known: Collection[ClientName]
) -> None:
    """Take a client's name out of the record, before it is answered; any number of times.

    The record of the run inside this one, which every answer deletes, is moved here.
    """
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        outer = moved_up(copy, BASELINE)
        keep_copy(folder, _deleted(folder, outer) if outer.is_inside else outer)
        erase_copy(inner, copy)
    mention = Mention.of(leaver, known)
    for copy in copies_of(folder):
        named = mention.in_text(copy.path)
        if named and copy.is_inside and not copy.deleted:
            copy = _deleted(folder, copy)
        if named or mention.in_text(copy.recipient):
            keep_copy(
                folder,
                replace(
                    copy,
                    path=mention.masked(copy.path, REQUESTER),
                    recipient=mention.masked(copy.recipient, REQUESTER),
                ),
            )


def settle_copies(
    folder: RunFolder, request: Request, models: Sequence[Params]
) -> tuple[CopyOutcome, ...]:
    """Delete obsolete copies inside the run's folder, and report every copy.

    May be done again after a crash: what was deleted since the request stays told.

    Args:
        folder: the run's.
        request: the one that is being served.
        models: the cluster models after the answer.
    """
    facts = request.being_served().facts
    first = facts.first_replayed_round
    if facts.answer == "subtract" or (first is None and facts.answer == "retrain"):
        first = 0  # what is not today's model may be of rounds that held the client
    current = {hashlib.sha256(model_bytes(each)).hexdigest() for each in models}
    found: list[CopyOutcome] = []
    for copy in (*copies_of(folder), *unrecorded(folder)):
        if copy.subject not in ("", request.handle):
            continue
        outcome = _outcome(folder, copy, first, current)
        since = not copy.deleted or copy.deleted >= request.asked_at
        if since or outcome.notify:
            found.append(outcome)
    return tuple(found)


def _outcome(
    folder: RunFolder, copy: Copy, first: int | None, current: Collection[str]
) -> CopyOutcome:
    obsolete = copy.what != "model" or _is_superseded(copy, first, current)
    notify = copy.what == "model" and obsolete and bool(copy.recipient)
    if copy.deleted:
        return CopyOutcome(copy, "deleted", notify and first is not None)
    if not obsolete:
        return CopyOutcome(copy, "unchanged", notify=False)
    if not _is_there(folder, copy):
        return CopyOutcome(copy, "missing", notify)
    if copy.is_inside:
        return CopyOutcome(_deleted(folder, copy), "deleted", notify)
    return CopyOutcome(copy, "outside", notify)


def _is_superseded(copy: Copy, first: int | None, current: Collection[str]) -> bool:
    """Say whether a model is none of today's, and saw a round that was played again."""
    if first is None or copy.sha256 in current:
        return False
    return copy.round_index is None or copy.round_index > first


def _is_there(folder: RunFolder, copy: Copy) -> bool:
    if REQUESTER in copy.path:
        return True  # who gives the answer knows the name, and covey does not any more
    try:
        found = hash_of(copy.location(folder))
    except OSError:
        return True  # there, and not for covey to read
    return found is not None and (not copy.sha256 or found == copy.sha256)


def _deleted(folder: RunFolder, copy: Copy) -> Copy:
    """Delete a copy inside the run's folder, and then say so in the record."""
    path = copy.location(folder)
    beside = [each for pattern in copy.beside for each in path.parent.glob(pattern)]
    for each in (path, *beside):
        delete_whole(each)
    deleted = replace(copy, deleted=timestamp())
    keep_copy(folder, deleted)
    return deleted


def unrecorded(folder: RunFolder) -> Iterator[Copy]:
    """Yield the models in the run's folder that lie where exports do, without a record."""
    known = {copy.location(folder) for copy in copies_of(folder) if not copy.deleted}
    places = (*folder.path.glob(LEGACY_EXPORTS), *folder.exports.glob("*.safetensors"))
    for path in sorted(set(places) - known):
        sha256 = hash_of(path) or ""
        yield Copy(
            id=f"00000000-{hashlib.sha256(path.name.encode()).hexdigest()[:16]}",
            what="model",
            path=path.relative_to(folder.path).as_posix(),
            sha256=sha256,
            written=_written(path),
        )


def _written(path: Path) -> str:
    stamp = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return stamp.isoformat(timespec="milliseconds")
