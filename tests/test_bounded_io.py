"""Files that somebody else may have written: of a regular kind, and of a sensible size."""

import ast
import os
from pathlib import Path

import pytest

import covey
from covey.base.files import file_hash, read_bounded

SOURCES = Path(covey.__file__).parent


def unbounded(path: Path) -> list[str]:
    """Return the calls by which a module reads a whole file that is not covey's own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
    return [
        f"{path.relative_to(SOURCES)}:{each.lineno}"
        for each in called
        if isinstance(each, ast.Attribute)
        and each.attr in {"read_bytes", "read_text"}
        and not ast.unparse(each.value).startswith("files(")
    ]


def test_every_module_asks_the_bounded_reader():
    assert [found for each in SOURCES.rglob("*.py") for found in unbounded(each)] == []


@pytest.mark.parametrize("read", [read_bounded, file_hash])
def test_a_pipe_or_a_device_is_never_opened(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="must be a regular file"):
            read(path)
