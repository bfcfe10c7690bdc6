"""The public surface is a list, and the list is true."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import covey

PACKAGES = [
    name
    for _, name, is_package in pkgutil.walk_packages(covey.__path__, "covey.")
    if is_package
]


@pytest.mark.parametrize("name", ["covey", *PACKAGES])
def test_all_is_what_can_be_imported(name):
    module = importlib.import_module(name)
    promised = {
        public
        for public in module.__all__
        if getattr(module, public) is not None  # loads what is lazy
        and public != "__version__"
    }
    names = {
        public
        for public, value in vars(module).items()
        if not public.startswith("_") and not isinstance(value, ModuleType)
    }
    assert promised == names
    assert len(module.__all__) == len(set(module.__all__))


@pytest.mark.parametrize("name", ["covey", *PACKAGES])
def test_no_public_name_is_hidden_by_a_module_of_the_same_name(name):
    package = importlib.import_module(name)
    for _, inside, _ in pkgutil.iter_modules(package.__path__, f"{name}."):
        if not inside.endswith("__main__"):
            importlib.import_module(inside)  # which sets the package's attribute
    found = {public: getattr(package, public) for public in package.__all__}
    assert [n for n, value in found.items() if isinstance(value, ModuleType)] == []


def test_every_error_is_drawn_in_the_tree():
    from covey import errors

    assert all(f" {name} " in (errors.__doc__ or "") for name in errors.__all__[3:])
    assert all(issubclass(getattr(errors, n), covey.CoveyError) for n in errors.__all__)
