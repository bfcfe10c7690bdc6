"""Certificates of the server, and the keys by which it knows its nodes.

All are ECDSA over P-384, the strongest curve that Flower takes for nodes.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from covey.base.files import read_bounded


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: an error keeps the federation from working, or from being what its
            folder promises; a warning is a choice to be aware of.
    """

    level: Literal["ok", "warning", "error"]
    about: str
    detail: str


def fine(about: str, detail: str) -> Finding:
    """Return what is as it should be."""
    return Finding("ok", about, detail)


def warning(about: str, detail: str) -> Finding:
    """Return what somebody should have chosen on purpose."""
    return Finding("warning", about, detail)


def error(about: str, detail: str) -> Finding:
    """Return what must be put right."""
    return Finding("error", about, detail)


AUTHORITY_LIFE = timedelta(days=3653)
SERVER_LIFE = timedelta(days=730)
CLOCK_SKEW = timedelta(hours=1)  # of a node whose clock is behind


@dataclass(frozen=True, slots=True)
class Certified:
    """A private key and the certificate of its public half, as PEM."""

    key: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """Whoever holds this can be the server, for every node that trusts it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, now: datetime) -> "Authority":
        """Make one that signs itself and holds for ten years."""
        key = ec.generate_private_key(ec.SECP384R1())
        name = _named("covey federation")
        builder = (
            _builder(now, AUTHORITY_LIFE, key.public_key())
            .subject_name(name)
            .issuer_name(name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True), critical=True)
        )
        return cls(key, builder.sign(key, SHA384()))

    def pem(self) -> Certified:
        """Return it as it is written."""
        return _pem(self.key, self.certificate)

    def server(self, host: str, now: datetime) -> Certified:
        """Return a server's certificate for two years.

        It names `host` for the nodes, and this machine for the server's own processes.
        """
        key = ec.generate_private_key(ec.SECP384R1())
        names = dict.fromkeys((host, "localhost", "127.0.0.1"))
        alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
        builder = (
            _builder(now, SERVER_LIFE, key.public_key())
            .subject_name(_named("covey server"))
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)  # noqa: FBT003
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        return _pem(key, builder.sign(self.key, SHA384()))


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node's key pair, as `ssh-keygen -t ecdsa -b 384` writes it."""

    private: bytes
    public: bytes

    @classmethod
    def new(cls, name: str) -> "NodeKey":
        """Make one; the name is only its comment."""
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return cls(
            key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
            public + b" " + name.encode("ascii") + b"\n",
        )


def _builder(
    now: datetime, life: timedelta, public: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Certified:
    return Certified(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate.public_bytes(Encoding.PEM),
    )


SOON = timedelta(days=30)
AGAIN = "Write a new folder with `covey deploy init`, or replace the file."


def authority_findings(path: Path, now: datetime) -> Iterator[Finding]:
    """Look at the certificate by which the server is known."""
    certificate = _read(path)
    yield (certificate if isinstance(certificate, Finding) else _dates(path, certificate, now))


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
        return error(path.name, f"expected a certificate in {path}, found: {problem}. {AGAIN}")


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
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
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


def _issuer(path: Path, server: x509.Certificate, authority: x509.Certificate) -> Finding:
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
        return error(path.name, f"expected a private key in {path}, found: {problem}. {AGAIN}")
    if key.public_key() != server.public_key():
        return error(path.name, f"expected the key of server.pem, found another. {AGAIN}")
    return fine(path.name, "is the key of server.pem")
