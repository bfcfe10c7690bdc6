"""The messages of secure sums, the parameters that both sides agree on, and secret shares.

Small messages are JSON with bytes in base64. A masked vector is a line of JSON and then its
numbers, 8 bytes each, the lowest byte first. Every message is checked before it is used.

Any t holders of shares can compute a secret together, and t - 1 learn nothing of it. The
libraries for it share 16 bytes at a time in Python's own loops over bits
(`Crypto.Protocol.SecretSharing`), hours for 1,000 clients; here the polynomial is evaluated over
whole secrets.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from jaxtyping import Int64
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from covey.base.errors import ConfigError, CoveyError

PRIME = 2**256 + 297
"""The smallest prime above all 32-byte secrets."""

SHARE_BYTES = 33
COEFFICIENT_BYTES = 48
"""Drawn for one coefficient: reduced by the prime, it is uniform up to 2^-127."""


SESSION_BYTES = 32

MAJORITY = 0.6
"""Share that signs, and that takes a mask off, where clients are on machines of their own:
two lists of survivors need a fifth of the clients on the server's side, and three in ten
may drop out."""

M = TypeVar("M", bound="Message")

HEADER = 4_096
"""Bytes that any message may have."""

PER_CLIENT = 2_048
"""Bytes that a message may have for every client that it speaks of."""

JSON_BYTES = ConfigDict(
    extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64"
)


def shares_of(
    secret: bytes, threshold: int, points: Iterable[int], drawn: bytes
) -> dict[int, bytes]:
    """Return the values of f(x) = secret + c_1 x + ... + c_(t-1) x^(t-1) mod the prime.

    Args:
        secret: 32 bytes.
        threshold: t.
        points: x of each holder, different from each other and from 0.
        drawn: random bytes that are used for nothing else, 48 for each coefficient.

    References:
        Shamir, How to Share a Secret, 1979.
    """
    starts = range(0, COEFFICIENT_BYTES * (threshold - 1), COEFFICIENT_BYTES)
    coefficients = [
        int.from_bytes(drawn[start : start + COEFFICIENT_BYTES], "big") % PRIME for start in starts
    ]
    highest_first = [*reversed(coefficients), int.from_bytes(secret, "big")]
    return {x: _value(highest_first, x).to_bytes(SHARE_BYTES, "big") for x in points}


def secret_from(shares: Mapping[int, bytes]) -> bytes | None:
    """Return what these shares are of; None: they are of nothing that was shared.

    Args:
        shares: by point; t of them, or more.
    """
    values = {x: int.from_bytes(share, "big") for x, share in shares.items()}
    secret = 0
    for x, value in values.items():
        above, below = 1, 1
        for other in values:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        secret += value * above * pow(below, -1, PRIME)
    secret %= PRIME
    return secret.to_bytes(32, "big") if secret < 2**256 else None


def _value(highest_first: list[int], x: int) -> int:
    value = 0
    for coefficient in highest_first:
        value = (value * x + coefficient) % PRIME
    return value


ProtocolStep = Literal["keys", "shares", "masked", "agreements", "unmasking", "over"]
"""What the server waits for, and what a client sends next."""


class Reason(StrEnum):
    """Why a message is refused, or a round ends without a sum."""

    OVERSIZED = "it is longer than such a message can be"
    MALFORMED = "it is not such a message"
    UNKNOWN_SENDER = "its sender is not in this round"
    IMPERSONATED = "another client sent it than the one it names"
    WRONG_SESSION = "it belongs to another round"
    LATE = "this step is over"
    EARLY = "this step has not come yet"
    REPEATED = "its sender sent one before"
    WRONG_LENGTH = "the numbers are not as many as agreed"
    TOO_LARGE = "with as large numbers of all the sum would not be exact"
    WRONG_CLIENTS = "it names others than it must"
    WEAK_KEY = "a key in it makes no secret"
    FORGED_KEYS = "the keys are not those that were sent"
    FORGED_SIGNATURE = "a signature does not belong to what it signs"
    FORGED_SHARE = "a share is not the one that was committed to"
    TOO_FEW_CLIENTS = "fewer clients than the smallest cohort"
    TOO_FEW_SHARES = "too few shares are left to take the masks off"
    TOO_FEW_AGREE = "too few clients signed the same survivors"
    SPENT = "its own budget allows no more"
    NOT_NEEDED = "its settings need no such answer"
    TOO_OFTEN = "it has answered as often as the rounds of its settings need"
    SINGLED_OUT = "it overlaps an earlier sum, and their difference reveals few clients"


class RefusedError(CoveyError):
    """A message was refused; its receiver is as it was before.

    Attributes:
        reason: one of a closed set.
        sender: whose message it was; "server" for what a client receives.
    """

    def __init__(self, reason: Reason, sender: str, details: str = "") -> None:
        refusal = f"The message of {sender} is refused: {reason.value}."
        super().__init__(f"{refusal} {details}".strip())
        self.reason, self.sender = reason, sender


class RoundGivenUpError(CoveyError):
    """No sum comes of this round: nothing is released, and another round may be begun.

    Attributes:
        reason: one of a closed set.
    """

    def __init__(self, reason: Reason, details: str) -> None:
        super().__init__(
            f"The round of secure sums is given up: {reason.value}. {details} Begin "
            f"another one: masks are drawn anew."
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Terms:
    """What a round is played by; each side takes it from its own settings.

    Attributes:
        session: names the round; 32 bytes that no other round has.
        length: how many numbers each client sends.
        minimum: the fewest clients that a sum may be over; clients refuse less as well.
        neighbours: k: with how many others each client shares masks and secrets, an even
            number; at least clients - 1: with all of them.
        majority: in [0.5, 1): more than this share of a client's neighbours take its mask
            off, and more than this share of all sign who survived. At 0.5 no two disjoint
            halves can hand over the two secrets of one client; at (1 + c) / 2 nor can
            two that have less than a share c of the clients in common, who tell the
            server all that they have.
        signed: whether clients sign with keys by which the others know them. Where they
            do not, a server can invent clients: for simulations.
    """

    session: bytes
    length: int
    minimum: int = 3
    neighbours: int = 2**16
    majority: float = 0.5
    signed: bool = False

    def __post_init__(self) -> None:
        sound = (
            len(self.session) == SESSION_BYTES
            and self.length > 0
            and self.minimum >= 3
            and self.neighbours >= 2
            and self.neighbours % 2 == 0
            and 0.5 <= self.majority < 1
        )
        if not sound:
            raise ConfigError(
                f"A round of secure sums must have a session of {SESSION_BYTES} bytes, a length, 3 "
                f"clients or more, an even number of neighbours and a majority in [0.5, 1), found "
                f"{len(self.session)}, {self.length}, {self.minimum}, {self.neighbours} and "
                f"{self.majority}: correct them."
            )

    @classmethod
    def new(cls, length: int, minimum: int, session: bytes = b"") -> "Terms":
        """Return terms for clients on machines of their own: all are neighbours, and sign.

        Args:
            length: how many numbers each client sends.
            minimum: the fewest clients that a sum may be over.
            session: of a round that was begun; b"": of one that was never played.
        """
        session = session or os.urandom(SESSION_BYTES)
        return cls(session, length, minimum, majority=MAJORITY, signed=True)

    def degree(self, clients: int) -> int:
        """Return how many neighbours each of so many clients has."""
        return min(self.neighbours, clients - 1)

    def threshold(self, clients: int) -> int:
        """Return t: how many of its neighbours can take a client's mask off."""
        return int(self.majority * self.degree(clients)) + 1

    def quorum(self, clients: int) -> int:
        """Return how many of so many clients must have signed the same survivors."""
        return int(self.majority * clients) + 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message, or a share in one, that did not count."""

    sender: str
    step: ProtocolStep
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False)
class SecureSum:
    """What comes of a round.

    Attributes:
        values: the sum, mod 2^64.
        clients: whose numbers it is over, in the order of their names.
    """

    values: Int64[np.ndarray, " numbers"]
    clients: tuple[str, ...]


Name = Annotated[str, Field(min_length=1, max_length=128)]
Bytes32 = Annotated[bytes, Field(min_length=32, max_length=32)]
Signature = Annotated[bytes, Field(max_length=256)]
Share = Annotated[bytes, Field(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
SealedShares = Annotated[
    bytes, Field(min_length=2 * SHARE_BYTES + 16, max_length=2 * SHARE_BYTES + 16)
]


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
            sender: who sent them, as the transport names it.

        Raises:
            RefusedError: they are too many, no such message, or of another round.
        """
        if len(data) > HEADER + PER_CLIENT * clients:
            raise RefusedError(Reason.OVERSIZED, sender)
        return cls._read(data, terms, sender)

    @classmethod
    def _read(cls: type[M], text: bytes, terms: Terms, sender: str) -> M:
        try:
            message = _reader(cls)(text)
        except ValidationError:
            raise RefusedError(Reason.MALFORMED, sender) from None
        if message.session != terms.session:
            raise RefusedError(Reason.WRONG_SESSION, sender)
        return message


