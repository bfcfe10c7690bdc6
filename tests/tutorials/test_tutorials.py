"""Every block of every tutorial runs, and prints what its page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import covey
from tutorials.pages import Block, Player, alike, blocks

SOURCES = (str(Path(covey.__file__).parents[1]), str(Path(__file__).parents[1]))
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorials"
QUICK = frozenset({"your-model-and-data"})


def marked(page: Path) -> object:
    marks = () if page.stem in QUICK else (pytest.mark.slow,)
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", [*map(marked, [ROOT / "README.md", *sorted(PAGES.glob("*.md"))])])
def test_a_tutorial_plays_to_its_end_and_prints_what_it_shows(page):
    played = subprocess.run(
        [sys.executable, "-m", "tutorials", page, "--check"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)},
        capture_output=True,
        text=True,
    )
    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda p: p.stem)
def test_every_block_of_a_tutorial_is_of_a_kind_that_is_played(page):
    found = list(blocks(page))
    assert {each.language for each in found} <= {"python", "toml", "sh", "text"}
    assert [b.line for b in found if b.language == "toml" and not b.file] == []
    assert re.findall(r"^    \S.*", outside(page.read_text("utf-8")), re.M) == []


def outside(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


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


def test_a_shell_keeps_its_folder_and_tells_what_failed(tmp_path):
    page = tmp_path / "page.md"
    with Player(page, tmp_path) as player:
        player.play(Block("sh", "mkdir inner\ncd inner\n", 1))
        assert player.play(Block("sh", "basename $PWD\n", 4)) == "inner\n"
        with pytest.raises(AssertionError, match="line 7, failed"):
            player.play(Block("sh", "false\n", 7))
