"""HTTP client for metadata services and the webhook.

One request for each connection, no redirects and no proxies: a proxy that answers for the metadata service would
describe another machine. The whole exchange has one deadline, so a slow server cannot delay the caller.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h11
import msgspec

from dranet.core.errors import DranetError, InvalidInput
from dranet.core.http import HttpConnection, Request

BODY_MAX = 4 * 2**20


class CloudError(DranetError):
    """A metadata service or webhook did not answer, or its answer is invalid."""


class Response(msgspec.Struct, frozen=True):
    """A complete response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.body)
        except msgspec.MsgspecError as error:
            raise CloudError(f"the answer is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class HttpClient:
    """Requests below one base address: ``http://``, ``https://`` or ``unix:///path/of/socket``."""

    base_url: str
    timeout: float = 2.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https", "unix"} or not (
            parts.path if parts.scheme == "unix" else parts.netloc
        ):
            raise InvalidInput(f"{self.base_url!r} is not a valid URL; use http://, https:// or unix:///path")

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Response:
        return await self.request("GET", path, headers=headers)

    async def get_if_any(self, path: str, headers: Mapping[str, str] | None = None) -> Response:
        """For optional data: an error becomes a response with status 0."""
        try:
            return await self.get(path, headers)
        except CloudError:
            return Response(0, {}, b"")

    async def post_json(self, path: str, value: Any) -> Response:
        body = msgspec.json.encode(value)
        return await self.request("POST", path, headers={"Content-Type": "application/json"}, body=body)

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        """Send one request and read the whole response; every failure is a :class:`CloudError`."""
        what = f"{method} {self.base_url.rstrip('/')}{path}"
        try:
            async with asyncio.timeout(self.timeout):
                return await self._exchange(method, path, {**self.headers, **(headers or {})}, body)
        except TimeoutError:
            raise CloudError(f"{what}: no answer within {self.timeout:g} s") from None
        except (OSError, h11.ProtocolError, ValueError) as error:
            raise CloudError(f"{what}: {error}") from error

    async def _exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        reader, writer, host, target = await self._connect(path)
        connection = HttpConnection(reader, writer)
        try:
            fields = {"Connection": "close", "Accept": "*/*", **headers}
            status, received = await connection.send_request(Request(method, target, fields, body), host)
            return Response(status, received, await connection.body(BODY_MAX))
        finally:
            writer.close()

    async def _connect(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str, str]:
        parts = urlsplit(self.base_url)
        if parts.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(parts.path)
            return reader, writer, "localhost", path
        secure = parts.scheme == "https"
        reader, writer = await asyncio.open_connection(
            parts.hostname,
            parts.port or (443 if secure else 80),
            ssl=ssl.create_default_context() if secure else None,
        )
        return reader, writer, parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + path


def expect_ok(response: Response, what: str) -> Response:
    """The response if its status is 200, else an error that quotes the beginning of its body."""
    if response.status != 200:
        raise CloudError(f"{what} answered {response.status}: {response.text[:200].strip()}")
    return response
