"""Show what the blocks of a tutorial print now, where its page shows something else.

`PYTHONPATH=src:tests python -m tutorials docs/tutorials/PAGE.md` writes the page anew.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tutorials.pages import Player, alike, blocks


def renewed(page: Path, folder: Path) -> Iterator[str]:
    """Yield the page with what its blocks print now, block by block."""
    lines, printed = page.read_text("utf-8").splitlines(keepends=True), ""
    moved = 0
    with Player(page, folder) as player:
        for block in blocks(page):
            if block.language != "text":
                began, used = time.monotonic(), sum(os.times()[:4])
                printed = player.play(block)
                took = f"{time.monotonic() - began:.1f} s"
                used = f"processor {sum(os.times()[:4]) - used:.1f} s"
                sys.stderr.write(f"line {block.line}: {took}, {used}\n")
            elif not alike(block.text, printed):
                start, held = block.line - 1 + moved, block.text.count("\n")
                new = printed.splitlines(keepends=True)
                lines[start : start + held] = new
                moved += len(new) - held
                yield "".join(lines)


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/keys"
        (Path(folder) / "work").mkdir()
        os.chdir(f"{folder}/work")
        sys.path.insert(0, ".")
        for text in renewed(page, Path.cwd()):
            page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
