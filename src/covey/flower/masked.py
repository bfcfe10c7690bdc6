"""A node's steps in a round of secure sums: what it checks, keeps and sends."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from covey.aggregation import ClientUpdate, numbers_of_update
from covey.algorithms import (
    ClientRequest,
    SumStep,
    numbers_of,
    numbers_of_counts,
)
from covey.build import ClientRuntime
from covey.config import Config
from covey.deploy import NodeFile
from covey.errors import ConfigError, DataError
from covey.flower.signing import identities_for
from covey.flower.sum_memory import SumFiles, SumMemory
from covey.heads import Sums
from covey.params import model_hash
from covey.secure_sums import ClientRound, Identities, Reason, RefusedError, Terms

__all__ = ["OwnNumbers", "SumRounds", "own_numbers"]

CHOICES = ("place", "settle", "compare")
"""Tasks of which the answer is a cluster."""

SERVER = "server"
RING = 2**63

Numbers = Int64[np.ndarray, " numbers"]


@dataclass(frozen=True, slots=True)
class OwnNumbers:
    """What a client adds to a sum.

    Attributes:
        what: names the numbers: sums of the same ones are compared with each other.
        values: returns them, once they are asked for.
        digest: returns what they are known by later; "": they are never taken off.
    """

    what: Callable[[], str]
    values: Callable[[], Numbers]
    digest: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class SumRounds:
    """One client in the rounds of one run.

    Attributes:
        folder: of the client's own files.
        config: the federation's settings, as the client has them.
        file: what the client's own file says.
        kept: what it keeps.
    """

    folder: Path
    config: Config
    file: NodeFile
    kept: SumFiles

    def answer(
        self, asked: SumStep, session: str, letter: bytes, own: OwnNumbers
    ) -> bytes:
        """Return what is sent in a step; what must never be sent twice is kept before.

        Args:
            asked: the step.
            session: the round's name, in hexadecimal digits.
            letter: what the server sent for it.
            own: what is added up.

        Raises:
            RefusedError: the step is not the next one, or what the server sent would tell
                more than a sum over enough clients.
            ConfigError: sums are not sent under masks here.
        """
        if not self.config.privacy.secure_sums:
            raise ConfigError(
                "Numbers are sent under masks with privacy.secure_sums = true, found "
                "false. Give this node the server's covey.toml."
            )
        identities = identities_for(self.folder, signed=asked.signed)
        memory = self.kept.read()
        if asked.step == "keys":
            begun = ClientRound.begin(self._terms(asked, session), self.file.name)
            after, said = begun.advertise(identities)
        elif asked.step == "masked":
            memory, current = self._adding(memory, _current(memory, session), own)
            after, said = current.mask(letter, _small(own.values(), current))
        else:
            after, said = _next(_current(memory, session), asked, letter, identities)
        if after.survivors:
            memory = self._opening(memory, after.survivors)
        self.kept.write(memory.in_round(after))
        return said

    def _adding(
        self, memory: SumMemory, current: ClientRound, own: OwnNumbers
    ) -> tuple[SumMemory, ClientRound]:
        """Return what is kept of the numbers, and the round with the sums before."""
        if current.step != "masked":
            raise RefusedError(Reason.REPEATED, SERVER)
        self._check_same(memory, own)
        what = own.what()
        earlier = self.kept.read_earlier().among(what, self.file.left)
        digest = own.digest() or memory.digest
        memory = replace(memory, what=what, digest=digest)
        return memory, replace(current, earlier=earlier)

    def _opening(self, memory: SumMemory, clients: tuple[str, ...]) -> SumMemory:
        """Keep whose sum is opened, and return what is kept of the run."""
        earlier = self.kept.read_earlier().opening(memory.what, clients)
        self.kept.write_earlier(earlier)
        return replace(memory, opened=True)

    def check_told(self, request: ClientRequest, member: ClientRuntime) -> None:
        """Refuse to tell of this client alone; its sums, where it leaves, are told once.

        Raises:
            ConfigError: its owner does not want it to leave.
            DataError: its sums are others than it sent under masks.
        """
        if not self.config.privacy.secure_sums or request.task in CHOICES:
            return
        if request.task != "sum" or not self.file.leave:
            raise ConfigError(
                f"Under privacy.secure_sums a client's own sums are told only when it "
                f"leaves, and nothing else of its own, found a server that asks for "
                f"{request.task!r} and leave = {str(self.file.leave).lower()} in "
                f"node.toml. Set it to true, if the client is to leave."
            )
        self._check_same(self.kept.read(), own_numbers(member, request))

    def _check_same(self, memory: SumMemory, own: OwnNumbers) -> None:
        """Refuse other numbers than are in a sum already, as they are taken off again."""
        if memory.opened and own.digest() not in ("", memory.digest):
            raise DataError(
                "The numbers that this client sent before are to be taken off, and must be "
                "sent again, found others. Put back the examples that it had, or leave."
            )

    def _terms(self, asked: SumStep, session: str) -> Terms:
        """Return a round's terms, of which the server says how many numbers there are."""
        least = max(self.config.privacy.min_cohort, self.file.min_cohort or 0)
        return Terms(bytes.fromhex(session), asked.length, least, signed=asked.signed)


def own_numbers(
    member: ClientRuntime,
    request: ClientRequest,
    trained: Callable[[], ClientUpdate] | None = None,
) -> OwnNumbers:
    """Return what a client adds up.

    Args:
        member: the client.
        request: what it is asked.
        trained: trains, and returns what came of it, where updates are added up.
    """
    of = request.sums.of if request.sums is not None else "sums"

    def what() -> str:
        model = model_hash(request.models)
        return f"{of} {model} {'/'.join(map(str, request.path))}"

    if of == "updates" and trained is not None:
        return OwnNumbers(what, lambda: numbers_of_update(trained(), 1))
    if of == "counts":
        return OwnNumbers(what, lambda: numbers_of_counts(*member.count(request, 0)))

    @cache
    def sums() -> Sums:
        return member.sums(request)

    return OwnNumbers(
        lambda: f"{of} {request.features} {sums().digest()}",
        lambda: numbers_of(sums()),
        lambda: sums().digest(),
    )


def _current(memory: SumMemory, session: str) -> ClientRound:
    """Return the round that this client is in; one that is over is no more."""
    if not memory.round:
        raise RefusedError(Reason.LATE, SERVER)
    found = ClientRound.from_bytes(memory.round.encode())
    if found.terms.session.hex() != session:
        raise RefusedError(Reason.WRONG_SESSION, SERVER)
    return found


def _next(
    current: ClientRound, asked: SumStep, letter: bytes, identities: Identities
) -> tuple[ClientRound, bytes]:
    match asked.step:
        case "shares":
            return current.share(letter, identities)
        case "agreements":
            return current.agree(letter, identities)
        case "unmasking" if current.terms.signed:
            return current.unmask_signed(letter, identities)
        case "unmasking":
            return current.unmask(letter)
        case _:
            raise RefusedError(Reason.EARLY, SERVER)


def _small(values: Numbers, current: ClientRound) -> Numbers:
    """Return numbers of which as many as there are clients stay in the ring."""
    clients = len(current.roster.names) if current.roster else 0
    if int(np.abs(values).max()) * clients >= RING:
        raise RefusedError(Reason.TOO_LARGE, current.name)
    return values
