"""Which functions of a program another process finds by name."""

import functools
import importlib
import json
import sys
from collections import OrderedDict

import pytest
from torch import nn

from covey.api.parts import reference_of

SOURCE = """
def make():
    return 1

def sized(shape, classes):
    return 2

class Net:
    def build(self):
        return make()

renamed = make
hidden = lambda: 3
"""


@pytest.fixture
def toolbox(tmp_path, monkeypatch):
    """A package with a module, on the search path."""
    (tmp_path / "toolbox_of_tests").mkdir()
    (tmp_path / "toolbox_of_tests" / "__init__.py").write_text("")
    (tmp_path / "toolbox_of_tests" / "models.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("toolbox_of_tests.models")
    for name in ("toolbox_of_tests.models", "toolbox_of_tests"):
        sys.modules.pop(name, None)


def test_functions_and_classes_of_a_module_are_found(toolbox):
    assert reference_of(toolbox.make) == "toolbox_of_tests.models:make"
    assert reference_of(toolbox.renamed) == "toolbox_of_tests.models:make"
    assert reference_of(toolbox.Net) == "toolbox_of_tests.models:Net"
    assert reference_of(json.loads) is None  # Python's own is no part of a run


def test_what_import_would_not_give_back_has_no_name(toolbox):
    def inner() -> None: ...

    nameless = (
        None,
        inner,
        lambda: None,
        toolbox.hidden,
        toolbox.Net().build,
        toolbox.Net.build,
        functools.partial(toolbox.make),
        nn.Linear(1, 1),
        OrderedDict(),
    )
    assert [reference_of(each) for each in nameless] == [None] * len(nameless)


def test_a_started_script_has_no_name(toolbox, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", toolbox)
    monkeypatch.setattr(toolbox.make, "__module__", "__main__")
    assert reference_of(toolbox.make) is None
