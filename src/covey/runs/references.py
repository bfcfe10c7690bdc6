"""The name under which another process finds a function of the user's program."""

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec

__all__ = ["reference_of"]

SCRIPTS = ("__main__", "__mp_main__")


def reference_of(made: object) -> str | None:
    """Return a function or class as `package.module:name`; None if it has no such name.

    Only what is this very object when it is imported: neither a lambda, nor what stands in
    a function, in a script that was started, or in a module that no search path leads to.
    One that takes two arguments has none either: by name a model's factory is given its
    sizes, and this would be another model.
    """
    module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
    if not callable(made) or not isinstance(module, str) or not isinstance(name, str):
        return None
    if module in SCRIPTS:
        return None
    loaded = sys.modules.get(module)
    if getattr(loaded, name, None) is not made or not _is_found(module):
        return None
    return None if _takes_two(made) else f"{module}:{name}"


def _is_found(module: str) -> bool:
    """Say whether the search path leads to the file that the module was loaded from."""
    parent, loaded = module.rpartition(".")[0], sys.modules.get(module)
    if loaded is None or (parent and not _is_found(parent)):
        return False
    path = list(sys.modules[parent].__path__) if parent else None
    found = _searched(module, path)
    before = loaded.__spec__
    return found is not None and before is not None and found.origin == before.origin


def _searched(module: str, path: Sequence[str] | None) -> ModuleSpec | None:
    specs = (finder.find_spec(module, path) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def _takes_two(made: Callable[..., object]) -> bool:
    try:
        return len(inspect.signature(made).parameters) == 2
    except (TypeError, ValueError):  # some builtins have no signature
        return False
