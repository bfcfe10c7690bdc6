"""Who may open a page: one browser per link, on this machine, to read."""

import hmac
import secrets
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
NO_COOKIE = (
    "This page shows what a run holds on its clients, and this browser has no key to it. "
    "Open the link that covey serve printed last; each opens one browser.\n"
)
WRONG_HOST = (
    "This server answers under the address that covey serve printed, and this request "
    "names another host. Open that address.\n"
)
ONLY_GET = "These pages can be read, and change nothing: only GET and HEAD are answered.\n"


class Guard:
    """Refuses every request but those of a browser that was let in.

    A link's token lets one browser in, and is worth nothing afterwards.
    """

    def __init__(self, app: ASGIApp, port: int, on_used: Callable[[str], object]) -> None:
        """Guard an app.

        Args:
            app: what is behind it.
            port: where it is reached, on this machine only.
            on_used: called with the next link once one was used.
        """
        self._app, self._on_used = app, on_used
        self._hosts = frozenset(f"{h}:{port}" for h in ("127.0.0.1", "localhost"))
        self._address = f"http://127.0.0.1:{port}/"
        # browsers send cookies to all ports of a host
        self._cookie = f"covey-{port}"
        self._sessions: set[str] = set()
        self._token = secrets.token_urlsafe(32)

    @property
    def link(self) -> str:
        """The link that lets the next browser in."""
        return f"{self._address}?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http":
            return  # no web sockets here
        request = Request(scope)
        session = self._session(request.cookies.get(self._cookie, ""))
        refused = self._refusal(request, session)
        answer = self._app if refused is None else refused
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, request: Request, session: str) -> Response | None:
        """Return what is answered in place of a page; None: the page."""
        hosts = [value for key, value in request.headers.items() if key == "host"]
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return PlainTextResponse(WRONG_HOST, 400)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse(ONLY_GET, 405, {"allow": "GET, HEAD"})
        token = request.query_params.get("token")
        if token is not None and request.url.path == "/":
            return self._let_in(token)
        return None if session else PlainTextResponse(NO_COOKIE, 401)

    def _let_in(self, token: str) -> Response:
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return PlainTextResponse(NO_COOKIE, 401)
        self._token, session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._sessions.add(session)
        self._on_used(self.link)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, session, httponly=True, samesite="strict")
        return answer

    def _session(self, cookie: str) -> str:
        """Return the session that a cookie names; "": none that was let in."""
        mine = cookie.encode()
        known = (s for s in self._sessions if hmac.compare_digest(mine, s.encode()))
        return next(known, "")


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sent
