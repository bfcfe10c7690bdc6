"""A run's folder: where its settings, its ledger and its states lie."""

import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import TypeAdapter

from covey.base.errors import ConfigError, RunError
from covey.base.files import delete_whole, make_folder, read_bounded, read_text, replace_whole
from covey.base.names import Basis, ClientName
from covey.components.own_code import origins_of
from covey.ledger.store import Ledger
from covey.runtime.ledger_record import RecordReader

if TYPE_CHECKING:
    from covey.config.settings import Config

OWN = re.compile(r"(?!covey[.:]|python:)[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""`package.module:name`."""


class QueuedRequest(NamedTuple):
    """Who asks to leave, and for which answer, on what basis."""

    client: ClientName
    wanted: str
    basis: Basis = "none"


_reader = TypeAdapter(QueuedRequest).validate_json
_origins = TypeAdapter(dict[str, str]).validate_json


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The places inside one run.

    config.toml  ledger.sqlite  checkpoints/  report.html  figures/  metrics.csv
    frozen.safetensors: parameters of the model that do not train, and drawn ones that
    clients keep to themselves, once for all rounds
    asking/ while the run is played; federation.json where the clients are apart
    exports/ of models; copies/: what was exported or shown where, and for whom
    updates/ and baseline/ and audit/ where they were asked for; proofs/ of who left
    imports.json: where the user's own code lay
    records/ of clients that joined, or that changed theirs
    receipts/ of who asked to; unacknowledged/ salts, sealed
    superseded/ while rounds are played again
    tracking/: what trackers were told, by tracker
    """

    path: Path
    created: tuple[Path, ...] | None = field(default=None, compare=False, repr=False)
    """Folders that `create` has just made, the innermost first; None: it was a run."""
    reader: RecordReader = field(default_factory=RecordReader, compare=False, repr=False)
    """What this object has read of the run's ledger, and reads again if that changed."""

    @classmethod
    def create(cls, path: Path, config: "Config") -> "RunFolder":
        """Make the folder and put the resolved settings in it.

        Raises:
            RunError: something is there already.
        """
        folder = cls(path)
        if folder.config_path.is_file():
            raise RunError(
                f"{path} already holds a run. Carry it on with `covey resume {path}`, "
                f"or give another folder: --out, or out= in Python."
            )
        if path.exists() and (not path.is_dir() or _holds_anything(path)):
            raise RunError(
                f"{path} exists and is not a covey run. Give another --out, or an empty folder."
            )
        made = make_folder(path)
        origins = origins_of(_own_code(config.model_dump(mode="json")))
        replace_whole(folder.imports, json.dumps(origins).encode(), mode=0o600)
        # the last: with it, there is a run
        replace_whole(folder.config_path, config.toml().encode("utf-8"), mode=0o600)
        return cls(path, made)

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """Return the folder of a run that was started.

        Raises:
            RunError: there is none.
        """
        folder = cls(path)
        if not folder.config_path.is_file():
            raise RunError(
                f"{path} is not a covey run: it has no config.toml. Give the folder "
                f"that `covey run` named, for example with --out."
            )
        return folder

    def discard(self) -> None:
        """Take away what `create` has just made; a run that was there before stays."""
        if self.created is None:
            return
        for each in self.path.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()
        for folder in self.created:
            with suppress(OSError):  # something else was put there meanwhile
                folder.rmdir()

    @property
    def config_path(self) -> Path:
        """The resolved settings: complete, and able to be run again."""
        return self.path / "config.toml"

    @property
    def ledger_path(self) -> Path:
        """The events."""
        return self.path / "ledger.sqlite"

    @property
    def checkpoints(self) -> Path:
        """The states."""
        return self.path / "checkpoints"

    @property
    def frozen(self) -> Path:
        """What is one for all models and rounds of the run, if there is anything."""
        return self.path / "frozen.safetensors"

    @property
    def superseded(self) -> Path:
        """States of rounds that are played again, if a part of them still holds."""
        return self.path / "superseded"

    @property
    def subtracted(self) -> Path:
        """The state without the sums of who leaves, until that was answered."""
        return self.path / "subtracted"

    @property
    def records(self) -> Path:
        """Records of clients that joined, or that changed them."""
        return self.path / "records"

    @property
    def updates(self) -> Path:
        """What clients sent, if that is stored."""
        return self.path / "updates"

    @property
    def proofs(self) -> Path:
        """What was answered to those who left."""
        return self.path / "proofs"

    @property
    def receipts(self) -> Path:
        """What was signed when somebody asked to leave."""
        return self.path / "receipts"

    @property
    def tracking(self) -> Path:
        """What trackers were told that keep it here."""
        return self.path / "tracking"

    @property
    def unacknowledged(self) -> Path:
        """Salts that were given out, sealed until somebody says that they arrived."""
        return self.path / "unacknowledged"

    @property
    def exports(self) -> Path:
        """Models that were written for others, unless a path was given."""
        return self.path / "exports"

    @property
    def copies(self) -> Path:
        """The record of what was exported or shown where, and for whom."""
        return self.path / "copies"

    @property
    def request_queue(self) -> Path:
        """Who asked to leave while another process played the run."""
        return self.path / "asking"

    @property
    def secret_marker(self) -> Path:
        """Which of the user's secrets is this run's, if it has one."""
        return self.path / "secret"

    @property
    def ledger(self) -> str | Path:
        """Where the events are: a file of this folder, or a database elsewhere."""
        return self.config().ledger.url or self.ledger_path

    def queue_request(self, client: str, wanted: str, basis: Basis = "none") -> None:
        """Queue a client's request to leave, for the process that runs the rounds now."""
        make_folder(self.request_queue)
        content = json.dumps([client, wanted, basis]).encode("utf-8")
        replace_whole(self._request_path(client), content, mode=0o600)

    def queued_requests(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests to leave."""
        for path in sorted(self.request_queue.glob("*.json")):
            request = _queued(path)
            if path != self._request_path(request.client):
                raise _unreadable(path, "its name is not that of the client's request")
            yield request

    def take_requests(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests; each is deleted after it was yielded."""
        for request in self.queued_requests():
            yield request
            delete_whole(self._request_path(request.client))

    def _request_path(self, client: str) -> Path:
        return self.request_queue / f"{hashlib.sha256(client.encode()).hexdigest()[:16]}.json"

    def config(self) -> "Config":
        """Read the settings back; none of the user's code is imported for that.

        Raises:
            RunError: they cannot be read.
            LedgerError: another version of covey wrote the run.
        """
        from covey.config.settings import Config  # which loads what learns

        with self._same_format():
            return Config.read(self._settings())

    def checked_config(self) -> "Config":
        """Read the settings back to play with them: a user's components are imported.

        Raises:
            ConfigError: they do not go with each other, or cannot be imported.
        """
        from covey.config.settings import Config

        with self._same_format():
            return Config.recorded(self._settings())

    @contextmanager
    def _same_format(self) -> Generator[None]:
        """Where settings are refused, say so if it is since another version wrote them."""
        try:
            yield
        except ConfigError:
            if self.ledger_path.is_file():
                Ledger.read(self.ledger_path)
            raise

    @property
    def imports(self) -> Path:
        """Where the user's own code lay when the run was started."""
        return self.path / "imports.json"

    def origins(self) -> dict[str, str]:
        """Return where the user's code lay.

        Raises:
            RunError: the record cannot be read.
        """
        try:
            return _origins(read_bounded(self.imports))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{self.imports} must hold where the code of this run's settings lay, as "
                f"covey wrote it, but: {error}. Restore the file."
            ) from error

    def _settings(self) -> dict[str, Any]:
        try:
            return tomllib.loads(read_text(self.config_path))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(
                f"{self.config_path} must hold the settings of this run, as covey wrote "
                f"them, but: {error}. Restore the file."
            ) from error


def _own_code(settings: object) -> Iterator[str]:
    """Yield every setting that may name a user's code."""
    if isinstance(settings, Mapping):
        for each in cast("Mapping[str, object]", settings).values():
            yield from _own_code(each)
    elif isinstance(settings, list):
        for each in cast("list[object]", settings):
            yield from _own_code(each)
    elif isinstance(settings, str) and OWN.fullmatch(settings):
        yield settings


def _queued(path: Path) -> QueuedRequest:
    try:
        return _reader(read_bounded(path))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, problem: object) -> RunError:
    return RunError(
        f"{path} must hold a request to leave, as covey wrote it, but: {problem}. Delete "
        f"it, and ask again."
    )


def now() -> str:
    """Return the time, as a ledger writes it down."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _holds_anything(path: Path) -> bool:
    """Return whether a folder holds more than what a start that was cut off leaves."""
    begun = {"config.unfinished", "imports.unfinished", "imports.json"}
    return any(each.name not in begun for each in path.iterdir())
