"""A thin API client: get, list, create, replace, delete, server-side apply and watch, in v1 shapes.

It retries only what the server has certainly not done (429, and 503 with Retry-After). Everything else is for the
caller: the publisher, the status writer and the recorder each know what to look at before trying again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from dranet.basics.backoff import Backoff
from dranet.basics.http import Request
from dranet.kube.auth import Anonymous, Credential
from dranet.kube.config import ClusterConfig
from dranet.kube.errors import ConnectionLost, Missing, api_error
from dranet.kube.http import Response, Transport
from dranet.kube.resources import Resource
from dranet.kube.thrift import Thrift
from dranet.kube.versions import GROUP, choose, from_version, to_version

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
PAGE = 500
RETRY_AFTER_MAX = 30.0
ATTEMPTS = 6

Object = dict[str, Any]
Objects = list[Object]
Reader = Callable[[bytes], Any]
"""Makes an object of JSON."""


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object in v1 shape."""

    type: str
    object: Object


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class KubeClient:
    """Requests to one API server. Use as an async context manager, or call :meth:`close`."""

    def __init__(
        self,
        transport: Transport,
        credential: Credential | None = None,
        *,
        prefix: str = "",
        rng: random.Random | None = None,
        timeout: float = 10.0,
        user_agent: str = "dranet",
        thrift: Thrift | None = None,
    ) -> None:
        """``thrift`` is for who keeps the objects of a whole cluster; see :mod:`dranet.kube.thrift`."""
        self._transport = transport
        self._credential: Credential = credential or Anonymous()
        self._prefix = prefix
        self._timeout = timeout
        self._user_agent = user_agent
        self._thrift = thrift
        self._version: str | None = None
        self.rng = rng or random.Random()

    @classmethod
    def from_config(
        cls, config: ClusterConfig, *, rng: random.Random | None = None, thrift: Thrift | None = None
    ) -> KubeClient:
        """A client for a cluster found by :func:`dranet.kube.config.load_config`."""
        return cls(config.transport(), config.credential, prefix=config.prefix, rng=rng, thrift=thrift)

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections."""
        await self._transport.close()

    async def resource_version(self) -> str:
        """Which version of resource.k8s.io we speak with this server; asked once, and again when it is gone."""
        if self._version is None:
            try:
                group = await self.request("GET", f"/apis/{GROUP}")
            except Missing:
                group = {}
            self._version = choose([item["version"] for item in group.get("versions") or ()])
        return self._version

    async def server_version(self) -> tuple[int, int]:
        """The server's release, such as (1, 36)."""
        said = await self.request("GET", "/version")
        digits = ["".join(filter(str.isdigit, str(said.get(part, "")))) for part in ("major", "minor")]
        return int(digits[0] or 0), int(digits[1] or 0)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object; raises Missing."""
        return await self._call("GET", resource, namespace, name)

    async def list(
        self, resource: Resource, namespace: str | None = None, *, fields: str = "", labels: str = ""
    ) -> tuple[Objects, str]:
        """All objects that match, and the resource version to watch from."""
        items: Objects = []
        version = ""
        async for page, said in self.pages(resource, namespace, fields=fields, labels=labels):
            items += page
            version = said
        return items, version

    async def list_cached(self, resource: Resource, *, fields: str, not_before: str = "") -> tuple[Objects, str]:
        """The same for a few objects, as the server has them in memory: cheap for it, and perhaps a moment old. Never
        older than the version given. Asked for once: who is told that the server is too busy spreads his next attempt,
        for others were told the same."""
        query = {"fieldSelector": fields, "resourceVersion": not_before or "0", "resourceVersionMatch": "NotOlderThan"}
        page = await self._call("GET", resource, query=query, attempts=1, read=self._read_page)
        version = str((page.get("metadata") or {}).get("resourceVersion") or "")
        return await self._read_items(resource, page), version

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, fields: str = "", labels: str = "", limit: int = PAGE
    ) -> AsyncGenerator[tuple[Objects, str], None]:
        """The same page by page, for who keeps less of each than there is; the version is that of the whole list."""
        query = _present(limit=str(limit), fieldSelector=fields, labelSelector=labels)

        def ask(query: Mapping[str, str]) -> asyncio.Task[Object]:
            return asyncio.create_task(self._call("GET", resource, namespace, query=query, read=self._read_page))

        coming: asyncio.Task[Object] | None = ask(query)
        try:
            while coming:
                page = await coming
                metadata = page.get("metadata") or {}
                coming = None
                if metadata.get("continue"):
                    query = {**query, "continue": metadata["continue"]}
                    coming = ask(query)
                    await asyncio.sleep(0)  # it is sent now: the server makes the next page while this one is read
                items = await self._read_items(resource, page)
                yield items, str(metadata.get("resourceVersion") or "")
        finally:
            if coming:
                coming.cancel()

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        """Store a new object; raises Conflict where the name is taken."""
        return await self._call("POST", resource, namespace, body=obj)

    async def replace(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        """Overwrite; with a resourceVersion in ``obj`` only if nobody wrote in between, else Conflict."""
        return await self._call("PUT", resource, namespace, obj["metadata"]["name"], body=obj)

    async def delete(
        self, resource: Resource, name: str, namespace: str | None = None, *, uid: str | None = None
    ) -> None:
        """Delete, with ``uid`` only that very object; one that is gone already is fine."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        with contextlib.suppress(Missing):
            await self._call("DELETE", resource, namespace, name, raw_body=options)

    async def apply(
        self, resource: Resource, obj: Object, manager: str, namespace: str | None = None, *, sub: str | None = None
    ) -> Object:
        """Server-side apply, taking fields from other managers (``force``)."""
        query = {"fieldManager": manager, "force": "true"}
        name = obj["metadata"]["name"]
        return await self._call("PATCH", resource, namespace, name, sub=sub, body=obj, query=query, content_type=APPLY)

    async def merge_patch(self, resource: Resource, name: str, patch: Object, namespace: str | None = None) -> Object:
        """JSON merge patch."""
        return await self._call("PATCH", resource, namespace, name, raw_body=patch, content_type=MERGE)

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        fields: str = "",
        seconds: int = 300,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes since ``resource_version``; ends when the server ends it, raises Expired when that is too old.

        ``opened`` is called once the server has agreed; the first change may be hours away. A server that does not end
        the watch when it was asked to has gone without a word, and nothing will ever come: ConnectionLost.
        """
        version = await self._version_of(resource)
        query = _present(fieldSelector=fields, resourceVersion=resource_version, timeoutSeconds=str(seconds))
        query |= {"watch": "1", "allowWatchBookmarks": "true"}
        request = await self._request("GET", f"{resource.path(version)}?{urlencode(query)}")
        async with asyncio.timeout(self._timeout):
            response = await self._transport.open(request)
        try:
            if response.status != 200:
                answer = _decoded(request, response.status, await _body(response))
                raise self._error(request, response, answer)
            opened()
            end = asyncio.get_running_loop().time() + seconds + self._timeout
            async for line in _until(end, _lines(response), f"{request}: silent, and not ended after {seconds} s"):
                yield self._event(request, resource, version, line)
        finally:
            await response.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        read: Reader = msgspec.json.decode,
    ) -> Object:
        """Any request, as JSON; waits and repeats while the server says it is too busy to look at it."""
        target = f"{path}?{urlencode(query)}" if query else path
        raw = msgspec.json.encode(body) if body is not None else b""
        backoff = Backoff(self.rng, first=1.0)
        renewed = False
        while True:
            request = await self._request(method, target, raw, content_type)
            status, headers, said = await self._exchange(request)
            answer = _decoded(request, status, said, read)
            if status < 400:
                return answer
            retry_after = _retry_after(headers)
            if status == 401 and not renewed and self._credential.forget():
                renewed = True
                continue
            attempts -= 1
            if not attempts or not (status == 429 or (status == 503 and retry_after is not None)):
                raise api_error(str(request), status, answer, retry_after)
            await asyncio.sleep((retry_after or 0.0) + backoff.next())  # all were told the same second

    async def text(self, path: str) -> str:
        """What the server hands on of somebody else, such as a pod behind its proxy: any text, asked for once."""
        request = await self._request("GET", path)
        status, headers, said = await self._exchange(request)
        if status >= 400:
            raise api_error(str(request), status, _decoded(request, status, said), _retry_after(headers))
        return said.decode("utf-8", "replace")

    async def _call(
        self,
        method: str,
        resource: Resource,
        namespace: str | None = None,
        name: str | None = None,
        *,
        sub: str | None = None,
        body: Object | None = None,
        raw_body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        read: Reader = msgspec.json.decode,
    ) -> Object:
        version = await self._version_of(resource)
        out = to_version(body, version) if body is not None and resource.negotiated else body
        path = resource.path(version, namespace, name, sub)
        try:
            answer = await self.request(
                method, path, query=query, body=out or raw_body, content_type=content_type, attempts=attempts, read=read
            )
        except Missing as error:
            if not error.reason:
                self._version = None  # not an object but the whole API is missing: the server was upgraded
            raise
        return from_version(answer, version) if resource.negotiated and answer.get("kind") == resource.kind else answer

    async def _read_items(self, resource: Resource, page: Object) -> Objects:
        """List items carry neither kind nor apiVersion; give them back."""
        version = await self._version_of(resource)
        items = self._thrift.items(page, resource.kind) if self._thrift else page.get("items") or []
        whole = [{"apiVersion": resource.version, **item, "kind": resource.kind} for item in items]
        return [from_version(item, version) for item in whole] if resource.negotiated else whole

    @property
    def _read_page(self) -> Reader:
        return self._thrift.page if self._thrift else msgspec.json.decode

    async def _version_of(self, resource: Resource) -> str:
        return await self.resource_version() if resource.negotiated else resource.version

    async def _request(self, method: str, target: str, body: bytes = b"", content_type: str = JSON) -> Request:
        headers = {"Accept": JSON, "User-Agent": self._user_agent, **await self._credential.headers()}
        if body:
            headers["Content-Type"] = content_type
        return Request(method, self._prefix + target, headers, body)

    async def _exchange(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._transport.open(request)
                try:
                    return response.status, response.headers, await _body(response)
                finally:
                    await response.close()
        except TimeoutError as error:
            raise ConnectionLost(f"{request}: no answer within {self._timeout:g} s") from error

    def _error(self, request: Request, response: Response, answer: Object) -> Exception:
        if response.status == 404 and not answer.get("reason"):
            self._version = None
        if response.status == 401:
            self._credential.forget()
        return api_error(str(request), response.status, answer, _retry_after(response.headers))

    def _event(self, request: Request, resource: Resource, version: str, line: bytes) -> WatchEvent:
        try:
            raw = msgspec.json.decode(line, type=_RawEvent)
            told: Object = (
                self._thrift.object(raw.object, resource.kind) if self._thrift else msgspec.json.decode(raw.object)
            )
        except msgspec.DecodeError as error:
            raise ConnectionLost(f"{request}: a line of the watch is no event: {error}") from error
        if raw.type == "ERROR":
            raise api_error(str(request), int(told.get("code") or 500), told)
        return WatchEvent(raw.type, from_version(told, version) if resource.negotiated else told)


async def _body(response: Response) -> bytes:
    return b"".join([chunk async for chunk in response.chunks()])


def _decoded(request: Request, status: int, raw: bytes, read: Reader = msgspec.json.decode) -> Object:
    try:
        answer = read(raw) if raw else {}
    except msgspec.DecodeError:
        answer = {"message": raw[:200].decode("utf-8", "replace").strip()}
        if status < 400:
            raise ConnectionLost(f"{request}: the answer is not JSON: {answer['message']}") from None
    return answer if isinstance(answer, dict) else {}


async def _lines(response: Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


async def _until(end: float, lines: AsyncIterator[bytes], problem: str) -> AsyncIterator[bytes]:
    """The lines up to a moment. Only waiting is timed: who takes a line may take his time with it."""
    while True:
        try:
            async with asyncio.timeout_at(end):
                line = await anext(lines)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise ConnectionLost(problem) from error
        yield line


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return min(float(value), RETRY_AFTER_MAX) if value.isdigit() else None


def _present(**query: str) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}
