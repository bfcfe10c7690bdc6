"""The notebooks are short and clean, and show what their cells print."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tutorials.pages import KERNELS, alike

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
DRAWN = "drawn"
"""The tag of a cell whose figures are others every time."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def codes(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell: Any) -> str:
    """Return what a cell prints and ends with, without the display that follows a run."""
    shown = (o for o in cell.outputs if o.output_type in ("stream", "execute_result"))
    texts = [o["text"] if "text" in o else o["data"]["text/plain"] for o in shown]
    return "\n".join(texts)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_holds_nothing_of_the_machine_that_played_it(path: Path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= 12
    assert all(cell.outputs for cell in codes(notebook))
    text = path.read_text("utf-8")
    assert path.stat().st_size < 30_000
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert not re.search(r"/(?:tmp|home|root|work|Users)/|\d{4}-\d\d-\d\dT|image/png", text)
    assert not any(cell.metadata.get("execution") for cell in notebook.cells)


def test_every_notebook_is_listed_in_the_index_of_the_docs():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert len(NOTEBOOKS) == 3
    assert [path.name for path in NOTEBOOKS if f"examples/{path.name}" not in index] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_plays_to_its_end_and_prints_what_it_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {**KERNELS, "XDG_CONFIG_HOME": str(tmp_path / "keys")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("COVEY_DATA", raising=False)  # the digits are enough
    shown, played = read(path), read(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(played, timeout=200, resources=resources).execute()
    for before, after in zip(codes(shown), codes(played), strict=True):
        seeded = DRAWN not in before.metadata.get("tags", ())
        assert alike(printed(before), printed(after), seeded=seeded), printed(after)
