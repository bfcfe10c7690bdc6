"""Secrets: the source of a run's hidden draws and its tombstones.

Seeded, everything follows from the seed, and so does what should be hidden: a holder
of it can see who spoke for a set. From the operating system, 32 random bytes lie outside the
run folder and are replaced by their hash after every durable round, so that a round's
draws cannot be repeated once it is over.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from covey.base.errors import RunError
from covey.base.files import (
    checked,
    checked_json,
    file_hash,
    make_folder,
    read_bounded,
    read_text,
    replace_whole,
    user_folder,
)
from covey.base.names import ClientName, Handle
from covey.ledger.store import Ledger
from covey.runs.folder import as_written

if TYPE_CHECKING:
    from covey.base.rng import Streams

BYTES = 32
NAME = re.compile("[0-9a-f]{16}")
MARKER = "secret"
"""What the ledger calls the file that names a run's secret."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The hidden side of one run.

    Attributes:
        streams: the run's public streams.
        path: the file of its secret; None: everything is seeded.
    """

    streams: "Streams"
    path: Path | None

    @property
    def source(self) -> Literal["seeded", "os"]:
        """Where the hidden draws come from."""
        return "seeded" if self.path is None else "os"

    def at_round(self, round_index: int) -> "Streams":
        """Return the run's streams, with the secret of this round."""
        if self.path is None:
            return self.streams
        content = self._kept()
        key = bytes.fromhex(content["key"])
        for _ in range(content["round"], round_index):
            key = hashlib.sha256(key).digest()
        return replace(self.streams, secret=int.from_bytes(key, "big"))

    def forget_before(self, round_index: int) -> None:
        """Replace the secret by that of this round; those of earlier ones are lost."""
        if self.path is None:
            return
        content = self._kept()
        if content["round"] < round_index:
            key = self.at_round(round_index).secret or 0
            text = key.to_bytes(BYTES, "big").hex()
            _write(self.path, {**content, "round": round_index, "key": text})

    def restart_at(self, round_index: int) -> None:
        """Draw the rounds from this one on anew, where they were drawn before."""
        if self.path is None:
            return
        content = self._kept()
        key = hashlib.sha256(bytes.fromhex(content["key"])).hexdigest()
        _write(self.path, {**content, "round": round_index, "key": key})

    def tombstone(self, name: ClientName) -> str:
        """Return the mark that keeps a client from being invited again."""
        return self.tombstones([name])[name]

    def tombstones(self, names: Iterable[ClientName]) -> dict[ClientName, str]:
        """Return each client's mark by its name; the key is read once for all."""
        if self.path is None:
            key = self.streams.hidden().at("tombstones").digest()
        else:
            key = bytes.fromhex(self._kept()["tombstones"])
        words = {name: name.encode("utf-8", "surrogatepass") for name in names}
        return {name: hmac.digest(key, word, "sha256").hex() for name, word in words.items()}

    @property
    def is_lost(self) -> bool:
        """Whether the run has a secret, and it is not on this machine."""
        return self.path is not None and not self.path.is_file()

    def keyed(self, digest: str) -> str:
        """Return what is recorded of a hash of somebody's data: an HMAC of it, unless seeded.

        A bare one lets a reader with all records but one find that one out. The message is no
        client's name, so that no tombstone is one of these.
        """
        if self.path is None or not digest:
            return digest
        key = bytes.fromhex(self._kept()["tombstones"])
        return hmac.digest(key, b"\xff" + bytes.fromhex(digest), "sha256").hex()

    def handle(self, derived: Handle) -> Handle:
        """Return the handle of a client that has none yet."""
        return derived if self.path is None else f"h-{secrets.token_hex(6)}"

    def _kept(self) -> dict[str, Any]:
        assert self.path is not None  # noqa: S101 - callers have looked
        remedy = "restore the file, or start a new run, as this one cannot go on without it."
        with as_written(self.path, "the secret of a run", remedy):
            return _whole(json.loads(checked(read_bounded(self.path))))


def secrets_of(streams: "Streams", source: Literal["seeded", "os"], marker: Path) -> Secrets:
    """Return the secrets of a run, made on first use.

    Args:
        streams: the run's public streams.
        source: "seeded" or "os".
        marker: the file in the run folder that says which secret is this run's.
    """
    if source == "seeded":
        return Secrets(streams, None)
    if not marker.is_file():
        name = secrets.token_hex(8)
        fresh = {"key": secrets.token_hex(BYTES), "tombstones": secrets.token_hex(BYTES)}
        make_folder(_secret_folder())
        _write(_secret_folder() / f"{name}.json", {"round": 0, **fresh})
        # only now: a run that has had a secret must not get another one unnoticed
        replace_whole(marker, name.encode("ascii"), mode=0o600)
    return Secrets(streams, _secret_folder() / f"{_name_in(marker)}.json")


def secret_path(marker: Path) -> Path | None:
    """Return the file of a run's secret, without making any; None: it has none."""
    if not marker.is_file():
        return None
    return _secret_folder() / f"{_name_in(marker)}.json"


def _name_in(marker: Path) -> str:
    """Return which secret is the run's: never a way out of the folder of secrets."""
    try:
        name = read_text(marker)
    except (OSError, ValueError) as error:
        name = str(error)
    if not NAME.fullmatch(name):
        raise RunError(
            f"{marker} must name a secret, 16 hex digits, found {name[:80]!r}: {secret_remedy()}"
        )
    return name


def lost_secret(marker: Path, ledger: Ledger) -> str:
    """Say what is wrong with the file that names a run's secret; "": nothing.

    A ledger that holds anything has had a secret: another one would match no tombstone,
    and erased clients would come back.
    """
    recorded = ledger.files.of(MARKER)
    roster = ledger.roster()
    begun = recorded or roster.names or roster.tombstones or ledger.overview().events
    if not marker.is_file():
        return "it is gone" if begun else ""
    return "" if not recorded or file_hash(marker) in recorded else "it was changed"


def check_secret(marker: Path, ledger: Ledger) -> None:
    """Refuse to go on without the secret that began a run.

    Raises:
        RunError: the file that names it is gone, or names another one.
    """
    if problem := lost_secret(marker, ledger):
        raise RunError(
            f"{marker} must name the secret that began this run, found that {problem}, and another "
            f"would take clients that were erased for new ones: {secret_remedy()}"
        )


def secret_remedy() -> str:
    """Say what to do where the file that names a run's secret is lost."""
    return (
        f"restore it from a copy, with the name, without .json, of this run's file in "
        f"{_secret_folder()}."
    )


def note_secret(marker: Path, ledger: Ledger) -> None:
    """Note in the ledger which secret is the run's."""
    if marker.is_file() and not ledger.files.of(MARKER):
        ledger.files.note({MARKER: file_hash(marker)})


def _whole(content: dict[str, Any]) -> dict[str, Any]:
    """Return what a secret's file holds, if that is what it must."""
    for name in ("key", "tombstones"):
        if len(bytes.fromhex(content[name])) != BYTES:
            raise ValueError(f"its {name} has not {BYTES} bytes")
    if not isinstance(content["round"], int) or content["round"] < 0:
        raise ValueError("its round is no whole number from 0")
    return {name: content[name] for name in ("round", "key", "tombstones")}


def _secret_folder() -> Path:
    return user_folder() / "runs"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file at once, for its owner's eyes only."""
    replace_whole(path, checked_json(content), mode=0o600)
