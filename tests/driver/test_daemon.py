"""The whole daemon, as its own process, between a kubelet and a runtime."""

from __future__ import annotations

import asyncio
import http.client
import signal

import pytest

from dranet.kube import resources
from dranet.kubelet.handler import Health, PrepareError
from dranet.model.names import ClaimRef
from dranet.nri.errors import PluginRejected
from dranet.sandbox.manners import Manner
from dranet.sandbox.node import ContainerRefused, SandboxPod
from dranet.sandbox.processes import Child

from .daemon_bench import NODE, Bench, bench, until

pytestmark = pytest.mark.usefixtures("may_make_namespaces")


async def test_a_pod_gets_its_card_and_the_card_comes_home_as_it_was() -> None:
    async with bench() as b:
        before = b.picture("card0")
        pod = b.claim("card0", parameters={"interface": {"name": "dranet0", "mtu": 1400, "addresses": ["10.9.0.9/24"]}})
        await b.node.start_pod(pod)
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
        assert b.picture("card0") == before
        await until(lambda: not b.status(pod.claims[0]))


async def test_the_runtime_is_played_in_the_manner_that_the_test_is_named_after(manner: Manner) -> None:
    async with bench() as b:
        assert b.node.manner is manner
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        (listed,) = {(each.pid != 0, each.runtime_handler) for each in b.node._inventory().pods}
        assert listed == (manner.tells_process, manner.runtime_handler)


async def test_a_card_in_use_stays_published_with_its_attributes() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        before = b.api.objects(resources.RESOURCE_SLICES)[0]["spec"]["devices"]
        await b.node.start_pod(pod)
        b.add_card("other")
        await until(lambda: "other" in b.published())
        after = b.api.objects(resources.RESOURCE_SLICES)[0]["spec"]["devices"]
        assert [d for d in after if d["name"] == "card0"] == [d for d in before if d["name"] == "card0"]


async def test_the_card_with_the_nodes_own_address_is_never_published() -> None:
    async with bench(start=False) as b:
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        b.api.put(resources.NODES, {"metadata": {"name": NODE}, "status": {"addresses": addresses}})
        await b.node.start_driver()
        await until(b.published)
        assert b.published() == ["card1"]


async def test_everything_wrong_with_a_claim_is_said_at_once() -> None:
    async with bench() as b:
        pod = b.claim("card0", parameters={"interface": {"mtu": 1, "nmae": "x"}})
        with pytest.raises(PrepareError) as caught:
            await b.node.prepare(pod)
        assert "config[0] (FromClaim) interface.mtu" in str(caught.value)
        assert "did you mean 'name'?" in str(caught.value)
        await until(lambda: any(reason == "ClaimPrepareFailed" for reason, _ in b.events()))


async def test_an_attach_that_fails_fails_the_sandbox_with_its_reason_and_an_event() -> None:
    async with bench() as b:
        before = b.picture("card0")
        pod = b.claim("card0", parameters={"routes": [{"destination": "10.99.0.0/16", "gateway": "192.0.2.1"}]})
        await b.node.prepare(pod)
        with pytest.raises(PluginRejected, match=r"192\.0\.2\.1"):
            await b.node.run_sandbox(pod)
        await until(lambda: any(reason == "NetworkDeviceAttachFailed" for reason, _ in b.events()))
        await until(lambda: b.status(pod.claims[0]))
        assert b.status(pod.claims[0])[0]["conditions"][0]["status"] == "False"
        await b.node.unprepare(pod)
        assert b.picture("card0") == before


async def test_a_pod_without_claims_is_no_business_of_ours() -> None:
    async with bench() as b:
        await b.node.run_sandbox(SandboxPod("plain", "plain-uid"))
        view = await b.node.create_container(b.node.pods["plain-uid"])
        assert not view.devices and not view.environment


@pytest.mark.parametrize("flag", ["--kubelet-root-dir", "--db-path", "--cdi-dir"])
async def test_a_place_it_cannot_use_ends_the_driver_with_one_line(flag: str) -> None:
    async with bench(start=False) as b:
        nowhere = b.node.folder / "file"
        nowhere.write_text("not a folder")
        b.node.flags[:] = [f"{flag}={nowhere}/deep/x"]
        driver = await Child.start(b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "driver.log")
        async with asyncio.timeout(60):
            assert await driver.wait() in (1, 2)
        assert driver.tail(1).startswith("dranet: ") and f"{nowhere}/deep" in driver.tail(1)


async def test_unprepare_of_a_claim_never_heard_of_succeeds() -> None:
    async with bench() as b:
        await b.node.kubelet.unprepare("dra.net", ClaimRef("default", "nobody", "nobody"))


async def test_health_tells_every_device() -> None:
    async with bench() as b:
        async for devices in b.node.kubelet.health("dra.net"):
            assert {(d.device, d.health) for d in devices} == {("card0", Health.HEALTHY), ("card1", Health.HEALTHY)}
            break


