"""The blocks of a page, played from the first to the last as a reader plays them.

`python` runs in one session, `sh` in one shell, in an empty folder. A block of either, of
`toml` or of `csv` that begins with a comment naming a file is that file. `text` is what
the block before it prints. A block of `python` that begins with `# needs PACKAGE ...` is left
out, with its `text`, where a package is missing.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any

import covey
from marked_processes import MARK, end_marked

__all__ = ["Block", "Player", "alike", "blocks"]

DRAWN = "<!-- other figures every time -->"
"""Above a block of `text` whose numbers are drawn from the operating system."""
FENCE = re.compile(rf"^({DRAWN}\n\n?)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/.-]+\.(?:py|toml|csv|sh))\n")
NEEDS = re.compile(r"# needs ([\w ]+)\n")
PASSING = (
    r"\b[0-9a-f]{4}(?:-[0-9a-f]{4}){7}\b"  # a key's fingerprint
    r"|\b[0-9a-f]{8,}\b"  # a hash
    r"|\b\d{4}-\d\d-\d\d\b"  # a day
    r"|\b\d[\d,]*(?:\.\d+)?(?= (?:s|ms|seconds?|minutes?)\b)"
)
"""What is another one every time, even of a run that is seeded."""
NUMBER = (
    rf"(?:{PASSING})"
    r"|(?:(?<!\w)[-+])?(?<!\d)(?<![a-zA-Z]-)"  # client-00003 is a name
    r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
)
KERNELS = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""Settings under which every x86-64 processor since 2013 adds floats in one order."""
PATIENCE = 300.0
"""Seconds that a block of `sh` may take."""
NEAR = 0.15
"""How far a drawn figure between 0 and 1 may be from the page's."""


@dataclass(frozen=True)
class Block:
    """One block of a page, in which of its lines it begins, and whether it repeats."""

    language: str
    text: str
    line: int
    seeded: bool = True

    @property
    def file(self) -> str:
        """The file that it is, or nothing."""
        named = FILE.match(self.text)
        return named[1] if named else ""

    @property
    def missing(self) -> list[str]:
        """The packages that it needs and that are not here."""
        needed = NEEDS.match(self.text)
        return [name for name in needed[1].split() if not find_spec(name)] if needed else []


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    text = page.read_text("utf-8")
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start(3)) + 1
        yield Block(fence[2], fence[3], line, seeded=not fence[1])


class Player:
    """Plays blocks in a folder; whatever they start has ended when it is left."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.mark = secrets.token_hex(8)
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": programs,
            "PYTHONPATH": str(Path(covey.__file__).parents[1]),  # this very covey
            MARK: self.mark,
        }
        self.shell = subprocess.Popen(
            ["bash", "-e"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
        )

    def __enter__(self) -> "Player":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end_marked(self.mark, lambda: [self.shell.poll()])
        self.shell.communicate()

    def play(self, block: Block) -> str:
        """Play one block, and return what it prints."""
        if block.file:
            (self.folder / block.file).write_text(block.text, "utf-8")
            return ""
        return {"python": self._python, "sh": self._shell}[block.language](block)

    def _python(self, block: Block) -> str:
        code = compile("\n" * (block.line - 1) + block.text, str(self.page), "exec")
        with redirect_stdout(StringIO()) as printed:
            exec(code, self.names)  # noqa: S102 - our own page
        return printed.getvalue()

    def _shell(self, block: Block) -> str:
        assert self.shell.stdin
        assert self.shell.stdout
        end = f"end of {self.mark}"
        self.shell.stdin.write(f"{block.text}echo '{end}'\n")
        self.shell.stdin.flush()
        said = ""
        watch = Timer(PATIENCE, self.shell.kill)  # a node may never come online
        watch.start()
        try:
            for line in self.shell.stdout:
                if line.strip() == end:
                    return said
                said += line
        finally:
            watch.cancel()
        raise AssertionError(f"{self.page.name}, line {block.line}, failed:\n{said}")


def alike(shown: str, printed: str, *, seeded: bool = True) -> bool:
    """Say whether a page shows what is printed.

    Words, names and numbers are the same, to the last digit that the page shows; `...`
    stands for any. Hashes, days and times are of the same kind. Where a block is not
    `seeded`, numbers are numbers, and figures between 0 and 1 are near.
    """
    words, pattern, drawn = " ".join(shown.split()), "", []
    end = 0
    for gap in re.finditer(rf"\s*\.\.\.\s*|{NUMBER}", words):
        part = gap[0].strip()
        pattern += re.escape(words[end : gap.start()])
        end = gap.end()
        if part == "...":
            pattern += ".*?"
        elif re.match(PASSING, words[gap.start() :]):
            pattern += f"(?:{PASSING})"
        elif seeded:
            pattern += re.escape(part)
        else:
            pattern += f"({NUMBER})"
            drawn.append(part)
    pattern += re.escape(words[end:])
    held = re.fullmatch(pattern, " ".join(printed.split()))
    return held is not None and all(map(_near, drawn, held.groups()))


def _near(shown: str, printed: str) -> bool:
    if "." not in shown or "." not in printed:
        return True
    here, on_page = (float(number.replace(",", "")) for number in (shown, printed))
    return not 0 <= here <= 1 or abs(here - on_page) <= NEAR
