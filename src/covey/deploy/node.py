"""What a node says of itself, in node.toml."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from covey.deploy.findings import Finding, error, fine, warning

__all__ = ["ARRAYS", "data_findings", "settings_findings"]

ARRAYS = ("x", "y")
"""What a node's .npz file holds."""

SIMULATED = ("digits", "mnist", "fashion-mnist", "cifar10", "emnist")
"""Data sets that are shared out among clients with numbers for names."""

Test = Callable[[object], bool]

NEEDED = ("name", "seed")
KNOWN: Mapping[str, tuple[str, Test]] = {
    "name": ("the name that the server invited", lambda v: _is_text(v)),
    "seed": ("a whole number from 0", lambda v: type(v) is int and v >= 0),
    "risk_threshold": ("a number from 0 to 1", lambda v: _is_share(v)),
    "risk_weight": ("a number from 0 to 1", lambda v: _is_share(v)),
    "data": ("the path of an .npz file", lambda v: _is_text(v)),
    "holdout": ("a number from 0 to less than 1", lambda v: _is_share(v) and v != 1),
    "tell_violation": ("true or false", lambda v: isinstance(v, bool)),
    "tell_accuracy": ("true or false", lambda v: isinstance(v, bool)),
    "leave": ("true or false", lambda v: isinstance(v, bool)),
    "config": ("the path of the federation's settings", lambda v: _is_text(v)),
}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_share(value: object) -> bool:
    return (
        type(value) is not bool and isinstance(value, int | float) and 0 <= value <= 1
    )


def settings_findings(path: Path) -> tuple[dict[str, Any], list[Finding]]:
    """Read node.toml: what it says, and what is wrong with it."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        found = f"expected settings in TOML, found: {problem}. Correct {path}."
        return {}, [error(path.name, found)]
    wrong = [
        error(
            path.name,
            f"expected {key} to be {KNOWN[key][0]}, found {value!r}. Correct it.",
        )
        for key, value in told.items()
        if key in KNOWN and not KNOWN[key][1](value)
    ]
    wrong += [
        error(path.name, f"expected {key}, {KNOWN[key][0]}, found none. Add it.")
        for key in NEEDED
        if key not in told
    ]
    wrong += [
        error(path.name, f"expected {', '.join(KNOWN)}, found {key!r}. Remove it.")
        for key in told
        if key not in KNOWN
    ]
    return told, wrong or [fine(path.name, f"complete, for {told['name']}")]


def data_findings(
    told: Mapping[str, Any], settings: Mapping[str, Any] | None, folder: Path
) -> Iterator[Finding]:
    """Look for the node's examples.

    Args:
        told: what node.toml says.
        settings: the federation's; None if they cannot be read.
        folder: where node.toml is; a relative path starts there.
    """
    name = told.get("data")
    if not isinstance(name, str):
        yield _simulated(str(told.get("name")), settings)
        return
    path = folder / name
    try:
        with path.open("rb") as file:  # numpy leaves a broken file open
            arrays = np.load(file, allow_pickle=False)
            sizes = {len(arrays[each]) for each in ARRAYS}
    except Exception as problem:  # a malformed file can raise anything
        yield error(
            "data",
            f"expected {path} to be an .npz file with plain arrays {' and '.join(ARRAYS)}, "
            f"found: {problem}. Write it with numpy.savez.",
        )
        return
    if len(sizes) > 1 or not max(sizes):
        yield error(
            "data",
            f"expected one label per example in {path}, and at least one, found lengths "
            f"{sorted(sizes)}. Write it again.",
        )
    else:
        yield fine("data", f"{sizes.pop():,} examples in {path}")


def _simulated(name: str, settings: Mapping[str, Any] | None) -> Finding:
    """Look at a node without data: it plays a simulated client, if there is one."""
    if settings is not None and settings["data"]["name"] in SIMULATED:
        last = settings["population"]["clients"] - 1
        if name not in (f"client-{index:05}" for index in range(last + 1)):
            return error(
                "data",
                f"expected an .npz file, or the name of a simulated client, client-00000 "
                f"to client-{last:05}, found neither: {name!r}. Set data in node.toml.",
            )
    return warning(
        "data",
        f"expected an .npz file, found none named: the node plays the simulated client "
        f"{name!r}. Set data in node.toml for real examples.",
    )
