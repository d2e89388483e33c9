"""What the daemon makes of a lost store, a rolling update and a reboot."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dranet.kernel import links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kube import resources
from dranet.sandbox.node import ContainerRefused, SandboxPod
from dranet.sandbox.processes import Child

from .daemon_bench import bench, until

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
    """The pod has a card of its own in another namespace; told is the pod's own one."""
    assert pod.netns is not None
    with Namespace.create() as elsewhere, NetlinkSocket(namespace_fd=pod.netns.fd) as inside:
        card = links.get_link(inside, name)
        assert card is not None
        inside.request(links.change(card.index, namespace_fd=elsewhere.fd))
        yield inside


@pytest.mark.parametrize("content", [b"garbage, from a dying disk" * 100, b"", None])
async def test_a_store_that_was_lost_is_rebuilt_from_claims_pods_and_kernel(content: bytes | None) -> None:
    async with bench() as b:
        before = b.picture("card0")
        running, waiting = b.claim("card0", parameters=CONFIG), b.claim("card1")
        await b.node.start_pod(running)
        await b.node.prepare(waiting)
        published = b.published()
        assert b.node.driver is not None
        await b.node.driver.kill()
        lose(b.node.folder / "dranet.sqlite", content)
        await b.node.start_driver()
        assert bool(list(b.node.folder.glob("dranet.sqlite.unreadable-*"))) == bool(content)
        assert "rebuilt 2 plans" in b.node.driver.tail(60)
        assert b.published() == published
        await b.node.run_sandbox(waiting)
        assert b.names(waiting.netns) == {"card1"}
        await b.compared()
        await b.node.stop_pod(running)
        assert b.picture("card0") == before


async def test_a_claim_is_rebuilt_with_the_cards_that_are_in_the_pod_and_the_missing_one_is_named() -> None:
    """A pod that has taken one card elsewhere must not keep its other one from coming home as it was."""
    async with bench() as b:
        before = b.picture("card0")
        pod = b.claim("card0", "card1")
        await b.node.start_pod(pod)
        assert b.node.driver is not None
        with hidden("card1", pod) as inside:
            kept = links.get_link(inside, "card0")
            assert kept is not None
            inside.request(links.add_altname(kept.index, "card1"))  # which would keep the real one from its name
            await b.node.driver.kill()
            lose(b.node.folder / "dranet.sqlite", None)
            await b.node.start_driver()
            assert "rebuilt 1 plans" in b.node.driver.tail(60)
            assert "rebuilt without one of its devices" in b.node.driver.tail(60)
            assert "card1 is not in the pod" in b.node.driver.tail(60)
            assert b.names(pod.netns) == {"card0"}
            await b.compared()
            await b.node.stop_pod(pod)
            assert b.picture("card0") == before
            with b.node.route() as route:
                home = links.get_link(route, "card0")
            assert home is not None and home.altnames == ()


async def test_a_card_with_the_mac_of_one_that_is_missing_stays_what_it_is() -> None:
    """Two claims of a pod have given their cards one MAC, and the pod has hidden one of the cards."""
    alike = {"interface": {"hardwareAddr": "02:00:00:00:00:aa"}}
    async with bench() as b:
        before = b.picture("card0")
        claims = [ref for card in ("card0", "card1") for ref in b.claim(card, parameters=alike, pod="both").claims]
        pod = SandboxPod("both", "both-uid", claims=claims)
        await b.node.start_pod(pod)
        assert b.node.driver is not None
        with hidden("card1", pod):
            await b.node.driver.kill()
            lose(b.node.folder / "dranet.sqlite", None)
            await b.node.start_driver()
            assert "rebuilt 1 plans" in b.node.driver.tail(60)
            assert "card1 is not on this node" in b.node.driver.tail(60)
            await b.compared()
            await b.node.stop_pod(pod)
            assert b.picture("card0") == before


async def test_a_lost_store_is_rebuilt_by_the_next_driver_when_the_api_server_was_away() -> None:
    async with bench() as b:
        before, published = b.picture("card0"), b.published()
        pod = b.claim("card0", parameters=CONFIG)
        await b.node.start_pod(pod)
        assert b.node.driver is not None
        await b.node.driver.kill()
        lose(b.node.folder / "dranet.sqlite", b"garbage" * 100)
        b.api.away = True
        impatient = await Child.start(
            b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "impatient.log"
        )
        await until(lambda: "trying again" in impatient.tail(60))
        impatient.signal(signal.SIGTERM)  # is heard while it waits
        assert await impatient.wait() == 0
        b.api.away = False
        await b.node.start_driver()
        assert "rebuilt 1 plans" in b.node.driver.tail(60)
        assert b.published() == published
        await b.compared()
        await b.node.stop_pod(pod)
        assert b.picture("card0") == before


