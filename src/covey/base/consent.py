"""What this user allowed the settings of a run's folder to do: import code, reach servers.

A folder that came from somebody else must not allow it to itself, so consent lies in the user's
own folder: one file per run's folder, with the SHA-256 of all that is allowed. Whoever begins a
run there has allowed what its settings name.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.machinery import all_suffixes
from pathlib import Path

from pydantic import TypeAdapter

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
