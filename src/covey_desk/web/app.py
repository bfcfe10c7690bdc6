"""The pages by address, each made for its request, on a server of this machine."""

import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from covey import RunError
from covey.base.files import stopping
from covey.base.own_code import no_foreign_code
from covey_desk.web import metrics, pages
from covey_desk.web.guard import Guard
from covey_desk.web.runs import FollowedRun, WatchedRuns

View = Mapping[str, Any]
"""What a page says."""


HOST = "127.0.0.1"


def application(roots: list[Path], port: int, on_used: Callable[[str], object]) -> Guard:
    """Return the whole server as one ASGI app; its `link` opens it.

    Args:
        roots: folders that runs lie below.
        port: where it will be reached, on this machine.
        on_used: called with the next link once one was used.
    """
    runs = WatchedRuns(roots)

    def run_of(request: Request) -> FollowedRun:
        if (run := runs.get(request.path_params["key"])) is None:
            raise HTTPException(404)
        return run

    def page(path: str, template: str, make: Callable[[Request], View]) -> Route:
        """Return a page's route; it is made in a thread of its own."""

        def answer(request: Request) -> Response:
            with no_foreign_code():
                return HTMLResponse(pages.page(f"{template}.html", make(request)))

        return Route(path, answer)

    def page_of_run(path: str, template: str, make: Callable[..., View]) -> Route:
        """Return the route of one of a run's pages; `make` takes the run and what is named."""

        def view(request: Request) -> View:
            run, (_, *named) = run_of(request), request.path_params.values()
            return {"run": run, "snapshot": run.look(), **make(run, *named)}

        return page(f"/runs/{{key}}{path}", template, view)

    def clients(request: Request) -> Response:
        with no_foreign_code():
            return pages.clients(run_of(request), request)

    def picture(request: Request) -> Response:
        with no_foreign_code():
            svg = pages.picture_of(run_of(request), request.path_params["name"])
        return Response(svg, media_type="image/svg+xml")

    def metrics_of(_: Request) -> Response:
        with no_foreign_code():
            return Response(metrics.metrics_text(runs), media_type=metrics.MEDIA_TYPE)

    def requests_of(request: Request) -> View:
        return pages.request_page(runs.roots, request.path_params["number"])

    app = Starlette(
        routes=[
            page("/", "list", lambda _: pages.list_page(runs)),
            page("/requests", "requests", lambda _: pages.requests_page(runs.roots)),
            page("/requests/{number}", "request", requests_of),
            page_of_run("", "run", pages.run_page),
            page_of_run("/clients/{name}", "client", pages.client_page),
            page_of_run("/proofs", "proofs", pages.proofs_page),
            page_of_run("/proofs/{name}", "proof", pages.proof_page),
            page_of_run("/audit", "audit", pages.audit_page),
            Route("/metrics", metrics_of),
            Route("/runs/{key}/clients", clients),
            Route("/runs/{key}/pictures/{name}.svg", picture),
            Mount(
                "/static",
                StaticFiles(packages=[("covey.report", "static"), ("covey_desk.web", "static")]),
            ),
        ],
        exception_handlers={404: lambda *_: HTMLResponse(pages.page("missing.html", {}), 404)},
    )
    return Guard(app, port, on_used)


class _Uvicorn(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End what still reads, too: no thread of it keeps the process."""
        stopping.set()
        super().handle_exit(sig, frame)


class Server:
    """What listens, and answers once it is run."""

    def __init__(self, guard: Guard, listener: socket.socket) -> None:
        self._guard, self._listener = guard, listener
        config = uvicorn.Config(
            guard,
            interface="asgi3",
            access_log=False,  # it would hold clients' handles
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = _Uvicorn(config)

    @property
    def link(self) -> str:
        """The link that lets the next browser in."""
        return self._guard.link

    def run(self) -> None:
        """Answer until the process gets a signal to stop, or `stop` is called."""
        try:
            with closing(self._listener):
                self._server.run(sockets=[self._listener])
        finally:
            stopping.clear()

    def stop(self) -> None:
        """Let `run` end."""
        self._server.should_exit = True


def serve(roots: list[Path], port: int, on_link: Callable[[str], object]) -> Server:
    """Return a server that listens on 127.0.0.1.

    Args:
        roots: folders that runs lie below.
        port: where; 0: any port that is free.
        on_link: called with the next link once one was used.

    Raises:
        RunError: a root is not a folder, or the port is taken.
    """
    for root in roots:
        if not root.is_dir():
            raise RunError(f"ROOT must be a folder, found {str(root)!r}: give one that is there.")
    try:  # a browser that comes before the server runs is kept waiting
        listener = socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        raise RunError(
            f"--port must be free, found {port} {error.strerror}: give another, or 0 for any."
        ) from error
    return Server(application(roots, listener.getsockname()[1], on_link), listener)
