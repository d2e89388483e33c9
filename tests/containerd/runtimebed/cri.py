"""As much of the container runtime interface (CRI) as the tests need: sandboxes, and a container in one.

The few messages are put together by hand, so that no interface file of another project is needed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

SERVICE = "/runtime.v1.RuntimeService"
HOST_NETWORK = 2
OWN_PROCESSES = 1
"""A process namespace for each container, as the kubelet asks for by default."""


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


def first_string(message: bytes) -> str:
    """The content of field 1, which is the first one here and shorter than 128 bytes."""
    return message[2 : 2 + message[1]].decode() if message[:1] == b"\x0a" else ""


def sandbox_config(
    name: str, uid: str, *, own_network: bool = False, attempt: int = 0, cgroup_parent: str = ""
) -> bytes:
    """A pod in the host's network (here: that of the runtime's own namespace), or with one of its own."""
    metadata = field(1, name) + field(2, uid) + field(3, "default") + field(4, attempt)
    namespaces = field(1, 0 if own_network else HOST_NETWORK) + field(2, OWN_PROCESSES)
    parent = field(1, f"{cgroup_parent}/pod{uid}") if cgroup_parent else b""
    log_directory = field(3, f"/tmp/{uid}")  # CRI-O writes a log of each container
    return field(1, metadata) + log_directory + field(8, parent + field(2, field(1, namespaces)))


def container_config(name: str, image: str, command: Sequence[str], cdi_devices: Sequence[str]) -> bytes:
    """A container that runs a command and names CDI devices."""
    words = b"".join(field(3, word) for word in command)
    devices = b"".join(field(17, field(1, device)) for device in cdi_devices)
    log_path = field(11, f"{name}.log")
    image_spec = field(1, image) + field(18, image)  # as the pod names it: what CRI-O checks signatures by
    linux = field(15, field(2, field(3, field(2, OWN_PROCESSES))))
    return field(1, field(1, name)) + field(2, image_spec) + words + log_path + linux + devices


def pull(socket: Path, image: str) -> None:
    """Make the runtime fetch an image."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call: Any = channel.unary_unary("/runtime.v1.ImageService/PullImage", None, None)
        call(field(1, field(1, image)), timeout=60)


class Cri:
    """A client of a runtime's CRI socket. Use as `async with Cri(socket) as cri`."""

    def __init__(self, socket: Path, cgroup_parent: str = "") -> None:
        self._cgroup_parent = cgroup_parent
        self._target = f"unix:{socket}"
        self._sandboxes: list[str] = []
        self._containers: list[tuple[str, str]] = []

    async def __aenter__(self) -> Cri:
        self._channel = grpc.aio.insecure_channel(self._target)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def run_sandbox(self, name: str, uid: str, *, own_network: bool = False, attempt: int = 0) -> str:
        """Start a sandbox; each further one of the same pod needs a number of its own."""
        config = self._sandbox_config(name, uid, own_network=own_network, attempt=attempt)
        answer = await self._call("RunPodSandbox", field(1, config))
        self._sandboxes.append(first_string(answer))
        return self._sandboxes[-1]

    @property
    def latest(self) -> str:
        """The sandbox that was started last, also where the runtime's answer was an error of a plugin's."""
        return self._sandboxes[-1]

    async def run_container(
        self, sandbox: str, pod: tuple[str, str], image: str, command: Sequence[str], cdi_devices: Sequence[str] = ()
    ) -> str:
        """Create and start a container of a pod with a network of its own; its id."""
        config = container_config("main", image, command, cdi_devices)
        request = field(1, sandbox) + field(2, config) + field(3, self._sandbox_config(*pod, own_network=True))
        container = first_string(await self._call("CreateContainer", request))
        self._containers.append((sandbox, container))
        await self._call("StartContainer", field(1, container))
        return container

    async def network_of(self, container: str) -> set[str]:
        """The names of the links a container sees."""
        return set((await self.run_inside(container, "ls", "/sys/class/net")).split())

    async def run_inside(self, container: str, *words: str) -> str:
        """What a command of busybox prints in a container."""
        request = field(1, container) + b"".join(field(2, word) for word in ("/bin/busybox", *words))
        return first_string(await self._call("ExecSync", request + field(3, 10)))

    async def remove_container(self, container: str) -> None:
        """Ends it first, at once."""
        await self._call("StopContainer", field(1, container))
        await self._call("RemoveContainer", field(1, container))
        self._containers = [pair for pair in self._containers if pair[1] != container]

    async def stop_sandbox(self, sandbox: str) -> None:
        """As the kubelet does: first its containers, here without a grace period."""
        for owner, container in self._containers:
            if owner == sandbox:
                await self._call("StopContainer", field(1, container))
        await self._call("StopPodSandbox", field(1, sandbox))

    async def remove_all(self) -> None:
        """Stop and remove every sandbox made here."""
        for sandbox in self._sandboxes:
            await self.stop_sandbox(sandbox)
            await self._call("RemovePodSandbox", field(1, sandbox))

    def _sandbox_config(self, name: str, uid: str, *, own_network: bool, attempt: int = 0) -> bytes:
        parent = self._cgroup_parent
        return sandbox_config(name, uid, own_network=own_network, attempt=attempt, cgroup_parent=parent)

    async def _call(self, method: str, request: bytes) -> bytes:
        call: Any = self._channel.unary_unary(f"{SERVICE}/{method}", None, None)
        answer: bytes = await call(request, timeout=60, wait_for_ready=True)
        return answer
