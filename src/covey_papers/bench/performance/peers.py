"""Other simulators, each in a process of its own environment, played round by round."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

import torch
from torch import nn

from covey_papers.bench.performance.federation import Images, Shape

__all__ = ["NOT_INSTALLED", "PeerError", "PeerLoop", "python_of_peers", "write_task"]

NOT_INSTALLED = "not installed: make bench-peers"
PROGRAMS = Path(__file__).parent / "peer_loops"
PATIENCE = 30
"""Seconds that a peer has to end by itself."""

Program = Literal["pfl_fedavg.py", "flower_fedavg.py"]


class PeerError(Exception):
    """A peer stopped, with the last line that it said."""


def python_of_peers(folder: Path) -> Path | None:
    """Return the interpreter of the peers' environment; None: there is none."""
    places = (folder / "bin" / "python", folder / "Scripts" / "python.exe")
    return next((place for place in places if place.is_file()), None)


class PeerLoop:
    """A peer that trains the same model on the same images, in plain torch's terms.

    Args:
        python: interpreter of an environment that has it.
        program: one of `peer_loops`.
        task: path of a file that `write_task` wrote.
        threads: it may use.
    """

    def __init__(
        self, python: Path, program: Program, task: Path, threads: int
    ) -> None:
        self._errors = task.with_suffix(".log")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - programs of this package
                [python.absolute(), PROGRAMS / program, task, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environment(),
                start_new_session=True,
            )
        self._await("ready")

    def play(self) -> None:
        """Play a round.

        Raises:
            PeerError: it stopped.
        """
        with suppress(BrokenPipeError):
            print("go", file=self._stdin, flush=True)
        self._await("done")
        self._await("ready")

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        return self._process.stdin

    def _await(self, word: str) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        if self._process.stdout.readline().strip() != word:
            self._stop()
            said = self._errors.read_text(errors="replace").strip().splitlines()
            raise PeerError(said[-1] if said else "it said nothing")

    def __enter__(self) -> "PeerLoop":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if sys.platform != "win32":
            with suppress(ProcessLookupError):  # what it started, and left behind
                os.killpg(self._process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Return this process's, where nobody limits the peer's threads."""
    ours = {n: v for n, v in os.environ.items() if n != "OMP_NUM_THREADS"}
    return {**ours, "PYTHONPATH": str(PROGRAMS), "FLWR_TELEMETRY_ENABLED": "0"}


def write_task(
    path: Path, module: nn.Sequential, shape: Shape, data: list[Images], precision: str
) -> None:
    """Write what a peer trains, in plain torch: it has no covey."""
    task = {
        "model": nn.Sequential(*module),
        "clients": data,
        "cohort": shape.cohort or len(data),
        "epochs": shape.epochs,
        "batch": shape.batch,
        "learning_rate": shape.learning_rate,
        "precision": precision,
    }
    torch.save(task, path)
