"""Show what the blocks of a page print now, where the page shows something else.

`PYTHONPATH=src:tests python -m tutorials docs/PAGE.md` writes the page anew;
with `--check` it says what differs, and exits with 1.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tutorials.pages import KERNELS, Block, Player, alike, blocks


def differences(page: Path, folder: Path) -> Iterator[tuple[Block, str]]:
    """Yield the blocks of a page that show something else than is printed now."""
    printed: str | None = ""
    with Player(page, folder) as player:
        for block in blocks(page):
            if block.missing:
                printed = None
                sys.stderr.write(f"line {block.line}: left out without {block.missing}\n")
            elif block.language != "text":
                began, used = time.monotonic(), sum(os.times()[:4])
                printed = player.play(block)
                took = f"{time.monotonic() - began:.1f} s"
                used = f"processor {sum(os.times()[:4]) - used:.1f} s"
                sys.stderr.write(f"line {block.line}: {took}, {used}\n")
            elif printed is not None and not alike(block.text, printed, seeded=block.seeded):
                yield block, printed


def renewed(page: Path, folder: Path) -> Iterator[str]:
    """Yield the page with what its blocks print now, block by block."""
    lines, moved = page.read_text("utf-8").splitlines(keepends=True), 0
    for block, printed in differences(page, folder):
        start, held = block.line - 1 + moved, block.text.count("\n")
        new = printed.splitlines(keepends=True)
        lines[start : start + held] = new
        moved += len(new) - held
        yield "".join(lines)


def main() -> None:
    page, check = Path(sys.argv[1]).resolve(), "--check" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= KERNELS | {"XDG_CONFIG_HOME": f"{folder}/keys"}
        os.environ.pop("COVEY_DATA", None)  # the digits are enough
        (Path(folder) / "work").mkdir()
        os.chdir(f"{folder}/work")
        sys.path.insert(0, ".")
        if check:
            for block, printed in differences(page, Path.cwd()):
                sys.exit(f"{page.name}, line {block.line}, prints now:\n{printed}")
            return
        for text in renewed(page, Path.cwd()):
            page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
