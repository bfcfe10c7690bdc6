"""Signatures: the signer of a document, and that no byte of it has changed.

    value = Ed25519(canonical(the document without "signature"))

A valid signature only says that the holder of some key signed. Whether that holder is
the one whom the reader trusts is a second question, and whether the key counted at that
time a third: `check_key` alone answers it, for documents, tree heads and cosignatures.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from covey.errors import LedgerError

__all__ = [
    "ALGORITHM",
    "UNREADABLE",
    "Check",
    "KeyRecord",
    "PublicKey",
    "SigningKey",
    "canonical",
    "check_key",
    "check_signature",
    "fingerprint",
    "instant",
    "sign",
]

SigningKey = Ed25519PrivateKey
PublicKey = Ed25519PublicKey

ALGORITHM = "Ed25519"
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
    if problem := _out_of_time(record, moment):
        return Check.failed("key", problem)
    if record.revoked is None:
        return Check.passed("key", "it was in use when this was signed")
    return Check(
        "key",
        None,
        f"it was revoked at {record.revoked.isoformat()}: that this was signed before is "
        f"the signer's word, unless a witness saw it",
    )


def _out_of_time(record: KeyRecord, moment: datetime) -> str:
    since = record.since
    if record.revoked is not None and moment >= record.revoked:
        return f"it was revoked at {record.revoked.isoformat()}"
    # some dates are written to the second
    if since is not None and moment < since.replace(microsecond=0):
        return f"it came into use at {since.isoformat()} only"
    if record.until is not None and moment > record.until:
        return f"it was replaced at {record.until.isoformat()}"
    return ""


def instant(written: object) -> datetime | None:
    """Return a moment as ISO 8601 with its offset from UTC; None: it is none."""
    try:
        found = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        return None
    return found if found and found.tzinfo else None


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
    document: Mapping[str, Any], trusted: Sequence[KeyRecord] | None, dated: str
) -> tuple[Check, ...]:
    """Return the checks "signature" and "trust", and "key" of a trusted one.

    No document makes this raise.

    Args:
        document: the signed one.
        trusted: keys that the reader knows to be the signer's from elsewhere than the
            document; with None, trust stays undecided.
        dated: the document's field that says when it was signed.
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
    known = next((each for each in trusted or () if each.public == signer), None)
    spoke = (check_key(known, instant(document.get(dated))),) if known else ()
    return valid, _trust(signer, trusted), *spoke


def _failed_check(detail: str) -> tuple[Check, Check]:
    nothing = Check.failed("trust", "there is no valid signature to trust")
    return Check.failed("signature", detail), nothing


def _trust(signer: PublicKey, trusted: Sequence[KeyRecord] | None) -> Check:
    mark = fingerprint(signer)
    if trusted is None:
        return Check("trust", None, f"signed by {mark}, not known to you")
    if any(each.public == signer for each in trusted):
        return Check.passed("trust", f"signed by {mark}, a key that you trust")
    known = ", ".join(fingerprint(each.public) for each in trusted) or "none"
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
