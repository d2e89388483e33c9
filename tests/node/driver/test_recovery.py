"""A lost store, a rolling update and a reboot."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dranet.kubernetes.api import resources
from dranet.linux import links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.testing.node import ContainerRefused, RuntimeProfile, SandboxPod
from dranet.testing.processes import Child
from dranet.testing.waiting import until

from .daemon_bench import bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

CONFIG = {"interface": {"name": "dranet0", "addresses": ["10.9.0.9/24"], "mtu": 1400}}


def lose(store: Path, content: bytes | None) -> None:
    """The store's file is gone, or holds something else."""
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()
    if content is not None:
        store.write_bytes(content)


@contextmanager
def hidden(name: str, pod: SandboxPod) -> Iterator[NetlinkSocket]:
    """The pod has moved one of its NICs to another namespace; yields a socket in the pod's own one."""
    assert pod.netns is not None
    with Namespace.create() as elsewhere, NetlinkSocket(namespace_fd=pod.netns.fd) as inside:
        nic = links.get_link(inside, name)
        assert nic is not None
        inside.request(links.change(nic.index, namespace_fd=elsewhere.fd))
        yield inside


@pytest.mark.parametrize("content", [b"garbage, from a dying disk" * 100, b"", None])
async def test_lost_store_is_recovered_from_claims_pods_and_kernel(
    content: bytes | None, runtime: RuntimeProfile
) -> None:
    async with bench(runtime=runtime) as b:
        before = b.picture("nic0")
        running, waiting = b.claim("nic0", parameters=CONFIG), b.claim("nic1")
        await b.node.start_pod(running)
        await b.node.prepare(waiting)
        published = b.published()
        await b.driver.kill()
        lose(b.node.folder / "dranet.sqlite", content)
        await b.node.start_driver()
        assert bool(list(b.node.folder.glob("dranet.sqlite.unreadable-*"))) == bool(content)
        assert "Recovered plans from the cluster and the kernel plans=2" in b.driver.tail(60)
        assert b.published() == published
        await b.node.run_sandbox(waiting)
        assert b.names(waiting.netns) == {"nic1"}
        await b.compared()
        await b.node.stop_pod(running)
        assert b.picture("nic0") == before


async def test_claim_is_recovered_without_its_missing_device() -> None:
    """A pod that has moved one NIC elsewhere does not block the restore of the other."""
    async with bench() as b:
        before = b.picture("nic0")
        pod = await b.start("nic0", "nic1")
        with hidden("nic1", pod) as inside:
            kept = links.get_link(inside, "nic0")
            assert kept is not None
            inside.request(links.add_altname(kept.index, "nic1"))  # which would keep the real one from its name
            await b.driver.kill()
            lose(b.node.folder / "dranet.sqlite", None)
            await b.node.start_driver()
            assert "Recovered plans from the cluster and the kernel plans=1" in b.driver.tail(60)
            assert "Recovered claim without one of its devices" in b.driver.tail(60)
            assert "cannot find nic1 in the pod" in b.driver.tail(60)
            assert b.names(pod.netns) == {"nic0"}
            await b.compared()
            await b.node.stop_pod(pod)
            assert b.picture("nic0") == before
            with b.node.route() as route:
                restored = links.get_link(route, "nic0")
            assert restored is not None and restored.altnames == ()


async def test_recovery_waits_for_the_api_server() -> None:
    async with bench() as b:
        before, published = b.picture("nic0"), b.published()
        pod = await b.start("nic0", parameters=CONFIG)
        await b.driver.kill()
        lose(b.node.folder / "dranet.sqlite", b"garbage" * 100)
        b.api.unavailable = True
        impatient = await Child.start(
            b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "impatient.log"
        )
        await until(lambda: "Recovery waits for the API server; will retry" in impatient.tail(60))
        impatient.signal(signal.SIGTERM)  # is heard while it waits
        assert await impatient.wait() == 0
        b.api.unavailable = False
        await b.node.start_driver()
        assert "Recovered plans from the cluster and the kernel plans=1" in b.driver.tail(60)
        assert b.published() == published
        await b.compared()
        await b.node.stop_pod(pod)
        assert b.picture("nic0") == before


async def test_sandbox_that_starts_during_recovery_gets_its_device_late(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        pod = b.claim("nic0")
        await b.node.prepare(pod)
        await b.kill_driver()
        lose(b.node.folder / "dranet.sqlite", b"garbage" * 100)
        b.api.unavailable = True
        b.node.driver = await Child.start(
            b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "driver.log"
        )
        await b.node.runtime.wait_for(lambda plugins: len(plugins) == 1)
        await b.node.run_sandbox(pod)
        with pytest.raises(ContainerRefused, match="unresolvable CDI devices"):
            await b.node.create_container(pod)
        b.api.unavailable = False
        await until(lambda: b.names(pod.netns) == {"nic0"})
        await until(b.gates)
        assert (await b.node.create_container(pod)).environment


async def test_plans_in_memory_are_recovered_after_restart() -> None:
    async with bench(flags=["--db-path="]) as b:
        before = b.picture("nic0")
        pod = await b.start("nic0", parameters=CONFIG)
        await b.restart_driver()
        await b.compared()
        await b.node.stop_pod(pod)
        assert b.picture("nic0") == before


async def test_pods_start_again_after_a_reboot(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime) as b:
        pod = await b.start("nic0", parameters=CONFIG)
        await b.driver.kill()
        # A reboot: gates (on tmpfs) and namespaces are gone; a veth is deleted with them, so the NIC is created again.
        for path in (b.node.folder / "cdi").iterdir():
            path.unlink()
        assert pod.netns is not None
        pod.netns.close()
        b.node.pods.clear()
        await until(lambda: "nic0" not in b.names(b.fabric))
        b.add_nic("nic0", "10.0.0.1/24")
        await b.node.start_driver()
        await b.node.unprepare(pod)
        again = await b.start("nic0", parameters=CONFIG)
        assert b.names(again.netns) == {"dranet0"}


async def test_rolling_update_serves_every_claim() -> None:
    async with bench(flags=["--pod-uid=old"]) as b:
        before = b.picture("nic0")
        old = b.node.driver
        first, second = b.claim("nic0"), b.claim("nic1")
        await b.node.start_pod(first)
        b.node.flags[:] = ["--pod-uid=new"]
        b.node.driver = await Child.start(
            b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "new.log"
        )
        await b.node.kubelet.wait_for(lambda plugins: len(plugins) == 2)
        await b.node.runtime.wait_for(lambda plugins: len(plugins) == 2)
        await b.node.start_pod(second)  # both drivers get the hooks
        assert b.names(second.netns) == {"nic1"}
        assert old is not None
        await old.stop()
        await b.node.stop_pod(first)
        await b.node.stop_pod(second)
        assert b.picture("nic0") == before
        assert b.names() == {"nic0", "nic1"}


async def test_deleted_slices_are_published_again() -> None:
    async with bench() as b:
        (item,) = b.api.objects(resources.RESOURCE_SLICES)
        b.api.remove(resources.RESOURCE_SLICES, item["metadata"]["name"])
        await until(lambda: b.published() == ["nic0", "nic1"])


async def test_host_network_pod_with_a_claim_is_refused() -> None:
    from dranet.kubernetes.nri.errors import PluginRejected

    async with bench() as b:
        pod = b.claim("nic0")
        await b.node.prepare(pod)
        with pytest.raises(PluginRejected, match="the pod uses hostNetwork"):
            await b.node.runtime.run_pod_sandbox(pod.message(b.node.profile))
