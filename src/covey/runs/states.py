"""Checkpoints: a run's whole state after a round, one safetensors file each.

They are written, read, and checked against the ledger. A file appears under its name only when
every byte of it is on the disk, so a checkpoint is whole or it is not there, whenever the process
or the machine dies.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.algorithms.state import ServerState
from covey.base.component_state import decoded, encoded
from covey.base.errors import LedgerError, RunError
from covey.base.files import (
    check_regular,
    delete,
    file_hash,
    flush_folder,
    make_folder,
    move,
    replace_whole,
)
from covey.base.history import History
from covey.base.names import Handle, Params, another_format
from covey.base.params import model_hash, named, safetensors_pieces, unprefixed
from covey.ledger.rows import FileHashes
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, checkpoint_path, checkpoint_paths, round_of, rounds_in

Keep = Literal["all", "thin"]
"""Which checkpoints stay: every one, or round 0, powers of two and the last ten."""

LAST_KEPT = 10
FORMAT = 4
TORN = (
    *(SafetensorError, OSError, ValueError, KeyError),
    *(TypeError, AttributeError, RecursionError),
)
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a header raises whose JSON is whole, and says something else."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A run's state after the round `round_index`.

    Attributes:
        state: everything that is not a tensor, as JSON has it.
    """

    round_index: int
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]


