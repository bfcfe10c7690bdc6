"""`flwr-clientapp` of a node that has a fork server: hands its words over, and ends.

Run as a file, isolated from everything that is installed, since it is started for every
message. Where nobody takes the words, Flower's own program of this name is run instead.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence

PROGRAM = "flwr-clientapp"
"""The program that Flower starts for every message to a node."""

SOCKET = "socket"
"""Where the fork server listens, in its folder."""

TAKEN = b"+"
"""What it answers once a process of its own has the words."""

SECONDS = 10.0  # that it has to answer


def _handed_over(folder: str, words: Sequence[str]) -> bool:
    """Give the words, this process's folder and its three streams to the fork server."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(SECONDS)
            here = os.getcwd()  # noqa: PTH109 - pathlib is not loaded
            try:
                os.chdir(folder)  # a socket's whole path may be too long
                connection.connect(SOCKET)
            finally:
                os.chdir(here)
            told = json.dumps({"folder": here, "words": words}).encode() + b"\n"
            socket.send_fds(connection, [told], [0, 1, 2])
            return connection.recv(1) == TAKEN
    except OSError:
        return False


def _run_flowers_own(folder: str, words: Sequence[str]) -> None:
    """Become the program that would have been started without a fork server."""
    places = os.environ["PATH"].split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(p for p in places if p != folder)
    os.execvp(PROGRAM, [PROGRAM, *words])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    _, place, *given = sys.argv
    if not _handed_over(place, given):
        _run_flowers_own(place, given)
