"""A reader, and the honest file that it is given mangled."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from slow.mutations import Honest, of_bytes

Mangled = st.SearchStrategy[bytes]


@dataclass(frozen=True)
class Reader:
    """What reads a file at `path`, whose honest content is `honest`."""

    path: Path
    honest: bytes
    read: Callable[[], object]
    known: Callable[[bytes], Mangled] | None = None

    def mangled(self) -> Mangled:
        mangled = of_bytes(Honest(self.honest))
        return mangled | self.known(self.honest) if self.known else mangled

    def survives(self, content: bytes) -> object:
        self.path.write_bytes(content)
        return self.read()


def written(path: Path, content: bytes) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content


def reader_of(
    path: Path, read: Callable[[], object], known: Callable[[bytes], Mangled] | None = None
) -> Reader:
    return Reader(path, path.read_bytes(), read, known)
