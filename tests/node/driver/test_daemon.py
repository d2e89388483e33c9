"""The whole daemon, as its own process, between a kubelet and a runtime."""

from __future__ import annotations

import asyncio
import http.client
import signal

import pytest

from dranet.core.names import ClaimRef
from dranet.kubernetes.api import resources
from dranet.kubernetes.kubelet.client import Kubelet
from dranet.kubernetes.kubelet.handler import Health, PrepareError
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.testing.node import ContainerRefused, RuntimeProfile, SandboxPod
from dranet.testing.processes import Child
from dranet.testing.waiting import until

from .daemon_bench import NODE, Bench, bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")


async def test_attach_and_detach_restore_the_nic(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        before = b.picture("nic0")
        pod = await b.start(
            "nic0", parameters={"interface": {"name": "dranet0", "mtu": 1400, "addresses": ["10.9.0.9/24"]}}
        )
        assert b.names(pod.netns) == {"dranet0"}
        view = await b.node.create_container(pod)
        assert list(view.environment.values()) == ["dranet0"]
        await until(lambda: b.status(pod.claims[0]))
        (status,) = b.status(pod.claims[0])
        assert status["networkData"]["ips"] == ["10.9.0.9/24"]
        assert {(c["type"], c["status"], c["reason"]) for c in status["conditions"]} == {
            ("Ready", "True", "NetworkDeviceReady"),
            ("NetworkReady", "True", "NetworkReady"),
        }
        await b.node.stop_pod(pod)
        assert b.picture("nic0") == before
        await until(lambda: not b.status(pod.claims[0]))


async def test_fake_runtime_has_the_requested_profile(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        assert b.node.profile is runtime
        await b.start("nic0")
        (listed,) = {(each.pid != 0, each.runtime_handler) for each in b.node._inventory().pods}
        assert listed == (runtime.reports_pid, runtime.runtime_handler)


async def test_device_in_use_stays_published_unchanged() -> None:
    async with bench() as b:
        pod = b.claim("nic0")
        before = b.api.objects(resources.RESOURCE_SLICES)[0]["spec"]["devices"]
        await b.node.start_pod(pod)
        b.add_nic("other")
        await until(lambda: "other" in b.published())
        after = b.api.objects(resources.RESOURCE_SLICES)[0]["spec"]["devices"]
        assert [d for d in after if d["name"] == "nic0"] == [d for d in before if d["name"] == "nic0"]


async def test_nic_with_the_node_address_is_never_published() -> None:
    async with bench(start=False) as b:
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        b.api.put(resources.NODES, {"metadata": {"name": NODE}, "status": {"addresses": addresses}})
        await b.node.start_driver()
        await until(b.published)
        assert b.published() == ["nic1"]


async def test_all_problems_of_a_claim_are_reported_together() -> None:
    async with bench() as b:
        pod = b.claim("nic0", parameters={"interface": {"mtu": 1, "nmae": "x"}})
        with pytest.raises(PrepareError) as caught:
            await b.node.prepare(pod)
        assert "config[0] (FromClaim) interface.mtu" in str(caught.value)
        assert "did you mean 'name'?" in str(caught.value)
        await until(lambda: any(reason == "ClaimPrepareFailed" for reason, _ in b.events()))


async def test_failed_attach_refuses_the_sandbox_with_an_event(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        before = b.picture("nic0")
        pod = b.claim("nic0", parameters={"routes": [{"destination": "10.99.0.0/16", "gateway": "192.0.2.1"}]})
        await b.node.prepare(pod)
        with pytest.raises(PluginRejected, match=r"192\.0\.2\.1"):
            await b.node.run_sandbox(pod)
        await until(lambda: any(reason == "NetworkDeviceAttachFailed" for reason, _ in b.events()))
        await until(lambda: b.status(pod.claims[0]))
        assert b.status(pod.claims[0])[0]["conditions"][0]["status"] == "False"
        await b.node.unprepare(pod)
        assert b.picture("nic0") == before


async def test_pod_without_claims_is_ignored() -> None:
    async with bench() as b:
        await b.node.run_sandbox(SandboxPod("plain", "plain-uid"))
        view = await b.node.create_container(b.node.pods["plain-uid"])
        assert not view.devices and not view.environment


@pytest.mark.parametrize("flag", ["--kubelet-root-dir", "--db-path", "--cdi-dir"])
async def test_unusable_folder_ends_the_driver_with_one_line(flag: str) -> None:
    async with bench(start=False) as b:
        nowhere = b.node.folder / "file"
        nowhere.write_text("not a folder")
        b.node.flags[:] = [f"{flag}={nowhere}/deep/x"]
        driver = await Child.start(b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "driver.log")
        async with asyncio.timeout(60):
            assert await driver.wait() in (1, 2)
        assert driver.tail(1).startswith("dranet: ") and f"{nowhere}/deep" in driver.tail(1)


async def test_unprepare_of_an_unknown_claim_succeeds() -> None:
    async with bench() as b:
        await b.node.kubelet.unprepare("dra.net", ClaimRef("default", "unknown", "unknown"))


async def test_health_stream_names_every_device() -> None:
    async with bench() as b:
        async for devices in b.node.kubelet.health("dra.net"):
            assert {(d.device, d.health) for d in devices} == {("nic0", Health.HEALTHY), ("nic1", Health.HEALTHY)}
            break


async def test_runtime_restart_keeps_pods_working(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        pod = await b.start("nic0")
        await b.node.runtime.stop()
        await b.node.runtime.start()
        await b.node.driver_ready()
        await b.node.stop_pod(pod)
        assert "nic0" in b.names()


async def test_containers_wait_while_the_driver_is_stopped(
    runtime: RuntimeProfile,
) -> None:
    async with bench(runtime=runtime) as b:
        pod = b.claim("nic0")
        await b.node.prepare(pod)
        b.driver.signal(signal.SIGSTOP)
        with b.real_patience():
            await b.node.run_sandbox(pod)  # the runtime gives up on the plugin and goes on without it
        with pytest.raises(ContainerRefused, match="unresolvable CDI devices"):
            await b.node.create_container(pod)
        b.driver.signal(signal.SIGCONT)
        await until(lambda: b.names(pod.netns) == {"nic0"})
        await until(b.gates)
        assert (await b.node.create_container(pod)).environment


async def test_device_of_a_pod_deleted_during_downtime_is_detached(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        pod = await b.start("nic0", parameters={"interface": {"name": "x0"}})
        before = b.names()
        await b.driver.kill()
        held = pod.netns
        b.node.pods.clear()
        await b.node.start_driver()
        await until(lambda: b.names() == before | {"nic0"})
        assert held is not None
        held.close()


async def test_recreated_pod_waits_for_its_predecessors_device() -> None:
    async with bench() as b:
        old, new = b.claim("nic0"), b.claim("nic0")
        await b.node.start_pod(old)
        waiting = asyncio.create_task(b.node.prepare(new))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await b.node.stop_pod(old)
        await waiting
        await b.node.run_sandbox(new)
        assert b.names(new.netns) == {"nic0"}


async def test_ready_means_registered_connected_and_published() -> None:
    async with bench() as b:
        await _until_ready_is(b, 200, "ok\n")
        await b.node.runtime.stop()
        await _until_ready_is(b, 503, "the runtime at")
        assert (await _get(b, "/healthz"))[0] == 200


async def test_driver_without_a_watch_of_its_slices_is_not_ready_until_the_kubelet_registers_it() -> None:
    """A kubelet that starts deletes the slices of its node, and only the watch shows that."""
    async with bench() as b:
        await _until_ready_is(b, 200, "ok\n")
        b.api.unavailable = True
        b.api.end_watches()
        await _until_ready_is(b, 503, "the watch of ResourceSlices")
        b.api.unavailable = False
        async with Kubelet(b.node.folder / "kubelet"):  # a restarted kubelet registers the driver again
            await _until_ready_is(b, 200, "ok\n")
        before = b.published()
        for item in b.api.objects(resources.RESOURCE_SLICES):
            b.api.remove(resources.RESOURCE_SLICES, item["metadata"]["name"])
        await until(lambda: b.published() == before)


async def _until_ready_is(b: Bench, status: int, said: str) -> None:
    """Registration, publication and a runtime that hung up are each noticed a moment after the other side knows."""
    async with asyncio.timeout(30):
        while (found := await _get(b, "/readyz"))[0] != status:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    assert said in found[1]


async def test_metrics_have_the_reference_drivers_names() -> None:
    async with bench() as b:
        await b.start("nic0")
        _, text = await _get(b, "/metrics")
        for line in (
            'dranet_driver_dra_plugin_requests_total{method="PrepareResourceClaims",status="success"} 1.0',
            'dranet_driver_nri_plugin_requests_total{method="RunPodSandbox",status="success"} 1.0',
            'dranet_driver_published_devices_total{feature="total"} 2.0',
            'dranet_driver_nri_plugin_requests_latency_seconds_bucket{le="0.001"',
            "process_start_time_seconds",
            "dranet_driver_last_published_time_seconds",
        ):
            assert line in text


async def _get(b: Bench, path: str) -> tuple[int, str]:
    """GET from the daemon's HTTP port, from inside the node."""

    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", 9177, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    return await asyncio.to_thread(b.node.namespace.run, ask)


async def test_graceful_stop_removes_the_sockets() -> None:
    async with bench() as b:
        await b.driver.stop()
        assert not list((b.node.folder / "kubelet" / "plugins_registry").glob("*.sock"))
        assert not list((b.node.folder / "kubelet" / "plugins" / "dra.net").glob("*.sock"))
        assert NODE in str(b.api.objects(resources.RESOURCE_SLICES)[0]["metadata"]["name"])


def files_for_the_next_driver(b: Bench) -> set[str]:
    kept = [*b.node.folder.glob("*.sqlite*"), *(b.node.folder / "kubelet" / "plugins" / "dra.net").glob("*.lock")]
    return {path.name for path in kept}


@pytest.mark.parametrize("is_uninstalled", [False, True])
async def test_driver_removes_its_files_only_when_uninstalled(is_uninstalled: bool) -> None:
    async with bench() as b:
        pod = await b.start("nic0")
        await b.node.stop_pod(pod)
        if is_uninstalled:
            b.api.forbid("get", resources.NODES)
        await b.driver.stop()
        assert bool(files_for_the_next_driver(b)) is not is_uninstalled


async def test_uninstalled_driver_keeps_plans_of_running_pods() -> None:
    async with bench() as b:
        await b.start("nic0")
        b.api.forbid("get", resources.NODES)
        await b.driver.stop(grace_seconds=60)
        assert {"claims.lock"} < files_for_the_next_driver(b)
