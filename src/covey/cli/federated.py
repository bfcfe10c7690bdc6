"""Runs with remote clients: run by the server of their deployment."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import covey
from covey.errors import ConfigError, RunError

__all__ = ["submitted"]


def submitted(home: Path | None, out: Path, overrides: Sequence[str] = ()) -> None:
    """Let a deployment's server play a run in the folder `out`; wait for its end.

    Raises:
        ConfigError: there is no deployment, or not with these settings.
        RunError: the run did not come to its end.
    """
    if home is None or not (home / "app" / "pyproject.toml").is_file():
        raise ConfigError(
            f"Clients on machines of their own are reached by the server of a deployment, "
            f"whose folder holds covey.toml and app/; found "
            f"{home or 'a run that a program started'}. Make one with `covey deploy "
            f"init CONFIG.toml --out DIR`, or let the program carry its run on."
        )
    if overrides:
        raise ConfigError(
            f"Every node of a federation must have the same settings, found --set "
            f"{overrides[0]}. Put it into covey.toml, here and on all nodes."
        )
    words = ["run", str(home / "app"), "covey", "--stream", "--run-config"]
    where = str(out.resolve()).replace('"', '\\"')
    told = subprocess.run(  # noqa: S603 - the deployment's own command
        [str(home / "flwr.sh"), *words, f'out="{where}"'],
        stdout=sys.stderr,
        check=False,
    )
    ended = (out / "config.toml").is_file() and covey.load(
        out
    ).history.finished is not None
    if told.returncode or not ended:
        raise RunError(
            f"The run in {out} did not come to its end; what the server said stands above. "
            f"See `covey deploy status {home}`, and carry it on with `covey resume {out}`."
        )
