"""What was written out of a run, for whom, and what becomes of it when somebody leaves.

What was written out of a run, for its owner or for others: every copy is on record.

The record stands in the run's folder, one file per copy, beside the ledger's chain and
not in it: it holds paths, times and names of recipients, and these can be erased.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from covey.base.errors import ConfigError, RunError
from covey.base.files import (
    checked,
    checked_json,
    delete_whole,
    file_hash,
    make_folder,
    read_bounded,
    replace_whole,
)
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.ledger.requests import Request
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder, now, rounds_in
from covey.unlearning.facts import Fate, SettledCopy

if TYPE_CHECKING:
    from covey.base.names import Params
    from covey.runtime.evaluation import BestRound

LETTER = r"[^\W_]"
SHORT = 6
"""Characters; a shorter name is looked for only where it stands by itself."""

SAMPLE = 8192
"""Bytes at a file's beginning by which text and binary content are told apart."""


@dataclass(frozen=True, slots=True)
class Mention:
    """One client's name, as it is looked for.

    Attributes:
        longer: other clients' names that hold this one: where they stand, it does not.
    """

    name: ClientName
    longer: tuple[ClientName, ...]

    @classmethod
    def of(cls, name: ClientName, known: Collection[ClientName]) -> Mention:
        """Return how to look for a name among those that are known."""
        longer = {each for each in known if name in each and each != name}
        return cls(name, tuple(sorted(longer, key=len, reverse=True)))

    def in_text(self, text: str) -> bool:
        """Say whether the name stands in a text by itself."""
        return any(found == self.name for found in self._pattern().findall(text))

    def masked(self, text: str, instead: str) -> str:
        """Return the text with something else in the name's place."""
        return self._pattern().sub(
            lambda found: instead if found[0] == self.name else found[0], text
        )

    def in_file(self, path: Path) -> bool:
        """Say whether the name stands in a file, as UTF-8 or as ASCII JSON.

        In binary content a name of some length need not stand by itself: databases put
        one value right after the other.

        Raises:
            OSError: the file cannot be read.
        """
        if path.stat().st_size == 0:
            return False
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if not any(content.find(each) >= 0 for each in _spelt(self.name)):
                return False
            every = (s for each in (*self.longer, self.name) for s in _spelt(each))
            names, letter = b"|".join(map(re.escape, every)), LETTER.encode()
            if b"\0" not in content[:SAMPLE] or len(self.name) < SHORT:
                names = rb"(?<!%b)(?:%b)(?!%b)" % (letter, names, letter)
            wanted = set(_spelt(self.name))
            return any(found[0] in wanted for found in re.finditer(names, content))

    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, (*self.longer, self.name)))
        return re.compile(rf"(?<!{LETTER})(?:{names})(?!{LETTER})")


def masked(text: str, names: Collection[ClientName], instead: str) -> str:
    """Return the text with something else in the place of any of these names."""
    for name in sorted((n for n in names if n in text), key=len, reverse=True):
        text = Mention(name, ()).masked(text, instead)
    return text


def _spelt(name: ClientName) -> Iterator[bytes]:
    """Yield how a file can hold a name."""
    plain = name.encode("utf-8", "surrogatepass")
    yield plain
    escaped = json.dumps(name)[1:-1].encode("ascii")
    if escaped != plain:
        yield escaped


CopyKind = Literal["model", "report", "comparison", "explanation"]

MAX_RECIPIENT_LENGTH = 200
"""Characters of a recipient's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One file that was written, and what was written beside it.

    Attributes:
        id: names the record; as text it is larger than those of all earlier records.
        path: inside the run's folder a relative path, elsewhere an absolute one.
        sha256: of the file as it was written; "": writing it did not end.
        written: when, ISO 8601.
        recipient: for whom, as the command was told; "": nobody is named.
        cluster: whose model it is.
        round_index: how many rounds the model had seen; None: not known.
        subject: the one client that it is about; "": the whole run.
        beside: what was written with it into the same folder, as glob patterns.
        deleted: when covey deleted it, or wrote another file in its place, ISO 8601; "":
            it did not.
    """

    id: str
    what: CopyKind
    path: str
    sha256: str
    written: str
    recipient: str = ""
    cluster: int | None = None
    round_index: int | None = None
    subject: Handle = field(default="", metadata={"json": "hidden"})
    beside: tuple[str, ...] = ()
    deleted: str = ""

    @property
    def is_inside(self) -> bool:
        """Whether it was written into the run's folder."""
        return not Path(self.path).is_absolute()

    def location(self, folder: RunFolder) -> Path:
        """Return where it was written."""
        return folder.path / self.path


_reader = TypeAdapter(Copy).validate_json


def copies_of(folder: RunFolder) -> tuple[Copy, ...]:
    """Return the copies on record, in the order in which they were written.

    Raises:
        RunError: a record cannot be read.
    """
    found: list[Copy] = []
    for path in sorted(folder.copies.glob("*.json")):
        try:
            found.append(_reader(checked(read_bounded(path))))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path} must be the record of a copy, as covey wrote it, but it cannot be "
                f"read: {type(error).__name__}. Restore it, or delete it and look yourself "
                f"for the copy that it spoke of."
            ) from error
    return tuple(found)


