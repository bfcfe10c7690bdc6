"""A user's own code: when it may be imported and from where, its source, what it makes and raises.

A setting can name any function of a user's modules, so the settings of a run are code. Who only
reads a run runs none of it; who carries one on imports what this user allowed for its folder.
A folder that came from somebody else must not allow it to itself, so consent lies in the user's
own folder: one file per run's folder, with the SHA-256 of all that is allowed. Whoever begins a
run there has allowed what its settings name.
"""

import hashlib
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.machinery import all_suffixes
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

from pydantic import TypeAdapter

from covey.base.errors import ConfigError
from covey.base.files import (
    checked,
    checked_json,
    delete_whole,
    file_hash,
    make_folder,
    read_bounded,
    replace_whole,
    user_folder,
)

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders that hold installed packages."""

_allowed: ContextVar[bool] = ContextVar("allowed", default=True)
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Constants of a module that count as they are."""

UNKNOWN_SOURCE = "unknown"
"""What is recorded of a user's own code whose source is in no file: "" is covey's own."""


@dataclass(frozen=True, slots=True)
class CodeSource:
    """A user's code: a module, a package with all that can be imported of it, or a script.

    Attributes:
        places: its file; of a package its folders.
    """

    places: tuple[Path, ...]

    @classmethod
    def of_package(cls, package: str) -> "CodeSource | None":
        """Find what an import of a top-level package would run, and run none of it."""
        loaded = sys.modules.get(package)
        specs = (finder.find_spec(package, None) for finder in sys.meta_path)
        spec = loaded.__spec__ if loaded else next(filter(None, specs), None)
        if spec is None:
            return None
        places = [*(spec.submodule_search_locations or ())]
        if not places and spec.has_location and spec.origin:
            places = [spec.origin]
        return cls(tuple(Path(place).resolve() for place in places)) if places else None

    @property
    def path(self) -> Path:
        """Where it lies; of several places the first."""
        return self.places[0]

    @property
    def sha256(self) -> str:
        """The hash of its file, or of all files of a package that can be imported."""
        if self.path.is_file():
            return file_hash(self.path)
        digest, endings = hashlib.sha256(), tuple(all_suffixes())
        for folder in self.places:
            for path in sorted(folder.rglob("*")):
                at = path.relative_to(folder)
                if path.name.endswith(endings) and "__pycache__" not in at.parts:
                    digest.update(f"{at.as_posix()}\n{file_hash(path)}\n".encode())
        return digest.hexdigest()

    @property
    def is_installed(self) -> bool:
        """Whether it lies where packages are installed."""
        return not INSTALLED.isdisjoint(self.path.parts)


@dataclass(frozen=True, slots=True)
class Consent:
    """What is allowed to the settings in one folder, as SHA-256.

    Attributes:
        folder: the run's, resolved.
        code: by `package.module:name`, or by the path of a script.
        servers: by setting, of its value.
    """

    folder: str
    code: Mapping[str, str] = field(default_factory=dict[str, str])
    servers: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def for_run(cls, folder: Path) -> "Consent":
        """Return what is on record; what cannot be read allows nothing."""
        none = cls(str(folder.resolve()))
        try:
            known = _reader(checked(read_bounded(_path(folder))))
        except (OSError, ValueError):
            return none
        return known if known.folder == none.folder else none

    def with_code(self, sources: Mapping[str, CodeSource]) -> "Consent":
        """Return the same with these sources, as they are now, by what names them."""
        hashes = {name: source.sha256 for name, source in sources.items()}
        return replace(self, code={**self.code, **hashes})

    def with_servers(self, settings: Mapping[str, object]) -> "Consent":
        """Return the same with the servers that these settings name."""
        hashes = {key: _hash_of(value) for key, value in settings.items()}
        return replace(self, servers={**self.servers, **hashes})

    def allows(self, name: str, source: CodeSource) -> bool:
        """Say whether what is named so may be run, as its source is now."""
        known = self.code.get(name)
        return known is not None and known == source.sha256

    def reaches(self, setting: str, value: object) -> bool:
        """Say whether a server that a setting names may be reached."""
        return self.servers.get(setting) == _hash_of(value)

    def write(self) -> None:
        """Put it on record, in the place of what was allowed before."""
        path = _path(Path(self.folder))
        if not self.code and not self.servers:
            delete_whole(path)
            return
        make_folder(path.parent)
        replace_whole(path, checked_json(asdict(self)), mode=0o600)


