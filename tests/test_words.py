"""Words that pages, messages and names do without; CONTRIBUTING.md says how sentences are."""

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
CHECKS = sorted(
    file for folder in ("tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")
)


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


NO_NAMES = re.compile(
    r"_*(alive|asked|asking|asks|beginning|brought|came|desk|dials|each|founders|given|is_apart"
    r"|keeping|nobody|noting|owned|put_down|recall|settled|solved|some|stake|stated|stor(y|ies)"
    r"|tells?|them|there|told|went|who|whoever|whose|wishes)_*"
)
"""Words that say nothing of what a variable, a function or a class is."""

NO_RESULTS = re.compile(r"_*(apart|everybody|found|kept|quiet)_*")
"""Words that do not say what a test has: its result is an audit, a proof, an estimate, ..."""


def test_names_in_the_source_say_what_they_name():
    assert [odd for file in CODE for odd in odd_names(file, NO_NAMES)] == []


@pytest.mark.parametrize("words", [NO_NAMES, NO_RESULTS], ids=["no names", "no results"])
def test_names_in_tests_benchmarks_and_examples_say_what_they_name(words):
    assert [odd for file in CHECKS for odd in odd_names(file, words)] == []


def odd_names(file: Path, words: re.Pattern[str]) -> list[str]:
    """Return where a file gives something one of these names."""
    return [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for line, name in names(ast.parse(file.read_text("utf-8")))
        if words.fullmatch(name)
    ]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what a file gives a name: functions, classes, arguments and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass
