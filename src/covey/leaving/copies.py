"""What was written out of a run, how and for whom, and what becomes of it when somebody leaves.

Every copy is on record in the run's folder, one file each, beside the ledger's chain and not in
it: a record holds paths, times and names of recipients, and these can be erased. A file of its
own is written without the ledger's lock, while another process plays the run. A model is written as
safetensors of its state dict, with a header that says where it is from.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from covey.base.as_json import HIDDEN, INLINE
from covey.base.errors import RunError
from covey.base.files import (
    check_regular,
    checked,
    checked_json,
    delete_whole,
    file_hash,
    make_folder,
    path_inside,
    read_bounded,
    replace_whole,
)
from covey.base.names import ClientName, Handle, __version__
from covey.leaving.facts import AnswerInProgress, CopyFact, Fate
from covey.ledger.requests import LeaveRequest
from covey.runs.folder import RunFolder, as_written, now

if TYPE_CHECKING:
    from covey.base.names import Params  # which loads torch

HEADER = "covey"
"""The one key of the header: safetensors writes several in an order that changes."""

LETTER = r"[^\W_]"
_ID = re.compile(r"\d{8}-[0-9a-f]{8,16}")
"""The name of a record, which is a file's."""


BASELINE = "baseline"

RENDERED = ("report.html", "metrics.csv", "figures", "audit", BASELINE)
"""What shows a run as it was, and can be made again: it goes with every answer."""

_FATE_WORDS: Mapping[Fate, str] = {
    "deleted": "deleted",
    "unchanged": "stays, as the answer did not change it",
    "outside": "to be deleted by you",
    "missing": "to be found by you, as it is not there any more",
}

REQUESTER = "[requester]"
"""What replaces a leaving client's name in a record."""


def model_bytes(params: "Params", header: Mapping[str, str] | None = None) -> bytes:
    """Return a model as it is exported; equal arguments give equal bytes."""
    from safetensors.torch import save  # torch takes seconds to import

    tensors = {name: tensor.detach().cpu().clone() for name, tensor in params.items()}
    return save(tensors, dict(header) if header else None)


def hash_of_model(params: "Params") -> str:
    """Return SHA-256 of a model's safetensors bytes without a header."""
    return hashlib.sha256(model_bytes(params)).hexdigest()


def exported_hashes(models: "Iterable[Params]") -> frozenset[str]:
    """Return the hash of each model, whatever the headers of its files say."""
    return frozenset(map(hash_of_model, models))


def hash_inside(path: Path) -> str:
    """Return the hash of the model in a file; "": the file holds none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        check_regular(path)
        return hash_of_model(load_file(path))
    except (SafetensorError, OSError, ValueError):
        return ""


def header_of(run: str, rounds: int, cluster: int, model_hash: str) -> dict[str, str]:
    """Return what a file says of its model: no name, no path and no client.

    Args:
        run: the hash of the first event in its ledger.
        rounds: how many the model has seen.
        cluster: its number.
        model_hash: of the same model without a header.
    """
    facts = {
        "covey_version": __version__,
        "run": run,
        "rounds": rounds,
        "cluster": cluster,
        "model_hash": model_hash,
    }
    return {HEADER: json.dumps(facts)}


@dataclass(frozen=True, slots=True)
class Mention:
    """One client's name, as it is looked for.

    Attributes:
        longer: other clients' names that hold this one: where they stand, it does not.
    """

    name: ClientName
    longer: tuple[ClientName, ...]

    @classmethod
    def of(cls, name: ClientName, known: Collection[ClientName]) -> "Mention":
        """Return how to look for a name among those that are known."""
        longer = {other for other in known if name in other and other != name}
        return cls(name, tuple(sorted(longer, key=len, reverse=True)))

    def in_text(self, text: str) -> bool:
        """Say whether the name stands in a text by itself."""
        return any(word == self.name for word in self._pattern().findall(text))

    def masked(self, text: str, instead: str) -> str:
        """Return the text with something else in the name's place."""
        return self._pattern().sub(lambda m: instead if m[0] == self.name else m[0], text)

    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, (*self.longer, self.name)))
        return re.compile(rf"(?<!{LETTER})(?:{names})(?!{LETTER})")


def masked(text: str, names: Collection[ClientName], instead: str) -> str:
    """Return the text with something else in the place of any of these names."""
    for name in sorted((n for n in names if n in text), key=len, reverse=True):
        text = Mention(name, ()).masked(text, instead)
    return text


