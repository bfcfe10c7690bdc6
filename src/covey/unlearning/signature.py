"""Signatures: the signer of a document, and that no byte of it has changed.

    value = Ed25519(canonical(the document without "signature"))

A valid signature only says that the holder of some key signed. Whether that holder is
the one whom the reader trusts is a second question, and a second check.
"""

import base64
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from covey.atomic_io import flush_folder
from covey.errors import ConfigError, LedgerError
from covey.portable import permissions_of_others

__all__ = [
    "Check",
    "PublicKey",
    "SigningKey",
    "canonical",
    "check_signature",
    "fingerprint",
    "sign",
    "signing_key",
    "trusted_keys",
]

SigningKey = Ed25519PrivateKey
PublicKey = Ed25519PublicKey

ALGORITHM = "Ed25519"
BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        ok: None where it cannot be decided with what was given.
        detail: what was found, in one sentence.
    """

    name: str
    ok: bool | None
    detail: str

    @classmethod
    def passed(cls, name: str, detail: str) -> "Check":
        """Return a check that found what it should."""
        return cls(name, ok=True, detail=detail)

    @classmethod
    def failed(cls, name: str, detail: str) -> "Check":
        """Return a check that did not."""
        return cls(name, ok=False, detail=detail)


def signing_key(path: Path | None = None) -> SigningKey:
    """Read the key, or make it on first use; its public half lies beside it.

    To rotate it, move the file away: the next call makes another, and adds it to the
    `.pub.pem` file. That file still vouches for what the old key signed, until its
    block is taken out.

    Args:
        path: a PEM file; by default the user's own, `covey/signing-key.pem` in
            `$XDG_CONFIG_HOME` or `~/.config`.

    Raises:
        ConfigError: others may read the file, or it cannot be used.
    """
    place = path or _default_key_path()
    with _explained(place):
        if not place.exists():
            _write_new(place)
        key = _read_private(place)
        _publish(place.with_suffix(".pub.pem"), key.public_key())
    return key


def trusted_keys(path: Path) -> tuple[PublicKey, ...]:
    """Read every public key of a PEM file; a signature by any of them is trusted.

    Raises:
        ConfigError: it holds none, or something else.
    """
    with _explained(path):
        blocks = BLOCK.findall(path.read_bytes())
        keys = tuple(load_pem_public_key(block) for block in blocks)
        ours = tuple(key for key in keys if isinstance(key, PublicKey))
        if not ours or len(ours) < len(keys):
            raise ValueError(
                f"{len(ours)} of its {len(keys)} public keys are {ALGORITHM}"
            )
    return ours


def fingerprint(public: PublicKey) -> str:
    """Return the first 128 bits of the raw key's SHA-256, in groups of four digits."""
    digest = hashlib.sha256(public.public_bytes_raw()).hexdigest()
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the bytes that stand for `document`: ASCII JSON, keys sorted, no spaces.

    Raises:
        LedgerError: JSON has no word for some value, such as NaN or infinity.
    """
    try:
        text = json.dumps(
            document, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"A signed document must hold only what JSON can say, but {error}. "
            f"Give null and a reason instead of a number that is unknown or unbounded."
        ) from error
    return text.encode("ascii")


def sign(key: SigningKey, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with its signature; one that it had is replaced."""
    body = _unsigned(document)
    block = _signature(key.public_key(), key.sign(canonical(body)))
    return {**body, "signature": block}


def check_signature(
    document: Mapping[str, Any], trusted: Sequence[PublicKey] | None
) -> tuple[Check, Check]:
    """Return the checks "signature" and "trust"; no document makes this raise.

    The trusted keys are those that the reader knows to be the signer's from elsewhere
    than the document; with None, trust stays undecided.
    """
    try:
        signer = _signer(document)
    except InvalidSignature:
        return _failed_check("the document is not the one that was signed")
    except (*UNREADABLE, KeyError, LedgerError) as error:
        return _failed_check(
            f"there is no {ALGORITHM} signature in covey's form: {error!r}"
        )
    valid = Check.passed("signature", f"valid, by {fingerprint(signer)}")
    return valid, _trust(signer, trusted)


def _failed_check(detail: str) -> tuple[Check, Check]:
    nothing = Check.failed("trust", "there is no valid signature to trust")
    return Check.failed("signature", detail), nothing


def _trust(signer: PublicKey, trusted: Sequence[PublicKey] | None) -> Check:
    mark = fingerprint(signer)
    if trusted is None:
        return Check("trust", None, f"signed by {mark}, not known to you")
    if signer in trusted:
        return Check.passed("trust", f"signed by {mark}, a key that you trust")
    known = ", ".join(map(fingerprint, trusted)) or "none"
    return Check.failed("trust", f"signed by {mark}, but you trust: {known}")


def _signer(document: Mapping[str, Any]) -> PublicKey:
    """Return the key that signed, once the signature is verified."""
    block = document["signature"]
    public = PublicKey.from_public_bytes(base64.b64decode(block["public_key"]))
    value = base64.b64decode(block["value"])
    # base64 can spell the same bytes in several ways: only one is accepted
    if block != _signature(public, value):
        raise ValueError("its fields do not agree")
    public.verify(value, canonical(_unsigned(document)))
    return public


def _signature(public: PublicKey, value: bytes) -> dict[str, str]:
    return {
        "algorithm": ALGORITHM,
        "public_key": base64.b64encode(public.public_bytes_raw()).decode(),
        "fingerprint": fingerprint(public),
        "value": base64.b64encode(value).decode(),
    }


def _unsigned(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "signature"}


def _default_key_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "covey" / "signing-key.pem"


def _write_new(place: Path) -> None:
    """Make a key file that is whole or not there; of two makers the first one wins."""
    pem = SigningKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
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
    with place.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        pem = file.read()
    if permissions_of_others(mode):
        raise ConfigError(
            f"The signing key {place} must be readable by its owner alone (mode 0600), "
            f"but its mode is {mode:04o}. If nobody else can have read it, run "
            f"`chmod 600`; otherwise move it away, and a new one is made."
        )
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, SigningKey):
        raise TypeError(f"it is not an {ALGORITHM} key")
    return key


def _publish(place: Path, public: PublicKey) -> None:
    """Add the key to the file of public keys, unless it is there."""
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if place.exists() and pem in place.read_bytes():
        return
    with place.open("ab") as file:
        file.write(pem)
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
