"""The notebook example runs in a kernel, and its page shows what it should."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
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
    return [dict(each["data"]) for c in cells for each in c.outputs if "data" in each]


def test_one_line_follows_each_run_and_nothing_else_is_printed(played):
    streams = [
        each
        for cell in played.cells
        for each in cell.get("outputs", ())
        if each["output_type"] != "display_data" and each["output_type"] != "execute_result"
    ]
    assert streams == []
    lines = [each["text/plain"] for each in outputs(played) if len(each) == 1]
    live = [each for each in lines if "finished" in each]
    assert len(live) == 3  # the run, and two of the sweep
    assert live[0].startswith("notebook: finished, round ")


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}")
def test_its_page_shows_tables_and_pictures(played, tmp_path):
    page_file = tmp_path / "notebook.html"
    exporter = HTMLExporter(mathjax_url="", require_js_url="")
    page_file.write_text(exporter.from_notebook_node(played)[0], "utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.goto(page_file.as_uri())
        widths = page.eval_on_selector_all("img", "all => all.map(i => i.naturalWidth)")
        tables = page.locator("table").count()
        text = page.inner_text("body")
        browser.close()
    assert len(widths) == 2
    assert min(widths) >= 570
    assert tables == 4  # the run's clusters, rounds, clients, the sweep
    assert "Traceback" not in text
    assert "<Figure" not in text