CopyKind = Literal["model", "report", "comparison", "explanation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One file that was written.

    Attributes:
        id: names the record; as text it is larger than those of all earlier records.
        path: inside the run's folder a relative path, elsewhere an absolute one.
        sha256: of the file as it was written; "": writing it did not end.
        written: when, ISO 8601.
        recipient: for whom, as the command names it; "": no one is named.
        cluster: whose model it is.
        round_index: how many rounds the model had seen; None: not known.
        model_hash: of the model without the file's header; "": the file has none, or is no model.
        subject: the one client that it is about; "": the whole run.
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
    model_hash: str = field(default="", metadata=HIDDEN)
    subject: Handle = field(default="", metadata=HIDDEN)
    deleted: str = ""

    @property
    def is_inside(self) -> bool:
        """Whether it was written into the run's folder."""
        return not Path(self.path).is_absolute()

    def location(self, folder: RunFolder) -> Path:
        """Return where it was written.

        Raises:
            ValueError: inside the run's folder, as it says, this path is not.
        """
        return path_inside(folder.path, self.path) if self.is_inside else Path(self.path)

    def holds(self, handle: Handle, first: int | None) -> bool:
        """Say whether something of a client is in it whose data were first used in a round."""
        seen = self.round_index is None or (first is not None and self.round_index > first)
        return self.subject in ("", handle) and (self.what != "model" or seen)


_reader = TypeAdapter(Copy).validate_json


def copies_of(folder: RunFolder) -> tuple[Copy, ...]:
    """Return the copies on record, in the order in which they were written.

    Raises:
        RunError: a record cannot be read.
    """
    remedy = "restore it, or delete it and look yourself for the copy that it spoke of."
    copies: list[Copy] = []
    for path in sorted(folder.copies.glob("*.json")):
        with as_written(path, "the record of a copy", remedy):
            copy = _reader(checked(read_bounded(path)))
            if copy.id != path.stem or not _ID.fullmatch(copy.id):
                raise ValueError("its name is not that of the record")
            copy.location(folder)
            copies.append(copy)
    return tuple(copies)


def record_copy(
    folder: RunFolder,
    kind: CopyKind,
    path: Path,
    sha256: str = "",
    **more: Any,  # noqa: ANN401 - as the attributes of a copy are
) -> Copy:
    """Record that something is written to a path; to be called before it is.

    What was written there before is no longer there. Its record goes, unless it names
    another recipient, or other bytes: that recipient still has what it got.

    Args:
        folder: of the run that the copy shows.
        kind: kind of copy.
        path: the file.
        sha256: of its bytes.
        more: further attributes of the copy.

    Raises:
        RunError: the record cannot be read or written.
    """
    before = copies_of(folder)
    # behind all others, whatever a clock says; two processes at once differ by chance
    number = int(before[-1].id.partition("-")[0]) + 1 if before else 1
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
    for old in (earlier for earlier in before if earlier.path == copy.path):
        again = (old.recipient, old.sha256) == (copy.recipient, copy.sha256)
        if again or not old.recipient:
            erase_copy(folder, old)
        elif not old.deleted:
            keep_copy(folder, replace(old, deleted=copy.written))
    return copy


@contextmanager
def on_record(
    runs: Iterable[Path], kind: CopyKind, page: Path, subject: Handle = ""
) -> Generator[None]:
    """Put on record, with every run that it shows, a page that the block writes."""
    folders = [RunFolder(path) for path in runs]
    for folder in folders:
        record_copy(folder, kind, page, subject=subject)
    yield
    for folder in folders:  # in the place of the first record
        record_copy(folder, kind, page, file_hash(page), subject=subject)


def keep_copy(folder: RunFolder, copy: Copy) -> None:
    """Write a record, in the place of what it said before."""
    try:
        make_folder(folder.copies)
        path = folder.copies / f"{copy.id}.json"
        replace_whole(path, checked_json(asdict(copy)), mode=0o600)
    except OSError as error:
        raise RunError(
            f"{folder.copies} must take records, found {error.strerror}: get the right."
        ) from error


def erase_copy(folder: RunFolder, copy: Copy) -> None:
    """Delete a record, and not what it speaks of."""
    delete_whole(folder.copies / f"{copy.id}.json")


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """A copy on record, and what an answer makes of it.

    Attributes:
        notify: whether its recipient is to be notified that it holds a superseded model.
    """

    copy: Copy = field(metadata=INLINE)
    fate: Fate
    notify: bool

    def as_proof_fact(self, known: Collection[ClientName]) -> CopyFact:
        """Return it for a proof: no path, and no client's name."""
        path = self.copy.path.encode("utf-8", "surrogatepass")
        return CopyFact(
            what=self.copy.what,
            sha256=self.copy.sha256 or None,
            path_sha256=hashlib.sha256(path).hexdigest(),
            recipient=masked(self.copy.recipient, known, "[a client of the run]") or None,
            fate=self.fate,
            notify=self.notify,
        )


def outcome_lines(copies: Iterable[CopyOutcome]) -> Iterator[str]:
    """Yield lines for a person: what became of each copy, and what is still to be done."""
    for record in copies:
        copy = record.copy
        of = "" if copy.cluster is None else f" of cluster {copy.cluster}"
        yield f"{_FATE_WORDS[record.fate]}: {copy.what}{of} in {copy.path}, written {copy.written}"
        if record.notify:
            yield f"  to notify (GDPR Art. 19): {copy.recipient}"


def erase_from_copies(folder: RunFolder, leaver: ClientName, known: Collection[ClientName]) -> None:
    """Take a client's name out of the record, before it is answered; any number of times.

    The record of the run inside this one, which every answer deletes, is moved here.
    """
    inner = RunFolder(folder.path / BASELINE)
    for copy in copies_of(inner):
        path = f"{BASELINE}/{copy.path}" if copy.is_inside else copy.path
        keep_copy(folder, replace(copy, path=path, round_index=None))
        erase_copy(inner, copy)
    mention = Mention.of(leaver, known)
    for copy in copies_of(folder):
        goes = mention.in_text(copy.path) or Path(copy.path).parts[0] == BASELINE
        if goes and copy.is_inside and not copy.deleted:
            copy = _deleted(folder, copy)
        path, recipient = (mention.masked(t, REQUESTER) for t in (copy.path, copy.recipient))
        if (path, recipient) != (copy.path, copy.recipient):
            keep_copy(folder, replace(copy, path=path, recipient=recipient))


def delete_obsolete_copies(
    folder: RunFolder, request: LeaveRequest, current: Collection[str]
) -> tuple[CopyOutcome, ...]:
    """Delete obsolete copies inside the run's folder, and report every copy.

    May be done again after a crash: what was deleted since the request stays reported.

    Args:
        folder: the run's.
        request: the one that is being served.
        current: hashes of the cluster models after the answer.
    """
    option = AnswerInProgress.of(request).option
    first = option.first_replayed_round
    if option.answer == "subtract" or (first is None and option.answer == "retrain"):
        first = 0  # what is not today's model may be of rounds that held the client
    outcomes = [
        _outcome(folder, copy, request.handle, first, current)
        for copy in (*copies_of(folder), *unrecorded(folder))
        if copy.subject in ("", request.handle)
    ]
    start = request.requested_at
    return tuple(o for o in outcomes if not o.copy.deleted or o.copy.deleted >= start or o.notify)


def _outcome(
    folder: RunFolder, copy: Copy, handle: Handle, first: int | None, current: Collection[str]
) -> CopyOutcome:
    model = copy.what == "model"
    stays = model and (first is None or (copy.model_hash or copy.sha256) in current)
    obsolete = copy.holds(handle, first) and not stays
    notify = model and obsolete and bool(copy.recipient)
    if copy.deleted:
        return CopyOutcome(copy, "deleted", notify)
    if not obsolete:
        return CopyOutcome(copy, "unchanged", notify)
    if REQUESTER in copy.path:  # the operator who answers has the name, and covey has it no more
        return CopyOutcome(copy, "missing" if copy.is_inside else "outside", notify)
    path = copy.location(folder)
    try:
        sha256 = file_hash(path) if path.is_file() else None
    except OSError:
        sha256 = copy.sha256  # there, and not for covey to read
    if sha256 is None or copy.sha256 not in ("", sha256):
        return CopyOutcome(copy, "missing", notify)
    if copy.is_inside:
        return CopyOutcome(_deleted(folder, copy), "deleted", notify)
    return CopyOutcome(copy, "outside", notify)


def _deleted(folder: RunFolder, copy: Copy) -> Copy:
    """Delete a copy inside the run's folder, if it is what covey wrote; then say so."""
    path = copy.location(folder)
    if path.is_file():
        if copy.sha256 not in ("", file_hash(path)):
            return copy
        delete_whole(path)
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
            sha256=file_hash(path),
            model_hash=hash_inside(path),
            written=written.isoformat(timespec="milliseconds"),
        )