async def test_the_runtime_may_restart_in_the_middle() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        await b.node.runtime.stop()
        await b.node.runtime.start()
        await b.node.driver_ready()
        await b.node.stop_pod(pod)
        assert "card0" in b.names()


async def test_a_stopped_driver_lets_no_container_with_the_claim_start_and_heals_when_it_wakes() -> None:
    async with bench() as b:
        assert b.node.driver is not None
        pod = b.claim("card0")
        await b.node.prepare(pod)
        b.node.driver.signal(signal.SIGSTOP)
        with b.real_patience():
            await b.node.run_sandbox(pod)  # the runtime gives up on the plugin and goes on without it
        with pytest.raises(ContainerRefused, match="unresolvable CDI devices"):
            await b.node.create_container(pod)
        b.node.driver.signal(signal.SIGCONT)
        await until(lambda: b.names(pod.netns) == {"card0"})
        await until(lambda: list((b.node.folder / "cdi").glob("*.json")))
        assert (await b.node.create_container(pod)).environment


async def test_a_driver_killed_after_prepare_attaches_after_its_restart() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.prepare(pod)
        await b.restart_driver()
        await b.node.run_sandbox(pod)
        assert b.names(pod.netns) == {"card0"}


async def test_a_pod_that_vanished_while_the_driver_was_away_gives_its_card_back() -> None:
    async with bench() as b:
        assert b.node.driver is not None
        pod = b.claim("card0", parameters={"interface": {"name": "x0"}})
        await b.node.start_pod(pod)
        before = b.names()
        await b.node.driver.kill()
        held = pod.netns
        b.node.pods.clear()
        await b.node.start_driver()
        await until(lambda: b.names() == before | {"card0"})
        assert held is not None
        held.close()


async def test_two_prepares_at_once_answer_the_same() -> None:
    async with bench() as b:
        pod = b.claim("card0", "card1")
        first, second = await asyncio.gather(*(b.node.kubelet.prepare("dra.net", pod.claims[0]) for _ in range(2)))
        assert first == second and [d.device for d in first] == ["card0", "card1"]


async def test_a_pod_made_anew_waits_for_its_predecessor_to_let_go_of_the_card() -> None:
    async with bench() as b:
        old, new = b.claim("card0"), b.claim("card0")
        await b.node.start_pod(old)
        waiting = asyncio.create_task(b.node.prepare(new))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await b.node.stop_pod(old)
        await waiting
        await b.node.run_sandbox(new)
        assert b.names(new.netns) == {"card0"}


async def test_ready_means_registered_connected_and_published() -> None:
    async with bench() as b:
        await _until_ready_is(b, 200, "ok\n")
        await b.node.runtime.stop()
        await _until_ready_is(b, 503, "the runtime at")
        assert (await _get(b, "/healthz"))[0] == 200


async def _until_ready_is(b: Bench, status: int, said: str) -> None:
    """Registration, publication and a runtime that hung up are each noticed a moment after the other side knows."""
    async with asyncio.timeout(30):
        while (found := await _get(b, "/readyz"))[0] != status:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    assert said in found[1]


async def test_metrics_carry_the_references_names() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
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


async def test_the_sockets_are_gone_after_a_graceful_stop() -> None:
    async with bench() as b:
        assert b.node.driver is not None
        await b.node.driver.stop()
        assert not list((b.node.folder / "kubelet" / "plugins_registry").glob("*.sock"))
        assert not list((b.node.folder / "kubelet" / "plugins" / "dra.net").glob("*.sock"))
        assert NODE in str(b.api.objects(resources.RESOURCE_SLICES)[0]["metadata"]["name"])


def files_for_the_next_driver(b: Bench) -> set[str]:
    kept = [*b.node.folder.glob("*.sqlite*"), *(b.node.folder / "kubelet" / "plugins" / "dra.net").glob("*.lock")]
    return {path.name for path in kept}


@pytest.mark.parametrize("is_uninstalled", [False, True])
async def test_a_driver_takes_its_files_along_only_where_its_account_is_gone_too(is_uninstalled: bool) -> None:
    async with bench() as b:
        assert b.node.driver is not None
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        await b.node.stop_pod(pod)
        if is_uninstalled:
            b.api.forbid("get", resources.NODES)
        await b.node.driver.stop()
        assert bool(files_for_the_next_driver(b)) is not is_uninstalled


async def test_a_driver_without_an_account_keeps_the_plans_of_pods_that_run() -> None:
    async with bench() as b:
        assert b.node.driver is not None
        await b.node.start_pod(b.claim("card0"))
        b.api.forbid("get", resources.NODES)
        await b.node.driver.stop(patience=60)
        assert {"claims.lock"} < files_for_the_next_driver(b)
