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


MOST_NAMES = 20
"""How many names a message has before it leaves out those in the middle."""

FLOWERS_COMMAND = "flwr.sh"
"""Flower's own command, in the folder of a deployment."""


def client_name(key: object) -> ClientName:
    """Return a client's name: a text, or a whole number of any library; "": it is neither."""
    is_name = isinstance(key, (Integral, str)) and key is not True and key is not False
    return str(key) if is_name else ""


def nearest(name: object, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return which of these names is probably meant; None: none is as much like it."""
    return next(iter(get_close_matches(str(name), [*known], n=1, cutoff=likeness)), None)


def do_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question for a message: which of these names is meant; "": none is like it."""
    near = nearest(name, known)
    return f" Do you mean {near!r}?" if near else ""


def unknown(what: str, name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return the message that refuses a name: which there are, and which is probably meant.

    Args:
        what: names so: a setting, an argument, or a place in a file.
        name: what stands there.
        known: the names that there are.
        otherwise: what else may stand there; "": nothing.
    """
    names = [*known]
    near = nearest(name, names)
    listed = names if len(names) <= MOST_NAMES else [*names[:3], "...", names[-1]]
    choice = f"{', '.join(listed)} or {otherwise}" if otherwise else ", ".join(listed)
    remedy = f"do you mean {near!r}?" if near else "take one of these."
    return f"{what} must be one of {choice}, found {name!r}: {remedy}"


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


def passed_again(what: str) -> str:
    """Say how a program passes a part of a run again that no settings file can name."""
    return (
        f"The {what} of this run must be passed again by a program, as at its start, found none: "
        f"call covey.resume(folder, model, clients), or covey.load(folder, model=..., "
        f"clients=...).audit()."
    )


def another_format(what: object, found: object, expected: object) -> str:
    """Say why nothing is read that another version of covey wrote."""
    return (
        f"{what} must be of format {expected}, found {found}: covey reads what this "
        f"version wrote, and runs of earlier ones have to be played again."
    )
