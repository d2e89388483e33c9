"""A DRA plugin as the kubelet knows it: two sockets, one to be found by and one to be used.

The order matters. At the start the service socket is there before the registration socket, because the kubelet dials
at once. At the end the registration socket goes first, so that the kubelet turns to another instance if there is one;
until it has, we go on serving. Then the calls under way are finished, then the service socket goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from dranet.kubelet.endpoint import Endpoint
from dranet.kubelet.handler import ClaimHandler, RegistrationRefused
from dranet.kubelet.locks import ClaimLocks
from dranet.kubelet.registration_api import PluginInfo
from dranet.kubelet.services import DraService, HealthService, RegistrationService, service_names
from dranet.kubelet.sockets import KUBELET_ROOT, SocketPaths, has_living_sibling, sole_editor, sweep

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"
STOP_GRACE = 10.0
HAND_OVER = 3.0


class Plugin:
    """One instance of a driver. Give it its pod's UID to let two instances overlap while a DaemonSet is updated."""

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
        self._verdict = asyncio.Event()
        self._error = ""
        self._service: Endpoint | None = None
        self._registration: Endpoint | None = None

    async def start(self) -> None:
        """Listen, and let the kubelet find us. Sockets of instances that died are removed first."""
        self.paths.data.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.paths.registry.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._locks.open()
        try:
            async with sole_editor(self.paths):
                await self._listen()
        except BaseException:
            await self.stop(grace=0)
            raise

    async def _listen(self) -> None:
        for path in sweep(self.paths):
            log.info("removed the socket %s of an instance that died", path)
        self._service = await Endpoint.open(self.paths.service, self._services)
        registration = RegistrationService(self._info, self._on_verdict)
        self._registration = await Endpoint.open(self.paths.registration, [registration])

    async def registered(self) -> None:
        """Wait for the kubelet's verdict. Raises RegistrationRefused; the kubelet may still change its mind later."""
        await self._verdict.wait()
        if self._error:
            raise RegistrationRefused(f"the kubelet refused driver {self._info.name}: {self._error}")

    async def stop(self, grace: float = STOP_GRACE) -> None:
        """Leave: no longer to be found, finish what was begun, remove our sockets."""
        if self._registration is not None:
            await self._registration.close()
            await self._hand_over()
        await self._dra.finish(grace)
        if self._service is not None:
            await self._service.close()
        self._service = self._registration = None
        self._locks.close()

    def has_successor(self) -> bool:
        """Whether another instance of the driver is there for the kubelet."""
        return has_living_sibling(self.paths)

    async def _hand_over(self) -> None:
        """With another instance there, serve until the kubelet has turned to it: it looks every second and hangs up."""
        if self._service is not None and self.has_successor():
            await self._service.deserted(HAND_OVER)

    def _on_verdict(self, registered: bool, error: str) -> None:
        if registered:
            log.info("registered with the kubelet as %s", self._info.name)
        else:
            log.error("the kubelet refused driver %s: %s", self._info.name, error)
        self._error = "" if registered else error or "no reason given"
        self._verdict.set()
        if self._on_status is not None:
            self._on_status(registered)
