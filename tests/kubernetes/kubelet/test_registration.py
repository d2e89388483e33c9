"""Being found by the kubelet: sockets that appear whole, verdicts, updates with two instances side by side."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from grpclib.client import Channel, UnaryUnaryMethod

from dranet.kubernetes.kubelet import KubeletError, Plugin, RegistrationRefused
from dranet.kubernetes.kubelet.client import Kubelet
from dranet.kubernetes.kubelet.dra_api import NodePrepareResourcesRequest, NodePrepareResourcesResponse
from dranet.kubernetes.kubelet.endpoint import Endpoint
from dranet.kubernetes.kubelet.registration_api import PluginInfo, RegistrationStatus, RegistrationStatusResponse
from dranet.kubernetes.kubelet.services import RegistrationService
from dranet.kubernetes.kubelet.sockets import SocketPaths, has_other_instance, is_dead, publish, socket_files_lock

Start = Callable[..., Awaitable[Plugin]]
OLD = "11111111-1111-1111-1111-111111111111"
NEW = "22222222-2222-2222-2222-222222222222"


def socket_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_socket())


def leave_dead_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


async def test_a_plugin_is_registered_with_all_its_services(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        plugin = await start()
        await plugin.registered()
        known = kubelet.plugin("dra.net")
        assert (known.dra, known.health) == ("v1.DRAPlugin", "v1.DRAResourceHealth")
        assert known.endpoint == root / "plugins" / "dra.net" / "dra.sock"


async def test_without_health_the_service_is_not_offered(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        await (await start(health=False)).registered()
        assert kubelet.plugin("dra.net").health is None
        with pytest.raises(KubeletError, match="does not serve device health"):
            await anext(kubelet.health("dra.net"))


async def test_a_plugin_that_was_there_first_is_found(root: Path, start: Start) -> None:
    plugin = await start()
    async with Kubelet(root):
        await plugin.registered()


async def test_a_kubelet_that_restarts_finds_the_plugin_again(root: Path, start: Start) -> None:
    verdicts: asyncio.Queue[bool] = asyncio.Queue()
    await start(on_status=verdicts.put_nowait)
    for _ in range(2):
        async with Kubelet(root):
            assert await verdicts.get() is True


async def test_the_sockets_have_the_usual_names_and_are_gone_after_a_stop(root: Path, start: Start) -> None:
    plugin = await start()
    assert socket_files(root) == ["plugins/dra.net/dra.sock", "plugins_registry/dra.net-reg.sock"]
    await plugin.stop()
    assert socket_files(root) == []


async def test_a_pods_uid_is_part_of_its_socket_names(root: Path, start: Start) -> None:
    await start(pod_uid=NEW)
    assert socket_files(root) == [f"plugins/dra.net/dra-{NEW}.sock", f"plugins_registry/dra.net-{NEW}-reg.sock"]


async def test_an_update_never_leaves_the_node_without_a_driver(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        old = await start(pod_uid=OLD)
        await old.registered()
        new = await start(pod_uid=NEW)
        await new.registered()
        assert kubelet.plugin("dra.net").endpoint == new.paths.service
        await old.stop()
        await kubelet.wait_for(lambda plugins: len(plugins) == 1)
        assert kubelet.plugin("dra.net").endpoint == new.paths.service


async def test_an_instance_that_leaves_serves_until_the_kubelet_has_turned_to_the_other(
    root: Path, start: Start
) -> None:
    old, _new = await start(pod_uid=OLD), await start(pod_uid=NEW)
    channel = Channel(path=str(old.paths.service))
    path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    call = UnaryUnaryMethod(channel, path, NodePrepareResourcesRequest, NodePrepareResourcesResponse)
    await call(NodePrepareResourcesRequest())
    async with Kubelet(root) as kubelet:
        await kubelet.wait_for(lambda plugins: len(plugins) == 2)
        stopping = asyncio.create_task(old.stop())
        await kubelet.wait_for(lambda plugins: len(plugins) == 1)
        await call(NodePrepareResourcesRequest())
        assert not stopping.done()
        channel.close()
        await stopping
    assert not old.paths.service.exists()


async def test_a_failed_update_falls_back_to_the_instance_still_there(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        old = await start(pod_uid=OLD)
        await old.registered()
        new = await start(pod_uid=NEW)
        await new.registered()
        await new.stop()
        await kubelet.wait_for(lambda plugins: len(plugins) == 1)
        assert kubelet.plugin("dra.net").endpoint == old.paths.service


async def test_dead_sockets_of_instances_that_crashed_are_removed(root: Path, start: Start) -> None:
    dead = SocketPaths(root, "dra.net", OLD)
    leave_dead_socket(dead.registration)
    leave_dead_socket(dead.service)
    await start(pod_uid=NEW)
    assert not dead.registration.exists()
    assert not dead.service.exists()


async def test_a_dead_socket_of_the_same_name_is_replaced(root: Path, start: Start) -> None:
    leave_dead_socket(SocketPaths(root, "dra.net").registration)
    leave_dead_socket(SocketPaths(root, "dra.net").service)
    async with Kubelet(root):
        await (await start()).registered()


async def test_a_living_instance_keeps_its_sockets(root: Path, start: Start) -> None:
    old = await start(pod_uid=OLD)
    await start(pod_uid=NEW)
    assert old.paths.registration.is_socket()
    assert old.paths.service.is_socket()


@pytest.mark.parametrize("name", ["dra.net-gpu-reg.sock", "gpu.example.com-reg.sock", "other.sock"])
async def test_dead_sockets_of_other_drivers_are_left_alone(root: Path, start: Start, name: str) -> None:
    foreign = root / "plugins_registry" / name
    leave_dead_socket(foreign)
    await start()
    assert foreign.is_socket()


async def test_two_instances_may_start_at_the_same_time(root: Path, start: Start) -> None:
    plugins = await asyncio.gather(start(pod_uid=OLD), start(pod_uid=NEW))
    assert all(plugin.paths.registration.is_socket() for plugin in plugins)


async def test_an_instance_stuck_in_its_start_does_not_hold_up_the_next(root: Path) -> None:
    paths = SocketPaths(root, "dra.net")
    paths.data.mkdir(parents=True)
    async with socket_files_lock(paths), socket_files_lock(paths, timeout=0):
        pass


async def test_a_file_that_is_no_socket_is_left_alone(root: Path) -> None:
    path = root / "dra.sock"
    path.write_text("not a socket")
    assert not is_dead(path)


async def test_stopping_does_not_remove_a_successors_socket_of_the_same_name(root: Path, start: Start) -> None:
    first = await start()
    second = await start()
    await first.stop()
    assert second.paths.registration.is_socket()
    assert not is_dead(second.paths.registration)


async def test_a_socket_is_listening_when_its_name_appears(root: Path) -> None:
    path = root / "a.sock"
    listener = socket.socket(socket.AF_UNIX)
    seen: list[bool] = []

    async def listen(hidden: Path) -> None:
        seen.append(hidden.name.startswith("."))
        listener.bind(str(hidden))
        seen.append(path.exists())
        listener.listen()

    await publish(path, listen)
    assert seen == [True, False]
    assert not is_dead(path)
    listener.close()


async def test_a_path_too_long_for_a_socket_is_refused_in_words(root: Path) -> None:
    async def never(hidden: Path) -> None:
        raise AssertionError("must not be called")

    with pytest.raises(KubeletError, match="longer than 107 bytes; use a shorter kubelet root"):
        await publish(root / ("x" * 120), never)


async def test_a_refusal_is_raised_with_the_kubelets_reason(root: Path, start: Start) -> None:
    plugin = await start()
    await notify(plugin, registered=False, error="wrong version")
    with pytest.raises(RegistrationRefused, match=r"the kubelet rejected driver dra\.net: wrong version"):
        await plugin.registered()


async def test_the_kubelet_may_change_its_mind(root: Path, start: Start) -> None:
    plugin = await start()
    await notify(plugin, registered=False, error="not yet")
    await notify(plugin, registered=True, error="")
    await plugin.registered()


async def notify(plugin: Plugin, *, registered: bool, error: str) -> None:
    channel = Channel(path=str(plugin.paths.registration))
    path = "/pluginregistration.Registration/NotifyRegistrationStatus"
    call = UnaryUnaryMethod(channel, path, RegistrationStatus, RegistrationStatusResponse)
    await call(RegistrationStatus(plugin_registered=registered, error=error))
    channel.close()


async def test_the_played_kubelet_refuses_what_is_no_dra_plugin(root: Path) -> None:
    verdict: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
    service = RegistrationService(PluginInfo(type="CSIPlugin"), lambda ok, error: verdict.set_result((ok, error)))
    (root / "plugins_registry").mkdir()
    endpoint = await Endpoint.open(root / "plugins_registry" / "csi-reg.sock", [service])
    async with Kubelet(root) as kubelet:
        assert await verdict == (False, "no handler registered for plugin type 'CSIPlugin'")
        assert kubelet.plugins == ()
    await endpoint.close()


def test_a_driver_that_never_served_has_no_sibling(tmp_path: Path) -> None:
    assert not has_other_instance(SocketPaths(tmp_path / "no-kubelet-here", "dra.net", OLD))
