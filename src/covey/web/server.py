"""A server on this machine alone, until it is stopped."""

import os
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send

from covey.errors import RunError
from covey.web.app import application
from covey.web.guard import Guard

__all__ = ["Server", "serve"]

HOST = "127.0.0.1"


class Server:
    """What listens, and answers once it is run."""

    def __init__(self, guard: Guard, listener: socket.socket) -> None:
        self._guard, self._listener = guard, listener
        config = uvicorn.Config(
            self._answered,
            interface="asgi3",
            access_log=False,  # it would hold clients' handles
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    @property
    def link(self) -> str:
        """The link that lets the next browser in."""
        return self._guard.link

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; what streams looks at `is_ending`, and ends by itself."""
        scope["is_ending"] = lambda: self._server.should_exit
        await self._guard(scope, receive, send)

    def run(self) -> None:
        """Answer until the process is told to stop, or `stop` is called."""
        with closing(self._listener):
            self._server.run(sockets=[self._listener])

    def stop(self) -> None:
        """Let `run` end."""
        self._server.should_exit = True


def serve(
    roots: list[Path],
    port: int,
    on_link: Callable[[str], object],
    *,
    write: bool = False,
) -> Server:
    """Return a server that listens on 127.0.0.1.

    Args:
        roots: folders that runs lie below.
        port: where; 0: any port that is free.
        on_link: told the next link once one was used.
        write: whether requests can be taken in, answered and closed by forms.

    Raises:
        RunError: a root is not a folder, or the port is taken.
    """
    for root in roots:
        if not root.is_dir():
            raise RunError(
                f"Runs are looked for below folders, found {str(root)!r}, which is none. "
                f"Give folders that are there."
            )
    listener = _listener(port)
    guard = application(roots, listener.getsockname()[1], on_link, write=write)
    return Server(guard, listener)


def _listener(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)  # who opens the link before the server runs is kept waiting
    except OSError as error:
        found.close()
        raise RunError(
            f"Pages are to be served on port {port} of this machine, but it cannot be "
            f"had: {error.strerror}. Give another --port; 0 takes any that is free."
        ) from error
    return found