def record_copy(
    folder: RunFolder, kind: CopyKind, path: Path, sha256: str, more: Mapping[str, Any]
) -> Copy:
    """Record that something is written to a path; to be called before it is.

    What was written there before is no longer there. Its record goes, unless it names
    another recipient, or other bytes: that recipient still has what it was given.

    Args:
        folder: of the run that the copy shows.
        kind: kind of copy.
        path: the file.
        sha256: of its bytes.
        more: further attributes of the copy.

    Raises:
        RunError: the record cannot be read or written.
    """
    known = copies_of(folder)
    # behind all others, whatever a clock says; two processes at once differ by chance
    number = int(known[-1].id.partition("-")[0]) + 1 if known else 1
    whole, home = path.resolve(), folder.path.resolve()
    inside = whole.is_relative_to(home)
    copy = Copy(
        id=f"{number:08d}-{secrets.token_hex(4)}",
        what=kind,
        path=whole.relative_to(home).as_posix() if inside else str(whole),
        sha256=sha256,
        written=now(),
        **more,
    )
    keep_copy(folder, copy)
    for each in (each for each in known if each.path == copy.path):
        again = (each.recipient, each.sha256) == (copy.recipient, copy.sha256)
        if again or not each.recipient:
            erase_copy(folder, each)
        elif not each.deleted:
            keep_copy(folder, replace(each, deleted=copy.written))
    return copy


def keep_copy(folder: RunFolder, copy: Copy) -> None:
    """Write a record, in the place of what it said before.

    Raises:
        RunError: it cannot be written.
    """
    record = checked_json(asdict(copy))
    try:
        make_folder(folder.copies)
        replace_whole(folder.copies / f"{copy.id}.json", record, mode=0o600)
    except OSError as error:
        raise RunError(
            f"What is written out of a run is put on record in {folder.copies}, but that "
            f"cannot be written: {error.strerror}. Get the right to write there."
        ) from error


def erase_copy(folder: RunFolder, copy: Copy) -> None:
    """Delete a record, and not what it speaks of."""
    delete_whole(folder.copies / f"{copy.id}.json")


def recipient_of(text: str) -> str:
    """Return a recipient's name as it is kept.

    Raises:
        ConfigError: it is no line of text.
    """
    name = text.strip()
    if len(name) > MAX_RECIPIENT_LENGTH or not name.isprintable():
        raise ConfigError(
            f"--recipient takes one line of at most {MAX_RECIPIENT_LENGTH} characters, "
            f"found {len(name)} characters, or some that cannot be printed. Shorten it."
        )
    return name


def model_bytes(params: Params) -> bytes:
    """Return a model as it is exported: safetensors of its state dict."""
    import safetensors.torch

    tensors = {name: each.detach().cpu().clone() for name, each in params.items()}
    return safetensors.torch.save(tensors)


def hash_of(path: Path) -> str | None:
    """Return SHA-256 of a file's bytes, as hex; None where it is not there.

    Raises:
        OSError: it cannot be read.
    """
    return file_hash(path) if path.is_file() else None


def best_kept_round(folder: RunFolder, history: History, figure: str) -> BestRound:
    """Return the best of the rounds whose states are there.

    Raises:
        ConfigError: there is no such figure.
        RunError: it is not known of any of them.
    """
    from covey.runtime.evaluation import FIGURES, best_round

    if figure not in FIGURES:
        raise ConfigError(
            f"Rounds are compared by one of {', '.join(FIGURES)}, found {figure!r}. Take "
            f"one of these."
        )
    kept = set(rounds_in(folder.checkpoints))
    rows = (row for row in history.rounds if row.round_index in kept)
    best = best_round(rows, figure)
    if best is None:
        raise RunError(
            f"The best round by {figure} needs one whose state is in {folder.checkpoints} "
            f"and of which it is known, found none among {len(kept)}. Choose another "
            f"figure, or set checkpoints.best before the run."
        )
    return best


def latest_model(folder: RunFolder, cluster: int, after: int | None = None) -> tuple[int, Params]:
    """Return a cluster's newest model, and how many rounds it has seen.

    Args:
        folder: the run's.
        cluster: its number.
        after: the model as it was after this round, if its state was kept.

    Raises:
        RunError: there is no such cluster or state, or no checkpoint yet, or it is
            damaged.
    """
    from covey.runtime.states import checked_state, kept_state, whole_models

    with Ledger.read(folder.ledger) as ledger:
        state = (
            checked_state(folder, ledger) if after is None else kept_state(folder, ledger, after)
        )
        models = whole_models(folder, ledger, state.clusters if state else ())
    if state is None:
        raise RunError(f"{folder.path} has no checkpoint yet. Resume the run first.")
    if not 0 <= cluster < len(models):
        raise RunError(f"{folder.path} has clusters 0 to {len(models) - 1}, found {cluster}.")
    return state.round_index, models[cluster]


