"""A fake kubelet for tests and demonstrations: finds plugins by their sockets, registers and calls them.

It behaves like the real one where it matters: it ignores files that begin with a dot; it asks a plugin for its info and
notifies it of the result; it uses the instance of a driver that registered last; it drops a plugin whose registration
socket is gone; an error of one claim does not fail the other claims of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import Message
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, StreamTerminatedError

from dranet.core.logs import get_logger
from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet import dra_api, health_api, registration_api
from dranet.kubernetes.kubelet.handler import (
    DeviceHealth,
    Health,
    KubeletError,
    PreparedDevice,
    PrepareError,
    UnprepareError,
)
from dranet.kubernetes.kubelet.services import DRA_VERSIONS

log = get_logger(__name__)

CALL_TIMEOUT = 45.0
REGISTRATION_TIMEOUT = 1.0
DRA_SERVICES = tuple(f"{version}.DRAPlugin" for version in DRA_VERSIONS)
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")

_HEALTH = {
    health_api.UNKNOWN: Health.UNKNOWN,
    health_api.HEALTHY: Health.HEALTHY,
    health_api.UNHEALTHY: Health.UNHEALTHY,
}


class RegisteredPlugin(msgspec.Struct, frozen=True):
    """A registered plugin and the newest services that both sides support."""

    driver: str
    socket: Path
    inode: int
    endpoint: Path
    dra: str
    health: str | None


class Kubelet:
    """A kubelet for DRA plugins under one root. Use as `async with Kubelet(root) as kubelet`."""

    def __init__(self, root: Path, *, poll: float = 0.02) -> None:
        self._registry = root / "plugins_registry"
        self._poll = poll
        self._plugins: list[RegisteredPlugin] = []
        self._refused: set[tuple[Path, int]] = set()
        self._changed = asyncio.Condition()
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Kubelet:
        self._registry.mkdir(parents=True, exist_ok=True)
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    @property
    def plugins(self) -> Sequence[RegisteredPlugin]:
        """The registered plugins, oldest registration first."""
        return tuple(self._plugins)

    async def wait_for(self, condition: Callable[[Sequence[RegisteredPlugin]], bool]) -> None:
        """Wait until the registered plugins meet the condition."""
        async with self._changed:
            await self._changed.wait_for(lambda: condition(self.plugins))

    async def prepare(self, driver: str, claim: ClaimRef) -> Sequence[PreparedDevice]:
        """As before the start of a pod; raises the driver's error."""
        request = dra_api.NodePrepareResourcesRequest(claims=[_claim(claim)])
        response = await self._dra(driver, "NodePrepareResources", request, dra_api.NodePrepareResourcesResponse)
        answer = response.claims.get(claim.uid, dra_api.NodePrepareResourceResponse(error=_unanswered(claim)))
        if answer.error:
            raise PrepareError(answer.error)
        return [_device(device) for device in answer.devices]

    async def unprepare(self, driver: str, claim: ClaimRef) -> None:
        """As after the last pod of the claim; may be repeated."""
        request = dra_api.NodeUnprepareResourcesRequest(claims=[_claim(claim)])
        response = await self._dra(driver, "NodeUnprepareResources", request, dra_api.NodeUnprepareResourcesResponse)
        answer = response.claims.get(claim.uid, dra_api.NodeUnprepareResourceResponse(error=_unanswered(claim)))
        if answer.error:
            raise UnprepareError(answer.error)

    async def health(self, driver: str) -> AsyncIterator[Sequence[DeviceHealth]]:
        """The plugin's devices now and at every change, until the plugin stops."""
        plugin = self.plugin(driver)
        if plugin.health is None:
            raise KubeletError(f"driver {driver} does not serve device health")
        async with _channel(plugin.endpoint) as channel:
            path = f"/{plugin.health}/NodeWatchResources"
            method = UnaryStreamMethod(
                channel, path, health_api.NodeWatchResourcesRequest, health_api.NodeWatchResourcesResponse
            )
            async with method.open() as stream:
                await stream.send_message(health_api.NodeWatchResourcesRequest(), end=True)
                async for message in stream:
                    yield [_device_health(device) for device in message.devices]

    def plugin(self, driver: str) -> RegisteredPlugin:
        """The instance in use: the one registered last."""
        for plugin in reversed(self._plugins):
            if plugin.driver == driver:
                return plugin
        raise KubeletError(f"no plugin for driver {driver} is registered under {self._registry}")

    async def _dra(self, driver: str, method: str, request: Message, response: type[Message]) -> Any:
        plugin = self.plugin(driver)
        path = f"/k8s.io.kubelet.pkg.apis.dra.{plugin.dra}/{method}"
        async with _channel(plugin.endpoint) as channel:
            return await _call(channel, path, request, response, CALL_TIMEOUT)

    # registration

    async def _watch(self) -> None:
        while True:
            await self._scan()
            await asyncio.sleep(self._poll)

    async def _scan(self) -> None:
        """Drop plugins whose socket is gone, register new ones."""
        found = dict(self._sockets())
        gone = [plugin for plugin in self._plugins if found.get(plugin.socket) != plugin.inode]
        for plugin in gone:
            await self._replace(plugin, None)
        known = {(plugin.socket, plugin.inode) for plugin in self._plugins} | self._refused
        for socket, inode in found.items():
            if (socket, inode) not in known:
                await self._register(socket, inode)

    def _sockets(self) -> list[tuple[Path, int]]:
        found = []
        for path in sorted(self._registry.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISSOCK(status.st_mode) and not path.name.startswith("."):
                    found.append((path, status.st_ino))
        return found

    async def _register(self, socket: Path, inode: int) -> None:
        try:
            async with _channel(socket) as channel:
                info = await _registration(
                    channel, "GetInfo", registration_api.InfoRequest(), registration_api.PluginInfo
                )
                plugin, error = _select_services(info, socket, inode)
                if plugin is not None:
                    await self._replace(None, plugin)
                else:
                    self._refused.add((socket, inode))
                status = registration_api.RegistrationStatus(plugin_registered=plugin is not None, error=error)
                await _registration(
                    channel, "NotifyRegistrationStatus", status, registration_api.RegistrationStatusResponse
                )
        except (KubeletError, OSError) as failure:
            log.info("Registration failed; will retry", socket=socket, error=failure)

    async def _replace(self, old: RegisteredPlugin | None, new: RegisteredPlugin | None) -> None:
        async with self._changed:
            if old is not None:
                self._plugins.remove(old)
            if new is not None:
                self._plugins.append(new)
            self._changed.notify_all()


def _select_services(info: Any, socket: Path, inode: int) -> tuple[RegisteredPlugin | None, str]:
    """The plugin with its services, or the reason to reject it."""
    offered = list(info.supported_versions)
    dra = next((service for service in DRA_SERVICES if service in offered), None)
    if info.type != "DRAPlugin":
        return None, f"no handler registered for plugin type {info.type!r}"
    if dra is None:
        return None, f"none of the services {offered} is supported"
    health = next((service for service in HEALTH_SERVICES if service in offered), None)
    return RegisteredPlugin(info.name, socket, inode, Path(info.endpoint or socket), dra, health), ""


@contextlib.asynccontextmanager
async def _channel(socket: Path) -> AsyncIterator[Channel]:
    channel = Channel(path=str(socket))
    try:
        yield channel
    finally:
        channel.close()


async def _registration(channel: Channel, method: str, request: Message, response: type[Message]) -> Any:
    return await _call(channel, f"/pluginregistration.Registration/{method}", request, response, REGISTRATION_TIMEOUT)


async def _call(channel: Channel, path: str, request: Message, response: type[Message], timeout: float) -> Any:
    try:
        return await UnaryUnaryMethod(channel, path, type(request), response)(request, timeout=timeout)
    except (GRPCError, StreamTerminatedError, OSError, TimeoutError) as error:
        raise KubeletError(f"{path}: no response: {error}") from error
    except AttributeError as error:
        # grpclib has no transport any more if the peer disconnects between connect and the first request.
        raise KubeletError(f"{path}: no response: the driver closed the connection") from error


def _claim(claim: ClaimRef) -> dra_api.Claim:
    return dra_api.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _unanswered(claim: ClaimRef) -> str:
    return f"the driver did not answer for claim {claim} (UID {claim.uid})"


def _device(device: dra_api.Device) -> PreparedDevice:
    return PreparedDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        cdi_ids=tuple(device.cdi_device_ids),
        share_id=device.share_id if device.HasField("share_id") else None,
    )


def _device_health(device: health_api.DeviceHealth) -> DeviceHealth:
    return DeviceHealth(
        pool=device.device.pool_name,
        device=device.device.device_name,
        health=_HEALTH[device.health],
        updated_at=device.last_updated_time,
        message=device.message,
        timeout=device.health_check_timeout_seconds,
    )
