"""Which nodes of a federation are online, as Flower's server says."""

import json
import os
import shutil
import subprocess
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Any

from covey import ConfigError, RunError
from covey.base.files import read_bounded
from covey.base.names import how_to_install
from covey_flower.deployment import CONNECTION, SWITCHES, Declaration


class NoAnswerError(RunError):
    """The server of a federation does not answer."""


def online_nodes(folder: Path) -> frozenset[str]:
    """Ask the server which nodes are online; return the names of those that register.sh knows.

    Raises:
        NoAnswerError: it does not answer.
        ConfigError: Flower is not installed here.
    """
    names = dict[str, str]()  # by node id, as register.sh kept them
    for path in (folder / "flwr" / "registered").glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            names[str(json.loads(read_bounded(path))["node-id"])] = path.stem
    listed = _ask(folder, "supernode", "list")["nodes"]
    online = {str(each["node-id"]) for each in listed if each["status"] == "online"}
    return frozenset(name for number, name in names.items() if number in online)


def _ask(folder: Path, *words: str) -> dict[str, Any]:
    """Return what `flwr` answers, which shows success by its answer alone."""
    program = shutil.which("flwr") or shutil.which("flwr", path=sysconfig.get_path("scripts"))
    if program is None:
        raise ConfigError(
            f"Expected Flower's command flwr, found none. Install it: {how_to_install('flower')}."
        )
    problem = f"nothing in {_STATUS_SECONDS:.0f} seconds."
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603 - no word is from elsewhere
            [program, *words, CONNECTION, "--format", "json"],
            env={**os.environ, **SWITCHES, "FLWR_HOME": str((folder / "flwr").absolute())},
            capture_output=True,
            text=True,
            timeout=_STATUS_SECONDS,
            check=False,
        )
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            problem = done.stderr or done.stdout
        else:
            if answer.get("success"):
                return answer
            problem = str(answer.get("error-message", answer))
    *_, last = ["no reason.", *problem.strip().splitlines()]
    raise NoAnswerError(
        f"Expected the server at {Declaration.read(folder).plan.address} to answer, found: "
        f"{last} Start server.sh, or look with `covey deploy check` at what is in its way."
    )


_STATUS_SECONDS = 60.0  # that `flwr` has, most of which it takes to start