async def test_a_sandbox_that_starts_while_plans_are_rebuilt_gets_its_card_late() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.prepare(pod)
        assert b.node.driver is not None
        await b.node.driver.kill()
        await b.node.runtime.wait_for(lambda plugins: not plugins)
        lose(b.node.folder / "dranet.sqlite", b"garbage" * 100)
        b.api.away = True
        b.node.driver = await Child.start(
            b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "driver.log"
        )
        await b.node.runtime.wait_for(lambda plugins: len(plugins) == 1)
        await b.node.run_sandbox(pod)
        with pytest.raises(ContainerRefused, match="unresolvable CDI devices"):
            await b.node.create_container(pod)
        b.api.away = False
        await until(lambda: b.names(pod.netns) == {"card0"})
        await until(lambda: list((b.node.folder / "cdi").glob("*.json")))
        assert (await b.node.create_container(pod)).environment


async def test_plans_kept_in_memory_only_are_rebuilt_after_a_restart() -> None:
    async with bench(flags=["--db-path="]) as b:
        before = b.picture("card0")
        pod = b.claim("card0", parameters=CONFIG)
        await b.node.start_pod(pod)
        await b.restart_driver()
        await b.compared()
        await b.node.stop_pod(pod)
        assert b.picture("card0") == before


async def test_after_a_reboot_the_pods_start_again_from_their_plans() -> None:
    async with bench() as b:
        assert b.node.driver is not None
        pod = b.claim("card0", parameters=CONFIG)
        await b.node.start_pod(pod)
        await b.node.driver.kill()
        # A reboot: receipts (on tmpfs) and namespaces are gone; a veth dies with them, so the card is made anew.
        for path in (b.node.folder / "cdi").iterdir():
            path.unlink()
        assert pod.netns is not None
        pod.netns.close()
        b.node.pods.clear()
        await until(lambda: "card0" not in b.names(b.fabric))
        b.add_card("card0", "10.0.0.1/24")
        await b.node.start_driver()
        await b.node.unprepare(pod)
        again = b.claim("card0", parameters=CONFIG)
        await b.node.start_pod(again)
        assert b.names(again.netns) == {"dranet0"}


async def test_in_a_rolling_update_every_claim_is_served_and_no_card_is_lost() -> None:
    async with bench(flags=["--pod-uid=old"]) as b:
        before = b.picture("card0")
        old = b.node.driver
        first, second = b.claim("card0"), b.claim("card1")
        await b.node.start_pod(first)
        b.node.flags[:] = ["--pod-uid=new"]
        b.node.driver = await Child.start(
            b.node.command(), inside=b.node.namespace, log=b.node.folder / "log" / "new.log"
        )
        await b.node.kubelet.wait_for(lambda plugins: len(plugins) == 2)
        await b.node.runtime.wait_for(lambda plugins: len(plugins) == 2)
        await b.node.start_pod(second)  # both drivers get the hooks
        assert b.names(second.netns) == {"card1"}
        assert old is not None
        await old.stop()
        await b.node.stop_pod(first)
        await b.node.stop_pod(second)
        assert b.picture("card0") == before
        assert b.names() == {"card0", "card1"}


async def test_slices_that_somebody_deletes_are_back_at_once() -> None:
    async with bench() as b:
        (item,) = b.api.objects(resources.RESOURCE_SLICES)
        b.api.remove(resources.RESOURCE_SLICES, item["metadata"]["name"])
        await until(lambda: b.published() == ["card0", "card1"])


async def test_a_pod_on_the_hosts_network_cannot_start_with_a_card() -> None:
    from dranet.nri.errors import PluginRejected

    async with bench() as b:
        pod = b.claim("card0")
        await b.node.prepare(pod)
        with pytest.raises(PluginRejected, match="host's network"):
            await b.node.runtime.run_pod_sandbox(pod.message(b.node.manner))
