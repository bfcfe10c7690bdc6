"""What server and clients agree on before a round, and why a message is refused."""

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from covey.errors import ConfigError, CoveyError

__all__ = [
    "SESSION_BYTES",
    "Reason",
    "RefusedError",
    "RoundGivenUpError",
    "Step",
    "Terms",
]

SESSION_BYTES = 32

MAJORITY = 0.6
"""Share that signs, and that takes a mask off, where clients are on machines of their own:
two lists of survivors need a fifth of the clients on the server's side, and three in ten
may drop out."""

Step = Literal["keys", "shares", "masked", "agreements", "unmasking", "over"]
"""What the server waits for, and what a client sends next."""


class Reason(StrEnum):
    """Why a message is refused, or a round given up."""

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
    SINGLED_OUT = (
        "it overlaps an earlier sum, and their difference tells of few clients"
    )


class RefusedError(CoveyError):
    """A message was refused; whoever received it is as it was before.

    Attributes:
        reason: one of a closed set.
        sender: whose message it was; "server" for what a client receives.
    """

    def __init__(self, reason: Reason, sender: str, details: str = "") -> None:
        told = f"The message of {sender} is refused: {reason.value}."
        super().__init__(f"{told} {details}".strip())
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
            halves can be asked for the two secrets of one client; at (1 + c) / 2 nor can
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
                f"A round of secure sums takes a session of {SESSION_BYTES} bytes, numbers "
                f"to add, at least 3 clients, an even number of neighbours from 2 and a "
                f"majority in [0.5, 1), found {len(self.session)}, {self.length}, "
                f"{self.minimum}, {self.neighbours} and {self.majority}. Correct them."
            )

    @classmethod
    def new(cls, length: int, minimum: int, session: bytes = b"") -> "Terms":
        """Return terms for clients on machines of their own: all are neighbours, and sign.

        Args:
            length: how many numbers each client sends.
            minimum: the fewest clients that a sum may be over.
            session: of a round that was begun; b"": of one that nobody has played.
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
