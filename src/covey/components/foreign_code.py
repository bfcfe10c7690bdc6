"""When a user's own code may be imported, and from where.

A setting can name any function of any module, so the settings of a run are code. Who only
reads a run runs none of it; who carries one on imports it from where the run's first start
did.
"""

import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path

from covey.errors import ConfigError

__all__ = [
    "ForeignCodeError",
    "check_import",
    "no_foreign_code",
    "only_from",
    "origins_of",
]

_allowed: ContextVar[bool] = ContextVar("allowed", default=True)
_origins: ContextVar[Mapping[str, str] | None] = ContextVar("origins", default=None)


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
def only_from(origins: Mapping[str, str]) -> Generator[None]:
    """Import what settings name only from these files, and nothing else.

    Args:
        origins: as `origins_of` returned them when the run was started.
    """
    before = _origins.set(origins)
    try:
        yield
    finally:
        _origins.reset(before)


def check_import(key: str, name: str) -> None:
    """Refuse the import of `package.module:name`, unless it may be imported here.

    Raises:
        ForeignCodeError: this only reads a run.
        ConfigError: the package lies elsewhere than when the run was started.
    """
    if not _allowed.get():
        raise ForeignCodeError(
            f"{key} = {name!r} names code that is not covey's, and reading a run runs "
            f"none. What needs it is run and resume; do that with runs of your own alone."
        )
    origins, package = _origins.get(), _package(name)
    if origins is None:
        return
    known, found = origins.get(package), _origin(package)
    if known is None or found != known:
        raise ConfigError(
            f"{key} = {name!r} must be imported from where the run's first start did, "
            f"{known or 'which imported no such thing'}, but it would be from "
            f"{found or 'nowhere'}. Put the folder in PYTHONPATH from which it was "
            f"started, or start the command there."
        )


def origins_of(names: Iterable[str]) -> dict[str, str]:
    """Return where the packages of `package.module:name` lie, for `only_from`."""
    found = {package: _origin(package) for package in map(_package, names)}
    return {package: origin for package, origin in sorted(found.items()) if origin}


def _package(name: str) -> str:
    return name.partition(":")[0].partition(".")[0]


def _origin(package: str) -> str | None:
    """Return the file of a top-level package, and run none of its code; None: unknown."""
    loaded = sys.modules.get(package)
    spec = loaded.__spec__ if loaded else PathFinder.find_spec(package)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    place = spec.origin or (places[0] if places else None)
    return str(Path(place).resolve()) if place and Path(place).exists() else place