@dataclass(frozen=True, slots=True)
class FromClient(Message):
    """One message of a client.

    Attributes:
        sender: whose; the server compares it with the transport's name.
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
        key_commitment: SHA-256 of the first, by which the server recognises a forged one.
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
        return to_json(replace(self, numbers=b""), bytes_mode="base64") + b"\n" + self.numbers

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


@dataclass(frozen=True, slots=True)
class Roster(Message):
    """Who takes part, the same for everybody.

    Attributes:
        keys: of every client, in the order of their names.
    """

    keys: tuple[Keys, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Who takes part."""
        return tuple(key.sender for key in self.keys)

    def digest(self) -> bytes:
        """Return what binds everything later to this roster."""
        return hashlib.sha256(self.to_bytes()).digest()


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one neighbour sealed for a client."""

    sender: Name
    content: SealedShares


@dataclass(frozen=True, slots=True)
class Deliveries(Message):
    """What a client's neighbours sealed for it; who is not here is masked with no more.

    Attributes:
        recipient: whose.
    """

    recipient: Name
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class Survivors(Message):
    """Whose numbers the sum is over, in the order of their names."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Agreement(FromClient):
    """A client's signature of who survived: it will unmask no other sum."""

    signature: Signature

    @staticmethod
    def signed_part(roster: Roster, survivors: Iterable[str]) -> bytes:
        """Return what the signature is of."""
        said = Survivors(roster.session, tuple(survivors))
        return b"covey secure sums: survivors" + roster.digest() + said.to_bytes()


@dataclass(frozen=True, slots=True)
class Agreements(Message):
    """The signatures of all who agreed."""

    signed: tuple[Agreement, ...]
