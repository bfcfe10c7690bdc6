"""A run's folder: where its settings, its ledger and its states lie."""

import hashlib
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from covey.base.component_names import PASSED
from covey.base.errors import ConfigError, LedgerError, LedgerUnavailable, RunError
from covey.base.files import (
    checked,
    checked_json,
    delete_whole,
    file_hash,
    leaving_link,
    make_folder,
    read_bounded,
    read_text,
    replace_whole,
)
from covey.base.history import History
from covey.base.names import Basis, ClientName
from covey.base.own_code import CodeSource, Consent, check_allowed, only_with_consent
from covey.data.source import DataProfile
from covey.ledger.backends import describe
from covey.ledger.store import Ledger
from covey.runs.ledger_record import LedgerReader

if TYPE_CHECKING:
    from covey.settings.load import Config

TRACKING = "tracking"
"""The folder in which trackers have folders of their own, with whatever links they make."""
_STATE = re.compile(r"round-(\d{5,})\.safetensors")
_OWN = re.compile(r'"((?!covey[.:]|python:)[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)"')
"""A user's `package.module:name`, among settings as JSON."""


class QueuedRequest(NamedTuple):
    """Who asks to leave, and for which answer, on what basis."""

    client: ClientName
    wanted: str
    basis: Basis = "none"


_reader = TypeAdapter(QueuedRequest).validate_json


