"""As much of the container runtime interface (CRI) as the tests need: make, stop and remove a pod's sandbox.

The few messages are put together by hand, so that no interface file of somebody else's is needed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

SERVICE = "/runtime.v1.RuntimeService"
HOST_NETWORK = 2


def field(number: int, value: bytes | str | int) -> bytes:
    """One protobuf field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def sandbox_config(name: str, uid: str) -> bytes:
    """A pod in the host's network (here: that of containerd's own namespace), so no network plugin is needed."""
    metadata = field(1, name) + field(2, uid) + field(3, "default")
    namespaces = field(1, HOST_NETWORK)
    linux = field(2, field(1, namespaces))
    return field(1, metadata) + field(8, linux)


class Cri:
    """A client of containerd's CRI socket. Use as `async with Cri(socket) as cri`."""

    def __init__(self, socket: Path) -> None:
        self._target = f"unix:{socket}"
        self._sandboxes: list[str] = []

    async def __aenter__(self) -> Cri:
        self._channel = grpc.aio.insecure_channel(self._target)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def run_sandbox(self, name: str, uid: str) -> str:
        answer = await self._call("RunPodSandbox", field(1, sandbox_config(name, uid)))
        self._sandboxes.append(answer[2:].decode())  # one string field, shorter than 128 bytes: the sandbox's id
        return self._sandboxes[-1]

    async def stop_sandbox(self, sandbox: str) -> None:
        await self._call("StopPodSandbox", field(1, sandbox))

    async def remove_all(self) -> None:
        """Stop and remove every sandbox made here."""
        for sandbox in self._sandboxes:
            await self.stop_sandbox(sandbox)
            await self._call("RemovePodSandbox", field(1, sandbox))

    async def _call(self, method: str, request: bytes) -> bytes:
        call: Any = self._channel.unary_unary(f"{SERVICE}/{method}", None, None)
        answer: bytes = await call(request, timeout=20, wait_for_ready=True)
        return answer
