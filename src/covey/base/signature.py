"""Ed25519 signatures of documents, and the files of private and public keys.

    value = Ed25519(canonical(the document without "signature"))

A valid signature says only that the holder of some key signed. `check_key` decides, for documents
and tree heads, whether the key is one that the reader trusts, and whether it counted at that
time.

The file of public keys has one PEM block per key, in the order in which they came into use. A
line before each block says since when the key is used, and, after a revocation, until when:

    since: 2026-03-01T09:00:00.000+00:00
    -----BEGIN PUBLIC KEY-----

A key is replaced when the next one comes into use. Its signatures from before then stay valid.
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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from covey.base.errors import ConfigError, LedgerError
from covey.base.files import (
    MEBIBYTE,
    check_regular,
    flush_folder,
    permissions_of_others,
    read_bounded,
    replace_whole,
    user_folder,
)

SigningKey = Ed25519PrivateKey
PublicKey = Ed25519PublicKey

ALGORITHM = "Ed25519"
LOG = 1
"""The kind of a key that signs a ledger's heads, as C2SP signed-note numbers them."""
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


PUBLIC = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)

PRIVATE = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL
)

LINE = re.compile(rb"^(since|revoked): (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        ok: None where it cannot be decided with what is at hand.
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


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start of a history, as the receipt of a request says that it was.

    Attributes:
        signer: the fingerprint of its key.
        events: how many events of the ledger, from the first one.
        when: that was, by the signer's clock; ISO 8601.
    """

    signer: str
    events: int
    when: str


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A public key, and when it counts.

    Attributes:
        since: when it came into use; None: not said.
        until: when the next one did; None: it has not been replaced.
        revoked: from when on nothing that it signs counts; None: it is not.
    """

    public: PublicKey
    since: datetime | None = None
    until: datetime | None = None
    revoked: datetime | None = None


def check_key(record: KeyRecord, moment: datetime | None) -> Check:
    """Say whether a key may speak at a time, as the one who signed gives it.

    Open where it was revoked later: who stole the key can write any date.
    """
    if moment is None:
        return Check.failed("key", "the document does not say when it was signed")
    if record.revoked is not None and moment >= record.revoked:
        return Check.failed("key", f"it was revoked at {record.revoked.isoformat()}")
    # some dates are written to the second
    if record.since is not None and moment < record.since.replace(microsecond=0):
        return Check.failed("key", f"it came into use at {record.since.isoformat()} only")
    if record.until is not None and moment > record.until:
        return Check.failed("key", f"it was replaced at {record.until.isoformat()}")
    if record.revoked is None:
        return Check.passed("key", "it was in use when this was signed")
    return Check(
        "key",
        None,
        f"it was revoked at {record.revoked.isoformat()}: that this was signed before is "
        f"the signer's word",
    )


def instant(written: object) -> datetime | None:
    """Return a moment as ISO 8601 with its offset from UTC; None: it is none."""
    try:
        moment = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        return None
    return moment if moment and moment.tzinfo else None


def fingerprint(public: PublicKey) -> str:
    """Return the first 128 bits of the raw key's SHA-256, in groups of four digits."""
    digest = hashlib.sha256(public.public_bytes_raw()).hexdigest()
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


def key_id(name: str, public: PublicKey) -> bytes:
    """Return the four bytes by which signatures of a ledger's heads name a key."""
    named = name.encode() + b"\n" + bytes([LOG]) + public.public_bytes_raw()
    return hashlib.sha256(named).digest()[:4]


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the bytes that stand for `document`: ASCII JSON, keys sorted, no spaces.

    Raises:
        LedgerError: JSON has no word for some value, such as NaN or infinity.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"A signed document must hold only what JSON can say, found {error}: give null and a "
            f"reason for a number that is unknown or unbounded."
        ) from error
    return text.encode("ascii")


