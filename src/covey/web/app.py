"""The pages by address, each made when it is asked for, on a server of this machine."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from covey.base.errors import RunError
from covey.components.registry import no_foreign_code
from covey.web.client_pages import (
    Forms,
    client_page,
    clients_page,
    handle_of,
    request_page,
    requests_page,
)
from covey.web.guard import Guard
from covey.web.pages import (
    STATIC,
    audit_page,
    audit_picture,
    compared_page,
    compared_picture,
    list_page,
    page,
    picture_of,
    proof_page,
    proofs_page,
    run_page,
    static,
)
from covey.web.runs import FollowedRun, WatchedRuns

LOOK_EVERY = 0.5
"""Seconds between two looks at a ledger that a page shows."""

SVG = "image/svg+xml"

SPEAK_EVERY = 15.0
"""Seconds after which a stream says that it is still there."""

Told = Mapping[str, Any] | None


def application(
    roots: list[Path], port: int, on_used: Callable[[str], object], *, write: bool = False
) -> Guard:
    """Return the whole server as one ASGI app; its `link` opens it.

    Args:
        roots: folders that runs lie below.
        port: where it will be reached, on this machine.
        on_used: told the next link once one was used.
        write: whether requests can be taken in, answered and closed by forms.
    """
    runs = WatchedRuns(roots)
    forms = Forms(roots) if write else None
    pages = _Pages(runs, forms)
    app = Starlette(
        routes=[
            *(forms.routes() if forms else ()),
            Route("/", pages.list),
            Route("/compare", pages.compare),
            Route("/compare/accuracy.svg", pages.compared),
            Route("/requests", pages.requests),
            Route("/requests/{number}", pages.request),
            Route("/runs/{key}", pages.run),
            Route("/runs/{key}/events", pages.events),
            Route("/runs/{key}/clients", pages.clients),
            Route("/runs/{key}/clients/{handle}", pages.client),
            Route("/runs/{key}/proofs", pages.proofs),
            Route("/runs/{key}/proofs/{name}", pages.proof),
            Route("/runs/{key}/audit", pages.audit),
            Route("/runs/{key}/audit/{cluster}.svg", pages.audit_picture),
            Route("/runs/{key}/pictures/{name}.svg", pages.picture),
            Route("/static/{name}", pages.static),
        ],
        exception_handlers={404: _missing},
    )
    return Guard(app, port, on_used, write=write)


class _Pages:
    """Answers to requests; each is made in a thread, so that streams go on meanwhile."""

    def __init__(self, runs: WatchedRuns, forms: Forms | None) -> None:
        self._runs, self._forms = runs, forms

    def _run(self, request: Request) -> FollowedRun:
        run = self._runs.get(request.path_params["key"])
        if run is None:
            raise HTTPException(404)
        return run

    def list(self, request: Request) -> Response:
        del request
        return _html("list.html", list_page, self._runs)

    def compare(self, request: Request) -> Response:
        keys = request.query_params.getlist("run")
        return _html("compared.html", compared_page, self._runs, keys)

    def requests(self, request: Request) -> Response:
        form = self._form(request)
        return _html("requests.html", _with(requests_page, form), self._runs.roots)

    def request(self, request: Request) -> Response:
        number = request.path_params["number"]
        form = self._form(request, number)
        make = _with(request_page, form)
        return _html("request.html", make, self._runs.roots, number)

    def _form(self, request: Request, number: str = "") -> Mapping[str, Any]:
        """Return what forms on a page need; without them, none is on it."""
        if self._forms is None:
            return {"form_token": "", "forms": {}, "answering": ""}
        return {
            "form_token": request.scope["form_token"],
            "forms": self._forms.choices,
            "answering": self._forms.told(number),
        }

    def run(self, request: Request) -> Response:
        return _html("run.html", run_page, self._run(request))

    def clients(self, request: Request) -> Response:
        run, asked = self._run(request), request.query_params.get("name", "").strip()
        if asked and (handle := handle_of(run, asked)):
            return RedirectResponse(f"/runs/{run.key}/clients/{quote(handle)}", 303)
        text = request.query_params.get("page", "0")
        number = int(text) if text.isascii() and text.isdigit() else 0
        return _html("clients.html", clients_page, run, number, asked)

    def client(self, request: Request) -> Response:
        handle = request.path_params["handle"]
        return _html("client.html", client_page, self._run(request), handle)

    def proofs(self, request: Request) -> Response:
        return _html("proofs.html", proofs_page, self._run(request))

    def proof(self, request: Request) -> Response:
        name = request.path_params["name"]
        return _html("proof.html", proof_page, self._run(request), name)

    def audit(self, request: Request) -> Response:
        return _html("audit.html", audit_page, self._run(request))

    def audit_picture(self, request: Request) -> Response:
        path = audit_picture(self._run(request), request.path_params["cluster"])
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=SVG)

    def picture(self, request: Request) -> Response:
        return _svg(picture_of, self._run(request), request.path_params["name"])

    def compared(self, request: Request) -> Response:
        return _svg(compared_picture, self._runs, request.query_params.getlist("run"))

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise HTTPException(404)
        return Response(static(name), media_type=STATIC[name])

    async def events(self, request: Request) -> Response:
        run = await run_in_threadpool(self._run, request)
        stream = _changes(run, request)
        return StreamingResponse(stream, media_type="text/event-stream")


async def _changes(run: FollowedRun, request: Request) -> AsyncIterator[str]:
    """Yield a word whenever there is something new to show."""
    told, silent = (run.version, run.drawn_at()), 0.0
    is_ending = request.scope.get("is_ending", lambda: False)
    yield "retry: 1000\n\n"
    while not is_ending() and not await request.is_disconnected():
        await run_in_threadpool(run.check)
        if (run.version, run.drawn_at()) != told:
            told, silent = (run.version, run.drawn_at()), 0.0
            yield f"event: changed\ndata: {run.version}\n\n"
        elif silent >= SPEAK_EVERY:
            silent = 0.0
            yield ": still there\n\n"
        await asyncio.sleep(LOOK_EVERY)
        silent += LOOK_EVERY


def _html(template: str, make: Callable[..., Told], *args: object) -> Response:
    with no_foreign_code():
        told = make(*args)
        if told is None:
            raise HTTPException(404)
        return HTMLResponse(page(template, told))


def _svg(draw: Callable[..., bytes | None], *args: object) -> Response:
    with no_foreign_code():
        picture = draw(*args)
    if picture is None:
        raise HTTPException(404)
    return Response(picture, media_type=SVG)


def _with(make: Callable[..., Told], more: Mapping[str, Any]) -> Callable[..., Told]:
    def made(*args: object) -> Told:
        told = make(*args)
        return None if told is None else {**told, **more}

    return made


def _missing(request: Request, error: Exception) -> Response:
    del request, error
    return HTMLResponse(page("missing.html", {}), 404)


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
    roots: list[Path], port: int, on_link: Callable[[str], object], *, write: bool = False
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