def export_model(
    folder: RunFolder,
    cluster: int,
    out: Path | None = None,
    recipient: str = "",
    after: int | None = None,
) -> Copy:
    """Write a cluster's model as safetensors; the record of it is there first.

    Args:
        folder: the run's.
        cluster: its number.
        out: the file; None: one in `exports/` of the run's folder.
        recipient: for whom; "": nobody in particular.
        after: the model as it was after this round; None: the newest.

    Raises:
        RunError: there is no such model, or it cannot be written.
        ConfigError: the recipient cannot be kept.
    """
    rounds, params = latest_model(folder, cluster, after)
    payload = model_bytes(params)
    of_round = "" if after is None else f"-round-{after}"
    path = out or folder.exports / f"cluster-{cluster}{of_round}.safetensors"
    told = {"recipient": recipient_of(recipient), "cluster": cluster, "round_index": rounds}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = record_copy(folder, "model", path, hashlib.sha256(payload).hexdigest(), told)
        try:
            replace_whole(path, payload)
        except OSError:
            erase_copy(folder, copy)
            raise
    except OSError as error:
        raise RunError(
            f"An export is a file that can be written, and a record of it in the run's folder, "
            f"but {path}: {error.strerror}. Give another --out, or the right to write there."
        ) from error
    return copy


BASELINE = "baseline"
RENDERED = ("report.html", "report.json", "metrics.csv", "figures", "audit", BASELINE)
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


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """A copy on record, and what an answer makes of it.

    Attributes:
        notify: whether its recipient is to be told that it holds a superseded model.
    """

    copy: Copy = field(metadata={"json": "inline"})
    fate: Fate
    notify: bool

    def as_proof_fact(self, known: Collection[ClientName]) -> SettledCopy:
        """Return it for a proof: no path, and no client's name."""
        recipient = masked(self.copy.recipient, known, "[a client of the run]")
        path = self.copy.path.encode("utf-8", "surrogatepass")
        return SettledCopy(
            what=self.copy.what,
            sha256=self.copy.sha256 or None,
            path_sha256=hashlib.sha256(path).hexdigest(),
            recipient=recipient or None,
            fate=self.fate,
            notify=self.notify,
        )


def outcome_lines(copies: Iterable[CopyOutcome]) -> Iterator[str]:
    """Yield lines for a person: what became of each copy, and what is still to be done."""
    for each in copies:
        copy = each.copy
        of = "" if copy.cluster is None else f" of cluster {copy.cluster}"
        yield f"{FATE_WORDS[each.fate]}: {copy.what}{of} in {copy.path}, written {copy.written}"
        if each.notify:
            yield f"  to notify (GDPR Art. 19): {copy.recipient}"


def erase_from_copies(folder: RunFolder, leaver: ClientName, known: Collection[ClientName]) -> None:
    """Take a client's name out of the record, before it is answered; any number of times.

    The record of the run inside this one, which every answer deletes, is moved here.
    """
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        path = f"{BASELINE}/{copy.path}" if copy.is_inside else copy.path
        outer = replace(copy, path=path, round_index=None)
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
        models: the cluster models after the answer, as they are exported.
    """
    option = request.being_served().option
    first = option.first_replayed_round
    if option.answer == "subtract" or (first is None and option.answer == "retrain"):
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
    # a model that is none of today's, and saw a round that was played again
    seen = copy.round_index is None or (first is not None and copy.round_index > first)
    superseded = first is not None and copy.sha256 not in current and seen
    obsolete = copy.what != "model" or superseded
    notify = copy.what == "model" and obsolete and bool(copy.recipient)
    if copy.deleted:
        return CopyOutcome(copy, "deleted", notify and first is not None)
    if not obsolete:
        return CopyOutcome(copy, "unchanged", notify=False)
    if REQUESTER not in copy.path:  # else who answers knows the name, and covey not any more
        try:
            found = hash_of(copy.location(folder))
        except OSError:
            found = copy.sha256  # there, and not for covey to read
        if found is None or copy.sha256 not in ("", found):
            return CopyOutcome(copy, "missing", notify)
    if copy.is_inside:
        return CopyOutcome(_deleted(folder, copy), "deleted", notify)
    return CopyOutcome(copy, "outside", notify)


def _deleted(folder: RunFolder, copy: Copy) -> Copy:
    """Delete a copy inside the run's folder, and then say so in the record."""
    path = copy.location(folder)
    beside = [each for pattern in copy.beside for each in path.parent.glob(pattern)]
    for each in (path, *beside):
        delete_whole(each)
    deleted = replace(copy, deleted=now())
    keep_copy(folder, deleted)
    return deleted


def unrecorded(folder: RunFolder) -> Iterator[Copy]:
    """Yield the models in the run's folder that lie where exports do, without a record."""
    known = {copy.location(folder) for copy in copies_of(folder) if not copy.deleted}
    for path in sorted(set(folder.exports.glob("*.safetensors")) - known):
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        yield Copy(
            id=f"00000000-{hashlib.sha256(path.name.encode()).hexdigest()[:16]}",
            what="model",
            path=path.relative_to(folder.path).as_posix(),
            sha256=hash_of(path) or "",
            written=written.isoformat(timespec="milliseconds"),
        )
