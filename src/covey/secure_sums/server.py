"""The server's side of one round: it relays, adds up, and takes the masks off one sum."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int64, UInt64

from covey.secure_sums.client import ClientRound
from covey.secure_sums.crypto import (
    Pairs,
    add_stream,
    key_commitment,
    makes_a_secret,
    neighbourhood,
    private_key,
    public_of,
    seed_commitment,
    seed_key,
)
from covey.secure_sums.messages import (
    SESSION_BYTES,
    Agreement,
    Agreements,
    Deliveries,
    Delivery,
    FromClient,
    Keys,
    MaskedInput,
    Message,
    OpenShare,
    ProtocolStep,
    Reason,
    Refusal,
    RefusedError,
    Roster,
    RoundGivenUpError,
    SecureSum,
    Shares,
    Survivors,
    Terms,
    Unmasking,
    secret_from,
)

M = TypeVar("M", bound=FromClient)


@dataclass(frozen=True, slots=True)
class ServerRound:
    """A round at the server, between two messages.

    `accept` takes one message of a client, and refuses by name what is not in order. `close`
    ends a step. A client that has not sent by then has dropped out. Two different lists of
    survivors must never be sent: a server that does not have the round any more begins another.

    Attributes:
        invited: who may take part.
        step: what it waits for.
        keys, shares, agreements, unmaskings: what came, in any order.
        masked: whose numbers are in `total`.
        total: the masked numbers, added up.
        refused: what did not count.
        result: the sum over the survivors; None: there is none yet.
    """

    terms: Terms
    invited: tuple[str, ...]
    step: ProtocolStep = "keys"
    keys: tuple[Keys, ...] = ()
    shares: tuple[Shares, ...] = ()
    masked: tuple[str, ...] = ()
    total: bytes = field(default=b"", repr=False)
    agreements: tuple[Agreement, ...] = ()
    unmaskings: tuple[Unmasking, ...] = ()
    refused: tuple[Refusal, ...] = ()
    result: SecureSum | None = None

    def accept(self, sender: str, data: bytes) -> "ServerRound":
        """Return the round with a client's message, or with its refusal.

        Args:
            sender: who sent it, as the transport names it.
            data: as it came.
        """
        takes: Mapping[ProtocolStep, Callable[[str, bytes], ServerRound]] = {
            "keys": self._take_keys,
            "shares": self._take_shares,
            "masked": self._take_masked,
            "agreements": self._take_agreement,
            "unmasking": self._take_unmasking,
        }
        if self.step not in takes:
            return self._refusing(sender, Reason.LATE)
        try:
            return takes[self.step](sender, data)
        except RefusedError as error:
            return self._refusing(sender, error.reason)

    def close(self) -> tuple["ServerRound", Mapping[str, bytes]]:
        """Return the round after this step, and what is sent next, by name; nothing at its end.

        Raises:
            RoundGivenUpError: too few sent what they had to, or some client shared no secret.
        """
        session = self.terms.session
        match self.step:
            case "keys":
                self._check_enough(len(self.keys), "sent keys")
                return self._sending("shares", self.roster.names, self.roster)
            case "shares":
                self._check_enough(len(self.shares), "sent shares")
                return replace(self, step="masked"), self._deliveries()
            case "masked":
                self._check_enough(len(self.masked), "sent numbers")
                later: ProtocolStep = "agreements" if self.terms.signed else "unmasking"
                return self._sending(later, self.survivors, Survivors(session, self.survivors))
            case "agreements":
                quorum = self.terms.quorum(len(self.keys))
                if len(self.agreements) < quorum:
                    details = f"Found {len(self.agreements)} signatures of {quorum}."
                    raise RoundGivenUpError(Reason.TOO_FEW_AGREE, details)
                signed = tuple(sorted(self.agreements, key=lambda agreement: agreement.sender))
                names = (agreement.sender for agreement in signed)
                return self._sending("unmasking", names, Agreements(session, signed))
            case _:
                values = self._unmasked().view("<i8").astype(np.int64)
                return replace(self, step="over", result=SecureSum(values, self.survivors)), {}

    def _sending(
        self, step: ProtocolStep, names: Iterable[str], message: Message
    ) -> tuple["ServerRound", Mapping[str, bytes]]:
        return replace(self, step=step), dict.fromkeys(names, message.to_bytes())

    def _deliveries(self) -> Mapping[str, bytes]:
        """Return for each client that sent shares what its neighbours sealed for it."""
        sealed_for: dict[str, list[Delivery]] = {share.sender: [] for share in self.shares}
        for share in sorted(self.shares, key=lambda share: share.sender):
            for sealed in share.sealed:
                if sealed.recipient in sealed_for:
                    delivery = Delivery(share.sender, sealed.content)
                    sealed_for[sealed.recipient].append(delivery)
        return {
            name: Deliveries(self.terms.session, name, tuple(deliveries)).to_bytes()
            for name, deliveries in sealed_for.items()
        }

    def _unmasked(self) -> UInt64[np.ndarray, " numbers"]:
        """Return the sum of the survivors' masked numbers without all masks.

        Survivors' own masks are subtracted; of who is gone, its half of every pairwise mask
        is added, as it would have been.
        """
        numbers, pairs = np.frombuffer(self.total, dtype="<u8").copy(), self._pairs
        opened: dict[str, dict[int, bytes]] = defaultdict(dict)
        for unmasking in self.unmaskings:
            for share in unmasking.shares:
                opened[share.owner][pairs.point(unmasking.sender)] = share.share
        survivors, threshold = set(self.masked), self.terms.threshold(len(pairs))
        for shared in self.shares:
            owner = shared.sender
            left = survivors.intersection(pairs.neighbours(owner))
            if owner in survivors:
                seed = _secret(opened[owner], threshold, owner)
                if hashlib.sha256(seed).digest() != shared.seed_digest:
                    raise _unshared(owner)
                add_stream(numbers, seed_key(seed, self.terms), sign=-1)
            elif left:
                private = _secret(opened[owner], threshold, owner)
                if public_of(private) != pairs.masking_key(owner):
                    raise _unshared(owner)
                key = private_key(private)
                for other in sorted(left):
                    pairs.add_mask(numbers, key, owner, other)
        return numbers

    @property
    def roster(self) -> Roster:
        """Who sent keys."""
        keys = sorted(self.keys, key=lambda key: key.sender)
        return Roster(self.terms.session, tuple(keys))

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose numbers came, in the order of their names."""
        return tuple(sorted(self.masked))

    @property
    def _pairs(self) -> Pairs:
        return Pairs(self.terms, self.roster)

    def _take_keys(self, sender: str, data: bytes) -> "ServerRound":
        message = self._read(Keys, sender, data, self.invited)
        if not (makes_a_secret(message.sealing) and makes_a_secret(message.masking)):
            raise RefusedError(Reason.WEAK_KEY, sender)
        keys = _one_more(self.keys, message)
        used = {key for pair in self.keys for key in (pair.sealing, pair.masking)}
        if used & {message.sealing, message.masking} or message.sealing == message.masking:
            raise RefusedError(Reason.FORGED_KEYS, sender)
        return replace(self, keys=keys)

    def _take_shares(self, sender: str, data: bytes) -> "ServerRound":
        message = self._read(Shares, sender, data, self.roster.names)
        recipients = sorted(delivery.recipient for delivery in message.sealed)
        if recipients != sorted(self._pairs.neighbours(sender)):
            raise RefusedError(Reason.WRONG_CLIENTS, sender)
        return replace(self, shares=_one_more(self.shares, message))

    def _take_masked(self, sender: str, data: bytes) -> "ServerRound":
        may = [share.sender for share in self.shares]
        message = self._read(MaskedInput, sender, data, may)
        if sender in self.masked:
            raise RefusedError(Reason.REPEATED, sender)
        numbers = np.frombuffer(message.numbers, dtype="<u8")
        if self.total:
            numbers = numbers + np.frombuffer(self.total, dtype="<u8")
        return replace(self, masked=(*self.masked, sender), total=numbers.tobytes())

    def _take_agreement(self, sender: str, data: bytes) -> "ServerRound":
        message = self._read(Agreement, sender, data, self.masked)
        return replace(self, agreements=_one_more(self.agreements, message))

    def _take_unmasking(self, sender: str, data: bytes) -> "ServerRound":
        signed = [agreement.sender for agreement in self.agreements]
        may = signed if self.terms.signed else self.masked
        message = self._read(Unmasking, sender, data, may)
        owners = [share.owner for share in message.shares]
        neighbours = set(self._pairs.neighbours(sender))
        sealed = {  # what each neighbour that shared secrets sealed for the sender
            shares.sender: next(s for s in shares.sealed if s.recipient == sender)
            for shares in self.shares
            if shares.sender in neighbours
        }
        if len(set(owners)) < len(owners) or not set(owners) <= sealed.keys():
            raise RefusedError(Reason.WRONG_CLIENTS, sender)
        after, opened = self, list[OpenShare]()
        for share in message.shares:
            own = sealed[share.owner]
            committed, actual = own.key_commitment, key_commitment(share.share)
            if share.owner in self.masked:
                committed, actual = own.seed_commitment, seed_commitment(share.share)
            if actual == committed:
                opened.append(share)
            else:
                after = after._refusing(sender, Reason.FORGED_SHARE)
        opened = replace(message, shares=tuple(opened))
        return replace(after, unmaskings=_one_more(self.unmaskings, opened))

    def _read(self, kind: type[M], sender: str, data: bytes, may: Iterable[str]) -> M:
        known = self.invited if self.step == "keys" else self.roster.names
        if sender not in known:
            raise RefusedError(Reason.UNKNOWN_SENDER, sender)
        if sender not in set(may):
            raise RefusedError(Reason.LATE, sender)
        message = kind.from_bytes(data, self.terms, len(self.invited), sender)
        if message.sender != sender:
            raise RefusedError(Reason.IMPERSONATED, sender)
        return message

    def _refusing(self, sender: str, reason: Reason) -> "ServerRound":
        refusal = Refusal(sender, self.step, reason)
        return replace(self, refused=(*self.refused, refusal))

    def _check_enough(self, count: int, what: str) -> None:
        if count < self.terms.minimum:
            details = f"{count} of at least {self.terms.minimum} clients {what}."
            raise RoundGivenUpError(Reason.TOO_FEW_CLIENTS, details)


