"""Words and small types that every module speaks, and which covey this is."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import version
from numbers import Integral
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    Params = Mapping[str, Tensor]
    """One model's state: parameters and buffers by name, as in `Module.state_dict()`.

    Parameters that do not train (`requires_grad = False`) are in none: the run's module has
    them. Treated as a value: nothing may write into its tensors.
    """


ClientName = str
"""What people call a client: `client-00017`, or the stem of its file."""


def client_name(key: object) -> ClientName:
    """Return a client's name: a text, or a whole number of any library; "": it is neither."""
    is_name = isinstance(key, (Integral, str)) and key is not True and key is not False
    return str(key) if is_name else ""


def do_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question for a message: which of these names is meant; "": none is like it."""
    near = get_close_matches(name, [*known], n=1)
    return f" Do you mean {near[0]!r}?" if near else ""


Handle = str
"""A client's random pseudonym: the only identity that events and reports show."""


Distance = Literal["l2", "cosine"]
"""How far apart two models are: |u - v|, or 1 - cos(u, v)."""

Unit = Literal["client", "record"]
"""Whose presence noise hides: all of a client's examples, or one of them."""

UNITS: tuple[Unit, ...] = get_args(Unit)

NoiseModel = Literal["central", "distributed", "local"]
"""Who adds the noise that hides clients: the server, all of them a share, or each its own."""

Released = tuple[NoiseModel | Literal["choice"], float]
"""What a client released: an update or counts, by who added noise, and z; or a choice, and its
epsilon."""

SummedUp = Literal["sums", "counts", "updates"]
"""What clients add up under masks: sums over records, counts of losses, or updates."""


Basis = Literal["erasure", "withdrawal", "objection", "restriction", "none"]
"""What a request to leave rests on: it bounds the possible answers."""

BASES: tuple[Basis, ...] = get_args(Basis)

AnswerKind = Literal["deny", "subtract", "roll_back", "retrain", "calibrate", "stop"]
"""What a request to leave can be answered (`covey.leaving.plan`)."""

ANSWERS: tuple[AnswerKind, ...] = get_args(AnswerKind)

FLOWERS_COMMAND = "flwr.sh"
"""Flower's own command, in the folder of a deployment."""


def round_number(t: int, rounds: int | None = None) -> int:
    """Return a round as people count it, from 1; its index counts from 0.

    Args:
        t: the index.
        rounds: how many the run has: figures of its end are reported for the last one.
    """
    return t + 1 if rounds is None else max(1, min(t + 1, rounds))


def __getattr__(name: str) -> object:
    """Make `Params` when it is first used: a program without a model needs no torch."""
    if name != "Params":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from collections.abc import Mapping

    from torch import Tensor

    globals()["Params"] = Mapping[str, Tensor]
    return globals()["Params"]


__version__ = version("covey")


def how_to_install(extra: str) -> str:
    """Say how an extra is installed: no package index has covey."""
    return f'pip install "PATH[{extra}]", where PATH is a clone of covey or its wheel'


def another_format(what: object, found: object, expected: object) -> str:
    """Say why nothing is read that another version of covey wrote."""
    return (
        f"{what} must be of format {expected}, found {found}: covey reads what this "
        f"version wrote, and runs of earlier ones have to be played again."
    )