class _Inside:
    """A place in a run's folder, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", _: type) -> Path:
        return folder.path / self._name


@contextmanager
def as_written(path: Path, what: str, remedy: str = "restore the file.") -> Generator[None]:
    """Where the block cannot read a file of a run, say what it must hold.

    Raises:
        RunError: the block failed; a KeyError and a TypeError are of its content.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{path} must hold {what}, as covey wrote it, found that {error}: {remedy}"
        ) from error


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The places inside one run.

    Beside those below: report.html, figures/, metrics.csv, and, where they were requested,
    baseline/ and audit/.
    """

    path: Path
    created: tuple[Path, ...] | None = field(default=None, compare=False, repr=False)
    """Folders that `create` has just made, the innermost first; None: it was a run."""
    reader: LedgerReader = field(default_factory=LedgerReader, compare=False, repr=False)
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
                f"{path} must hold no run yet, found one: carry it on with `covey resume {path}`, "
                f"delete the folder, or give another one: --out, or out= in Python."
            )
        # what a start that was cut off leaves
        empty = not path.exists() or (
            path.is_dir() and all(inside.name == "config.unfinished" for inside in path.iterdir())
        )
        if not empty:
            raise RunError(f"{path} must be new or empty, found no run there: give another --out.")
        made = make_folder(path)
        settings = config.model_dump(mode="json")
        consent = Consent(str(path.resolve())).with_code(_own_code(settings))
        consent.with_servers(_servers(settings)).write()
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
                f"{path} must be a run's folder, found no config.toml in it: give the folder that "
                f"`covey run` named."
            )
        folder.check_links()
        return folder

    def check_links(self) -> None:
        """Refuse links that lead out: what is written or deleted here would be elsewhere.

        Raises:
            RunError: naming one.
        """
        if link := leaving_link(self.path, TRACKING):
            raise RunError(
                f"What is in {self.path} must be there itself, found the link {link}, which leads "
                f"out of it: put the files in its place; the whole folder may lie behind a link."
            )

    def discard(self) -> None:
        """Take away what `create` has just made; a run that was there before stays."""
        if self.created is None:
            return
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        Consent(str(self.path.resolve())).write()
        for folder in self.created:
            with suppress(OSError):  # something else was put there meanwhile
                folder.rmdir()

    config_path = _Inside("config.toml")
    """The resolved settings: complete, and able to be run again."""
    ledger_path = _Inside("ledger.sqlite")
    """The events."""
    checkpoints = _Inside("checkpoints")
    """The states."""
    frozen = _Inside("frozen.safetensors")
    """What is one for all models and rounds of the run, if there is anything."""
    features = _Inside("features.sqlite")
    """What a user's frozen network makes of clients' records, if it lies in no shared folder."""
    superseded = _Inside("superseded")
    """States of rounds that are played again, if a part of them still holds."""
    subtracted = _Inside("subtracted")
    """The state without the sums of who leaves, until that was answered."""
    updates = _Inside("updates")
    """What clients sent, if that is stored."""
    proofs = _Inside("proofs")
    """What was answered to those who left."""
    receipts = _Inside("receipts")
    """What was signed when a client requested to leave."""
    tracking = _Inside(TRACKING)
    """What trackers record that keep it here."""
    unacknowledged = _Inside("unacknowledged")
    """Salts that were handed out, sealed until somebody says that they arrived."""
    exports = _Inside("exports")
    """Models that were written for others, unless a path was passed."""
    copies = _Inside("copies")
    """The record of what was exported or shown where, and for whom."""
    request_queue = _Inside("asking")
    """Who requested to leave while another process played the run."""
    secret_marker = _Inside("secret")
    """Which of the user's secrets is this run's, if it has one."""
    federation = _Inside("federation.json")
    """What is known of the clients, where they are on machines of their own."""

    @property
    def ledger(self) -> str | Path:
        """Where the events are: a file of this folder, or a place elsewhere.

        Raises:
            LedgerUnavailable: this user did not allow that place.
        """
        with as_written(self.config_path, "the settings of this run"):
            url = str(tomllib.loads(self._text()).get("ledger", {}).get("url") or "")
        if not url:
            return self.ledger_path
        if not Consent.for_run(self.path).reaches("ledger.url", url):
            raise LedgerUnavailable(_not_reached(self.path, f"the ledger {describe(url)}"))
        return url

    def queue_request(self, client: str, wanted: str, basis: Basis = "none") -> None:
        """Queue a client's request to leave, for the process that runs the rounds now."""
        make_folder(self.request_queue)
        content = json.dumps([client, wanted, basis]).encode("utf-8")
        replace_whole(self._request_path(client), content, mode=0o600)

    def queued_requests(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests to leave."""
        for path in sorted(self.request_queue.glob("*.json")):
            with as_written(path, "a request to leave", "delete it, and ask again."):
                request = _reader(read_bounded(path))
                if path != self._request_path(request.client):
                    raise ValueError("its name is not that of the client's request")
            yield request

    def take_requests(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests; each is deleted after it was yielded."""
        for request in self.queued_requests():
            yield request
            delete_whole(self._request_path(request.client))

    def _request_path(self, client: str) -> Path:
        return self.request_queue / f"{hashlib.sha256(client.encode()).hexdigest()[:16]}.json"

    def settings(self) -> Mapping[str, Any]:
        """Return the settings as they are written; they are checked unless a session did that.

        Raises:
            CoveyError: as of `config`.
        """
        written = tomllib.loads(self._text())
        with suppress(LedgerError), Ledger.read(self.ledger_path) as ledger:
            if self.is_checked(ledger):
                return written
        return self.config().model_dump(mode="json")

    @property
    def has_all_settings(self) -> bool:
        """Whether every section of the settings is written out, as only a run's are."""
        from covey.settings.schema import Sections

        return Sections.model_fields.keys() <= tomllib.loads(self._text()).keys()

    def is_checked(self, ledger: Ledger) -> bool:
        """Say whether a session has checked settings of these very bytes, for this ledger."""
        return file_hash(self.config_path) in ledger.files.of(self.config_path.name)

    def config(self) -> "Config":
        """Read the settings back; none of the user's code is imported for that.

        Raises:
            RunError: they cannot be read.
            LedgerError: another version of covey wrote the run.
        """
        written = self._text()
        with self._same_format():
            # parts that a program passed may have been passed since it was read
            return (_read if PASSED in written else _read_once)(written)

    def checked_config(self) -> "Config":
        """Read the settings back to play with them: a user's components are imported.

        Raises:
            ConfigError: they do not go with each other, or cannot be imported, or name what
                this user did not allow.
        """
        from covey.settings.load import Config

        with self._same_format(), only_with_consent(self.path):
            written = tomllib.loads(self._text())
            for name, source in _own_code(written).items():  # before anything is made of them
                check_allowed(self.path, name, source)
            config = Config.recorded(written)
        self.check_servers(config)
        return config

    def check_servers(self, config: "Config") -> None:
        """Refuse settings that lead out of this folder to where this user did not allow it.

        Raises:
            ConfigError: naming the first of them.
        """
        consent = Consent.for_run(self.path)
        for setting, value in _servers(config.model_dump(mode="json")).items():
            if not consent.reaches(setting, value):
                shown = describe(str(value)) if setting == "ledger.url" else repr(value)
                raise ConfigError(_not_reached(self.path, f"{setting}: {shown}"))

    @contextmanager
    def _same_format(self) -> Generator[None]:
        """Where settings are refused, say so if it is since another version wrote them."""
        try:
            yield
        except ConfigError:
            if self.ledger_path.is_file():
                Ledger.read(self.ledger_path)
            raise

    def allow_code(self) -> None:
        """Put on record that this user allows the code that the settings name, as it is now."""
        code = _own_code(tomllib.loads(self._text()))
        Consent.for_run(self.path).with_code(code).write()

    def check_script(self, path: Path, *, trust: bool = False) -> None:
        """Refuse a script that this user did not allow here; or allow it, as it is now.

        Raises:
            ConfigError: it is another, or was never allowed.
        """
        consent, source = Consent.for_run(self.path), CodeSource((path.resolve(),))
        if trust:
            consent.with_code({str(path): source}).write()
        else:
            check_allowed(self.path, str(path), source)

    def allow_servers(self) -> None:
        """Put on record that this user allows the servers that the settings name."""
        servers = _servers(self.config().model_dump(mode="json"))
        Consent.for_run(self.path).with_servers(servers).write()

    def _text(self) -> str:
        with as_written(self.config_path, "the settings of this run"):
            written = read_text(self.config_path)
            tomllib.loads(written)
            return written


def _own_code(settings: Mapping[str, Any]) -> dict[str, CodeSource]:
    """Return the sources of what may be a user's code in settings, by `package.module:name`."""
    names = {*_OWN.findall(json.dumps(settings))}
    packages = {name: re.split("[.:]", name)[0] for name in names}
    own = {
        name: package
        for name, package in packages.items()
        if package not in sys.stdlib_module_names
    }
    sources = {name: CodeSource.of_package(component) for name, component in own.items()}
    return {name: source for name, source in sources.items() if source}


def _servers(settings: Mapping[str, Any]) -> dict[str, object]:
    """Return what settings name outside of the run's folder that is written to, by its key."""
    named = {
        "ledger.url": settings["ledger"]["url"],
        "engine.address": settings["engine"].get("address"),
        "tracking": settings["tracking"],
        "secrets.key_path": settings["secrets"]["key_path"],
    }
    return {key: value for key, value in named.items() if value}


def _not_reached(folder: Path, what: str) -> str:
    """Return what is said of a place that this user did not allow for a run's folder."""
    return (
        f"What {folder} names outside of itself must be allowed by you, found {what}: to trust it, "
        f"add --trust-servers once to covey resume or report, or trust_servers=True to covey.load."
    )


def _read(written: str) -> "Config":
    from covey.settings.load import Config  # which loads what learns

    return Config.read(tomllib.loads(written))


_read_once = lru_cache(maxsize=16)(_read)


def checkpoint_path(folder: Path, round_index: int) -> Path:
    """Return where the state, or the updates, of a round lie in a folder of such files."""
    return folder / f"round-{round_index:05d}.safetensors"


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return the files that are named like checkpoints, oldest round first."""
    return sorted((p for p in folder.glob("*") if _STATE.fullmatch(p.name)), key=round_of)


def round_of(path: Path) -> int:
    """Return the round of a file that is named like a checkpoint."""
    return int(path.stem.removeprefix("round-"))


def rounds_in(folder: Path) -> tuple[int, ...]:
    """Return the rounds whose states, or whose stored updates, are there, in order."""
    return tuple(map(round_of, checkpoint_paths(folder)))


@dataclass(frozen=True, slots=True)
class FederationMetadata:
    """A federation as its run remembers it.

    Attributes:
        run: names the run to its nodes.
        profile: what the clients' data look like; None: no client has come yet.
        home: the folder of its deployment; empty where there is none.
    """

    run: str
    profile: DataProfile | None
    home: str

    @classmethod
    def of(cls, folder: RunFolder) -> "FederationMetadata | None":
        """Read what a run's folder keeps; None where the run is not of this kind.

        Raises:
            RunError: it cannot be read.
        """
        path = folder.federation
        if not path.is_file():
            return None
        with as_written(path, "what this run records of its federation"):
            return _metadata_reader(checked(read_bounded(path)))

    def write(self, folder: RunFolder) -> None:
        """Keep it in a run's folder."""
        replace_whole(folder.federation, checked_json(asdict(self)))


_metadata_reader = TypeAdapter(FederationMetadata).validate_json


def check_settings(config: "Config", history: History, folder: RunFolder) -> None:
    """Refuse other settings than those that began the run, but for what changes nothing.

    Raises:
        RunError: they are others.
    """
    from covey.settings.load import settings_hash  # which loads what learns

    began, now = history.started, settings_hash(config)
    if began and began.config_hash != now:
        raise RunError(
            f"config.toml must hold the settings that began the run in {folder.path}, with hash "
            f"{began.config_hash[:12]}, found {now[:12]}: put them back, or start a new run."
        )


def now() -> str:
    """Return the time, as a ledger writes it down."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
