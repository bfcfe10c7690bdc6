"""A node's steps in a round of secure sums: what it checks, keeps and sends."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter

from covey import ClientUpdate, Config, ConfigError, RunError
from covey.aggregation.mean import numbers_of_update
from covey.algorithms.client_requests import ClientRequest, SumStep
from covey.base.files import make_folder, user_folder
from covey.base.names import SummedUp
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.membership.estimators import COUNTS_NORM, numbers_of_counts
from covey.ridge.sums import Sums
from covey.secure_sums.client import ClientRound
from covey.secure_sums.crypto import Identities
from covey.secure_sums.messages import Reason, RefusedError, Terms
from covey.secure_sums.noise import RING, Numbers
from covey_flower.client_runtime import ClientRuntime
from covey_flower.identity import identities_in
from covey_flower.memory import EXACT, check_sent_again, read_kept, write_kept
from covey_flower.node_file import NodeFile

_LOSS = "the client could be asked for two sums that reveal its own"


SERVER = "server"

OPENING = ("agreements", "unmasking")


@dataclass(frozen=True, slots=True)
class SumMemory:
    """What keeps a client from answering twice in a run.

    Attributes:
        round: the latest one, with its secrets; "": it is over, or none has begun. A
            client that has opened a sum has no more secrets of it.
        what: names the numbers that it sent in it.
        records: digest of the records that these are sums over; "": they are none.
        digest: of the numbers that are to be taken off again; "": there are none.
        opened: whether they are in a sum.
    """

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    round: str = ""
    what: str = ""
    records: str = ""
    digest: str = ""
    opened: bool = False

    def in_round(self, after: ClientRound) -> "SumMemory":
        """Return what is kept before the next message is sent."""
        text = "" if after.step == "over" else after.to_bytes().decode()
        return replace(self, round=text)


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """A sum that a client opened, or signed.

    Attributes:
        what: names the numbers: two sums of the same ones reveal what one does not.
        records: digest of the client's records; "": they are no sums over records.
        name: the client's own.
        clients: whose numbers are in it.
    """

    what: str
    records: str
    name: str
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenedSums:
    """All of them, of any run."""

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    sums: tuple[OpenedSum, ...] = ()

    def like(
        self, what: str, records: str, name: str, left: Iterable[str]
    ) -> tuple[frozenset[str], ...]:
        """Return who is in each earlier sum of such numbers, without clients that left.

        With other records than now the client is another one: of two sums over the same
        clients, the difference would be what has changed.
        """
        gone = frozenset(left)
        return tuple(
            frozenset(cluster_sums.clients) - gone - {cluster_sums.name}
            | {name if cluster_sums.records == records else cluster_sums.records}
            for cluster_sums in self.sums
            if cluster_sums.what == what
        )


_memory_of = TypeAdapter(SumMemory).validate_python
_opened_of = TypeAdapter(OpenedSums).validate_python


@dataclass(frozen=True, slots=True)
class SumGuard:
    """Of whom every sum was that was opened: by this client, and over these records.

    Attributes:
        files: all that hold it: one in the client's folder and, of the records, one of the
            user's, wherever the records lie. Names with "-" are no run's.
    """

    files: tuple[Path, ...]

    @classmethod
    def of(cls, folder: Path, records: str) -> "SumGuard":
        """Return the guard of a client.

        Args:
            folder: where the client keeps its record of all runs.
            records: digest of its records; "": other nodes have nothing of them.

        Raises:
            RunError: there is nowhere to keep it.
        """
        own = folder / "opened-sums.json"
        if not records:
            return cls((own,))
        try:
            shared = user_folder() / "sums"
            make_folder(shared)
        except (OSError, RuntimeError) as error:
            raise RunError(
                f"Sums over records must be noted where all nodes with the same records see it, "
                f"found no folder for it ({error}): set XDG_CONFIG_HOME to one that lasts."
            ) from error
        return cls((own, shared / f"{records}.json"))

    @contextmanager
    def locked(self) -> Iterator[OpenedSums]:
        """Keep all other processes out; return what is known until then.

        Raises:
            RunError: it cannot be read.
        """
        with ExitStack() as held:
            for file in self.files:
                held.enter_context(_lock(file))
            known = [read_kept(file, _opened_of, _LOSS).sums for file in self.files]
            yield OpenedSums(tuple(dict.fromkeys(s for sums in known for s in sums)))

    def add(self, opened: OpenedSum) -> None:
        """Keep that a sum is opened, before anything is sent."""
        for file in self.files:
            known = read_kept(file, _opened_of, _LOSS).sums
            if opened not in known:
                write_kept(file, OpenedSums((*known, opened)))


def _lock(file: Path) -> FileLock:
    """Return the right to change a file; a process that ends gives it back."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    place = file.with_suffix(".lock")
    return FileLock(place, mode=0o600, thread_local=False, fallback_to_soft=False)


