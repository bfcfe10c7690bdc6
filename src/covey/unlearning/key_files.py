"""Key files: the private key that signs, and the public ones that vouch for signatures.

The file of public keys has one PEM block per key, in the order in which they came into
use, and before each block since when, and from when on it is revoked:

    since: 2026-03-01T09:00:00.000+00:00
    -----BEGIN PUBLIC KEY-----

A key is replaced when the next one comes into use. What it signed until then holds.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from covey.atomic_io import flush_folder, replace_whole, user_folder
from covey.bounded_io import MEBIBYTE, check_regular, read_bounded
from covey.errors import ConfigError
from covey.portable import permissions_of_others
from covey.unlearning.signature import (
    ALGORITHM,
    UNREADABLE,
    KeyRecord,
    PublicKey,
    SigningKey,
    fingerprint,
)

__all__ = [
    "key_records",
    "public_keys_path",
    "revoke_key",
    "rotate_key",
    "signing_key",
]

PUBLIC = re.compile(
    rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL
)
PRIVATE = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL
)
LINE = re.compile(rb"^(since|revoked): (\S+)$", re.MULTILINE)


def signing_key(path: Path | None = None) -> SigningKey:
    """Read the key, or make it on first use; its public half lies beside it.

    The public half stands in the private file as well, so that a damaged key is not
    taken for another one.

    Args:
        path: a PEM file; by default the user's own, `covey/signing-key.pem` in
            `$XDG_CONFIG_HOME` or `~/.config`.

    Raises:
        ConfigError: others may read the file, it is damaged or revoked, or it cannot be
            used.
    """
    place = path or _default_key_path()
    with _explained(place):
        if not place.exists():
            _write_new(place)
        key, published = _read_private(place), public_keys_path(place)
        _publish(published, key.public_key())
        own = next(
            each for each in key_records(published) if each.public == key.public_key()
        )
    if own.revoked is not None:
        raise ConfigError(
            f"The signing key {place} must be one that counts, but it was revoked. Make "
            f"another one with `covey keys --rotate`."
        )
    return key


def public_keys_path(place: Path | None = None) -> Path:
    """Return where the public halves of the keys of a private file are."""
    return (place or _default_key_path()).with_suffix(".pub.pem")


def key_records(path: Path) -> tuple[KeyRecord, ...]:
    """Read every public key of a PEM file, with what is written before it.

    Raises:
        ConfigError: it holds none, or something else.
    """
    with _explained(path):
        written = read_bounded(path, MEBIBYTE)
        blocks = list(PUBLIC.finditer(written))
        keys = [load_pem_public_key(block[0]) for block in blocks]
        ours = [key for key in keys if isinstance(key, PublicKey)]
        if not ours or len(ours) < len(keys):
            raise ValueError(
                f"{len(ours)} of its {len(keys)} public keys are {ALGORITHM}"
            )
        starts = [0, *(block.end() for block in blocks)]
        dates = [
            _dates(written[start : block.start()])
            for start, block in zip(starts, blocks, strict=False)
        ]
    found = {
        key.public_bytes_raw(): (key, each)
        for key, each in zip(ours, dates, strict=True)
    }
    since = [each.get("since") for _, each in found.values()]
    return tuple(
        KeyRecord(key, each.get("since"), until, each.get("revoked"))
        for (key, each), until in zip(found.values(), [*since[1:], None], strict=True)
    )


def rotate_key(path: Path | None = None) -> SigningKey:
    """Set the signing key aside and make another; what the old one signed still holds.

    Raises:
        ConfigError: the files cannot be used.
    """
    place = path or _default_key_path()
    with _explained(place):
        if place.exists():
            mark = fingerprint(_read_private(place).public_key())
            place.rename(place.with_name(f"{place.stem}.{mark}.retired"))
    return signing_key(path)


def revoke_key(mark: str, path: Path | None = None) -> datetime:
    """Write before a public key that nothing counts which it signs from now on.

    Args:
        mark: the key's fingerprint.
        path: the private key's file; by default the user's own.

    Raises:
        ConfigError: there is no such public key, or it is revoked already.
    """
    place, now = public_keys_path(path), datetime.now(UTC)
    known = {fingerprint(each.public): each for each in key_records(place)}
    record = known.get(mark)
    if record is None or record.revoked:
        found = "it is revoked already" if record else f"there are {', '.join(known)}"
        raise ConfigError(
            f"A key is revoked once, by its fingerprint in {place}, found {mark!r}: "
            f"{found}. Copy the fingerprint from `covey keys`."
        )
    pem, written = _pem(record.public), read_bounded(place, MEBIBYTE)
    line = f"revoked: {now.isoformat(timespec='milliseconds')}\n".encode()
    replace_whole(place, written.replace(pem, line + pem, 1))
    return now


def _dates(written: bytes) -> dict[str, datetime]:
    found = {name.decode(): value.decode() for name, value in LINE.findall(written)}
    moments = {name: datetime.fromisoformat(value) for name, value in found.items()}
    if any(each.tzinfo is None for each in moments.values()):
        raise ValueError("a date has no offset from UTC")
    return moments


def _pem(public: PublicKey) -> bytes:
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _default_key_path() -> Path:
    return user_folder() / "signing-key.pem"


def _write_new(place: Path) -> None:
    """Make a key file that is whole or not there; of two makers the first one wins."""
    key = SigningKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += _pem(key.public_key())
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp creates exclusively and with mode 0600: nobody else ever reads it
    handle, unfinished = tempfile.mkstemp(dir=place.parent, prefix=f"{place.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        # unlike a rename, a link never replaces a key that is there
        place.hardlink_to(unfinished)
    except FileExistsError:
        pass  # the other maker's key is the one
    finally:
        Path(unfinished).unlink()
    flush_folder(place.parent)


def _read_private(place: Path) -> SigningKey:
    check_regular(place)
    with place.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        pem = file.read(MEBIBYTE)
    if permissions_of_others(mode):
        raise ConfigError(
            f"The signing key {place} must be readable by its owner alone (mode 0600), "
            f"but its mode is {mode:04o}. If nobody else can have read it, run "
            f"`chmod 600`; otherwise move it away, and a new one is made."
        )
    block = PRIVATE.search(pem)
    key = load_pem_private_key(block[0] if block else pem, password=None)
    if not isinstance(key, SigningKey):
        raise TypeError(f"it is not an {ALGORITHM} key")
    _check_undamaged(key.public_key(), place, pem)
    return key


def _check_undamaged(public: PublicKey, place: Path, pem: bytes) -> None:
    """Compare a private key with its public half: a flipped bit is a key as well.

    A key of one's own may stand without it, and is compared with the published ones.
    """
    published = public_keys_path(place)
    halves = [load_pem_public_key(each) for each in PUBLIC.findall(pem)]
    known = halves or (
        [each.public for each in key_records(published)]
        if published.exists()
        else [public]
    )
    if public not in known:
        raise ConfigError(
            f"The signing key {place} must belong to the public key beside it, but it "
            f"does not: the file is damaged, or was exchanged. Restore it from a copy; if "
            f"there is none, run `covey keys --rotate` after moving it away."
        )


def _publish(place: Path, public: PublicKey) -> None:
    """Add the key to the file of public keys, unless it is there."""
    pem = _pem(public)
    if place.exists() and pem in read_bounded(place, MEBIBYTE):
        return
    since = f"since: {datetime.now(UTC).isoformat(timespec='milliseconds')}\n"
    with place.open("ab") as file:
        file.write(since.encode() + pem)
        file.flush()
        os.fsync(file.fileno())
    flush_folder(place.parent)


@contextmanager
def _explained(place: Path) -> Iterator[None]:
    """Turn failures of a key file into a ConfigError."""
    try:
        yield
    except (*UNREADABLE, OSError) as error:
        raise ConfigError(
            f"{place} must be a PEM file of {ALGORITHM} keys that can be used here, "
            f"but: {error}. Check the path and its permissions, or restore a copy."
        ) from error
