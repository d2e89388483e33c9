"""A very small HTTP client for metadata services and the webhook.

One request a connection, no redirects, no proxies: a metadata service must be asked directly, and a proxy that answers
in its place would tell lies about the node. The whole exchange has one deadline, so a server that trickles bytes
cannot hold anybody up.
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

from dranet.model.errors import DranetError, InvalidInput

BODY_MAX = 4 * 2**20
_READ_SIZE = 65536


class CloudError(DranetError):
    """A metadata service or webhook did not answer, or not with what it should."""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer; header names are lower case."""

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
            raise InvalidInput(f"{self.base_url!r} is no usable URL; write http://, https:// or unix:///path")

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Response:
        return await self.request("GET", path, headers=headers)

    async def get_if_any(self, path: str, headers: Mapping[str, str] | None = None) -> Response:
        """For what is nice to know: trouble on the way is an answer with status 0."""
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
        """Send one request and read the whole answer; everything that goes wrong is a :class:`CloudError`."""
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
        try:
            fields = {"Host": host, "Connection": "close", "Accept": "*/*", **headers}
            if body or method in {"POST", "PUT"}:
                fields["Content-Length"] = str(len(body))
            connection = h11.Connection(our_role=h11.CLIENT)
            request = h11.Request(method=method, target=target, headers=list(fields.items()))
            events = (request, h11.Data(data=body), h11.EndOfMessage())
            writer.write(b"".join(connection.send(event) or b"" for event in events))
            await writer.drain()
            return await _receive(connection, reader)
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


async def _receive(connection: h11.Connection, reader: asyncio.StreamReader) -> Response:
    status, headers, body = 0, {}, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_SIZE))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_MAX:
                raise CloudError(f"the answer is larger than {BODY_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Response(status, headers, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the server closed the connection early")


def expect_ok(response: Response, what: str) -> Response:
    """The response if its status is 200, else an error that quotes the beginning of its body."""
    if response.status != 200:
        raise CloudError(f"{what} answered {response.status}: {response.text[:200].strip()}")
    return response