@dataclass(frozen=True)
class OwnNumbers:
    """What a client adds to a sum.

    Sums over records have one name, whatever the server asks for them by: the run, the
    number of classes and the features are its to choose.

    Attributes:
        member: returns the client with its examples.
        request: what the server asks for.
        trained: trains, and returns what came of it, where updates are added up.
        pay: takes what is sent off what the client may still answer.
    """

    member: Callable[[], ClientRuntime]
    request: ClientRequest
    trained: Callable[[], ClientUpdate] | None = None
    pay: Callable[[], None] = lambda: None

    @property
    def what(self) -> str:
        """What the numbers are called: sums of the same ones are compared with each other."""
        models, path = self.request.models, "/".join(map(str, self.request.path))
        return "sums" if self._of == "sums" else f"{self._of} {model_hash(models)} {path}"

    @property
    def digest(self) -> str:
        """What they are known by later; "": they are never taken off."""
        return self._sums.digest() if self._of == "sums" else ""

    @property
    def records(self) -> str:
        """Digest of the records that they are sums over; "": of none."""
        return _records_digest(self.member().client) if self._of == "sums" else ""

    def values(self) -> Numbers:
        """Return them, once they are needed."""
        self.pay()
        member, request = self.member(), self.request
        plan = member.config.privacy_plan
        if self._of == "updates" and self.trained is not None:
            shares = plan.update_shares(request.recipe.learning_rate)
            return numbers_of_update(self.trained(), 1, shares)
        if self._of == "counts":
            counts, shares = member.count(request, 0), plan.shares(COUNTS_NORM)
            return numbers_of_counts(counts, shares, member.own_noise(request).draws)
        return self._sums.numbers()

    @property
    def _of(self) -> SummedUp:
        return "sums" if self.request.sums is None else self.request.sums.of

    @cached_property
    def _sums(self) -> Sums:
        return self.member().sums(self.request)


