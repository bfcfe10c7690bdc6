"""Idioms that pages and messages do without: CONTRIBUTING.md says how sentences are written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IDIOMS = re.compile(
    r"\b(told|tells?|telling|whoever|hangs? on|settled|story|wishes|nobody knows"
    r"|lives? (?:in|on|below))\b",
    re.IGNORECASE,
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = sorted(
    file for file in (ROOT / "src").rglob("*") if file.parent.name == "templates" and file.is_file()
)
CODE = sorted((ROOT / "src").rglob("*.py"))


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_does_without_idioms(page):
    assert idioms(page.read_text("utf-8").splitlines()) == []


@pytest.mark.parametrize("file", CODE, ids=page_id)
def test_a_message_does_without_idioms(file):
    assert idioms(messages(ast.parse(file.read_text("utf-8")))) == []


@pytest.mark.parametrize("file", TEXTS, ids=page_id)
def test_a_template_does_without_idioms(file):
    assert idioms(file.read_text("utf-8").splitlines()) == []


def idioms(texts: Iterator[str] | list[str]) -> list[str]:
    return [text for text in texts if IDIOMS.search(text)]


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a file that are sentences, and no docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in alone:
            text = str(node.value)
            if " " in text:
                yield text