def _one_more(known: tuple[Any, ...], message: FromClient) -> tuple[Any, ...]:
    if any(other.sender == message.sender for other in known):
        raise RefusedError(Reason.REPEATED, message.sender)
    return (*known, message)


def _secret(shares: dict[int, bytes], threshold: int, owner: str) -> bytes:
    if len(shares) < threshold:
        details = f"Found {len(shares)} of {threshold} shares of {owner}'s secret."
        raise RoundGivenUpError(Reason.TOO_FEW_SHARES, details)
    secret = secret_from(dict(sorted(shares.items())[:threshold]))
    if secret is None:
        raise _unshared(owner)
    return secret


def _unshared(owner: str) -> RoundGivenUpError:
    details = f"The shares that {owner} gave away are of no secret that it has."
    return RoundGivenUpError(Reason.FORGED_SHARE, details)


def secure_sum(
    clients: Mapping[str, Callable[[], Int64[np.ndarray, " numbers"]]], length: int, minimum: int
) -> SecureSum:
    """Return the sum over clients who all stay, through every message of a round.

    Keys and masks come from the operating system, never from a seed. No bit of the sum
    depends on them.

    Args:
        clients: what returns each one's numbers, called when they are masked.
        length: how many numbers that is.
        minimum: the fewest clients.

    Raises:
        RoundGivenUpError: there are fewer.
    """
    k = max(2, neighbourhood(len(clients)))
    terms = Terms(os.urandom(SESSION_BYTES), length, minimum, k)
    server = ServerRound(terms, tuple(sorted(clients)))
    sides = {name: ClientRound.begin(terms, name) for name in clients}
    letters: Mapping[str, bytes] = dict.fromkeys(clients, b"")
    while server.result is None:
        for name, letter in letters.items():
            sides[name], message = sides[name].answer(letter, clients[name])
            server = server.accept(name, message)
        server, letters = server.close()
    return server.result