def document_json(document: Mapping[str, Any]) -> str:
    """Return the one form of a signed file: indented ASCII JSON, keys sorted."""
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def sign(key: SigningKey, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with its signature; one that it had is replaced."""
    body = _unsigned(document)
    block = _signature(key.public_key(), key.sign(canonical(body)))
    return {**body, "signature": block}


def check_signature(
    document: Mapping[str, Any], trusted: Sequence[KeyRecord] | None, dated: str
) -> tuple[Check, ...]:
    """Return the checks "signature" and "trust", and "key" of a trusted one.

    No document makes this raise.

    Args:
        document: the signed one.
        trusted: keys that the reader has as the signer's from elsewhere than the
            document; with None, trust stays undecided.
        dated: the document's field that says when it was signed.
    """
    try:
        signer = _signer(document)
    except InvalidSignature:
        return _failed_check("the document is not the one that was signed")
    except (*UNREADABLE, KeyError, LedgerError) as error:
        return _failed_check(f"there is no {ALGORITHM} signature in covey's form: {error!r}")
    valid = Check.passed("signature", f"valid, by {fingerprint(signer)}")
    mark = fingerprint(signer)
    if trusted is None:
        return valid, Check("trust", None, f"signed by {mark}, not known to you")
    own = next((key for key in trusted if key.public == signer), None)
    if own is None:
        known = ", ".join(fingerprint(key.public) for key in trusted) or "none"
        return valid, Check.failed("trust", f"signed by {mark}, but you trust: {known}")
    by_own = Check.passed("trust", f"signed by {mark}, a key that you trust")
    return valid, by_own, check_key(own, instant(document.get(dated)))


def _failed_check(detail: str) -> tuple[Check, Check]:
    nothing = Check.failed("trust", "there is no valid signature to trust")
    return Check.failed("signature", detail), nothing


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
    with _errors_explained(place):
        if not place.exists():
            _write_new(place)
        key, published = _read_private(place), public_keys_path(place)
        _publish(published, key.public_key())
        own = next(record for record in key_records(published) if record.public == key.public_key())
    if own.revoked is not None:
        raise ConfigError(
            f"The key {place} must be in use, found it revoked: run `covey ledger keys --rotate`."
        )
    return key


def public_keys_path(place: Path | None) -> Path:
    """Return where the public halves of the keys of a private file are."""
    return (place or _default_key_path()).with_suffix(".pub.pem")


def key_records(path: Path) -> tuple[KeyRecord, ...]:
    """Read every public key of a file, with what is written before it.

    Raises:
        ConfigError: it holds none, or something else.
    """
    records_by_key: dict[bytes, KeyRecord] = {}
    with _errors_explained(path):
        written, start = read_bounded(path, MEBIBYTE), 0
        for block in PUBLIC.finditer(written):
            key = _public_key(block[0])
            dates = _dates(written[start : block.start()])
            record = KeyRecord(key, dates.get("since"), None, dates.get("revoked"))
            records_by_key[key.public_bytes_raw()], start = record, block.end()
        if not records_by_key:
            raise ValueError("there is no public key in it")
    records = [*records_by_key.values()]
    following = [later.since for later in records[1:]]
    return tuple(replace(k, until=t) for k, t in zip_longest(records, following))


def _public_key(pem: bytes) -> PublicKey:
    """Return a key.

    Raises:
        ValueError: it is none.
        TypeError: it is of another algorithm.
    """
    key = load_pem_public_key(pem)
    if not isinstance(key, PublicKey):
        raise TypeError(f"it holds a public key that is not {ALGORITHM}")
    return key


def rotate_key(path: Path | None = None) -> SigningKey:
    """Set the signing key aside and make another; what the old one signed still holds.

    Raises:
        ConfigError: the files cannot be used.
    """
    place = path or _default_key_path()
    with _errors_explained(place):
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
    known = {fingerprint(key.public): key for key in key_records(place)}
    record = known.get(mark)
    if record is None or record.revoked:
        reason = "it is revoked" if record else f"there are {', '.join(known)}"
        raise ConfigError(
            f"A key to revoke must be in use, by its fingerprint in {place}, found {mark!r} "
            f"({reason}): copy the fingerprint from `covey ledger keys`."
        )
    pem, written = _pem(record.public), read_bounded(place, MEBIBYTE)
    line = f"revoked: {now.isoformat(timespec='milliseconds')}\n".encode()
    replace_whole(place, written.replace(pem, line + pem, 1))
    return now


def _dates(written: bytes) -> dict[str, datetime]:
    written_dates = {name.decode(): value.decode() for name, value in LINE.findall(written)}
    moments = {name: datetime.fromisoformat(value) for name, value in written_dates.items()}
    if any(moment.tzinfo is None for moment in moments.values()):
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
    # mkstemp creates exclusively and with mode 0600: no one else ever reads it
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
            f"The signing key {place} must be readable by its owner alone, found mode {mode:04o}: "
            f"run `chmod 600` if no one else can have read it, or move it away for a new one."
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
    halves = [load_pem_public_key(half) for half in PUBLIC.findall(pem)]
    known = halves or (
        [record.public for record in key_records(published)] if published.exists() else [public]
    )
    if public not in known:
        raise ConfigError(
            f"The signing key {place} must belong to the public key beside it, found another or a "
            f"damaged one: restore it, or move it away and run `covey ledger keys --rotate`."
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
def _errors_explained(place: Path) -> Iterator[None]:
    """Turn failures of a key file into a ConfigError."""
    try:
        yield
    except (*UNREADABLE, OSError) as error:
        raise ConfigError(
            f"{place} must be a PEM file of {ALGORITHM} keys, found {error}: check its path and "
            f"permissions, or restore a copy."
        ) from error
