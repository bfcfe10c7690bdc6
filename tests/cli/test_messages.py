"""What covey says reaches the reader letter by letter: brackets and colons are text."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rich.text import Text

import covey
import covey_papers
from covey.cli.answer import tabled
from covey.cli.app import console
from covey.cli.commands import all_commands

SOURCES = [Path(package.__path__[0]) for package in (covey, covey_papers)]
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for source in SOURCES
    for path in source.rglob("*.py")
}


def texts() -> Iterator[str]:
    """Every text in the sources that markup or emoji codes could change, as it is said.

    What is put into an f-string is a bracketed word here: the worst that it can be.
    """
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "[value]"
                    for part in node.values
                ]
                yield "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


MESSAGES = sorted(
    text for text in set(texts()) if re.search(r"\[[^\]\n]*\]|:\w+:", text) and text.isprintable()
)


def printed(capsys: pytest.CaptureFixture[str], text: str) -> str:
    console.print(text, soft_wrap=True)
    return capsys.readouterr().err.removesuffix("\n")


def test_every_message_of_the_sources_is_printed_as_it_stands(capsys):
    assert len(MESSAGES) > 100
    assert [text for text in MESSAGES if printed(capsys, text) != text] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["run", "--set", "population.minority=[25, 0]"],
            "population.minority must be [low, high] with low <= high, found [25.0, 0.0]",
        ),
        (["run", "--set", "model.name=[red]"], "model.name = '[red]' is not possible"),
        (["run", "--frob[red]nicate"], "--frob[red]nicate"),
        (["sweep", "x.toml", "--over", "[blue]"], "found '[blue]'"),
    ],
)
def test_brackets_in_an_error_reach_the_reader(covey, words, said):
    code, _, err = covey(*words)
    assert code == 2
    assert said in " ".join(err.split())


def test_what_to_install_is_said_with_its_extra(covey, small, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "postgresql://nobody@localhost/none?run=one"
    _, _, err = covey("run", *small, "--set", f"ledger.url={url}", "--out", "out")
    assert "Install covey[postgres]." in " ".join(err.split())


def test_brackets_survive_in_the_heads_and_cells_of_a_table():
    table = tabled(["[red]head[/red]", ":warning:"], [["[blue]cell", ":key:"]])
    for text in ("[red]head[/red]", ":warning:", "[blue]cell", ":key:"):
        assert text in table.plain


def calls() -> Iterator[tuple[Path, ast.Call, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield path, node, ast.unparse(node.func)


def test_every_console_prints_text_as_text():
    consoles = [call for _, call, name in calls() if name.split(".")[-1] == "Console"]
    assert consoles
    for call in consoles:
        settings = {each.arg: ast.unparse(each.value) for each in call.keywords}
        assert (settings.get("markup"), settings.get("emoji")) == ("False", "False")


def test_no_call_asks_for_markup():
    for path, call, name in calls():
        assert not name.endswith("from_markup"), path
        for each in call.keywords:
            asks = each.arg in ("markup", "emoji")
            assert not asks or ast.unparse(each.value) == "False", path
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "rich":
                assert "print" not in {each.name for each in node.names}, path


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for each in command.params:
        yield f"{name} {each.name}", getattr(each, "help", None) or ""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from helps(inner, f"{name} {inner.name}")


def test_no_help_holds_what_its_printer_takes_for_markup():
    for name, text in helps(all_commands(), "covey"):
        assert Text.from_markup(text).plain == text, name
