"""covey_papers is built on covey from outside: on public names alone."""

import ast
from importlib import import_module
from pathlib import Path

import covey_papers

SOURCES = sorted(Path(covey_papers.__file__).parent.rglob("*.py*"))


def imported(source: str) -> list[tuple[str, str]]:
    """Return what a text imports from covey: modules, and names in them."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(each.name, "") for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [(str(node.module), each.name) for each in node.names]
    return [(m, n) for m, n in found if m.split(".")[0] == "covey"]


def is_public(module: str, name: str) -> bool:
    """Whether it has no underscore, and is there."""
    parts = [*module.split("."), *filter(None, [name])]
    if any(each.startswith("_") for each in parts):
        return False
    return not name or hasattr(import_module(module), name)


def test_the_second_package_imports_public_names_only():
    texts = {path: path.read_text() for path in SOURCES if path.suffix in (".py", ".pyi")}
    found = {(p.name, *each) for p, text in texts.items() for each in imported(text)}
    assert len(found) > 30
    assert [each for each in sorted(found) if not is_public(*each[1:])] == []


def test_private_names_are_found():
    source = "from covey.report.page import rendered, _gone, nowhere"
    found = [is_public(*each) for each in imported(source)]
    assert found == [True, False, False]
