"""A page in the cluster: only the API server decides who may see it, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dranet.core.http import Request
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ConnectionLost
from dranet.testing.apiserver import Response, SandboxApiServer, json_response
from dranet.testing.faults import LocalTransport
from dranet.web import LiveSource, serving
from dranet.web.guard import COOKIE, REVIEW_SECONDS, SESSION_SECONDS, SESSIONS, Guard
from dranet.web.http import Response as PageAnswer
from dranet.web.sources import WATCHED

from .browser import Browser
from .test_server import a_cluster, ask

EVERYTHING = frozenset(resource.plural for resource in WATCHED)
SECRET = "node-0"
"""A name that only who may look sees."""


class Reviewing(LocalTransport):
    """An API server that knows some tokens; it refuses reviews that a real one would refuse."""

    def __init__(self, api: SandboxApiServer) -> None:
        super().__init__(api)
        self.tokens = {"good": "alice", "small": "bob"}
        self.may = {"alice": EVERYTHING, "bob": EVERYTHING - {"pods"}}
        self.gone = False
        self.reviews = 0

    async def open(self, request: Request) -> Response:
        asked: dict[str, Any] = json.loads(request.body or b"{}")
        if request.target.endswith(("reviews", "accessreviews")) and self.gone:
            raise ConnectionLost("no answer")
        if request.target == "/apis/authentication.k8s.io/v1/tokenreviews":
            self.reviews += 1
            return json_response({**asked, "status": self._token(asked["spec"]["token"])}, 201)
        if request.target == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
            spec = asked["spec"]
            assert spec["user"] or spec["groups"], "a real one answers 422"
            what = spec["resourceAttributes"]
            assert what["verb"] == "list" and "namespace" not in what
            allowed = "system:authenticated" in spec["groups"] and what["resource"] in self.may.get(spec["user"], ())
            return json_response({**asked, "status": {"allowed": allowed}}, 201)
        return await super().open(request)

    def _token(self, token: str) -> dict[str, Any]:
        if token not in self.tokens:
            return {"authenticated": False, "error": "invalid bearer token", "user": {}}
        user = {"username": self.tokens[token], "uid": "1", "groups": ["system:authenticated"]}
        return {"authenticated": True, "user": user}


@contextlib.asynccontextmanager
async def a_guarded_page() -> AsyncIterator[tuple[int, Reviewing]]:
    line = Reviewing(a_cluster())
    client = KubeClient(line)
    async with serving(LiveSource("test", client), guard=lambda page: Guard(client, page).handle) as url:
        yield int(url.rstrip("/").rpartition(":")[2]), line


async def login(port: int, token: str) -> tuple[int, str, str]:
    """Status, whole answer, and the cookie to send along."""
    status, answer = await ask(port, "/login", "POST", f"token={token}".encode())
    cookies = [line.split(": ")[1] for line in answer.splitlines() if line.lower().startswith("set-cookie")]
    return status, answer, cookies[0] if cookies else ""


PATHS = ("/", "/events", "/node?name=node-0", "/history", "/explain?holder=x/y", "/job?name=x/y/z")


@pytest.mark.parametrize("headers", [{}, {"Cookie": f"{COOKIE}=guessed"}, {"Authorization": "Bearer bad"}])
async def test_without_a_token_nothing_of_the_cluster_is_told(headers: dict[str, str]) -> None:
    async with a_guarded_page() as (port, _):
        for path in PATHS:
            status, answer = await ask(port, path, "GET", b"", **headers)
            assert status == 401 and SECRET not in answer and "ResourceSlice" not in answer
        for path in ("/plan", "/lint"):
            assert (await ask(port, path, "POST", b"kind: Pod", **headers))[0] == 401


async def test_who_may_list_everything_gets_a_cookie_that_scripts_cannot_read() -> None:
    async with a_guarded_page() as (port, _):
        status, answer, cookie = await login(port, "good")
        assert status == 303 and "\r\nlocation: /\r\n" in answer.lower()
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; ")[1:])
        assert "good" not in cookie
        value = cookie.split(";")[0]
        for _ in range(100):
            status, answer = await ask(port, "/node?name=node-0", Cookie=value)
            if status == 200:
                break
            await asyncio.sleep(0.05)
        assert status == 200 and "mlx5_0" in answer


async def test_who_may_not_list_one_kind_is_told_which() -> None:
    async with a_guarded_page() as (port, _):
        status, answer, cookie = await login(port, "small")
        assert status == 403 and not cookie
        assert "bob may not list pods in all namespaces" in answer


@pytest.mark.parametrize("missing", sorted(EVERYTHING))
async def test_every_kind_the_page_shows_must_be_theirs_to_list(missing: str) -> None:
    async with a_guarded_page() as (port, line):
        line.may["alice"] = EVERYTHING - {missing}
        assert (await login(port, "good"))[0] == 403


@pytest.mark.parametrize("body", [b"", b"token=", b"token=bad", b"\xff\xfe", b"token=bad&token=good"])
async def test_a_token_nobody_knows_is_refused(body: bytes) -> None:
    async with a_guarded_page() as (port, _):
        status, answer = await ask(port, "/login", "POST", body)
        assert status == 401 and "set-cookie" not in answer.lower()


async def test_when_the_api_server_cannot_be_asked_nobody_is_let_in() -> None:
    async with a_guarded_page() as (port, line):
        line.gone = True
        status, answer, cookie = await login(port, "good")
        assert status == 503 and not cookie and "no answer" in answer


async def test_a_token_in_the_header_is_enough_for_a_program() -> None:
    async with a_guarded_page() as (port, _):
        assert (await ask(port, "/history", Authorization="Bearer good"))[0] == 200


async def test_what_is_said_about_a_refusal_is_text() -> None:
    async with a_guarded_page() as (port, line):
        line.tokens["x"] = "<img src=x>"
        _, answer, _ = await login(port, "x")
        assert "&lt;img src=x&gt; may not list" in answer and "<img" not in answer
        assert "script-src" not in answer.partition("\r\n\r\n")[0] and "default-src 'none'" in answer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def _page(_: Request) -> PageAnswer:
    return PageAnswer(200, "text/plain", b"the page")


async def let_in(guard: Guard) -> dict[str, str]:
    answer = await guard.handle(Request("POST", "/login", body=b"token=good"))
    return {"cookie": answer.headers["Set-Cookie"].split(";")[0]}


def a_guard() -> tuple[Guard, Reviewing, Clock]:
    line, clock = Reviewing(a_cluster(0)), Clock()
    return Guard(KubeClient(line), _page, clock), line, clock


async def test_rights_are_asked_for_again_after_a_minute_and_not_before() -> None:
    guard, line, clock = a_guard()
    headers = await let_in(guard)
    for _ in range(5):
        assert (await guard.handle(Request("GET", "/history", headers))).status == 200
    assert line.reviews == 1
    clock.now = REVIEW_SECONDS
    assert (await guard.handle(Request("GET", "/history", headers))).status == 200
    assert line.reviews == 2


async def test_rights_that_are_taken_away_end_the_session_and_an_open_stream() -> None:
    guard, line, clock = a_guard()
    headers = await let_in(guard)
    answer = await guard.handle(Request("GET", "/events", headers))
    assert answer.may_continue is not None and await answer.may_continue()
    line.may["alice"] = frozenset()
    assert await answer.may_continue(), "asked less than a minute ago"
    clock.now = REVIEW_SECONDS
    assert not await answer.may_continue()
    line.may["alice"] = EVERYTHING
    assert (await guard.handle(Request("GET", "/history", headers))).status == 401, "the user must sign in again"


async def test_a_short_outage_of_the_api_server_shuts_the_page_and_keeps_the_session() -> None:
    guard, line, clock = a_guard()
    headers = await let_in(guard)
    clock.now, line.gone = REVIEW_SECONDS, True
    assert (await guard.handle(Request("GET", "/history", headers))).status == 503
    line.gone = False
    assert (await guard.handle(Request("GET", "/history", headers))).status == 200


async def test_a_session_ends_even_where_the_token_lives() -> None:
    guard, _, clock = a_guard()
    headers = await let_in(guard)
    clock.now = SESSION_SECONDS + 1
    assert (await guard.handle(Request("GET", "/history", headers))).status == 401


async def test_more_sessions_than_are_kept_send_the_oldest_away() -> None:
    guard, _, _ = a_guard()
    first = await let_in(guard)
    for _ in range(SESSIONS):
        last = await let_in(guard)
    assert (await guard.handle(Request("GET", "/history", first))).status == 401
    assert (await guard.handle(Request("GET", "/history", last))).status == 200


@pytest.mark.xdist_group("browser")
def test_a_person_hands_over_a_token_and_sees_the_cluster(window: Browser) -> None:
    asyncio.run(_in_a_browser(window))


async def _in_a_browser(window: Browser) -> None:
    async with a_guarded_page() as (port, _):
        await asyncio.to_thread(_look, window, f"http://127.0.0.1:{port}/")


def _look(window: Browser, url: str) -> None:
    window.call("POST", "/url", {"url": url})
    window.run("document.getElementById('token').value = 'bad'; document.forms[0].submit()")
    window.wait("document.body.innerText.includes('The token is invalid')")
    window.run("document.getElementById('token').value = 'good'; document.forms[0].submit()")
    window.wait("document.documentElement.dataset.ready === 'yes' && state.nodes.size === 2")
    assert window.value("document.cookie") == ""
    window.run("pick({node: 'node-0'})")
    assert "node-0" in window.text("#picked h2")
