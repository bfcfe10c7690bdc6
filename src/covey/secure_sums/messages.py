"""What clients send in a round of secure sums, as bytes of which none are believed.

Small messages are JSON with bytes in base64. A masked vector is a line of JSON and then its
numbers, 8 bytes each, the lowest byte first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from covey.secure_sums.shamir import SHARE_BYTES
from covey.secure_sums.terms import Reason, RefusedError, Terms

__all__ = [
    "JSON_BYTES",
    "FromClient",
    "Keys",
    "MaskedInput",
    "Message",
    "Name",
    "OpenShare",
    "Sealed",
    "SealedShares",
    "Shares",
    "Signature",
    "Unmasking",
]

M = TypeVar("M", bound="Message")

Name = Annotated[str, Field(min_length=1, max_length=128)]
Bytes32 = Annotated[bytes, Field(min_length=32, max_length=32)]
Signature = Annotated[bytes, Field(max_length=256)]
Share = Annotated[bytes, Field(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
SealedShares = Annotated[
    bytes, Field(min_length=2 * SHARE_BYTES + 16, max_length=2 * SHARE_BYTES + 16)
]

HEADER = 4_096
"""Bytes that any message may have."""

PER_CLIENT = 2_048
"""Bytes that a message may have for every client that it speaks of."""

JSON_BYTES = ConfigDict(
    extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64"
)


@cache
def _reader(kind: type[Any]) -> Callable[[bytes], Any]:
    return TypeAdapter(kind).validate_json


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a round.

    Attributes:
        session: the round's (`Terms.session`).
    """

    __pydantic_config__: ClassVar[ConfigDict] = JSON_BYTES

    session: Bytes32

    def to_bytes(self) -> bytes:
        """Return what travels."""
        return to_json(self, bytes_mode="base64")

    @classmethod
    def from_bytes(
        cls: type[M], data: bytes, terms: Terms, clients: int, sender: str = "server"
    ) -> M:
        """Return what such bytes say.

        Args:
            data: as they came.
            terms: of the round that is played.
            clients: how many there may be.
            sender: who sent them, as the transport knows it.

        Raises:
            RefusedError: they are too many, no such message, or of another round.
        """
        if len(data) > HEADER + PER_CLIENT * clients:
            raise RefusedError(Reason.OVERSIZED, sender)
        return cls._read(data, terms, sender)

    @classmethod
    def _read(cls: type[M], text: bytes, terms: Terms, sender: str) -> M:
        try:
            found = _reader(cls)(text)
        except ValidationError:
            raise RefusedError(Reason.MALFORMED, sender) from None
        if found.session != terms.session:
            raise RefusedError(Reason.WRONG_SESSION, sender)
        return found


@dataclass(frozen=True, slots=True)
class FromClient(Message):
    """One message of a client.

    Attributes:
        sender: whose; the server compares it with what the transport knows.
    """

    sender: Name


@dataclass(frozen=True, slots=True)
class Keys(FromClient):
    """A client's public keys for this round.

    Attributes:
        sealing: with which others seal shares for it.
        masking: of which pairwise masks are made.
        signature: of `signed_part`, where clients sign.
    """

    sealing: Bytes32
    masking: Bytes32
    signature: Signature = b""

    @property
    def signed_part(self) -> bytes:
        """What the signature is of."""
        return b"covey secure sums: keys" + replace(self, signature=b"").to_bytes()


@dataclass(frozen=True, slots=True)
class Sealed:
    """A client's shares for one neighbour.

    Attributes:
        recipient: who can read them.
        content: the share of the masking key, then that of the self-mask's seed, sealed.
        key_commitment: SHA-256 of the first, by which the server knows a forged one.
        seed_commitment: the same of the second.
    """

    recipient: Name
    content: SealedShares
    key_commitment: Bytes32
    seed_commitment: Bytes32


@dataclass(frozen=True, slots=True)
class Shares(FromClient):
    """A client's secrets, shared among its neighbours.

    Attributes:
        sealed: for every neighbour.
        seed_digest: SHA-256 of the self-mask's seed.
    """

    sealed: tuple[Sealed, ...]
    seed_digest: Bytes32


@dataclass(frozen=True, slots=True)
class MaskedInput(FromClient):
    """A client's numbers under all its masks.

    Attributes:
        numbers: mod 2^64, 8 bytes each, the lowest byte first.
    """

    numbers: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """Return what travels: a line of JSON, and the numbers."""
        return (
            to_json(replace(self, numbers=b""), bytes_mode="base64")
            + b"\n"
            + self.numbers
        )

    @classmethod
    def from_bytes(
        cls, data: bytes, terms: Terms, clients: int, sender: str = "server"
    ) -> "MaskedInput":
        """Return what such bytes say, as `Message.from_bytes` does."""
        del clients
        if len(data) > HEADER + 8 * terms.length:
            raise RefusedError(Reason.OVERSIZED, sender)
        end = data.find(b"\n", 0, HEADER)
        if end < 0:
            raise RefusedError(Reason.MALFORMED, sender)
        head = cls._read(data[:end], terms, sender)
        if head.numbers or len(data) - end - 1 != 8 * terms.length:
            raise RefusedError(Reason.WRONG_LENGTH, sender)
        return replace(head, numbers=data[end + 1 :])


@dataclass(frozen=True, slots=True)
class OpenShare:
    """A share of one of a client's two secrets: which of them the survivors decide."""

    owner: Name
    share: Share


@dataclass(frozen=True, slots=True)
class Unmasking(FromClient):
    """What a client holds of its neighbours' secrets, one of the two for each.

    Attributes:
        shares: of the seed of who survived, of the masking key of who did not.
    """

    shares: tuple[OpenShare, ...]
