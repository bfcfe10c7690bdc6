"""The sealed record by which a requester finds its handle in a run that erased its name.

    sealed = the handle, sealed with the salt for the name (`covey.base.sealing`)

Only the requester receives the salt, 16 random bytes: without it, a guessed name opens no record.
"""

import hmac
import secrets

from cryptography.exceptions import InvalidTag

from covey.base.names import ClientName, Handle
from covey.base.sealing import seal, unseal
from covey.ledger.requests import Mark

SALT_BYTES = 16


def fresh_mark(handle: Handle, name: ClientName) -> Mark:
    """Draw a salt, and make the marks that go with it."""
    salt = secrets.token_bytes(SALT_BYTES)
    return Mark(salt.hex(), subject_mark(name, salt), sealed(handle, name, salt))


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
