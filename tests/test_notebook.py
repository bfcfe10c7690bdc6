"""The notebook example runs in a kernel, and its page shows what it should."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLE = Path(__file__).parent.parent / "examples" / "notebook.py"

pytestmark = pytest.mark.slow


def notebook_of(text: str) -> Any:
    """Return the cells of a file that has them as `# %%`."""
    cells = []
    for head, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", text, re.MULTILINE):
        source = body.strip()
        if "[markdown]" in head:
            prose = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
            cells.append(nbformat.v4.new_markdown_cell(prose))
        else:
            cells.append(nbformat.v4.new_code_cell(source))
    return nbformat.v4.new_notebook(cells=cells)


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Any:
    """The notebook with its outputs."""
    place = tmp_path_factory.mktemp("notebook")
    notebook = notebook_of(EXAMPLE.read_text("utf-8"))
    resources = {"metadata": {"path": str(place)}}
    NotebookClient(notebook, timeout=100, resources=resources).execute()
    return notebook


def outputs(notebook: Any) -> list[dict[str, Any]]:
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [dict(output["data"]) for c in cells for output in c.outputs if "data" in output]


def test_one_line_follows_each_run_and_nothing_else_is_printed(played):
    streams = [
        output
        for cell in played.cells
        for output in cell.get("outputs", ())
        if output["output_type"] != "display_data" and output["output_type"] != "execute_result"
    ]
    assert streams == []
    lines = [output["text/plain"] for output in outputs(played) if len(output) == 1]
    live = [line for line in lines if "finished" in line]
    assert len(live) == 3  # the run, and two of the sweep
    assert live[0].startswith("notebook: finished, round ")