@dataclass(frozen=True, slots=True)
class SumRounds:
    """One client in the rounds of one run.

    Attributes:
        folder: of the client's own files.
        config: the federation's settings, as the client has them.
        file: what the client's own file says.
        kept: the file of what it keeps of this run, in the folder of all runs.
        simulated: whether it has no examples of anybody's.
    """

    folder: Path
    config: Config
    file: NodeFile
    kept: Path
    simulated: bool = False

    def answer(self, step: SumStep, session: str, letter: bytes, own: OwnNumbers) -> bytes:
        """Return what is sent in a step; what must never be sent twice is kept before.

        Args:
            step: the one to take.
            session: the round's name, in hexadecimal digits.
            letter: what the server sent for it.
            own: what is added up.

        Raises:
            RefusedError: the step is not the next one, or what the server sent would reveal
                more than a sum over enough clients.
        """
        identities = identities_in(self.folder)
        with _lock(self.kept):
            memory = read_kept(self.kept, _memory_of, _LOSS)
            if step.step == "keys":
                least = max(self.config.privacy_plan.min_cohort, self.file.min_cohort or 0)
                terms = Terms.new(step.length, least, bytes.fromhex(session))
                current = ClientRound.begin(terms, self.file.name)
            else:
                current = _current(memory, session)
            if current.step != step.step:
                raise RefusedError(Reason.REPEATED, SERVER)
            if step.step in OPENING:
                return self._opened(memory, current, letter, identities)
            if step.step == "masked":
                self._check_same(memory, own)
                digest = own.digest or memory.digest
                memory = replace(memory, what=own.what, records=own.records, digest=digest)
            after, said = current.answer(letter, lambda: _exact(own, current), identities)
            write_kept(self.kept, memory.in_round(after))
        return said

    def _opened(
        self, memory: SumMemory, current: ClientRound, letter: bytes, identities: Identities
    ) -> bytes:
        """Sign or open a sum, unless with another one it would reveal too few clients' sum.

        What was opened is read again here, and kept, while no other process can open any.
        """
        name, numbers = self.file.name, (memory.what, memory.records)
        guard = SumGuard.of(self.kept.parent, "" if self.simulated else memory.records)
        with guard.locked() as known:
            current = replace(current, earlier=known.like(*numbers, name, self.file.left))
            try:
                opens = current.agree if current.step == "agreements" else current.unmask_signed
                after, said = opens(letter, identities)
            except RefusedError as error:
                if error.reason is not Reason.SINGLED_OUT:
                    raise
                remedy = (
                    f"Expected the clients of the sum that was opened before, in whatever run, "
                    f"or over other records nobody of it. If others have left, name them in "
                    f"`left` in node.toml; to reveal the difference, delete "
                    f"{' and '.join(map(str, guard.files))}."
                )
                raise RefusedError(error.reason, SERVER, remedy) from None
            guard.add(OpenedSum(*numbers, name, after.survivors))
            opened = replace(memory, opened=True)
            write_kept(self.kept, opened.in_round(replace(after, earlier=())))
        return said

    def check_request(self, request: ClientRequest, member: ClientRuntime) -> None:
        """Refuse to reveal this client alone; its sums, where it leaves, are revealed once.

        Raises:
            ConfigError: its owner does not want it to leave.
            DataError: its sums are others than it sent under masks.
        """
        plan = self.config.privacy_plan
        if plan.masks is None:
            return
        if request.task != "sum" or not self.file.leave or plan.clients_add_noise:
            raise ConfigError(
                f"Under privacy.secure_sums a client must send nothing of its own but its sums "
                f"when it leaves, found a question for {request.task!r} and leave = "
                f"{str(self.file.leave).lower()} in node.toml: set it to true, if it is to leave."
            )
        self._check_same(
            read_kept(self.kept, _memory_of, _LOSS), OwnNumbers(lambda: member, request)
        )

    def _check_same(self, memory: SumMemory, own: OwnNumbers) -> None:
        """Refuse other numbers than are in a sum already, as they are taken off again."""
        if memory.opened and own.digest:
            check_sent_again(memory.digest, own.digest)


def _records_digest(client: Client) -> str:
    """Return what names a client's records, whatever their order, file and holdout."""
    digests = sorted(
        hashlib.sha256(inputs.tobytes() + labels.tobytes()).digest()
        for examples in (client.train, client.holdout)
        for inputs, labels in zip(examples.inputs.numpy(), examples.labels.numpy(), strict=True)
    )
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _exact(own: OwnNumbers, current: ClientRound) -> Numbers:
    """Return what a client adds up, if the sum over all clients is exact with it."""
    values, clients = own.values(), len(current.roster.names) if current.roster else 0
    if int(np.abs(values).max()) * clients >= RING:
        raise RefusedError(Reason.TOO_LARGE, current.name)
    return values


def _current(memory: SumMemory, session: str) -> ClientRound:
    """Return the round that this client is in; one that is over is no more."""
    if not memory.round:
        raise RefusedError(Reason.LATE, SERVER)
    current = ClientRound.from_bytes(memory.round.encode())
    if current.terms.session.hex() != session:
        raise RefusedError(Reason.WRONG_SESSION, SERVER)
    return current
