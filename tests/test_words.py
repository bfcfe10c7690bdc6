"""Idioms that pages and messages do without: CONTRIBUTING.md says how sentences are written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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


def test_pages_templates_and_messages_do_without_idioms():
    written = {file: file.read_text("utf-8") for file in (*PAGES, *TEXTS, *CODE)}
    said = [
        (file.name, sentence)
        for file, text in written.items()
        for sentence in (messages(ast.parse(text)) if file.suffix == ".py" else text.splitlines())
    ]
    assert [sentence for sentence in said if IDIOMS.search(sentence[1])] == []


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a file that are sentences, and no docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in alone:
            text = str(node.value)
            if " " in text:
                yield text
