"""Proofs: what was answered to a client's request to leave, for anybody to check.

A proof is one JSON file in one form: the facts, signed. It names no one: the requester
recognises itself by a salt that it alone received.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from covey.base.errors import LedgerError
from covey.base.names import another_format
from covey.base.signature import (
    Check,
    KeyRecord,
    SigningKey,
    canonical,
    check_signature,
    document_json,
    sign,
)
from covey.leaving.facts import STRICT, Facts, contradictions

VERSION = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Facts):
    """The document's shape: the facts, signed.

    Attributes:
        signature: of everything else, see `covey.base.signature`.
    """

    __pydantic_config__ = STRICT

    format: Literal["covey-proof"]
    version: Literal[11]
    signature: Mapping[str, str]


def signed_proof(key: SigningKey, facts: Facts) -> dict[str, Any]:
    """Return the document of an answer, in plain JSON values.

    Raises:
        LedgerError: a fact is neither code nor number, or JSON has no word for it.
    """
    try:
        one_form = TypeAdapter(Facts).validate_json(canonical(asdict(facts)))
    except ValidationError as error:
        raise LedgerError(
            f"A proof must hold codes and numbers alone, found that {_first_error(error)}: report "
            f"it with the settings; nothing was signed."
        ) from error
    document = {"format": "covey-proof", "version": VERSION, **asdict(one_form)}
    return sign(key, json.loads(canonical(document)))


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(ascii, first['loc'])) or 'document'}: {first['msg']}"


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
    if document_json(asdict(proof)).encode() != written:
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
