"""The public surface is a list, and the list is true."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import covey
from covey.base import errors

PACKAGES = [
    name for _, name, is_package in pkgutil.walk_packages(covey.__path__, "covey.") if is_package
]


def test_all_is_what_can_be_imported():
    promised = {name: getattr(covey, name) for name in covey.__all__}
    assert len(promised) == len(covey.__all__)
    assert [n for n, value in promised.items() if isinstance(value, ModuleType)] == []
    assert all(value is not None for value in promised.values())


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_has_one_address(name):
    """Packages hand no names on: each is imported from the file that defines it."""
    held = vars(importlib.import_module(name))
    handed_on = {
        key: value
        for key, value in held.items()
        if not key.startswith("_") and not isinstance(value, ModuleType)
    }
    assert handed_on == {}


def test_every_error_is_drawn_in_the_tree():
    below = set(descendants(covey.CoveyError))
    ours = {each.__name__ for each in below if each.__module__ == errors.__name__}
    assert len(ours) > 8
    assert all(f" {name} " in (errors.__doc__ or "") for name in ours)


def descendants(root: type) -> Iterator[type]:
    for each in root.__subclasses__():
        yield each
        yield from descendants(each)
