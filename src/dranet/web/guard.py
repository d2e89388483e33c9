"""Authentication and authorization of the page in a cluster, by TokenReview and SubjectAccessReview.

Users see only what ``kubectl get`` would show them: they must be allowed to list every kind of the page in all
namespaces. A browser's event stream cannot send a token, so the user enters it once; the server keeps it in memory, and
the browser gets a cookie that scripts cannot read. Revoked permissions take effect within `REVIEW_SECONDS`, also for
open streams. If the API server is unreachable, access is denied.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from dranet.core.http import Request
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import KubeError
from dranet.kubernetes.api.reviews import is_allowed, user_of
from dranet.web.assets import login_page
from dranet.web.http import Handler, Response, text_response
from dranet.web.sources import WATCHED

REVIEW_SECONDS = 60.0
SESSION_SECONDS = 8 * 3600.0
SESSIONS = 500
"""With more sessions, the oldest has to sign in again."""
_SIGN_IN = "Authentication required: send a bearer token, or sign in at /"
COOKIE = "dranet-page"


@dataclass(slots=True)
class _Session:
    token: str
    since: float
    asked: float


class Refused(Exception):
    """Access is denied; has the HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Authorizes the requests of a page."""

    def __init__(self, client: KubeClient, page: Handler, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._page = page
        self._now = now
        self._sessions: dict[str, _Session] = {}

    async def handle(self, request: Request) -> Response:
        """The page's response, or the sign-in form."""
        try:
            if (request.method, request.path) == ("POST", "/login"):
                return await self._login(request)
            token = _bearer(request)
            if token:
                await self._review(token)
                return await self._page(request)
            name = _cookie(request)
            await self._check_session(name)
        except Refused as refused:
            if request.path in ("/", "/login"):
                return _ask_for_token(refused)
            return text_response(refused.status, str(refused))
        response = await self._page(request)
        return replace(response, may_continue=lambda: self._is_session_valid(name))

    async def _login(self, request: Request) -> Response:
        token = (parse_qs(request.body.decode("ascii", "replace")).get("token") or [""])[0].strip()
        await self._review(token)
        name, now = secrets.token_urlsafe(32), self._now()
        while len(self._sessions) >= SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[name] = _Session(token, now, now)
        cookie = f"{COOKIE}={name}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_SECONDS:.0f}"
        return Response(303, "text/plain", headers={"Location": "/", "Set-Cookie": cookie})

    async def _check_session(self, name: str) -> None:
        """Raises Refused if a session is unknown or expired, or its permissions were revoked."""
        session, now = self._sessions.get(name), self._now()
        if session is None or now - session.since > SESSION_SECONDS:
            self._sessions.pop(name, None)
            raise Refused(401, _SIGN_IN)
        if now - session.asked >= REVIEW_SECONDS:
            try:
                await self._review(session.token)
            except Refused as refused:
                if refused.status != 503:
                    self._sessions.pop(name, None)
                raise
            session.asked = now

    async def _is_session_valid(self, name: str) -> bool:
        try:
            await self._check_session(name)
        except Refused:
            return False
        return True

    async def _review(self, token: str) -> None:
        """Raises Refused if the token is invalid or its user may not list every kind of the page."""
        if not token:
            raise Refused(401, "The token is empty: enter a bearer token")
        try:
            user = await user_of(self._client, token)
            if user is None:
                raise Refused(401, "The token is invalid or has expired")
            for resource in WATCHED:
                asked = {"verb": "list", "group": resource.group, "resource": resource.plural}
                if not await is_allowed(self._client, user, resourceAttributes=asked):
                    raise Refused(
                        403, f"User {user.get('username', '')} may not list {resource.plural} in all namespaces"
                    )
        except KubeError as error:
            raise Refused(503, f"Cannot check the token: {error}") from error


class TokenLink:
    """Lets in who has the link that was printed at start: other users of the machine reach a loopback port, too.

    The link sets a cookie and redirects, so that the token does not stay in the address bar.
    """

    def __init__(self, page: Handler) -> None:
        self._page = page
        self._token = secrets.token_urlsafe(24)

    def link(self, url: str) -> str:
        """The URL to open."""
        return f"{url}?token={self._token}"

    async def handle(self, request: Request) -> Response:
        """The page's response; 401 without the token."""
        if self._is_token(request.query.get("token", "")) and (request.method, request.path) == ("GET", "/"):
            cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            return Response(303, "text/plain", headers={"Location": "/", "Set-Cookie": cookie})
        if self._is_token(_cookie(request)) or self._is_token(_bearer(request)):
            return await self._page(request)
        return text_response(401, "Authentication required: open the link that dranet serve printed, with its token")

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _ask_for_token(refused: Refused) -> Response:
    """The sign-in form, without an error message on the first visit."""
    html, policy = login_page("" if refused.status == 401 and str(refused) == _SIGN_IN else str(refused))
    # With no-referrer a browser would send a form with the origin "null", which the server refuses.
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    return Response(refused.status, "text/html; charset=utf-8", html.encode(), headers)
