"""Every block of every page runs, and prints what its page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import covey
from tutorials.__main__ import differences
from tutorials.pages import Block, Player, alike, blocks

ROOT = Path(__file__).parents[2]
SOURCES = (str(Path(covey.__file__).parents[1]), str(ROOT / "tests"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLAYED = [page for page in PAGES if any(block.language != "text" for block in blocks(page))]
KINDS = {"python", "toml", "csv", "sh", "text"}
COLUMNS = 88
QUICK = "your-model-and-data"
"""The page that the default suite plays."""


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def marked(page: Path) -> object:
    marks = () if page.stem == QUICK else (pytest.mark.slow, pytest.mark.pages)
    return pytest.param(page, marks=marks, id=page_id(page))


@pytest.mark.parametrize("page", [marked(page) for page in PLAYED])
def test_a_page_plays_to_its_end_and_prints_what_it_shows(page):
    played = subprocess.run(
        [sys.executable, "-m", "tutorials", page, "--check"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)},
        capture_output=True,
        text=True,
    )
    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_of_a_page_is_of_a_kind_that_is_played(page):
    fences = re.findall(r"^```(.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert fences[1::2] == [""] * (len(fences) // 2)
    assert {fence for fence in fences[::2] if fence[:1] != "{"} <= KINDS
    code = [block for block in blocks(page) if block.language != "text"]
    assert [b.line for b in code if b.language in ("toml", "csv") and not b.file] == []
    assert [b.line for b in code if max(map(len, b.text.splitlines())) > COLUMNS] == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("risk 0.61, True\n", "risk 0.61,  True", True),
        ("risk 0.61, True", "risk 0.61, False", False),
        ("risk 0.61", "risk 0.62", False),
        ("13 of client-00003", "13 of client-00003", True),
        ("12 of client-00003", "13 of client-00003", False),
        ("12 of client-00003", "12 of client-00005", False),
        ("delta 1e-05, x-1", "delta 1e-06, x-1", False),
        ("due 2026-12-23", "due 2027-01-02", True),
        ("proofs/1f45fb17a9b134ca.json", "proofs/a900000000000b1c.json", True),
        (f"key {'b995-' * 7}79dc", f"key {'c1b1-' * 7}1003", True),
        ("in 1.2 s ... ok", "in 71.2 s, and so on: ok", True),
        ("in 1.2 s", "at once", False),
        ("", "something", False),
    ],
)
def test_what_a_page_shows_is_held_to_what_is_printed(shown, printed, same):
    assert alike(shown, printed) is same


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("risk 0.61, True", "risk 0.63,  True", True),
        ("risk 0.61, True", "risk 0.63, False", False),
        ("risk 0.61", "risk 0.91", False),
        ("12 of client-00003", "13 of client-00003", True),
        ("12 of client-00003", "12 of client-00005", False),
        ("in 1.2 s ... 0.5", "in 71.2 s, and so on: 0.55", True),
    ],
)
def test_figures_that_are_drawn_every_time_need_only_be_near(shown, printed, same):
    assert alike(shown, printed, seeded=False) is same


def test_a_block_is_left_out_only_where_a_package_is_missing(tmp_path):
    page = tmp_path / "page.md"
    lines = "```python\n# needs sys no_such_package\nassert False\n```\n\n```text\nnever\n```\n"
    page.write_text(lines + "\n```python\n# needs sys\nprint(1)\n```\n\n```text\n2\n```\n")
    ((block, printed),) = differences(page, tmp_path)
    assert (block.text, printed) == ("2\n", "1\n")


def test_a_shell_keeps_its_folder_and_says_what_failed(tmp_path):
    page = tmp_path / "page.md"
    with Player(page, tmp_path) as player:
        player.play(Block("sh", "mkdir inner\ncd inner\n", 1))
        assert player.play(Block("sh", "basename $PWD\n", 4)) == "inner\n"
        with pytest.raises(AssertionError, match="line 7, failed"):
            player.play(Block("sh", "false\n", 7))
