"""Looking at certificates: how long they hold, for which names, by whom, and whose key."""

import ipaddress
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from covey.bounded_io import read_bounded
from covey.deploy.diagnostics import Finding, error, fine, warning

__all__ = ["authority_findings", "server_findings"]

SOON = timedelta(days=30)
AGAIN = "Write a new folder with `covey deploy init`, or replace the file."


def authority_findings(path: Path, now: datetime) -> Iterator[Finding]:
    """Look at the certificate by which the server is known."""
    certificate = _read(path)
    yield (
        certificate
        if isinstance(certificate, Finding)
        else _dates(path, certificate, now)
    )


def server_findings(folder: Path, host: str, now: datetime) -> Iterator[Finding]:
    """Look at the server's own certificate and key.

    Args:
        folder: with ca.crt, server.pem and server.key.
        host: what the nodes call the server.
        now: with a time zone.
    """
    path = folder / "server.pem"
    server, authority = _read(path), _read(folder / "ca.crt")
    if isinstance(server, Finding):
        yield server
        return
    yield _dates(path, server, now)
    yield _names(path, server, host)
    if not isinstance(authority, Finding):
        yield _issuer(path, server, authority)
    yield _key(folder / "server.key", server)


def _read(path: Path) -> x509.Certificate | Finding:
    try:
        return x509.load_pem_x509_certificate(read_bounded(path))
    except (OSError, ValueError) as problem:
        return error(
            path.name, f"expected a certificate in {path}, found: {problem}. {AGAIN}"
        )


def _dates(path: Path, certificate: x509.Certificate, now: datetime) -> Finding:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        return error(
            path.name,
            f"expected it to hold today, {now:%Y-%m-%d}, found {begin:%Y-%m-%d} to "
            f"{end:%Y-%m-%d}. Set the clock, or: {AGAIN}",
        )
    told = f"holds until {end:%Y-%m-%d}"
    if end - now < SOON:
        return warning(path.name, f"expected it to hold a month more, {told}. {AGAIN}")
    return fine(path.name, told)


def _names(path: Path, server: x509.Certificate, host: str) -> Finding:
    try:
        names = server.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    found = {
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    }
    missing = {_normal(host), "127.0.0.1"} - found
    if missing:
        return error(
            path.name,
            f"expected the names {host}, for the nodes, and 127.0.0.1, for the server's "
            f"own processes, found {', '.join(sorted(found)) or 'none'}. {AGAIN}",
        )
    return fine(path.name, f"is for {', '.join(sorted(found))}")


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _issuer(
    path: Path, server: x509.Certificate, authority: x509.Certificate
) -> Finding:
    try:
        server.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return error(
            path.name,
            f"expected it to be signed by ca.crt, found the signature of another. {AGAIN}",
        )
    return fine(path.name, "is signed by ca.crt")


def _key(path: Path, server: x509.Certificate) -> Finding:
    try:
        key = load_pem_private_key(read_bounded(path), password=None)
    except (OSError, ValueError, TypeError) as problem:
        return error(
            path.name, f"expected a private key in {path}, found: {problem}. {AGAIN}"
        )
    if key.public_key() != server.public_key():
        return error(
            path.name, f"expected the key of server.pem, found another. {AGAIN}"
        )
    return fine(path.name, "is the key of server.pem")