def checkpoint_bytes(
    round_index: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> bytes:
    """Return a checkpoint's file; equal contents give equal bytes.

    Tensors may share memory and lie anywhere; they come back apart, on the CPU.
    """
    header = {"format": FORMAT, "round": round_index, "state": state}
    # one key only: safetensors writes several in an order that changes
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return b"".join(safetensors_pieces(tensors, {"covey": text}))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        RunError: the file is missing, torn or something else.
    """
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            round_index, state = _header(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except TORN as error:
        raise RunError(
            f"{path} must be a whole checkpoint, found {error}: take an older one, or begin again."
        ) from error
    return Checkpoint(round_index, tensors, state)


def set_aside_from(folder: Path, first: int, aside: Path) -> None:
    """Move the states after round `first` and all later ones to another folder.

    If it is killed half-way, it can be called again.
    """
    gone = [path for path in checkpoint_paths(folder) if round_of(path) >= first]
    if not gone:
        return
    make_folder(aside)
    for path in gone:
        move(path, aside / path.name)
    flush_folder(aside)
    flush_folder(folder)


def delete_from(folder: Path, first: int) -> None:
    """Delete what is kept of round `first` and of all later ones, torn files too."""
    gone = [path for path in checkpoint_paths(folder) if round_of(path) >= first]
    _delete(folder, [*gone, *folder.glob("round-*.unfinished")])


def delete_before(folder: Path, first: int) -> None:
    """Delete what is kept of all rounds before `first`."""
    _delete(folder, [path for path in checkpoint_paths(folder) if round_of(path) < first])


def _delete(folder: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        delete(path)
    if folder.is_dir():
        flush_folder(folder)


def thin(folder: Path, keep: Keep, spared: int | None = None) -> None:
    """Delete the checkpoints that the policy does not keep, but for one round's."""
    if keep == "all":
        return
    for path in checkpoint_paths(folder)[:-LAST_KEPT]:
        index = round_of(path)
        if index & (index - 1) != 0 and index != spared:  # neither 0 nor a power of two
            delete(path)


def _header(metadata: Mapping[str, str] | None) -> tuple[int, dict[str, Any]]:
    if not metadata or "covey" not in metadata:
        raise ValueError("covey did not write it")
    header = json.loads(metadata["covey"])
    if (written_format := header.get("format")) != FORMAT:
        raise ValueError(another_format("it", repr(written_format), FORMAT))
    round_index, state = header["round"], header["state"]
    if not isinstance(round_index, int) or not isinstance(state, dict):
        raise TypeError("its round is no number or its state no table")
    return round_index, cast("dict[str, Any]", state)


def state_bytes(state: ServerState, ledger_head: str) -> bytes:
    """Return the file of the state after the last played round, and of the ledger's head then."""
    states, tensors = encoded(state.states)
    rest = {
        "parameters": list(state.clusters[0]),
        "assignment": dict(state.assignment),
        "states": states,
        "ledger_head": ledger_head,
    }
    models = named(state.clusters)
    return checkpoint_bytes(state.round_index - 1, models | tensors, rest)


def save_state(folder: Path, state: ServerState, ledger_head: str, files: FileHashes) -> None:
    """Write a state that outlives a power cut from the moment this returns.

    Args:
        folder: of the states.
        state: after a round.
        ledger_head: the head of the ledger that the state is of, by which it is checked later.
        files: where the hash of the file is noted, before there is the file.
    """
    payload, t = state_bytes(state, ledger_head), state.round_index - 1
    files.note_state(t, hashlib.sha256(payload).hexdigest())
    make_folder(folder)
    replace_whole(checkpoint_path(folder, t), payload, mode=0o600)


def load_state(path: Path) -> tuple[ServerState, str]:
    """Read a state, and the ledger's head when it was written.

    Raises:
        RunError: the file is torn, or of another format.
    """
    checkpoint = load_checkpoint(path)
    try:
        models = unprefixed(checkpoint.tensors)
        names = checkpoint.state["parameters"]  # in the order in which they were written
        state = ServerState(
            round_index=checkpoint.round_index + 1,
            clusters=tuple({name: model[name] for name in names} for model in models),
            assignment=checkpoint.state["assignment"],
            states=decoded(checkpoint.state["states"], checkpoint.tensors),
        )
        return state, checkpoint.state["ledger_head"]
    except DAMAGE as error:
        raise RunError(
            f"{path} must be a state, found {type(error).__name__}: do `covey ledger doctor RUN`."
        ) from error


def lost_rounds(ledger: Ledger, path: Path, found: str) -> LedgerError:
    """Return what is raised where a ledger lost what a checkpoint has seen."""
    return LedgerError(
        f"The ledger must hold every round that {path} has seen, found {found}: restore "
        f"{ledger.location} from a copy, as events were removed or exchanged."
    )


def state_problem(path: Path, ledger: Ledger) -> str:
    """Say why a state is not one that this ledger's run wrote; "": it is.

    Raises:
        LedgerError: the state is whole, and the ledger lost what it has seen.
    """
    try:
        digest = file_hash(path)
    except OSError as error:
        return f"it cannot be read ({error})"
    known, written_after = ledger.files.round_of_state(digest)
    if written_after is not None:
        same = written_after == round_of(path)
        return "" if same else f"it is the state after round {written_after}"
    if known:
        raise lost_rounds(ledger, path, "fewer")
    return "its bytes are not those that were written"


def newest_whole_state(folder: Path, ledger: Ledger, before: int | None = None) -> Path | None:
    """Return the newest state that is what was written; others are passed over.

    Rounds without a state are played again and compared with the ledger, so that
    nothing is lost by passing over.

    Args:
        folder: where the states are.
        ledger: the run's.
        before: the round from which on they are obsolete; None: none are.

    Raises:
        RunError: there are states, and none of them is whole.
    """
    paths = [p for p in checkpoint_paths(folder) if before is None or round_of(p) < before]
    problems: list[str] = []
    for path in reversed(paths):
        problem = state_problem(path, ledger)
        if not problem:
            return path
        problems.append(f"{path}: {problem}")
        log.warning("a damaged state is passed over: %s: %s", path, problem)
    if problems:
        raise RunError(
            f"A run must resume from a whole state, found none of {len(paths)} in {folder}, as "
            f"{problems[0]}: restore one, or do what `covey ledger doctor {folder.parent}` says."
        )
    return None


def kept_state(folder: RunFolder, ledger: Ledger, after: int | None = None) -> ServerState:
    """Return the state after a round, by default after the last one that left one.

    Raises:
        RunError: it was not kept, it is damaged, or it is gone and another one is the newest.
    """
    missing = missing_state(folder, ledger) if after is None else None
    remedy = f"`covey ledger doctor {folder.path}` says what is damaged, and what to do."
    if missing is not None:
        raise RunError(
            f"The state after round {missing} must be in {folder.checkpoints}, found none: {remedy}"
        )
    paths = {round_of(path): path for path in checkpoint_paths(folder.checkpoints)}
    path = paths.get(max(paths, default=0) if after is None else after)
    if path is None:
        raise RunError(
            f"The state after a round must have been kept, found {after}, and in "
            f"{folder.checkpoints} those of {', '.join(map(str, paths)) or 'none'}: take one of "
            f"these, or play on with `covey resume {folder.path}` (checkpoints.every and "
            f"checkpoints.best say which are kept)."
        )
    if problem := state_problem(path, ledger):
        raise RunError(
            f"{path} must be the state that the run wrote, found that {problem}: {remedy}"
        )
    return load_state(path)[0]


def missing_state(folder: RunFolder, ledger: Ledger) -> int | None:
    """Return after which round the newest state was written, if it is not there.

    None while another process plays the run: it may be just about to write it.
    """
    expected = ledger.files.newest_state()
    is_stored = expected is None or expected in rounds_in(folder.checkpoints)
    return None if is_stored or ledger.is_being_written() else expected


def keep_frozen(folder: RunFolder, frozen: Params) -> None:
    """Write the parameters that do not train, unless they are there as they must be."""
    if frozen and frozen_problem(folder, model_hash([frozen])):
        replace_whole(folder.frozen, b"".join(safetensors_pieces(frozen)), mode=0o600)


def frozen_problem(folder: RunFolder, digest: str) -> str:
    """Say why a run's frozen parameters are not those with this hash; "": they are."""
    try:
        check_regular(folder.frozen)
        tensors = load_file(folder.frozen)
    except TORN as error:
        return f"it cannot be read ({error})"
    return "" if model_hash([tensors]) == digest else "its tensors are others"


def whole_models(
    history: History, folder: RunFolder, models: Iterable[Params]
) -> tuple[Params, ...]:
    """Return a run's models with the parameters that do not train, as its module has them.

    Raises:
        RunError: these are gone, or damaged.
    """
    used = history.components
    if used is None or not used.frozen:
        return tuple(models)
    if problem := frozen_problem(folder, used.frozen):
        raise RunError(
            f"{folder.frozen} must hold the model's parameters that do not train, found that "
            f"{problem}: resume the run, with its model, which writes them anew."
        )
    frozen = load_file(folder.frozen)
    return tuple({**model, **frozen} for model in models)


def write_updates(
    folder: Path, round_index: int, updates: Iterable[ClientUpdate], hashes: FileHashes
) -> None:
    """Keep what each client sent in this round, and note the file's hash."""
    tensors = {
        f"{update.handle}/{name}": value
        for update in updates
        for name, value in update.update.items()
    }
    content = checkpoint_bytes(round_index, tensors, {})
    hashes.write(f"updates:{round_index}", checkpoint_path(folder, round_index), content)


def read_updates(folder: Path, round_index: int, hashes: FileHashes) -> Mapping[Handle, Params]:
    """Return what each client sent in this round; empty if it was not stored.

    Raises:
        RunError: the file is not what was written.
    """
    if round_index not in rounds_in(folder):
        return {}
    if problem := updates_problem(folder, round_index, hashes):
        raise RunError(
            f"The updates of round {round_index} in {folder} must be what clients sent, found that "
            f"{problem}: restore them, or ask for the answer 'retrain', which needs none; `covey "
            f"ledger doctor` says what else is damaged."
        )
    updates: dict[Handle, dict[str, Tensor]] = {}
    for key, value in load_checkpoint(checkpoint_path(folder, round_index)).tensors.items():
        handle, _, name = key.partition("/")
        updates.setdefault(handle, {})[name] = value
    return updates


def updates_problem(folder: Path, round_index: int, hashes: FileHashes) -> str:
    """Say why a file of stored updates is not what was written; "": it is."""
    return hashes.problem(f"updates:{round_index}", checkpoint_path(folder, round_index))


def drop_client(folder: Path, handle: Handle, hashes: FileHashes) -> None:
    """Take one client's updates out of every round."""
    for t in rounds_in(folder):
        updates = read_updates(folder, t, hashes)
        rest = [ClientUpdate(h, 0, u, 1.0) for h, u in updates.items() if h != handle]
        write_updates(folder, t, rest, hashes)
