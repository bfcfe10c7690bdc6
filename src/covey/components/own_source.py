"""What a user's own part is: its source, and that of what it uses from the same module."""

import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any, cast

__all__ = ["source_hash"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Constants of a module that count as they are."""


def source_hash(maker: object) -> str:
    """Return the SHA-256 of a user's own class or function, as text; "" if unknown.

    With it counts what it uses by name from its own module: functions, classes above all
    those that it is derived from, and constants. The rest of the file does not, such as a
    script that goes on below.
    """
    found: dict[str, str] = {}
    _collect(maker.func if isinstance(maker, partial) else maker, found)
    if not any(found.values()):
        return ""
    digest = hashlib.sha256()
    for name, text in sorted(found.items()):
        digest.update(f"{name}\n{text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _collect(part: Any, found: dict[str, str]) -> None:  # noqa: ANN401 - anything
    """Add the source of a class or a function, and of what it uses, by name."""
    if not isinstance(part, type):
        part = inspect.unwrap(part) if callable(part) else part
        part = part if isinstance(part, FunctionType) else type(part)
    name, module = part.__qualname__, part.__module__
    if name in found or module == "builtins":
        return
    found[name] = ""  # whatever it uses may use it
    if isinstance(part, FunctionType):
        found[name] = _text(part)
        used = [*_used_by(part)]
    else:
        methods = [*_functions_of(part)]
        found[name] = _text(part) or "\n".join(
            filter(None, [_fields_of(part) if methods else "", *map(_text, methods)])
        )
        used = [pair for each in methods for pair in _used_by(each)]
        used += [(base.__qualname__, base) for base in part.__bases__]
    for key, value in used:
        if isinstance(value, (type, FunctionType)) and value.__module__ == module:
            _collect(value, found)
        elif _is_plain(value):
            found.setdefault(f"{module}.{key}", repr(value))


def _is_plain(value: object) -> bool:
    """Say whether what a value is written as is all that it is."""
    if isinstance(value, tuple):
        return all(map(_is_plain, cast("tuple[object, ...]", value)))
    return isinstance(value, PLAIN)


def _text(part: type | FunctionType) -> str:
    """Return the source as it stands in its file or cell; "" where it is in none."""
    try:
        return textwrap.dedent(inspect.getsource(part)).rstrip()
    except (OSError, TypeError, SyntaxError):
        return ""


def _functions_of(part: type) -> Iterator[FunctionType]:
    """Yield the functions that a class brings itself, also in properties and such."""
    for _, value in sorted(vars(part).items()):
        wrapped = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(wrapped, FunctionType) and wrapped.__module__ == part.__module__:
            yield wrapped


def _fields_of(part: type) -> str:
    """Return what is annotated and set in a class whose own text is not at hand."""
    plain = {k: v for k, v in vars(part).items() if _is_plain(v) and k[0] != "_"}
    fields = getattr(part, "model_fields", {})
    options = [f"{key}: {value!r}" for key, value in sorted(fields.items())]
    return "\n".join([*options, *(f"{k} = {v!r}" for k, v in sorted(plain.items()))])


def _used_by(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function finds by name outside of itself, in its module or around it."""
    inside = inspect.unwrap(function).__code__
    cells = function.__closure__ or ()
    for key, cell in zip(inside.co_freevars, cells, strict=False):
        try:
            yield key, cell.cell_contents
        except ValueError:  # not set yet
            continue
    for key in sorted(_names_in(inside)):
        if key in function.__globals__ and not key.startswith("__"):
            yield key, function.__globals__[key]


def _names_in(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))