_reader = TypeAdapter(Consent).validate_json


def _hash_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _path(folder: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return user_folder() / "consent" / f"{digest[:32]}.json"


class ForeignCodeError(ConfigError):
    """A user's own code would have to be imported where none is run."""


@contextmanager
def no_foreign_code() -> Generator[None]:
    """Import nothing that settings name but what covey and installed plug-ins bring."""
    before = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(before)


@contextmanager
def only_with_consent(folder: Path) -> Generator[None]:
    """Import of what settings name only what this user allowed for a run's folder."""
    before = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(before)


def check_import(key: str, name: str) -> None:
    """Refuse the import of `package.module:name`, unless it may be imported here.

    Raises:
        ForeignCodeError: this only reads a run.
        ConfigError: it is Python's own, or this user did not allow it for the run's folder.
    """
    if not _allowed.get():
        raise ForeignCodeError(
            f"{key} must be covey's own to read a run, found {name!r}: resume it, if it is yours."
        )
    package = name.partition(":")[0].partition(".")[0]
    if package in sys.stdlib_module_names:
        raise no_part(key, name, "Python's own")
    if (folder := _folder.get()) is not None:
        source = CodeSource.of_package(package)
        if source is None:
            raise ConfigError(
                f"{key} = {name!r} must be in the search path, found no module {package!r}: start "
                f"the command where the run was started, or put that folder in PYTHONPATH."
            )
        check_allowed(folder, name, source)


def check_allowed(folder: Path, name: str, source: CodeSource) -> None:
    """Refuse what this user did not allow for a run's folder, as it is now.

    Args:
        folder: the run's.
        name: `package.module:name`, or the path of a script.
        source: of it.

    Raises:
        ConfigError: naming the file, its hash and the remedy.
    """
    if Consent.for_run(folder).allows(name, source):
        return
    raise ConfigError(
        f"Code that {folder} names must be allowed by you as it is now, found {name!r} "
        f"({source.path}, SHA-256 {source.sha256}): read it, and if you trust it add --trust-code "
        f"once to covey resume, audit or forget, or trust_code=True to covey.load."
    )


def no_part(key: str, name: str, author: str) -> ConfigError:
    """Return what is raised where settings name what is not made to be a part of a run."""
    return ConfigError(
        f"{key} must be code of yours, a class derived from covey's, or of a package with an entry "
        f"point covey.components, found {name!r}, which is {author}: call it from a function in a "
        f"module of your own, and name that."
    )


def source_hash(maker: object) -> str:
    """Return the SHA-256 of a user's own class or function, as text, or `UNKNOWN_SOURCE`.

    With it counts what it uses by name from its own module: functions, classes above all
    those that it is derived from, and constants. The rest of the file does not, such as a
    script that goes on below.
    """
    texts: dict[str, str] = {}
    _collect(maker.func if isinstance(maker, partial) else maker, texts)
    if not any(texts.values()):
        return UNKNOWN_SOURCE
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"{name}\n{text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _collect(part: Any, texts: dict[str, str]) -> None:  # noqa: ANN401 - anything
    """Add the source of a class or a function, and of what it uses, by name."""
    if not isinstance(part, type):
        part = inspect.unwrap(part) if callable(part) else part
        part = part if isinstance(part, FunctionType) else type(part)
    name, module = part.__qualname__, part.__module__
    if name in texts or module == "builtins":
        return
    texts[name] = ""  # whatever it uses may use it
    if isinstance(part, FunctionType):
        texts[name] = _text(part)
        used = [*_used_by(part)]
    else:
        methods = [*_functions_of(part)]
        texts[name] = _text(part) or "\n".join(
            filter(None, [_fields_of(part) if methods else "", *map(_text, methods)])
        )
        used = [pair for method in methods for pair in _used_by(method)]
        used += [(base.__qualname__, base) for base in part.__bases__]
    for key, value in used:
        if isinstance(value, (type, FunctionType)) and value.__module__ == module:
            _collect(value, texts)
        elif _is_plain(value):
            texts.setdefault(f"{module}.{key}", repr(value))


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
    """Yield the functions that a class defines itself, also in properties and such."""
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
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))
