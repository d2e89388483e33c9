"""Who may look at a page in the cluster: the API server says who a token belongs to and what they may list.

Nobody sees here what ``kubectl get`` would not show them: every kind the page is made of must be theirs to list in all
namespaces. A browser's event stream cannot carry a token, so the token is handed over once and stays here, in memory;
the browser gets a cookie that scripts cannot read. Rights that are taken away are noticed within `ASK_AGAIN`, also by
streams that are open. When the API server cannot be asked, nobody is let in.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from dranet.basics.http import Request
from dranet.kube.client import KubeClient
from dranet.kube.errors import KubeError
from dranet.kube.resources import Resource
from dranet.web.assets import login_page
from dranet.web.http import Answer, Handler, text
from dranet.web.sources import WATCHED

ASK_AGAIN = 60.0
SESSION_SECONDS = 8 * 3600.0
SESSIONS = 500
"""Beyond so many the oldest must hand over its token again."""
COOKIE = "dranet-page"
TOKEN_REVIEWS = Resource("tokenreviews", "TokenReview", "authentication.k8s.io")
ACCESS_REVIEWS = Resource("subjectaccessreviews", "SubjectAccessReview", "authorization.k8s.io")


@dataclass(slots=True)
class _Session:
    token: str
    since: float
    asked: float


class Refused(Exception):
    """Why somebody is not let in, and the status that says so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Stands before a page."""

    def __init__(self, client: KubeClient, page: Handler, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._page = page
        self._now = now
        self._sessions: dict[str, _Session] = {}

    async def handle(self, request: Request) -> Answer:
        """The page's answer for who may look; for others the place where a token is handed over."""
        try:
            if (request.method, request.path) == ("POST", "/login"):
                return await self._login(request)
            token = _bearer(request)
            if token:
                await self._review(token)
                return await self._page(request)
            name = _cookie(request)
            await self._still(name)
        except Refused as refused:
            if request.path in ("/", "/login"):
                return _ask_for_token(refused)
            return text(refused.status, str(refused))
        answer = await self._page(request)
        return replace(answer, still=lambda: self._may_stay(name))

    async def _login(self, request: Request) -> Answer:
        token = (parse_qs(request.body.decode("ascii", "replace")).get("token") or [""])[0].strip()
        await self._review(token)
        name, now = secrets.token_urlsafe(32), self._now()
        while len(self._sessions) >= SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[name] = _Session(token, now, now)
        cookie = f"{COOKIE}={name}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_SECONDS:.0f}"
        return Answer(303, "text/plain", headers={"Location": "/", "Set-Cookie": cookie})

    async def _still(self, name: str) -> None:
        """Whether a session is known, and what it was let in for still true."""
        session, now = self._sessions.get(name), self._now()
        if session is None or now - session.since > SESSION_SECONDS:
            self._sessions.pop(name, None)
            raise Refused(401, "who are you? hand over a token of the cluster at / first")
        if now - session.asked >= ASK_AGAIN:
            try:
                await self._review(session.token)
            except Refused as refused:
                if refused.status != 503:
                    self._sessions.pop(name, None)
                raise
            session.asked = now

    async def _may_stay(self, name: str) -> bool:
        try:
            await self._still(name)
        except Refused:
            return False
        return True

    async def _review(self, token: str) -> None:
        """Raises where the token is nobody's, or they may not list all the page shows."""
        if not token:
            raise Refused(401, "no token was handed over")
        try:
            user = await self._user(token)
            for resource in WATCHED:
                if not await self._may_list(user, resource):
                    raise Refused(403, f"{user.get('username', '')} may not list {resource.plural} in all namespaces")
        except KubeError as error:
            raise Refused(503, f"the API server cannot say who you are: {error}") from error

    async def _user(self, token: str) -> dict[str, Any]:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(TOKEN_REVIEWS, asked)).get("status") or {}
        if status.get("authenticated") is not True or not status.get("user"):
            raise Refused(401, "the API server does not know this token; it may have expired")
        return dict(status["user"])

    async def _may_list(self, user: dict[str, Any], resource: Resource) -> bool:
        who = {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
        what = {"verb": "list", "group": resource.group, "resource": resource.plural}
        spec = {"user": user.get("username", ""), **who, "resourceAttributes": what}
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._client.create(ACCESS_REVIEWS, asked)).get("status") or {}
        return status.get("allowed") is True


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _ask_for_token(refused: Refused) -> Answer:
    """The first visit is no failure, so nothing is said about it."""
    html, policy = login_page("" if refused.status == 401 and "who are you" in str(refused) else str(refused))
    # With no-referrer a browser would send a form with the origin "null", which the door refuses.
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    return Answer(refused.status, "text/html; charset=utf-8", html.encode(), headers)
