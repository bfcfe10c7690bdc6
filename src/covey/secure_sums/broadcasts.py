"""What the server sends in a round of secure sums, and what clients sign of it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from covey.secure_sums.messages import (
    FromClient,
    Keys,
    Message,
    Name,
    SealedShares,
    Signature,
)

__all__ = [
    "Agreement",
    "Agreements",
    "Deliveries",
    "Delivery",
    "Roster",
    "Survivors",
]


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
        return tuple(each.sender for each in self.keys)

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
