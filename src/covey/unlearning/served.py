"""What has to outlive a crash until a request to leave is answered, and signed."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from covey.types import ClientName, Handle
from covey.unlearning.proof import subject_mark
from covey.unlearning.proof_text import STRICT, RecordedFacts
from covey.unlearning.sealing import sealed

__all__ = ["TOO_FEW", "Mark", "MeasuredFacts", "Served"]

SALT_BYTES = 16
TOO_FEW = "the requester holds too few examples to attack"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a requester is given, and what is kept by which to know it again.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFacts(RecordedFacts):
    """What is known of an answer before it is carried out, its attack included.

    Attributes:
        measured_before: how well the model gave the requester away; None: see the next.
        unmeasured: why it was not measured.
    """

    __pydantic_config__ = STRICT

    measured_before: Mapping[str, float] | None
    unmeasured: str = TOO_FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that is being served.

    Attributes:
        first: the first round that is played again; None: none is.
        until: the round before which all of them have been played.
        salt: hex; what the requester is given with the answer.
        facts: what the proof says of the time before the answer.
        cluster: the one cluster that ever met the client; None: there may be more.
    """

    __pydantic_config__ = STRICT

    first: int | None
    until: int
    salt: str = field(repr=False)
    facts: MeasuredFacts
    cluster: int | None = None
