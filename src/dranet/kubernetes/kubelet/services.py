"""The gRPC services, each a thin translation between protobuf and `ClaimHandler`.

A handler is a plain `async def f(request) -> response`; only `_unary` and `_streaming` depend on the gRPC library. The
library cancels a call when the kubelet gives up on it (after 45 s), so the work runs in a task that is not cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger
from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet import dra_api, health_api, registration_api
from dranet.kubernetes.kubelet.handler import (
    AFTER_REPLY_DELAY_SECONDS,
    ClaimHandler,
    DeviceHealth,
    Health,
    PreparedDevice,
)
from dranet.kubernetes.kubelet.locks import ClaimLocks

log = get_logger(__name__)

DRA_VERSIONS = ("v1", "v1beta1")
HEALTH_VERSIONS = ("v1", "v1alpha1")

Result = TypeVar("Result")
Mapping = dict[str, Any]

_HEALTH = {
    Health.UNKNOWN: health_api.UNKNOWN,
    Health.HEALTHY: health_api.HEALTHY,
    Health.UNHEALTHY: health_api.UNHEALTHY,
}


def service_names(*, health: bool) -> list[str]:
    """The supported services for the registration, newest first."""
    names = [f"{version}.DRAPlugin" for version in DRA_VERSIONS]
    return names + [f"{version}.DRAResourceHealth" for version in HEALTH_VERSIONS] if health else names


class RegistrationService:
    """Tells the kubelet the plugin's name and services, and receives the result of the registration."""

    def __init__(self, info: registration_api.PluginInfo, on_status: Callable[[bool, str], None]) -> None:
        self._info = info
        self._on_status = on_status

    async def get_info(self, request: registration_api.InfoRequest) -> registration_api.PluginInfo:
        return self._info

    async def notify(self, request: registration_api.RegistrationStatus) -> registration_api.RegistrationStatusResponse:
        self._on_status(request.plugin_registered, request.error)
        return registration_api.RegistrationStatusResponse()

    def __mapping__(self) -> Mapping:
        api, prefix = registration_api, "/pluginregistration.Registration"
        return {
            f"{prefix}/GetInfo": _unary(self.get_info, api.InfoRequest, api.PluginInfo),
            f"{prefix}/NotifyRegistrationStatus": _unary(
                self.notify, api.RegistrationStatus, api.RegistrationStatusResponse
            ),
        }


class DraService:
    """Prepare and unprepare; all claims concurrently."""

    def __init__(self, handler: ClaimHandler, locks: ClaimLocks) -> None:
        self._handler = handler
        self._locks = locks
        self._work: set[asyncio.Task[Any]] = set()

    async def prepare(self, request: dra_api.NodePrepareResourcesRequest) -> dra_api.NodePrepareResourcesResponse:
        claims = [_claim(claim) for claim in request.claims]
        answers = await asyncio.gather(*(self._start(self._prepare(claim)) for claim in claims))
        return dra_api.NodePrepareResourcesResponse(
            claims={claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}
        )

    async def unprepare(self, request: dra_api.NodeUnprepareResourcesRequest) -> dra_api.NodeUnprepareResourcesResponse:
        claims = [_claim(claim) for claim in request.claims]
        answers = await asyncio.gather(*(self._start(self._unprepare(claim)) for claim in claims))
        return dra_api.NodeUnprepareResourcesResponse(
            claims={claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}
        )

    async def finish(self, grace: float) -> None:
        """Wait for running work; cancel what is left after `grace` seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        while self._work and loop.time() < end:
            await asyncio.wait(self._work, timeout=end - loop.time())
        late = list(self._work)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _prepare(self, claim: ClaimRef) -> dra_api.NodePrepareResourceResponse:
        try:
            async with self._locks.hold(claim.uid):
                devices = await self._handler.prepare(claim)
        except Exception as error:
            return dra_api.NodePrepareResourceResponse(error=_explain("prepare", claim, error))
        self._start(self._after_reply(claim))
        return dra_api.NodePrepareResourceResponse(devices=[_device(device) for device in devices])

    async def _after_reply(self, claim: ClaimRef) -> None:
        try:
            async with self._locks.hold(claim.uid):
                await asyncio.sleep(AFTER_REPLY_DELAY_SECONDS)
                await self._handler.after_reply(claim)
        except Exception:
            log.exception("Work after a reply to the kubelet failed", claim=claim)

    async def _unprepare(self, claim: ClaimRef) -> dra_api.NodeUnprepareResourceResponse:
        try:
            async with self._locks.hold(claim.uid):
                await self._handler.unprepare(claim)
        except Exception as error:
            return dra_api.NodeUnprepareResourceResponse(error=_explain("unprepare", claim, error))
        self._start(self._after_reply(claim))
        return dra_api.NodeUnprepareResourceResponse()

    def _start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        """Run the work in a task that is not cancelled with its caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return asyncio.shield(task)

    def __mapping__(self) -> Mapping:
        api = dra_api
        mapping: Mapping = {}
        for version in DRA_VERSIONS:
            prefix = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
            mapping[f"{prefix}/NodePrepareResources"] = _unary(
                self.prepare, api.NodePrepareResourcesRequest, api.NodePrepareResourcesResponse
            )
            mapping[f"{prefix}/NodeUnprepareResources"] = _unary(
                self.unprepare, api.NodeUnprepareResourcesRequest, api.NodeUnprepareResourcesResponse
            )
        return mapping


class HealthService:
    """Streams device health."""

    def __init__(self, handler: ClaimHandler) -> None:
        self._handler = handler

    async def watch(
        self, request: health_api.NodeWatchResourcesRequest
    ) -> AsyncGenerator[health_api.NodeWatchResourcesResponse, None]:
        async for devices in self._handler.health():
            yield health_api.NodeWatchResourcesResponse(devices=[_health(device) for device in devices])

    def __mapping__(self) -> Mapping:
        api = health_api
        return {
            f"/{version}.DRAResourceHealth/NodeWatchResources": _streaming(
                self.watch, api.NodeWatchResourcesRequest, api.NodeWatchResourcesResponse
            )
            for version in HEALTH_VERSIONS
        }


def _unary(call: Callable[[Any], Awaitable[Message]], request: type[Message], response: type[Message]) -> Handler:
    async def serve(stream: Any) -> None:
        await stream.send_message(await call(await stream.recv_message()))

    return Handler(serve, Cardinality.UNARY_UNARY, request, response)


def _streaming(
    call: Callable[[Any], AsyncGenerator[Message, None]], request: type[Message], response: type[Message]
) -> Handler:
    async def serve(stream: Any) -> None:
        async with aclosing(call(await stream.recv_message())) as messages:
            async for message in messages:
                await stream.send_message(message)

    return Handler(serve, Cardinality.UNARY_STREAM, request, response)


def _explain(operation: str, claim: ClaimRef, error: Exception) -> str:
    """The text for the pod's events."""
    if not isinstance(error, DranetError):
        log.error("Unexpected error", exc_info=error, operation=operation, claim=claim)
    return f"{operation} claim {claim} (UID {claim.uid}): {error or type(error).__name__}"


def _claim(claim: dra_api.Claim) -> ClaimRef:
    return ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _device(device: PreparedDevice) -> dra_api.Device:
    return dra_api.Device(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id,
    )


def _health(device: DeviceHealth) -> health_api.DeviceHealth:
    return health_api.DeviceHealth(
        device=health_api.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
        health=_HEALTH[device.health],
        last_updated_time=device.updated_at,
        health_check_timeout_seconds=device.timeout,
        message=device.message,
    )
