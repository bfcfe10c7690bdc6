"""A disk that records its changes, and what a power cut may leave of them.

A change to a folder lasts for sure once that folder is synced after it, a file's content
once the file is. Of the others any subset may have reached the disk, in whatever order;
a file whose content did not is empty, or half of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np

from covey.base.files import Disk

NOTHING = b""


@dataclass(frozen=True)
class Change:
    """One change, by paths within the recorded folder.

    Attributes:
        kind: "name" (a file gets or loses one), "folder", "content", "sync",
            "sync folder" or "ledger".
        file: which file it is about, whatever its name.
    """

    kind: str
    path: Path
    source: Path | None = None
    file: int | None = None
    content: bytes = NOTHING


class Recorder(Disk):
    """Changes the disk, and remembers how; the ledger's transactions last at once."""

    def __init__(self, root: Path, ledger: Path) -> None:
        self.root, self.ledger = root, ledger
        self.changes: list[Change] = []
        self._files: dict[Path, int] = {}
        self._last = NOTHING

    def write(self, path: Path, content: bytes, mode: int) -> None:
        self.note_ledger()
        super().write(path, content, mode)
        number = len(self.changes)
        self._files[path] = number
        self._note("name", path, file=number)
        self._note("content", path, file=number, content=content)

    def sync(self, path: Path) -> None:
        super().sync(path)
        self._note("sync", path, file=self._files[path])

    def rename(self, source: Path, target: Path) -> None:
        self.note_ledger()
        super().rename(source, target)
        self._files[target] = self._files.pop(source)
        self._note("name", target, source=source, file=self._files[target])

    def delete(self, path: Path) -> None:
        self.note_ledger()
        super().delete(path)
        self._files.pop(path, None)
        self._note("name", path)

    def make_folder(self, path: Path, mode: int) -> None:
        self.note_ledger()
        super().make_folder(path, mode)
        self._note("folder", path)

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._note("sync folder", path)

    def note_ledger(self) -> None:
        """Remember what the ledger holds by now."""
        now = self.ledger.read_bytes() if self.ledger.is_file() else NOTHING
        if now != self._last:
            self._last = now
            self._note("ledger", self.ledger, content=now)

    def _note(
        self,
        kind: str,
        path: Path,
        source: Path | None = None,
        file: int | None = None,
        content: bytes = NOTHING,
    ) -> None:
        if path.is_relative_to(self.root):
            inner = path.relative_to(self.root)
            moved_from = source.relative_to(self.root) if source else None
            self.changes.append(Change(kind, inner, moved_from, file, content))


@dataclass(frozen=True)
class Cut:
    """What is on the disk after a power cut: every file's content, and every folder."""

    files: Mapping[Path, bytes]
    folders: frozenset[Path]

    def put(self, root: Path) -> None:
        """Lay it out in an empty folder."""
        root.mkdir(parents=True, exist_ok=True)
        for folder in sorted(self.folders):
            (root / folder).mkdir(mode=0o700, exist_ok=True)
        for path, content in self.files.items():
            (root / path).write_bytes(content)


def cuts(changes: Sequence[Change]) -> Iterator[Cut]:
    """Yield every state that a power cut after any of the changes may leave."""
    for end in range(len(changes) + 1):
        yield from _cuts_after(changes[:end])


def sampled(changes: Sequence[Change], number: int, seed: int) -> list[Cut]:
    """Return a few of them, drawn at random."""
    every = list(cuts(changes))
    chosen = np.random.default_rng(seed).permutation(len(every))[:number]
    return [every[int(i)] for i in chosen]


def _cuts_after(done: Sequence[Change]) -> Iterator[Cut]:
    if done and done[-1].kind.startswith("sync"):
        return  # a sync leaves less than what was before it
    named = [i for i, c in enumerate(done) if c.kind in ("name", "folder")]
    loose = [i for i in named if not _lasts(done, i)]
    torn = [c for i, c in enumerate(done) if c.kind == "content" and not _synced(done, i)]
    subsets = (frozenset(lost) for n in range(len(loose) + 1) for lost in combinations(loose, n))
    for lost in subsets:
        for combination in product(*[_contents(c.content) for c in torn]):
            contents = {c.file: c.content for c in done if c.kind == "content"}
            contents |= {c.file: half for c, half in zip(torn, combination, strict=True)}
            yield _applied([c for i, c in enumerate(done) if i not in lost], contents)


def _contents(content: bytes) -> tuple[bytes, ...]:
    return (content, NOTHING, content[: len(content) // 2])


def _lasts(done: Sequence[Change], i: int) -> bool:
    folders = {done[i].path.parent}
    if (source := done[i].source) is not None:
        folders.add(source.parent)
    return any(c.kind == "sync folder" and c.path in folders for c in done[i + 1 :])


def _synced(done: Sequence[Change], i: int) -> bool:
    return any(c.kind == "sync" and c.file == done[i].file for c in done[i + 1 :])


def _applied(done: Sequence[Change], contents: Mapping[int | None, bytes]) -> Cut:
    names: dict[Path, bytes] = {}
    folders = {Path()}
    for change in done:
        match change.kind:
            case "folder":
                folders.add(change.path)
            case "ledger":
                names[change.path] = change.content
            case "name" if change.file is None:
                names.pop(change.path, None)
                folders.discard(change.path)
            case "name":
                names.pop(change.source or change.path, None)
                names[change.path] = contents.get(change.file, NOTHING)
            case _:
                pass
    whole = frozenset(f for f in folders if all(p in folders for p in f.parents))
    return Cut({p: c for p, c in names.items() if p.parent in whole}, whole)
