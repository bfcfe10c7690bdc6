"""Proofs: what was answered to a client's request to leave, for anybody to check.

A proof is one JSON file in one form: the facts, signed. It names no one: the requester
recognises itself by a salt that it alone received.

The sealed record that finds a client whose name was erased, by name and salt.

    key    = HKDF-SHA256(salt, info = name)
    sealed = nonce || AES-256-GCM(key, nonce, handle)

The salt is 16 random bytes that only the requester receives, so a holder of the sealed
record can open it for no name that it guesses.
"""

import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import TypeAdapter, ValidationError

from covey.base.errors import LedgerError
from covey.base.names import ClientName, Handle, another_format
from covey.unlearning.facts import (
    STRICT,
    AttackFigure,
    Facts,
    Superseded,
    Unmeasured,
    ValueOrReason,
    contradictions,
)
from covey.unlearning.plan import Option
from covey.unlearning.signature import (
    Check,
    KeyRecord,
    SigningKey,
    canonical,
    check_signature,
    sign,
)

NONCE = 12
SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What a requester receives, and what is kept by which to recognise it.

    Attributes:
        salt: hex.
        subject: its mark in the proof.
        sealed: what name and salt together open.
    """

    __pydantic_config__ = STRICT

    salt: str = field(repr=False)
    subject: str
    sealed: str

    @classmethod
    def fresh(cls, handle: Handle, name: ClientName) -> "Mark":
        """Draw a salt, and make the marks that go with it."""
        salt = secrets.token_bytes(SALT_BYTES)
        return cls(salt.hex(), subject_mark(name, salt), sealed(handle, name, salt))


def subject_mark(name: ClientName, salt: bytes) -> str:
    """Return HMAC-SHA256 of a client's name under its salt, as hex digits.

    Names can be guessed, so the salt must be random and 16 bytes or more.
    """
    return hmac.new(salt, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def sealed(handle: Handle, name: ClientName, salt: bytes) -> str:
    """Return the handle in hex digits that only name and salt together open."""
    return seal(salt, _purpose(name), handle.encode()).hex()


def unsealed(record: str, name: ClientName, salt: bytes) -> Handle | None:
    """Return the handle; None: the record is of another name, or of another salt."""
    try:
        return unseal(salt, _purpose(name), bytes.fromhex(record)).decode()
    except InvalidTag:
        return None


def _purpose(name: ClientName) -> bytes:
    return b"covey: the handle of " + name.encode("utf-8", "surrogatepass")


def seal(secret: bytes, purpose: bytes, content: bytes, beside: bytes | None = None) -> bytes:
    """Return the content so that only the secret opens it, for this purpose and beside this."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + _cipher(secret, purpose).encrypt(nonce, content, beside)


def unseal(secret: bytes, purpose: bytes, sealed: bytes, beside: bytes | None = None) -> bytes:
    """Return what was sealed.

    Raises:
        InvalidTag: with another secret, for another purpose or beside something else.
    """
    return _cipher(secret, purpose).decrypt(sealed[:NONCE], sealed[NONCE:], beside)


def _cipher(secret: bytes, purpose: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=purpose).derive(secret))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that is being served: what its proof needs, and no event holds.

    Attributes:
        option: the answer, and the rounds that are played again.
        until: the round before which all of them have been played.
        salt: hex; what the requester receives with the answer.
        subject: its mark.
        model_before: SHA-256 of the cluster models before the answer.
        measured_before: how well the model gave the requester away.
        updates_stored: whether there are raw updates to delete.
        superseded: how many artefacts of each kind the answer makes obsolete.
        cluster: the one cluster that ever met the client; None: there may be more.
    """

    __pydantic_config__ = STRICT

    option: Option
    until: int
    salt: str = field(repr=False)
    subject: str
    model_before: str
    measured_before: ValueOrReason[AttackFigure, Unmeasured]
    updates_stored: bool
    superseded: Mapping[Superseded, int]
    cluster: int | None = None

    @property
    def subtracts(self) -> bool:
        """Whether the last round is solved again from sums without the requester."""
        return self.option.answer == "subtract" and self.option.first_replayed_round is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Facts):
    """The document's shape: the facts, signed.

    Attributes:
        signature: of everything else, see `covey.unlearning.signature`.
    """

    __pydantic_config__ = STRICT

    format: Literal["covey-proof"]
    version: Literal[7]
    signature: Mapping[str, str]


VERSION = 7


def signed_proof(key: SigningKey, facts: Facts) -> dict[str, Any]:
    """Return the document of an answer, in plain JSON values.

    Raises:
        LedgerError: a fact is neither code nor number, or JSON has no word for it.
    """
    try:
        one_form = TypeAdapter(Facts).validate_json(canonical(asdict(facts)))
    except ValidationError as error:
        raise LedgerError(
            f"A proof must hold codes and numbers alone, but {_first_error(error)}. Nothing was "
            f"signed; report it with the run's settings."
        ) from error
    document = {"format": "covey-proof", "version": VERSION, **asdict(one_form)}
    return sign(key, json.loads(canonical(document)))


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(ascii, first['loc'])) or 'document'}: {first['msg']}"


def proof_json(document: Mapping[str, Any]) -> str:
    """Return the one form of a signed file: indented ASCII JSON, keys sorted."""
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def read_proof(written: bytes) -> Proof:
    """Read a proof's file; its signature and its facts are not checked.

    Raises:
        ValueError: it is none, of another format, or not in the one form of a proof; fit
            for a terminal whatever the bytes were.
    """
    try:
        document = json.loads(written.decode("ascii"))
        is_proof = isinstance(document, dict) and document.get("format") == "covey-proof"
        if is_proof and (version := document.get("version")) != VERSION:
            raise ValueError(another_format("it", brief(version), VERSION))  # noqa: TRY301
        proof = _reader()(written)
    except ValidationError as error:
        raise ValueError(_first_error(error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(ascii(str(error))) from error
    if proof_json(asdict(proof)).encode() != written:
        raise ValueError("the file is not in the one form of a proof")
    return proof


@cache
def _reader() -> Callable[[bytes], Proof]:
    return TypeAdapter(Proof).validate_json


def brief(value: object) -> str:
    """Return a value fit for a terminal."""
    written = ascii(value)
    return written if len(written) <= 80 else f"{written[:77]}..."


def check_proof(
    written: bytes, trusted: Sequence[KeyRecord] | None = None
) -> tuple[Proof | None, list[Check]]:
    """Check a proof's file by itself; whatever the bytes are, this returns what failed.

    Args:
        written: the file as it is: any byte that differs from its one form fails.
        trusted: the signer's keys, from elsewhere than the proof.

    Returns:
        The proof, or None if it is none, and the checks.
    """
    try:
        proof = read_proof(written)
    except ValueError as error:
        return None, [Check.failed("format", f"not a covey proof: {error}")]
    wrong = contradictions(proof)
    return proof, [
        Check.passed("format", f"{proof.format} of format {proof.version}"),
        *check_signature(asdict(proof), trusted, "answered"),
        Check.failed("facts", f"others contradict what is said of {', '.join(wrong)}")
        if wrong
        else Check.passed("facts", "they do not contradict each other"),
    ]
