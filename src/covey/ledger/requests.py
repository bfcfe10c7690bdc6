"""Requests to leave as a ledger keeps them, and what each requester receives."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict, ValidationError

from covey.base.errors import LedgerError
from covey.base.names import Basis, ClientName, Handle

State = Literal["pending", "serving", "done", "refused"]
"""Where a request is; from "serving" on its client's name is gone."""

NAMELESS: tuple[State, ...] = ("serving", "done")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a requester receives, and what is kept by which to recognise it.

    Attributes:
        salt: hex.
        subject: its mark in the proof.
        sealed: what name and salt together open.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    salt: str = field(repr=False)
    subject: str
    sealed: str


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A client's request to leave, and what came of it.

    Attributes:
        wanted: the answer that is named; "auto": the cheapest honest one.
        client: its name, where the requester has just given it; the ledger keeps it elsewhere.
        after_round: the round after which a simulation drew it; None: a person made the request.
        mark: the requester's, until the request is served, then None.
        served: what its answer needs while it is being served, in JSON; None before and after.
        sealed: what finds the client again, for who has the requester's name and salt;
            None: nothing is kept.
        requested_at: when it was recorded, ISO 8601; "": it was not.
    """

    handle: Handle
    wanted: str = "auto"
    basis: Basis = "none"
    client: ClientName = field(default="", compare=False)
    after_round: int | None = None
    mark: Mark | None = None
    served: str | None = field(default=None, repr=False)
    sealed: str | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "pending"
    requested_at: str = ""
    served_at: str | None = None
    answered_at: str | None = None
    answer: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is not answered yet."""
        return self.state in ("pending", "serving")


@dataclass(frozen=True, slots=True)
class ClientRoster:
    """The clients of a run, as its ledger's tables have them.

    Attributes:
        names: of each handle's client, where it is still known.
        requests: every request to leave, in order of asking.
        tombstones: by which to know those again whose names were erased.
    """

    names: Mapping[Handle, ClientName] = field(default_factory=dict[Handle, ClientName])
    requests: tuple[LeaveRequest, ...] = ()
    tombstones: frozenset[str] = frozenset()

    @property
    def handles(self) -> dict[ClientName, Handle]:
        """The handle of each client whose name is known."""
        return {name: handle for handle, name in self.names.items()}

    @property
    def stopped(self) -> dict[ClientName, Handle]:
        """The clients whose data no round uses any more, and whose names stay."""
        left = (request.handle for request in self.requests if request.state in NAMELESS)
        return {self.names[handle]: handle for handle in left if handle in self.names}

    @property
    def pending(self) -> tuple[LeaveRequest, ...]:
        """The requests that wait for an answer."""
        return tuple(request for request in self.requests if request.state == "pending")

    @property
    def serving(self) -> tuple[LeaveRequest, ...]:
        """The requests whose answer is recorded, and not signed."""
        return tuple(request for request in self.requests if request.state == "serving")


def mistimed(request: str, expected: str, found: str) -> LedgerError:
    """Return what is raised where a request is not in the state that a step needs."""
    return LedgerError(
        f"The request {request} must be {expected} for this step, found {found}: look at the "
        f"requests again and take each step once."
    )


def damaged_note(request: str, error: ValidationError) -> LedgerError:
    """Return what to raise of a request with which something else stands than it needs."""
    return LedgerError(
        f"What stands with the request {request} must be what its answer needs, found that "
        f"{error.errors()[0]['msg']}: restore the ledger from a copy."
    )
