"""What the documents promise exists, and what exists is documented."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.main

from covey.cli import app
from covey.config import Config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_command_is_in_the_readme():
    commands = typer.main.get_command(app).list_commands(None)  # pyright: ignore
    assert [name for name in commands if f"covey {name}" not in README] == []


def test_every_setting_is_documented_with_its_default():
    text = (ROOT / "docs" / "settings.md").read_text()
    keys = [
        f"{section}.{key}" if isinstance(values, dict) else section
        for section, values in Config().model_dump().items()
        for key in (values if isinstance(values, dict) else [section])
    ]
    assert [key for key in keys if f"`{key}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", "docs/paper-to-code.md"])
def test_every_path_that_a_page_names_exists(page):
    named = re.findall(
        r"`((?:src|docs|tests|examples)/[\w/.-]+)`", (ROOT / page).read_text()
    )
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_function_in_paper_to_code_exists():
    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    first_columns = [line.split("|")[2] for line in text.splitlines() if "|" in line]
    dotted = re.findall(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`", "".join(first_columns))
    whole = [n if n.startswith("covey_papers.") else f"covey.{n}" for n in dotted]
    code = [name for name in whole if find_spec(".".join(name.split(".")[:2]))]
    assert len(code) > 20
    for name in code:
        resolved(name)


def resolved(name: str) -> object:
    """Return what `covey.membership.attacks.auc` names."""
    path, *parts = name.split(".")
    found: object = import_module(path)
    for part in parts:
        path = f"{path}.{part}"
        try:
            found = import_module(path)
        except ModuleNotFoundError:
            found = getattr(found, part)
    return found
