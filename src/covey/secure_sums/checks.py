"""What a client refuses of the server before it opens or sends anything."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from covey.secure_sums.broadcasts import Roster
from covey.secure_sums.disclosure import overlapping
from covey.secure_sums.identities import Identities
from covey.secure_sums.masks import public_of
from covey.secure_sums.terms import Reason, RefusedError, Terms

__all__ = ["check_roster", "check_survivors"]

SERVER = "server"


@runtime_checkable
class Own(Protocol):
    """What a client knows without the server."""

    @property
    def terms(self) -> Terms:
        """Of the round."""
        ...

    @property
    def name(self) -> str:
        """The client's."""
        ...

    @property
    def sealing(self) -> bytes:
        """Its private key for shares."""
        ...

    @property
    def masking(self) -> bytes:
        """Its private key for masks."""
        ...

    @property
    def earlier(self) -> tuple[frozenset[str], ...]:
        """The sums that it was counted in before."""
        ...


def check_roster(roster: Roster, own: Own, identities: Identities) -> None:
    """Refuse a roster that is too small, or not of what clients sent.

    Raises:
        RefusedError: it is.
    """
    names = roster.names
    if list(names) != sorted(set(names)):
        raise RefusedError(Reason.WRONG_CLIENTS, SERVER)
    if len(names) < own.terms.minimum:
        raise RefusedError(Reason.TOO_FEW_CLIENTS, SERVER)
    told = [(e.sealing, e.masking) for e in roster.keys if e.sender == own.name]
    if told != [(public_of(own.sealing), public_of(own.masking))]:
        raise RefusedError(Reason.FORGED_KEYS, SERVER)
    if not own.terms.signed:
        return
    for each in roster.keys:
        if not identities.knows(each.sender, each.signature, each.signed_part):
            raise RefusedError(Reason.FORGED_SIGNATURE, each.sender)


def check_survivors(names: Sequence[str], roster: Roster, own: Own) -> None:
    """Refuse survivors over whom a sum would tell too much.

    Raises:
        RefusedError: it would, or they are not of this round.
    """
    ordered = list(names) == sorted(set(names))
    if not ordered or own.name not in names or not set(roster.names) >= set(names):
        raise RefusedError(Reason.WRONG_CLIENTS, SERVER)
    if len(names) < own.terms.minimum:
        raise RefusedError(Reason.TOO_FEW_CLIENTS, SERVER)
    if overlapping(frozenset(names), own.earlier):
        raise RefusedError(Reason.SINGLED_OUT, SERVER)
