"""A node's process that has loaded what answers need, and forks for every message.

Flower starts the program `flwr-clientapp`, found on PATH, for every message to a node, which
takes seconds to load itself, PyTorch and covey. A node's `start.sh` starts this module as
`serve FOLDER PARENT`, and puts FOLDER first on PATH: a `flwr-clientapp` there hands its words
over (`hand-over FOLDER WORDS`), and a fork becomes what Flower's program would be. Where
no process takes them, because the server has ended or this is not Linux, Flower's own runs.

The server ends with the process that started it, whose id is PARENT, and before it would
answer with code that is older than what is installed. Of Flower it uses the name of its
program, and that this is a console script of its distribution.
"""

import json
import os
import shlex
import socket
import sys
from collections.abc import Sequence
from contextlib import chdir, suppress
from pathlib import Path

PROGRAM = "flwr-clientapp"
"""The program that Flower starts for every message to a node."""

SOCKET, TAKEN = "socket", b"+"
"""Where the server listens, in its folder, and its word that a fork has the words."""

PATIENCE = 10.0
"""Seconds that the server has to answer."""

POLL_SECONDS = 1.0
"""How often it looks whether it is still wanted."""

MAX_WORDS = 2**20
"""Bytes of a program's arguments."""


_Launch = tuple[list[str], list[int]]
"""A folder and words, and the three streams of who comes."""


def _hand_over(folder: str, words: Sequence[str]) -> None:
    """Give the words, this process's folder and its three streams to the server, and end.

    Run as a file, isolated from everything that is installed, since it is started for every
    message.
    """
    here = os.getcwd()  # noqa: PTH109 - as text
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        with chdir(folder):  # a socket's whole path may be too long
            connection.connect(SOCKET)
        socket.send_fds(connection, [json.dumps([here, *words]).encode() + b"\n"], [0, 1, 2])
        if connection.recv(1) == TAKEN:
            return
    places = os.environ["PATH"].split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(p for p in places if p != folder)
    os.execvp(PROGRAM, [PROGRAM, *words])  # noqa: S606 - no shell is wanted


def _serve(folder: Path, parent: int) -> None:
    """Fork for every launch, until none is wanted; each child becomes Flower's program."""
    import gc
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, entry_points, version

    def installed() -> tuple[str, str]:
        try:
            return version("covey"), version("flwr")
        except PackageNotFoundError:  # it is being installed anew
            return "", ""

    if os.getppid() != parent:
        return
    loaded = installed()
    (script,) = entry_points(group="console_scripts", name=PROGRAM)
    program = script.load()
    for name in ("httpcore", "covey_flower.client"):  # httpx loads httpcore when it is used
        import_module(name)
    gc.collect()
    gc.freeze()  # else the children's collections copy all that is loaded
    launch: _Launch | None = None
    with _listening(folder) as listener:
        while launch is None and os.getppid() == parent:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection:
                    if installed() != loaded:
                        break
                    launch = _forked(connection)
    if launch is not None:
        _become(*launch)
        program()
        return
    for name in (PROGRAM, SOCKET):
        (folder / name).unlink(missing_ok=True)


def _listening(folder: Path) -> socket.socket:
    """Return where launchers come to, as only the owner can, and write the launcher."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    for name in (SOCKET, PROGRAM):
        (folder / name).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with chdir(folder):  # a socket's whole path may be too long
        listener.bind(SOCKET)
    listener.listen()
    listener.settimeout(POLL_SECONDS)
    command = shlex.join([sys.executable, "-I", "-S", __file__, "hand-over", str(folder)])
    (folder / PROGRAM).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (folder / PROGRAM).chmod(0o700)
    return listener


def _forked(connection: socket.socket) -> _Launch | None:
    """Fork for who has come; return in the child what it wants, and None in the server."""
    connection.settimeout(POLL_SECONDS)
    words, streams = list[str](), list[int]()
    with suppress(OSError, ValueError, TypeError):
        text, streams, _, _ = socket.recv_fds(connection, MAX_WORDS, 3)
        while text and not text.endswith(b"\n") and len(text) < MAX_WORDS:
            more = connection.recv(MAX_WORDS)
            text = text + more if more else b""
        words = [str(word) for word in json.loads(text)]
    is_whole = words and len(streams) == 3
    if is_whole and os.fork() == 0:
        return words, streams
    for stream in streams:
        os.close(stream)
    if is_whole:
        with suppress(OSError):  # the launcher stopped waiting and has started it otherwise
            connection.sendall(TAKEN)
    return None


def _become(words: list[str], streams: list[int]) -> None:
    """Make this process as if Flower's program had been started anew."""
    import signal

    import numpy as np

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    folder, *rest = words
    os.chdir(folder)
    # a shell lets what it starts in the background ignore this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.random.seed()  # noqa: NPY002 - which others may use, and children would share
    sys.argv = [PROGRAM, *rest]


if __name__ == "__main__":
    _, _task, _folder, *_rest = sys.argv
    if _task == "hand-over":
        _hand_over(_folder, _rest)
    elif sys.platform == "linux":  # elsewhere libraries do not survive a fork
        _serve(Path(_folder).absolute(), int(_rest[0]))
