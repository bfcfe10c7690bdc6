"""Show what the blocks of a tutorial print now, where its page shows something else.

`PYTHONPATH=src:tests python -m tutorials docs/tutorials/PAGE.md` writes the page anew.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from tutorials.pages import Player, alike, blocks


def renewed(page: Path, folder: Path) -> str:
    """Return the page with what its blocks print now, and tell how long each takes."""
    lines, printed = page.read_text("utf-8").splitlines(keepends=True), ""
    moved = 0
    with Player(page, folder) as player:
        for block in blocks(page):
            if block.language != "text":
                began = time.monotonic(), sum(os.times()[:4])
                printed = player.play(block)
                took = time.monotonic() - began[0], sum(os.times()[:4]) - began[1]
                said = f"line {block.line}: {took[0]:.1f} s, processor {took[1]:.1f} s"
                sys.stderr.write(f"{said}\n")
            elif not alike(block.text, printed):
                start, held = block.line - 1 + moved, block.text.count("\n")
                new = printed.splitlines(keepends=True)
                lines[start : start + held] = new
                moved += len(new) - held
            else:
                continue
    return "".join(lines)


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/keys"
        (Path(folder) / "work").mkdir()
        os.chdir(f"{folder}/work")
        sys.path.insert(0, ".")
        page.write_text(renewed(page, Path.cwd()), "utf-8")


if __name__ == "__main__":
    main()
