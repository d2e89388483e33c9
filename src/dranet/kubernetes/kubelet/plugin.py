"""A DRA plugin with its two sockets: one for registration, one for the DRA service.

The order matters. At start the service socket exists before the registration socket, because the kubelet connects at
once. At stop the registration socket is removed first, so that the kubelet uses another instance if there is one; until
it does, this one keeps serving. Then running calls finish, and the service socket is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from dranet.core.logs import get_logger
from dranet.kubernetes.kubelet.endpoint import Endpoint
from dranet.kubernetes.kubelet.handler import ClaimHandler, RegistrationRefused
from dranet.kubernetes.kubelet.locks import ClaimLocks
from dranet.kubernetes.kubelet.registration_api import PluginInfo
from dranet.kubernetes.kubelet.services import DraService, HealthService, RegistrationService, service_names
from dranet.kubernetes.kubelet.sockets import (
    KUBELET_ROOT,
    SocketPaths,
    has_other_instance,
    remove_dead_sockets,
    socket_files_lock,
)

log = get_logger(__name__)

PLUGIN_TYPE = "DRAPlugin"
STOP_GRACE_SECONDS = 10.0
HANDOVER_SECONDS = 3.0


class Plugin:
    """One instance of a driver. With its pod's UID, two instances can overlap while a DaemonSet is updated."""

    def __init__(
        self,
        driver: str,
        handler: ClaimHandler,
        *,
        root: Path = KUBELET_ROOT,
        pod_uid: str = "",
        health: bool = True,
        on_status: Callable[[bool], None] | None = None,
    ) -> None:
        self.paths = SocketPaths(root, driver, pod_uid)
        self._locks = ClaimLocks(self.paths.lock)
        self._dra = DraService(handler, self._locks)
        self._services: list[object] = [self._dra, HealthService(handler)] if health else [self._dra]
        self._info = PluginInfo(
            type=PLUGIN_TYPE,
            name=driver,
            endpoint=str(self.paths.service),
            supported_versions=service_names(health=health),
        )
        self._on_status = on_status
        self._registration_result = asyncio.Event()
        self._error = ""
        self._service: Endpoint | None = None
        self._registration: Endpoint | None = None

    async def start(self) -> None:
        """Remove stale sockets of dead instances, then listen on both sockets."""
        self.paths.data.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.paths.registry.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._locks.open()
        try:
            async with socket_files_lock(self.paths):
                await self._listen()
        except BaseException:
            await self.stop(grace=0)
            raise

    async def _listen(self) -> None:
        for path in remove_dead_sockets(self.paths):
            log.info("Removed stale socket of a dead instance", path=path)
        self._service = await Endpoint.open(self.paths.service, self._services)
        registration = RegistrationService(self._info, self._on_registration)
        self._registration = await Endpoint.open(self.paths.registration, [registration])

    async def registered(self) -> None:
        """Wait for the result of the registration. Raises RegistrationRefused; a later registration may succeed."""
        await self._registration_result.wait()
        if self._error:
            raise RegistrationRefused(f"the kubelet rejected driver {self._info.name}: {self._error}")

    async def stop(self, grace: float = STOP_GRACE_SECONDS) -> None:
        """Unregister, finish running calls, remove the sockets."""
        if self._registration is not None:
            await self._registration.close()
            await self._wait_for_handover()
        await self._dra.finish(grace)
        if self._service is not None:
            await self._service.close()
        self._service = self._registration = None
        self._locks.close()

    def has_successor(self) -> bool:
        """Whether another instance of the driver is registered."""
        return has_other_instance(self.paths)

    async def _wait_for_handover(self) -> None:
        """Serve until the kubelet uses the other instance: it checks every second and then disconnects."""
        if self._service is not None and self.has_successor():
            await self._service.wait_disconnected(HANDOVER_SECONDS)

    def _on_registration(self, registered: bool, error: str) -> None:
        if registered:
            log.info("Registered with the kubelet", driver=self._info.name)
        else:
            log.error("Kubelet rejected the registration", driver=self._info.name, error=error)
        self._error = "" if registered else error or "no reason given"
        self._registration_result.set()
        if self._on_status is not None:
            self._on_status(registered)
