"""From the reference driver to this one with pods running: its pods keep their NICs, which are restored at the end.

The state is the one that was recorded: eight NICs in a pod, the reference's database, the claim as it stood.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dranet.core.names import ClaimRef
from dranet.kubernetes.api import resources
from dranet.linux import addresses, links, routes
from dranet.linux.netlink import NetlinkSocket
from dranet.node.server.process import is_host_folder, store_path
from dranet.testing.node import CONTAINERD, RuntimeProfile, SandboxPod
from dranet.testing.waiting import until

from .daemon_bench import NODE, Bench, bench

DATA = Path(__file__).parents[2] / "data/reference-store"
NICS = [f"rx{number}" for number in range(8)]


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def before() -> dict[str, dict[str, Any]]:
    """The NICs as the node showed them before the reference moved them."""
    return {link["ifname"]: link for link in recorded("node-before") if link["ifname"] in NICS}


@contextlib.asynccontextmanager
async def after_the_reference(
    *flags: str, runtime: RuntimeProfile = CONTAINERD
) -> AsyncIterator[tuple[Bench, SandboxPod, Path]]:
    """A node on which the reference has given eight NICs to a pod and is gone."""
    async with bench(nics=0, start=False, runtime=runtime) as b:
        theirs = b.node.folder / "dranet.db"
        theirs.write_bytes(gzip.decompress((DATA / "running.db.gz").read_bytes()))
        b.node.flags += [f"--db-path={theirs}", *flags]
        claim = recorded("claim")
        for result in claim["status"]["allocation"]["devices"]["results"]:
            result["pool"] = NODE
        b.api.put(resources.RESOURCE_CLAIMS, claim)
        metadata, pod = claim["metadata"], recorded("pod")
        ref = ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
        running = SandboxPod(pod["name"], pod["uid"], claims=[ref])
        b.node._new_namespace(running)
        for name, link in before().items():
            plug(b, name, link, running)
        yield b, running, theirs


def plug(b: Bench, name: str, link: dict[str, Any], pod: SandboxPod) -> None:
    """A NIC as it was, then moved and configured as the reference does."""
    b.add_nic(name)
    assert pod.netns is not None
    inside = "dranet0" if name == "rx7" else name
    with b.node.route() as route, NetlinkSocket(namespace_fd=pod.netns.fd) as there:
        nic = links.get_link(route, name)
        assert nic is not None
        route.request(links.change(nic.index, up=False, mac=link["address"], mtu=link["mtu"]))
        route.request(links.change(nic.index, namespace_fd=pod.netns.fd, name=inside))
        moved = links.get_link(there, inside)
        assert moved is not None
        there.request(links.change(moved.index, mtu=1400 if name == "rx7" else link["mtu"]))
        for cidr in cidrs(link):
            there.request(addresses.add(addresses.from_cidr(cidr, moved.index)))
        there.request(links.change(moved.index, up=True))


def cidrs(link: dict[str, Any]) -> list[str]:
    return [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["scope"] == "global"]


def on_host(b: Bench) -> dict[str, tuple[int, str, list[str]]]:
    """Name, MTU, MAC and addresses of each NIC on the node."""
    found = {}
    with b.node.route() as route:
        for link in links.list_links(route):
            own = sorted(a.cidr for a in addresses.list_addresses(route, link.index) if a.scope == 0)
            found[link.name] = (link.mtu, link.mac, own)
    found.pop("lo")
    return found


async def taken_over(b: Bench) -> None:
    """Wait until the plan is recovered. From then on the driver holds the pod's namespace: CRI-O removes it before it
    calls the stop hook, and virtual NICs would be deleted with it."""
    log = b.driver.tail
    await until(
        lambda: (
            "Recovered plans from the cluster and the kernel plans=1" in log(200)
            and "Reconciled claims with the runtime's pods claims=1" in log(200)
        )
    )


async def test_pods_of_the_reference_driver_are_taken_over_and_restored(
    runtime: RuntimeProfile,
) -> None:
    async with after_the_reference(runtime=runtime) as (b, pod, theirs):
        file = theirs.read_bytes()
        await b.node.start_driver()
        await taken_over(b)
        assert b.names(pod.netns) == {*NICS[:7], "dranet0"}
        await until(lambda: sorted(b.published()) == NICS)
        await b.node.stop_pod(pod)
        assert on_host(b) == {name: (nic["mtu"], nic["address"], cidrs(nic)) for name, nic in before().items()}
        with b.node.route() as route:
            static = {r.destination: r.gateway for r in routes.list_configured_routes(route) if r.gateway}
        wanted = {r["dst"]: r["gateway"] for r in recorded("routes-before") if r.get("dev") in NICS and "gateway" in r}
        assert static == wanted
        assert theirs.read_bytes() == file


async def test_reference_database_may_be_in_another_folder() -> None:
    """As our chart mounts it."""
    async with after_the_reference() as (b, pod, theirs):
        aside = b.node.folder / "host"
        aside.mkdir()
        theirs.rename(aside / "dranet.db")
        b.node.flags += [f"--reference-db={aside / 'dranet.db'}"]
        await b.node.start_driver()
        await taken_over(b)
        assert [file.name for file in aside.iterdir()] == ["dranet.db"]
        await b.node.stop_pod(pod)
        assert set(on_host(b)) == set(NICS)


async def test_own_store_is_next_to_the_reference_database() -> None:
    async with after_the_reference() as (b, _, theirs):
        await b.node.start_driver()
        assert (b.node.folder / "dranet.sqlite").read_bytes().startswith(b"SQLite format 3")
        assert theirs.read_bytes().startswith(bytes(8))


async def test_takeover_works_without_permission_to_list_claims() -> None:
    async with after_the_reference() as (b, pod, _):
        b.api.forbid("list", resources.RESOURCE_CLAIMS)
        b.api.forbid("get", resources.PODS)
        await b.node.start_driver()
        await taken_over(b)
        assert "Cannot list ResourceClaims" in b.driver.tail(80)
        await b.node.stop_pod(pod)
        assert set(on_host(b)) == set(NICS)


async def test_unreadable_reference_database_is_logged_and_unchanged() -> None:
    async with after_the_reference() as (b, _, theirs):
        theirs.write_bytes(b"torn" * 5000)
        await b.node.start_driver()
        assert "Could not read the reference driver's database" in b.driver.tail(80)
        assert theirs.read_bytes() == b"torn" * 5000


def test_own_store_at_the_reference_path_stays(tmp_path: Path) -> None:
    """An earlier version put it there; it may have it open, in an update, or come back to it."""
    theirs = tmp_path / "dranet.db"
    theirs.write_bytes(b"SQLite format 3\0...")
    (tmp_path / "dranet.db-wal").write_bytes(b"...")
    assert store_path(str(theirs)) == str(theirs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dranet.db", "dranet.db-wal"]


@pytest.mark.parametrize("name", ["dranet.sqlite", "state"])
def test_other_store_names_are_used_unchanged(tmp_path: Path, name: str) -> None:
    assert store_path(str(tmp_path / name)) == str(tmp_path / name)


ROOT = "21 20 0:50 / / rw - overlay overlay rw,lowerdir=/l\n"


@pytest.mark.parametrize(
    ("mounts", "hosts"),
    [
        (ROOT, False),
        (ROOT + "30 21 8:1 /x /data/cdi rw - ext4 /dev/sda rw\n", True),
        (ROOT + "30 21 0:25 / /data rw - tmpfs tmpfs rw\n", True),
        ("21 20 8:1 / / rw - ext4 /dev/sda rw\n", True),
        (ROOT + "30 21 8:1 /x /data/cd rw - ext4 /dev/sda rw\n", False),
    ],
)
def test_folder_in_a_container_root_is_not_a_host_folder(tmp_path: Path, mounts: str, hosts: bool) -> None:
    (tmp_path / "mountinfo").write_text(mounts)
    assert is_host_folder("/data/cdi", str(tmp_path / "mountinfo")) is hosts
