"""Several versions of the site lie side by side, and every page leads to their list."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey_site.check import problems
from covey_site.versions import PAGE, versions_in, versions_page

ROOT = Path(__file__).parents[1]


def made(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-n", "docs", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_version_is_built_beside_the_others_and_without_one_the_site_is_as_before():
    plain, versioned = made().stdout, made("VERSION=0.3").stdout
    assert "rm -rf build/site\n" in plain
    assert "versions" not in plain
    assert "rm -rf build/site/0.3\n" in versioned
    assert "build/site-source build/site/0.3\n" in versioned
    assert "covey_site versions build/site\n" in versioned


@pytest.mark.parametrize("version", ["..", "0.3/..", "main", "0.3 /"])
def test_a_version_that_is_no_number_deletes_nothing(version: str):
    refused = made(f"VERSION={version}")
    assert refused.returncode != 0
    assert "VERSION must be a number" in refused.stderr
    assert "rm -rf" not in refused.stdout


def test_the_list_has_the_newest_version_first_and_links_to_what_is_there(tmp_path: Path):
    for name in ("0.2", "0.10", "0.9.1", "_static", "reference"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("<h1>A</h1>")
    (tmp_path / "0.11").mkdir()  # whose build failed
    assert versions_in(tmp_path) == ["0.10", "0.9.1", "0.2"]
    (tmp_path / PAGE).write_text(versions_page(tmp_path))
    assert problems(tmp_path) == []


@pytest.mark.slow
def test_pages_of_a_version_say_which_and_lead_to_the_list(tmp_path: Path):
    source, site = tmp_path / "source", tmp_path / "site"
    (source / "reference" / "json" / "schemas").mkdir(parents=True)
    (source / "deep").mkdir()
    (source / "deep" / "page.md").write_text("# Page\n")
    (source / "index.md").write_text("# covey\n\nOne.\n\n```{toctree}\ndeep/page\n```\n")
    (source / "_static").mkdir()
    program = Path(sys.executable).with_name("sphinx-build")
    subprocess.run(
        [program, "--quiet", "-c", ROOT / "docs", source, site / "0.3"],
        env={**os.environ, "COVEY_DOCS_VERSION": "0.3"},
        check=True,
    )
    (site / PAGE).write_text(versions_page(site))
    assert problems(site) == []
    deep = (site / "0.3" / "deep" / "page.html").read_text()
    assert 'href="../../versions.html"' in deep
    assert "covey 0.3" in deep
