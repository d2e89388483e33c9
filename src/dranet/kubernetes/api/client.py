"""A thin API client: get, list, create, replace, delete, server-side apply and watch, in v1 shapes.

It retries only requests that the server has certainly not carried out (429, and 503 with Retry-After). All other
retries are the caller's: the publisher, the status writer and the event recorder know what to read first.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from dranet.core.backoff import Backoff
from dranet.core.http import Request
from dranet.kubernetes.api.auth import Anonymous, Credential
from dranet.kubernetes.api.config import ClusterConfig
from dranet.kubernetes.api.errors import ConnectionLost, ObjectNotFound, api_error
from dranet.kubernetes.api.http import Response, Transport
from dranet.kubernetes.api.interning import InterningDecoder
from dranet.kubernetes.api.resources import GROUP, Resource, choose_version, from_version, to_version

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
PAGE = 500
RETRY_AFTER_MAX = 30.0
ATTEMPTS = 6

Object = dict[str, Any]
Objects = list[Object]
Reader = Callable[[bytes], Any]
"""Decodes JSON."""


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
        decoder: InterningDecoder | None = None,
    ) -> None:
        """``decoder`` is for programs that keep all objects of a cluster in memory."""
        self._transport = transport
        self._credential: Credential = credential or Anonymous()
        self._prefix = prefix
        self._timeout = timeout
        self._user_agent = user_agent
        self._decoder = decoder
        self._version: str | None = None
        self.rng = rng or random.Random()

    @classmethod
    def from_config(
        cls, config: ClusterConfig, *, rng: random.Random | None = None, decoder: InterningDecoder | None = None
    ) -> KubeClient:
        """A client for the result of :func:`dranet.kubernetes.api.config.load_config`."""
        return cls(config.transport(), config.credential, prefix=config.prefix, rng=rng, decoder=decoder)

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def resource_version(self) -> str:
        """The version of resource.k8s.io to use with this server. Cached until the server stops serving it."""
        if self._version is None:
            try:
                group = await self.request("GET", f"/apis/{GROUP}")
            except ObjectNotFound:
                group = {}
            self._version = choose_version([item["version"] for item in group.get("versions") or ()])
        return self._version

    async def server_version(self) -> tuple[int, int]:
        """The server's release, such as (1, 36)."""
        answer = await self.request("GET", "/version")
        digits = ["".join(filter(str.isdigit, str(answer.get(part, "")))) for part in ("major", "minor")]
        return int(digits[0] or 0), int(digits[1] or 0)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object; raises ObjectNotFound."""
        return await self._call("GET", resource, namespace, name)

    async def list(
        self, resource: Resource, namespace: str | None = None, *, fields: str = "", labels: str = ""
    ) -> tuple[Objects, str]:
        """All objects that match, and the resource version to watch from."""
        items: Objects = []
        version = ""
        async for page, page_version in self.pages(resource, namespace, fields=fields, labels=labels):
            items += page
            version = page_version
        return items, version

    async def list_cached(self, resource: Resource, *, fields: str, not_before: str = "") -> tuple[Objects, str]:
        """A list from the watch cache of the server: cheap for it, possibly slightly stale, but not older than
        ``not_before``. Sent once: if the server is too busy, the caller spreads its retry, because all clients get the
        same Retry-After."""
        query = {"fieldSelector": fields, "resourceVersion": not_before or "0", "resourceVersionMatch": "NotOlderThan"}
        page = await self._call("GET", resource, query=query, attempts=1, read=self._read_page)
        version = str((page.get("metadata") or {}).get("resourceVersion") or "")
        return await self._read_items(resource, page), version

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, fields: str = "", labels: str = "", limit: int = PAGE
    ) -> AsyncGenerator[tuple[Objects, str], None]:
        """The list page by page. The version is that of the whole list."""
        query = _present(limit=str(limit), fieldSelector=fields, labelSelector=labels)

        def fetch(query: Mapping[str, str]) -> asyncio.Task[Object]:
            return asyncio.create_task(self._call("GET", resource, namespace, query=query, read=self._read_page))

        next_page: asyncio.Task[Object] | None = fetch(query)
        try:
            while next_page:
                page = await next_page
                metadata = page.get("metadata") or {}
                next_page = None
                if metadata.get("continue"):
                    query = {**query, "continue": metadata["continue"]}
                    next_page = fetch(query)
                    await asyncio.sleep(0)  # send it now: the server prepares the next page while this one is decoded
                items = await self._read_items(resource, page)
                yield items, str(metadata.get("resourceVersion") or "")
        finally:
            if next_page:
                next_page.cancel()

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        """Create an object; raises Conflict if the name exists."""
        return await self._call("POST", resource, namespace, body=obj)

    async def replace(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        """Update an object; raises Conflict if its resourceVersion is not current."""
        return await self._call("PUT", resource, namespace, obj["metadata"]["name"], body=obj)

    async def delete(
        self, resource: Resource, name: str, namespace: str | None = None, *, uid: str | None = None
    ) -> None:
        """Delete an object, with ``uid`` only if it still has that UID; no error if it does not exist."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        with contextlib.suppress(ObjectNotFound):
            await self._call("DELETE", resource, namespace, name, raw_body=options)

    async def apply(
        self, resource: Resource, obj: Object, manager: str, namespace: str | None = None, *, sub: str | None = None
    ) -> Object:
        """Server-side apply with ``force``: takes over fields of other managers."""
        query = {"fieldManager": manager, "force": "true"}
        name = obj["metadata"]["name"]
        return await self._call("PATCH", resource, namespace, name, sub=sub, body=obj, query=query, content_type=APPLY)

    async def merge_patch(self, resource: Resource, name: str, patch: Object, namespace: str | None = None) -> Object:
        """JSON merge patch."""
        return await self._call("PATCH", resource, namespace, name, raw_body=patch, content_type=MERGE_PATCH)

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

        ``opened`` is called when the server accepts the watch; the first event may come hours later. Raises
        ConnectionLost if the server does not end the watch in time, because then it is gone.
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
            async for line in _until(
                end, _lines(response), f"{request}: no data, and the watch did not end after {seconds} s"
            ):
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
        """Send any request and decode the JSON response. Waits and retries while the server is too busy."""
        target = f"{path}?{urlencode(query)}" if query else path
        raw = msgspec.json.encode(body) if body is not None else b""
        backoff = Backoff(self.rng, first=1.0)
        renewed = False
        while True:
            request = await self._request(method, target, raw, content_type)
            status, headers, body_read = await self._exchange(request)
            answer = _decoded(request, status, body_read, read)
            if status < 400:
                return answer
            retry_after = _retry_after(headers)
            if status == 401 and not renewed and self._credential.invalidate():
                renewed = True
                continue
            attempts -= 1
            if not attempts or not (status == 429 or (status == 503 and retry_after is not None)):
                raise api_error(str(request), status, answer, retry_after)
            await asyncio.sleep(
                (retry_after or 0.0) + backoff.next()
            )  # all clients got the same Retry-After: spread them

    async def text(self, path: str, *, limit: int) -> str:
        """A text response, such as that of a pod behind the API server's proxy. Not retried.

        Raises ConnectionLost for one of more than `limit` bytes.
        """
        request = await self._request("GET", path)
        status, headers, body = await self._exchange(request, limit)
        if status >= 400:
            raise api_error(str(request), status, _decoded(request, status, body), _retry_after(headers))
        return body.decode("utf-8", "replace")

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
        except ObjectNotFound as error:
            if not error.reason:
                self._version = None  # the API version does not exist, not only the object: the server was upgraded
            raise
        return from_version(answer, version) if resource.negotiated and answer.get("kind") == resource.kind else answer

    async def _read_items(self, resource: Resource, page: Object) -> Objects:
        """List items have neither kind nor apiVersion; add them."""
        version = await self._version_of(resource)
        items = self._decoder.items(page, resource.kind) if self._decoder else page.get("items") or []
        whole = [{"apiVersion": resource.version, **item, "kind": resource.kind} for item in items]
        return [from_version(item, version) for item in whole] if resource.negotiated else whole

    @property
    def _read_page(self) -> Reader:
        return self._decoder.page if self._decoder else msgspec.json.decode

    async def _version_of(self, resource: Resource) -> str:
        return await self.resource_version() if resource.negotiated else resource.version

    async def _request(self, method: str, target: str, body: bytes = b"", content_type: str = JSON) -> Request:
        headers = {"Accept": JSON, "User-Agent": self._user_agent, **await self._credential.headers()}
        if body:
            headers["Content-Type"] = content_type
        return Request(method, self._prefix + target, headers, body)

    async def _exchange(self, request: Request, limit: int | None = None) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._transport.open(request)
                try:
                    return response.status, response.headers, await _body(response, limit)
                finally:
                    await response.close()
        except TimeoutError as error:
            raise ConnectionLost(f"{request}: no response within {self._timeout:g} s") from error

    def _error(self, request: Request, response: Response, answer: Object) -> Exception:
        if response.status == 404 and not answer.get("reason"):
            self._version = None
        if response.status == 401:
            self._credential.invalidate()
        return api_error(str(request), response.status, answer, _retry_after(response.headers))

    def _event(self, request: Request, resource: Resource, version: str, line: bytes) -> WatchEvent:
        try:
            raw = msgspec.json.decode(line, type=_RawEvent)
            item: Object = (
                self._decoder.object(raw.object, resource.kind) if self._decoder else msgspec.json.decode(raw.object)
            )
        except msgspec.DecodeError as error:
            raise ConnectionLost(f"{request}: a line of the watch is not an event: {error}") from error
        if raw.type == "ERROR":
            raise api_error(str(request), int(item.get("code") or 500), item)
        return WatchEvent(raw.type, from_version(item, version) if resource.negotiated else item)


async def _body(response: Response, limit: int | None = None) -> bytes:
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if limit is not None and len(body) > limit:
            raise ConnectionLost(f"the response has more than {limit} bytes")
    return bytes(body)


def _decoded(request: Request, status: int, raw: bytes, read: Reader = msgspec.json.decode) -> Object:
    try:
        answer = read(raw) if raw else {}
    except msgspec.DecodeError:
        answer = {"message": raw[:200].decode("utf-8", "replace").strip()}
        if status < 400:
            raise ConnectionLost(f"{request}: the response is not JSON: {answer['message']}") from None
    return answer if isinstance(answer, dict) else {}


async def _lines(response: Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


async def _until(end: float, lines: AsyncIterator[bytes], problem: str) -> AsyncIterator[bytes]:
    """The lines until ``end``. The time that the caller spends on a line does not count."""
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
