"""Where a result comes from: which code, and which machine."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from covey.portable import num_cores

__all__ = ["commit", "machine"]


@cache
def commit() -> str:
    """Return the commit of the source, "+" where files differ from it: covey's too.

    Where covey is installed without its repository: its version.
    """
    home = Path(__file__).parents[2]
    try:
        _git(home, "ls-files", "--error-unmatch", __file__)  # not somebody else's
        head = _git(home, "rev-parse", "HEAD")
        changed = _git(home, "status", "--porcelain", "--untracked-files=no", ".")
    except (OSError, subprocess.CalledProcessError):
        return f"covey {version('covey')}"
    return head + ("+" if changed else "")


def machine() -> str:
    """Return the processor, the cores that may be used, and what computes on them."""
    cores = num_cores()
    python, pytorch = platform.python_version(), torch.__version__
    return f"{_processor()}, {cores} cores, Python {python}, torch {pytorch}"


def _processor() -> str:
    """Return the processor's name; Linux knows it, elsewhere its kind must do."""
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(where: Path, *words: str) -> str:
    found = subprocess.run(  # noqa: S603 - fixed words
        ["git", "-C", str(where), *words],  # noqa: S607 - the user's own git
        capture_output=True,
        check=True,
        text=True,
    )
    return found.stdout.strip()
