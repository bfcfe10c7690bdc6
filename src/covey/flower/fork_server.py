"""`python -m covey.flower.fork_server FOLDER PARENT`: client apps without their imports.

Flower starts `flwr-clientapp` for every message to a node, which takes seconds to load
itself, PyTorch and covey. This process has loaded them, and forks for every message: the
child is what `flwr-clientapp` would be. `start.sh` of a node starts it, and puts FOLDER,
which holds a `flwr-clientapp` of its own (`covey.flower.launcher`), first on PATH. Where
there is no fork server, because it has ended or this is not Linux, Flower's own program
runs.

It ends with the process that started it, whose id is PARENT, and before it would answer
with code that is older than what is installed.
"""

import gc
import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from covey.flower import launcher

LOADED = ("flwr.supernode.cli", "httpcore", "covey.flower.client")
"""What the answers to messages need; httpx loads httpcore at its first request."""

POLL_SECONDS = 1.0
"""How often it looks whether it is still wanted."""

MAX_WORDS = 2**20
"""Bytes of a program's arguments."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program was started.

    Attributes:
        folder: in which.
        words: its arguments.
        streams: its standard input, output and errors.
    """

    folder: str
    words: tuple[str, ...]
    streams: tuple[int, ...]


def _installed() -> tuple[str, str]:
    try:
        return version("covey"), version("flwr")
    except PackageNotFoundError:  # it is being installed anew
        return "", ""


def serve(folder: Path, parent: int) -> Launch | None:
    """Fork for every launch, until nobody wants any; return in each child what it is.

    Args:
        folder: new or one's own, for the socket and the launcher.
        parent: the process with which it ends.

    Returns:
        How the child's program was started; None in the server itself, at its end.
    """
    if os.getppid() != parent:
        return None
    installed = _installed()
    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()  # else the children's collections copy all that is loaded
    with _listening(folder) as listener:
        _write_launcher(folder)
        while os.getppid() == parent:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                if _installed() != installed:
                    connection.close()
                    break
                with connection:
                    if launch := _forked(connection):
                        return launch
    (folder / launcher.PROGRAM).unlink(missing_ok=True)
    (folder / launcher.SOCKET).unlink(missing_ok=True)
    return None


def _listening(folder: Path) -> socket.socket:
    """Return where launchers come to, as nobody but the owner of the folder can."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    (folder / launcher.SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with chdir(folder):  # a socket's whole path may be too long
        listener.bind(launcher.SOCKET)
    listener.listen()
    listener.settimeout(POLL_SECONDS)
    return listener


def _write_launcher(folder: Path) -> None:
    file = str(launcher.__file__)
    command = shlex.join([sys.executable, "-I", "-S", file, str(folder)])
    place = folder / launcher.PROGRAM
    place.unlink(missing_ok=True)
    place.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    place.chmod(0o700)


def _forked(connection: socket.socket) -> Launch | None:
    """Fork for who has come; return in the child what it wants, and None in the server."""
    connection.settimeout(POLL_SECONDS)
    launch = _received(connection)
    if launch is None:
        return None
    if os.fork() == 0:
        return launch
    for stream in launch.streams:
        os.close(stream)
    with suppress(OSError):  # who has given up meanwhile has started it otherwise
        connection.sendall(launcher.TAKEN)
    return None


def _received(connection: socket.socket) -> Launch | None:
    """Return what a launcher says; None if that is nothing whole."""
    streams: list[int] = []
    try:
        text, streams, _, _ = socket.recv_fds(connection, MAX_WORDS, 3)
        while text and not text.endswith(b"\n") and len(text) < MAX_WORDS:
            more = connection.recv(MAX_WORDS)
            text = text + more if more else b""
        told = json.loads(text)
        if len(streams) == 3:
            return Launch(told["folder"], tuple(told["words"]), tuple(streams))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    for stream in streams:
        os.close(stream)
    return None


def _become(launch: Launch) -> None:
    """Run Flower's program as if it had been started anew."""
    for number, stream in enumerate(launch.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(launch.folder)
    # a shell lets what it starts in the background ignore this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import numpy as np
    from flwr.supernode.cli import flwr_clientapp

    np.random.seed()  # noqa: NPY002 - which others may use, and children would share
    sys.argv = [launcher.PROGRAM, *launch.words]
    flwr_clientapp()


def _main(words: Sequence[str]) -> None:
    if sys.platform != "linux":  # elsewhere libraries do not survive a fork
        return
    folder, parent = words
    if launch := serve(Path(folder).absolute(), int(parent)):
        _become(launch)


if __name__ == "__main__":
    _main(sys.argv[1:])
