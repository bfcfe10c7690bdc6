"""How Sphinx builds the site, offline; `make docs` assembles its sources first."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from sphinx.application import Sphinx
from sphinx.domains.python import PyClasslike

from covey.base.names import __version__
from covey_site.accessible import accessible
from covey_site.llms import overview_for_programs

project = "covey"
author = project_copyright = "The covey maintainers"
shown_version = os.environ.get("COVEY_DOCS_VERSION") or __version__
version = release = shown_version
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
highlight_language = "none"  # blocks that name no language are shells and drawings

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

default_role = "code"  # docstrings write `name` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"exclude-members": "model_config"}  # pydantic's
maximum_signature_line_length = 80
napoleon_use_ivar = True
napoleon_attr_annotations = False  # a signature has them
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"covey {shown_version}"
html_static_path = ["_static"]
html_css_files = ["covey.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "light_css_variables": {"picture-light": "1", "picture-margin": "0"},
    "dark_css_variables": {"picture-light": "0.85", "picture-margin": "0.6rem"},
}
if repository := os.environ.get("COVEY_REPOSITORY"):  # its address: links on every page
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": "main",
        "source_directory": "docs/",
    }
if shown_version == os.environ.get("COVEY_DOCS_VERSION"):  # beside others, which a page lists
    templates_path = ["_templates"]
    parts = ("brand", "search", "scroll-start", "navigation", "scroll-end")
    html_sidebars = {"**": [*(f"sidebar/{part}.html" for part in parts), "versions.html"]}
html_copy_source = True
html_show_search_summary = False  # it would need a server
html_show_sphinx = False


for field in PyClasslike.doc_field_types:
    if field.name == "variable":
        field.label = "Attributes"  # the word of the docstrings


def setup(app: Sphinx) -> None:
    """Mend every page; write `llms.txt` beside the front page, and the schemas."""
    app.connect("html-page-context", _mend, priority=900)  # after the theme's own
    app.connect("build-finished", _write_files)


def _mend(_app: Sphinx, _name: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    for part in ("body", "furo_navigation_tree"):
        if part in context:
            context[part] = accessible(context[part])


def _write_files(app: Sphinx, failed: Exception | None) -> None:
    if failed is None:
        schemas = "reference/json/schemas"
        shutil.copytree(Path(app.srcdir) / schemas, Path(app.outdir) / schemas, dirs_exist_ok=True)
        (Path(app.outdir) / "llms.txt").write_text(overview_for_programs(Path(app.srcdir)))
