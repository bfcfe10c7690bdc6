"""Time stamps of RFC 3161: an authority signs when it was shown the head of a ledger.

Nothing here uses a network. A person carries the query to an authority and its response
back; the head that was stamped lies beside them, as `NAME.checkpoint`.

References:
    RFC 3161, Internet X.509 Public Key Infrastructure Time-Stamp Protocol (TSP).
"""

from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificates

from covey.atomic_io import replace_whole
from covey.bounded_io import MEBIBYTE, read_bounded, read_text
from covey.errors import ConfigError, LedgerError
from covey.runtime.anchors import Anchored, Told, compared
from covey.unlearning import Check
from covey.unlearning.tree_head import TreeHead

__all__ = ["check_timestamp", "stamped_head_path", "write_timestamp_request"]

NAME = "time stamp"


class _NotStampedError(Exception):
    """A response that says nothing about a head; the text says why."""


def stamped_head_path(path: Path) -> Path:
    """Return where the head lies that a query or a response speaks of."""
    return path.with_suffix(".checkpoint")


def write_timestamp_request(head: TreeHead, path: Path) -> Path:
    """Write a query over a signed head, and the head beside it; return its path.

    Raises:
        ConfigError: the package for it is missing, or the query would lie in the place of
            the head.
    """
    place = stamped_head_path(path)
    if place == path:
        raise ConfigError(
            f"A query lies beside the head that it is about, which will be {place}. Give "
            f"it another name, for example head.tsq."
        )
    tsp = _library()
    builder = tsp.TimestampRequestBuilder().data(head.note().encode())
    query = builder.hash_algorithm(tsp.HashAlgorithm.SHA256).build()
    replace_whole(place, head.note().encode())
    replace_whole(path, query.as_bytes())
    return place


def check_timestamp(
    response: Path, root: Path, told: Told, hashes: Sequence[str] | None
) -> Anchored:
    """Check a response against the head beside it, and that against proof and ledger.

    Args:
        response: what the authority answered.
        root: the certificates that the authority's own rests on, from elsewhere, as PEM.
        told: the proof.
        hashes: of the ledger's events, if it is at hand.

    Raises:
        ConfigError: the package for it is missing.
    """
    tsp = _library()
    try:
        note = read_text(stamped_head_path(response), MEBIBYTE)
        head = TreeHead.parse(note)
        by = _stamped(tsp, response, root, note.encode())
    except (OSError, ValueError, LedgerError, _NotStampedError) as error:
        return Anchored(Check.failed(NAME, ascii(str(error))))
    return compared(NAME, head, by, told, hashes)


def _stamped(tsp: ModuleType, response: Path, root: Path, note: bytes) -> str:
    """Return who stamped a note, and when."""
    builder = tsp.VerifierBuilder()
    for certificate in load_pem_x509_certificates(read_bounded(root, MEBIBYTE)):
        builder = builder.add_root_certificate(certificate)
    written = read_bounded(response, MEBIBYTE)
    try:
        answer = tsp.decode_timestamp_response(written)
        builder.build().verify_message(answer, note)
        moment: datetime = answer.tst_info.gen_time
        name = _signer(answer.signed_data)
    except (tsp.VerificationError, ValueError, TypeError, KeyError) as error:
        raise _NotStampedError(
            f"the response is not a stamp of this head by an authority that rests on "
            f"{root}: {error}"
        ) from error
    return f"the authority {name}, {moment.isoformat()}"


def _signer(signed: Any) -> str:  # noqa: ANN401 - a type of the extra's
    """Return the name of who signed, whose certificate comes with the response."""
    (signer,) = signed.signer_infos
    for each in map(load_der_x509_certificate, signed.certificates):
        if (each.issuer, each.serial_number) == (signer.issuer, signer.serial_number):
            return each.subject.rfc4514_string()
    raise ValueError("it lacks the certificate of who signed")


def _library() -> ModuleType:
    try:  # by name: its types are not there where the extra is not installed
        return import_module("rfc3161_client")
    except ImportError as error:
        raise ConfigError(
            f"Time stamps need the package rfc3161-client, but it cannot be loaded "
            f"({error}). Install covey[timestamp]."
        ) from error
