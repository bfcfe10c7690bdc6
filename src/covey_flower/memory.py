"""What a client keeps of a run in its own folder, and is checked whenever it is read."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, unquote

import safetensors.torch
from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter
from safetensors import SafetensorError, safe_open
from torch import Tensor

from covey import CoveyError, DataError, Params, RiskEstimate, RunError
from covey.base.files import check_regular, checked, checked_json, read_bounded, replace_whole
from covey.base.names import Released
from covey.secure_sums.messages import Reason, RefusedError

UNREADABLE = (
    *(SafetensorError, OSError, CoveyError),
    *(ValueError, TypeError, KeyError, RecursionError),
)
EXACT = ConfigDict(extra="forbid")
T = TypeVar("T")


_SPENT = "what the client has spent on its choices is not known"


def read_kept(file: Path, read: Callable[[object], T], loss: str) -> T:
    """Return what a file of the client's holds; what is not there yet holds defaults.

    Args:
        file: as `write_kept` wrote it.
        read: makes the record of JSON values.
        loss: what is not known without the file.

    Raises:
        RunError: it cannot be read.
    """
    if not file.is_file():
        return read({})
    try:
        content = json.loads(checked(read_bounded(file)))
        del content["checksum"]
        return read(content)
    except UNREADABLE as error:
        raise _damaged(file, error, loss) from error


def check_sent_again(before: str, now: str) -> None:
    """Refuse other numbers than are in a sum already, as they are taken off again.

    Raises:
        DataError: they are of another digest.
    """
    if now != before:
        raise DataError(
            "The numbers that this client sent before must be sent again, as they are taken off, "
            "found others: put back the examples that it had, or leave."
        )


def write_kept(file: Path, record: Any) -> None:  # noqa: ANN401 - any dataclass
    """Keep a record, for the client alone."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    replace_whole(file, checked_json(asdict(record)), mode=0o600)


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What a client stores locally about one run.

    Attributes:
        risks: what it has found out about each cluster.
        updates: how many it has sent; replayed rounds and lost answers count.
        choices_epsilon: spent on its choices so far, sum of 2 / selection_noise each; 0
            where choices are not hidden by noise.
    """

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    risks: tuple[RiskEstimate | None, ...] = ()
    updates: int = 0
    choices_epsilon: float = 0.0


@dataclass(frozen=True, slots=True)
class Releases:
    """What a client has released under noise, in all runs."""

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    spent: tuple[Released, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnBudget:
    """What a node may still answer (`epsilon_limit` in node.toml).

    Attributes:
        file: what was released so far, over all runs.
        epsilon, delta: what it may cost.
    """

    file: Path
    epsilon: float
    delta: float

    def spend(self, new: Released, *, now: bool) -> None:
        """Keep that something is released, before it is sent; or only see whether it may be.

        Raises:
            RefusedError: the budget allows no more.
        """
        from covey.dp.budget import fits, release  # loads the accountants: only where needed

        self.file.parent.mkdir(mode=0o700, exist_ok=True)
        with FileLock(self.file.with_suffix(".lock"), mode=0o600):
            known = read_kept(self.file, _releases_of, "what this client has spent is not known")
            spent = (*known.spent, new)
            if not fits([release(*parameters) for parameters in spent], self.epsilon, self.delta):
                remedy = "Raise epsilon_limit in node.toml, or let it take part no more."
                raise RefusedError(Reason.SPENT, "server", remedy)
            if now:
                write_kept(self.file, Releases(spent))


_releases_of = TypeAdapter(Releases).validate_python
_memory_of = TypeAdapter(NodeMemory).validate_python


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """What a client keeps of one run, in its own folder.

    What its objective goes on from has a file for every round, and the server says after
    which one to go on: the latest of which it took the client's update. So a round that is
    played again begins at the same tensors, and what was made of an update that was lost or
    refused is never looked at. Only a retraining that stops half-way leaves the files
    of the rounds that it had played again as it wrote them.

    Attributes:
        path: the folder of all runs.
        run: names this one.
    """

    path: Path
    run: str

    def read(self) -> NodeMemory:
        """Return what the client keeps of the run.

        Raises:
            RunError: it cannot be read.
        """
        return read_kept(self._file, _memory_of, _SPENT)

    def write(self, memory: NodeMemory) -> None:
        """Keep it: before anything is sent, so that nothing is spent unnoticed."""
        write_kept(self._file, memory)

    def read_tensors(self, round_index: int | None) -> Mapping[str, Params]:
        """Return what the client kept for its objective in a round; None: nothing yet.

        Raises:
            RunError: it is not there any more, or cannot be read.
        """
        if round_index is None:
            return {}
        file = self._tensors(round_index)
        if not file.is_file():
            raise RunError(
                f"{file} must be there, as the server goes on from it, found none: put it back."
            )
        stored: dict[str, dict[str, Tensor]] = {}
        try:
            tensors = _whole(file)
        except UNREADABLE as error:
            raise _damaged(file, error, _SPENT) from error
        for name, value in tensors.items():
            key, _, parameter = name.partition("/")
            stored.setdefault(unquote(key), {})[parameter] = value
        return stored

    def write_tensors(self, round_index: int, values_of: Mapping[str, Params]) -> None:
        """Keep what the objective goes on from, should the server take the update."""
        file = self._tensors(round_index)
        file.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
        flat = {
            f"{quote(key, safe='')}/{name}": value.contiguous().clone()
            for key, tensors in values_of.items()
            for name, value in tensors.items()
        }
        digest = {"sha256": _digest(flat)}
        replace_whole(file, safetensors.torch.save(flat, digest), mode=0o600)

    @property
    def _file(self) -> Path:
        return self.path / f"{self.run}.json"

    def _tensors(self, round_index: int) -> Path:
        return self.path / self.run / f"{round_index}.safetensors"


def _whole(file: Path) -> dict[str, Tensor]:
    """Return a file's tensors, once their hash is compared."""
    check_regular(file)
    with safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        known = (opened.metadata() or {}).get("sha256")
    if known != _digest(tensors):
        raise ValueError("it was changed: its checksum is another")
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(safetensors.torch.save(dict(tensors))).hexdigest()


def _damaged(file: Path, error: Exception, loss: str) -> RunError:
    return RunError(
        f"{file} must hold what covey wrote for this client, found that it cannot be read "
        f"({type(error).__name__}: {error}): restore it; without it {loss}."
    )
