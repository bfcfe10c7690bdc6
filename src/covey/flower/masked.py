"""A node's steps in a round of secure sums: what it checks, keeps and sends."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from covey.aggregation import ClientUpdate, numbers_of_update
from covey.algorithms import (
    ClientRequest,
    SummedUp,
    SumStep,
    numbers_of,
    numbers_of_counts,
)
from covey.build import ClientRuntime, summed_up
from covey.config import Config
from covey.data import Client
from covey.deploy import NodeFile
from covey.errors import ConfigError, DataError
from covey.flower.signing import identities_in
from covey.flower.sum_memory import OpenedSum, SumFiles, SumGuard, SumMemory
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
        records: returns the digest of the records that they are sums over; "": of none.
    """

    what: Callable[[], str]
    values: Callable[[], Numbers]
    digest: Callable[[], str] = str
    records: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class SumRounds:
    """One client in the rounds of one run.

    Attributes:
        folder: of the client's own files.
        config: the federation's settings, as the client has them.
        file: what the client's own file says.
        kept: what it keeps.
        simulated: whether it has no examples of anybody's.
    """

    folder: Path
    config: Config
    file: NodeFile
    kept: SumFiles
    simulated: bool = False

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
            ConfigError: sums are not sent under masks here, or not of these numbers.
        """
        self._check_needed(asked.of)
        identities = identities_in(self.folder)
        with self.kept.locked():
            memory = self.kept.read()
            if asked.step == "keys":
                begun = ClientRound.begin(self._terms(asked, session), self.file.name)
                after, said = begun.advertise(identities)
            elif asked.step == "shares":
                after, said = _current(memory, session).share(letter, identities)
            elif asked.step == "masked":
                current = _current(memory, session)
                memory = self._adding(memory, current, own)
                after, said = current.mask(letter, _small(own.values(), current))
            else:
                return self._opened(memory, (asked, session), letter, identities)
            self.kept.write(memory.in_round(after))
        return said

    def _adding(
        self, memory: SumMemory, current: ClientRound, own: OwnNumbers
    ) -> SumMemory:
        """Return what is kept of the numbers."""
        if current.step != "masked":
            raise RefusedError(Reason.REPEATED, SERVER)
        self._check_same(memory, own)
        digest = own.digest() or memory.digest
        what, records = own.what(), own.records()
        return replace(memory, what=what, records=records, digest=digest)

    def _opened(
        self,
        memory: SumMemory,
        asked: tuple[SumStep, str],
        letter: bytes,
        identities: Identities,
    ) -> bytes:
        """Sign or open a sum, unless with another one it would tell of too few clients.

        What was opened is read again here, and kept, while no other process can open any.
        """
        step, session = asked
        current, name = _current(memory, session), self.file.name
        numbers = memory.what, memory.records
        shared = "" if self.simulated else memory.records
        guard = SumGuard.of(self.kept.path, shared)
        with guard.locked() as known:
            earlier = known.like(*numbers, name, self.file.left)
            try:
                to_open = replace(current, earlier=earlier)
                after, said = _opening(to_open, step, letter, identities)
            except RefusedError as error:
                if error.reason is not Reason.SINGLED_OUT:
                    raise
                raise RefusedError(error.reason, SERVER, _way_out(guard)) from None
            guard.add(OpenedSum(*numbers, name, after.survivors))
            opened = replace(memory, opened=True)
            self.kept.write(opened.in_round(replace(after, earlier=())))
        return said

    def _check_needed(self, of: SummedUp) -> None:
        """Refuse to add up what the settings do not need: no guard is made for it."""
        if not self.config.privacy.secure_sums:
            raise ConfigError(
                "Numbers are sent under masks with privacy.secure_sums = true, found "
                "false. Give this node the server's covey.toml."
            )
        if of not in (needed := summed_up(self.config)):
            raise ConfigError(
                f"Under masks this node adds up what its settings need, "
                f"{' and '.join(sorted(needed))}, found a server that asks for {of}. Give "
                f"this node and the server the same covey.toml."
            )

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
        self._check_same(self.kept.read(), own_numbers(lambda: member, request))

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
        return Terms.new(asked.length, least, bytes.fromhex(session))


def own_numbers(
    member: Callable[[], ClientRuntime],
    request: ClientRequest,
    trained: Callable[[], ClientUpdate] | None = None,
) -> OwnNumbers:
    """Return what a client adds up.

    Sums over records have one name, whatever the server asks for them by: the run, the
    number of classes and the features are its to choose.

    Args:
        member: returns the client with its examples.
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
        return OwnNumbers(what, lambda: numbers_of_counts(*member().count(request, 0)))

    @cache
    def sums() -> Sums:
        return member().sums(request)

    return OwnNumbers(
        lambda: of,
        lambda: numbers_of(sums()),
        lambda: sums().digest(),
        lambda: _records_digest(member().client),
    )


def _records_digest(client: Client) -> str:
    """Return what names a client's records, whatever their order, file and holdout."""
    found = sorted(
        hashlib.sha256(inputs.tobytes() + labels.tobytes()).digest()
        for each in (client.train, client.holdout)
        for inputs, labels in zip(each.inputs.numpy(), each.labels.numpy(), strict=True)
    )
    return hashlib.sha256(b"".join(found)).hexdigest()


def _current(memory: SumMemory, session: str) -> ClientRound:
    """Return the round that this client is in; one that is over is no more."""
    if not memory.round:
        raise RefusedError(Reason.LATE, SERVER)
    found = ClientRound.from_bytes(memory.round.encode())
    if found.terms.session.hex() != session:
        raise RefusedError(Reason.WRONG_SESSION, SERVER)
    return found


def _opening(
    current: ClientRound, asked: SumStep, letter: bytes, identities: Identities
) -> tuple[ClientRound, bytes]:
    match asked.step:
        case "agreements":
            return current.agree(letter, identities)
        case "unmasking":
            return current.unmask_signed(letter, identities)
        case _:
            raise RefusedError(Reason.EARLY, SERVER)


def _way_out(guard: SumGuard) -> str:
    files = " and ".join(map(str, guard.files))
    return (
        f"Expected the clients of the sum that was opened before, in whatever run, or over "
        f"other records nobody of it. If others have left, name them in `left` in "
        f"node.toml; to let the difference be told, delete {files}."
    )


def _small(values: Numbers, current: ClientRound) -> Numbers:
    """Return numbers of which as many as there are clients stay in the ring."""
    clients = len(current.roster.names) if current.roster else 0
    if int(np.abs(values).max()) * clients >= RING:
        raise RefusedError(Reason.TOO_LARGE, current.name)
    return values
