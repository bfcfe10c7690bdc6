"""A client's side of secure sums: it sends numbers under masks, and helps to open one sum.

The difference of two sums over nearly the same clients is a sum over few. So sums never overlap:
any two are over the same clients, or have none in common. Each client checks that by the sums
that it was in, and then all sums together reveal no more than sums over disjoint cohorts,
whatever a server asks of others. A rule that lets a cohort be divided does not suffice: from
three sums or more, without a client that was in all of them, a server could compute one client's
own numbers.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import numpy as np
from jaxtyping import Int64
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json

from covey.secure_sums.crypto import (
    Identities,
    Pairs,
    Unsigned,
    add_stream,
    open_shares,
    private_key,
    public_of,
    sealed_shares,
    seed_key,
)
from covey.secure_sums.messages import (
    JSON_BYTES,
    Agreement,
    Agreements,
    Deliveries,
    Keys,
    MaskedInput,
    Message,
    ProtocolStep,
    Reason,
    RefusedError,
    Roster,
    Shares,
    Survivors,
    Terms,
    Unmasking,
)

SERVER = "server"

M = TypeVar("M", bound=Message)

MOST_CLIENTS = 2**16

UNSIGNED = Unsigned()


def overlapping(clients: Set[str], earlier: Iterable[Set[str]]) -> bool:
    """Say whether some earlier sum is over some of these clients, but not the same ones."""
    return any(group & clients and group != clients for group in earlier)


@dataclass(frozen=True, slots=True)
class ClientRound:
    """One client in one round, between two messages.

    Every method returns the round after it, and the message to send. Keep the round
    before you send the message, and never go back to an earlier one: a round that has
    masked numbers must not mask others.

    Attributes:
        step: what it sends next.
        earlier: the sums that this client was counted in before, as far as no other one
            may overlap them.
        roster, deliveries, survivors: what the server sent, once it did.
    """

    __pydantic_config__: ClassVar[ConfigDict] = JSON_BYTES

    terms: Terms
    name: str
    sealing: bytes = field(repr=False)
    masking: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    coefficients: bytes = field(repr=False)
    step: ProtocolStep = "keys"
    earlier: tuple[frozenset[str], ...] = ()
    roster: Roster | None = None
    deliveries: Deliveries | None = None
    survivors: tuple[str, ...] = ()

    @classmethod
    def begin(
        cls,
        terms: Terms,
        name: str,
        earlier: Iterable[frozenset[str]] = (),
        draw: Callable[[int], bytes] = os.urandom,
    ) -> "ClientRound":
        """Return a client that has sent nothing yet; all that it hides is drawn here.

        Args:
            terms: of the round, from the client's own settings.
            name: by which the others know it.
            earlier: the sums that it was counted in before.
            draw: returns so many bytes that no one else has.
        """
        sealing, masking, seed, coefficients = (draw(32) for _ in range(4))
        known = tuple(earlier)
        return cls(terms, name, sealing, masking, seed, coefficients, earlier=known)

    def to_bytes(self) -> bytes:
        """Return this round with its secrets, to go on from after a crash."""
        return to_json(self, bytes_mode="base64")

    @classmethod
    def from_bytes(cls, data: bytes) -> "ClientRound":
        """Undo `to_bytes`."""
        return TypeAdapter(cls).validate_json(data)

    def answer(
        self,
        letter: bytes,
        numbers: Callable[[], Int64[np.ndarray, " numbers"]],
        identities: Identities = UNSIGNED,
    ) -> tuple["ClientRound", bytes]:
        """Return what this client sends in the step that is next.

        Args:
            letter: what the server sent for it.
            numbers: returns what is added up, once it is masked.
            identities: by which clients sign, where they do.

        Raises:
            RefusedError: there is no such step, or the server's message is not in order.
        """
        match self.step:
            case "keys":
                return self.advertise(identities)
            case "shares":
                return self.share(letter, identities)
            case "masked":
                return self.mask(letter, numbers())
            case "agreements" if self.terms.signed:
                return self.agree(letter, identities)
            case "agreements":
                return self.unmask(letter)
            case _:
                return self.unmask_signed(letter, identities)

    def advertise(self, identities: Identities = UNSIGNED) -> tuple["ClientRound", bytes]:
        """Return the public keys."""
        self._check_step("keys")
        keys = Keys(self.terms.session, self.name, public_of(self.sealing), public_of(self.masking))
        if self.terms.signed:
            keys = replace(keys, signature=identities.sign(keys.signed_part))
        return replace(self, step="shares"), keys.to_bytes()

    def share(self, data: bytes, identities: Identities = UNSIGNED) -> tuple["ClientRound", bytes]:
        """Return shares of both secrets, sealed for each neighbour.

        Args:
            data: the roster.
            identities: by which signatures are checked, where clients sign.

        Raises:
            RefusedError: the roster is too small, or not what clients sent.
        """
        self._check_step("shares")
        roster = self._read(Roster, data)
        self._check_roster(roster, identities)
        pairs, secrets = Pairs(self.terms, roster), (self.masking, self.seed)
        seals = tuple(sealed_shares(pairs, self.name, self.sealing, secrets, self.coefficients))
        digest = hashlib.sha256(self.seed).digest()
        message = Shares(self.terms.session, self.name, seals, digest)
        return replace(self, step="masked", roster=roster), message.to_bytes()

    def mask(
        self, data: bytes, values: Int64[np.ndarray, " numbers"]
    ) -> tuple["ClientRound", bytes]:
        """Return the numbers under all masks: uniform to anyone who lacks one of these.

        Args:
            data: what the neighbours sealed for this client.
            values: what is added up, mod 2^64.

        Raises:
            RefusedError: too few neighbours are left to take the masks off again.
        """
        self._check_step("masked")
        deliveries = self._read(Deliveries, data)
        pairs = self._pairs
        senders = [delivery.sender for delivery in deliveries.deliveries]
        strange = set(senders) - set(pairs.neighbours(self.name))
        if strange or len(set(senders)) < len(senders) or deliveries.recipient != self.name:
            raise RefusedError(Reason.WRONG_CLIENTS, SERVER)
        if len(senders) < self.terms.threshold(len(pairs)):
            raise RefusedError(Reason.TOO_FEW_CLIENTS, SERVER)
        if values.shape != (self.terms.length,):
            raise RefusedError(Reason.WRONG_LENGTH, self.name)
        numbers = values.astype("<i8").view("<u8")
        add_stream(numbers, seed_key(self.seed, self.terms), sign=1)
        masking = private_key(self.masking)
        for other in senders:
            pairs.add_mask(numbers, masking, self.name, other)
        message = MaskedInput(self.terms.session, self.name, numbers.tobytes())
        after = replace(self, step="agreements", deliveries=deliveries)
        return after, message.to_bytes()

    def agree(self, data: bytes, identities: Identities) -> tuple["ClientRound", bytes]:
        """Return the signature of who survived, where clients sign.

        Raises:
            RefusedError: a sum over these would reveal too much.
        """
        self._check_step("agreements")
        after = self._surviving(data)
        said = Agreement.signed_part(self._roster, after.survivors)
        message = Agreement(self.terms.session, self.name, identities.sign(said))
        return replace(after, step="unmasking"), message.to_bytes()

    def unmask(self, data: bytes) -> tuple["ClientRound", bytes]:
        """Return shares for the sum over the survivors, where no client signs.

        Raises:
            RefusedError: a sum over these would reveal too much, or clients sign here.
        """
        self._check_step("agreements")
        if self.terms.signed:
            raise RefusedError(Reason.FORGED_SIGNATURE, SERVER)
        return self._surviving(data)._opened()

    def unmask_signed(self, data: bytes, identities: Identities) -> tuple["ClientRound", bytes]:
        """Return shares for the sum that a majority signed.

        Raises:
            RefusedError: too few signed the survivors that this client signed, or a sum
                over these would reveal too much by now.
        """
        self._check_step("unmasking")
        self._check_survivors(self.survivors)
        signed = self._read(Agreements, data).signed
        said = Agreement.signed_part(self._roster, self.survivors)
        agree = {
            agreement.sender
            for agreement in signed
            if agreement.sender in self.survivors
            and identities.has_signed(agreement.sender, agreement.signature, said)
        }
        if len(agree) < self.terms.quorum(len(self._pairs)):
            raise RefusedError(Reason.TOO_FEW_AGREE, SERVER)
        return self._opened()

    @property
    def _roster(self) -> Roster:
        if self.roster is None:
            raise RefusedError(Reason.EARLY, SERVER)
        return self.roster

    @property
    def _pairs(self) -> Pairs:
        return Pairs(self.terms, self._roster)

    def _read(self, kind: type[M], data: bytes) -> M:
        return kind.from_bytes(data, self.terms, MOST_CLIENTS)

    def _check_step(self, step: ProtocolStep) -> None:
        if self.step != step:
            raise RefusedError(Reason.REPEATED, SERVER)

    def _surviving(self, data: bytes) -> "ClientRound":
        names = self._read(Survivors, data).names
        self._check_survivors(names)
        return replace(self, survivors=names)

    def _check_roster(self, roster: Roster, identities: Identities) -> None:
        """Refuse a roster that is too small, or not of what clients sent."""
        names = roster.names
        if list(names) != sorted(set(names)):
            raise RefusedError(Reason.WRONG_CLIENTS, SERVER)
        if len(names) < self.terms.minimum:
            raise RefusedError(Reason.TOO_FEW_CLIENTS, SERVER)
        own = [(e.sealing, e.masking) for e in roster.keys if e.sender == self.name]
        if own != [(public_of(self.sealing), public_of(self.masking))]:
            raise RefusedError(Reason.FORGED_KEYS, SERVER)
        for keys in roster.keys if self.terms.signed else ():
            if not identities.has_signed(keys.sender, keys.signature, keys.signed_part):
                raise RefusedError(Reason.FORGED_SIGNATURE, keys.sender)

    def _check_survivors(self, names: Sequence[str]) -> None:
        """Refuse survivors over whom a sum would reveal too much, or not of this round."""
        ordered = list(names) == sorted(set(names))
        if not ordered or self.name not in names or not set(self._roster.names) >= set(names):
            raise RefusedError(Reason.WRONG_CLIENTS, SERVER)
        if len(names) < self.terms.minimum:
            raise RefusedError(Reason.TOO_FEW_CLIENTS, SERVER)
        if overlapping(frozenset(names), self.earlier):
            raise RefusedError(Reason.SINGLED_OUT, SERVER)

    def _opened(self) -> tuple["ClientRound", bytes]:
        deliveries = self.deliveries.deliveries if self.deliveries else ()
        shares = open_shares(self._pairs, self.name, self.sealing, deliveries, self.survivors)
        opened = tuple(shares)
        message = Unmasking(self.terms.session, self.name, opened)
        return replace(self, step="over"), message.to_bytes()
