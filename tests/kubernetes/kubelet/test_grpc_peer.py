"""The plugin against a gRPC implementation that is not ours: grpcio, with the kubelet's peculiarities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf.message import Message

from dranet.kubernetes.kubelet import DeviceHealth, Health, Plugin, dra_api, health_api, registration_api

grpc: Any = pytest.importorskip("grpc", reason="grpcio plays the kubelet's gRPC library")

Start = Callable[..., Awaitable[Plugin]]


def serialize(message: Message) -> bytes:
    return message.SerializeToString()


@pytest.fixture
async def channel(start: Start) -> AsyncIterator[Any]:
    """A channel whose authority is a percent-encoded path, as the kubelet's is."""
    plugin = await start()
    authority = quote(str(plugin.paths.service), safe="")
    async with grpc.aio.insecure_channel(
        f"unix:{plugin.paths.service}", options=[("grpc.default_authority", authority)]
    ) as opened:
        yield opened


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_prepare_and_unprepare_in_each_version(channel: Any, version: str) -> None:
    service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
    claims = [dra_api.Claim(namespace="ns", name=name, uid=f"uid-{name}") for name in ("good", "bad")]
    prepare = channel.unary_unary(
        f"{service}/NodePrepareResources", serialize, dra_api.NodePrepareResourcesResponse.FromString
    )
    answer = await prepare(dra_api.NodePrepareResourcesRequest(claims=claims))
    assert [device.device_name for device in answer.claims["uid-good"].devices] == ["eth-1"]
    assert "no such nic" in answer.claims["uid-bad"].error
    unprepare = channel.unary_unary(
        f"{service}/NodeUnprepareResources", serialize, dra_api.NodeUnprepareResourcesResponse.FromString
    )
    freed = await unprepare(dra_api.NodeUnprepareResourcesRequest(claims=claims))
    assert sorted(freed.claims) == ["uid-bad", "uid-good"]


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_health_in_each_version(channel: Any, driver: Any, version: str) -> None:
    driver.reports.put_nowait([DeviceHealth("pool", "dev", Health.UNHEALTHY, 5, "no carrier")])
    watch = channel.unary_stream(
        f"/{version}.DRAResourceHealth/NodeWatchResources",
        serialize,
        health_api.NodeWatchResourcesResponse.FromString,
    )(health_api.NodeWatchResourcesRequest())
    (device,) = (await watch.read()).devices
    watch.cancel()
    assert (device.device.device_name, device.health, device.message) == ("dev", health_api.UNHEALTHY, "no carrier")


async def test_an_unknown_service_is_unimplemented(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/v9.DRAPlugin/NodePrepareResources", serialize, bytes)(
            registration_api.InfoRequest()
        )
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_registration(start: Start, root: Path) -> None:
    plugin = await start()
    service = "/pluginregistration.Registration"
    async with grpc.aio.insecure_channel(f"unix:{plugin.paths.registration}") as channel:
        get_info = channel.unary_unary(f"{service}/GetInfo", serialize, registration_api.PluginInfo.FromString)
        info = await get_info(registration_api.InfoRequest())
        assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "dra.net", str(plugin.paths.service))
        notify = channel.unary_unary(
            f"{service}/NotifyRegistrationStatus", serialize, registration_api.RegistrationStatusResponse.FromString
        )
        await notify(registration_api.RegistrationStatus(plugin_registered=True))
    await plugin.registered()
