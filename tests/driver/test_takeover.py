"""From the reference driver to this one with pods running: its pods keep their cards, and these come home.

The state is the one that was recorded: eight cards in a pod, the reference's database, the claim as it stood.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dranet.driver.serving.places import is_hosts, own_store
from dranet.kernel import addresses, links, routes
from dranet.kernel.netlink import NetlinkSocket
from dranet.kube import resources
from dranet.model.names import ClaimRef
from dranet.sandbox.node import SandboxPod

from .daemon_bench import NODE, Bench, bench, until

DATA = Path(__file__).parent.parent / "data/reference-store"
CARDS = [f"rx{number}" for number in range(8)]


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def before() -> dict[str, dict[str, Any]]:
    """The cards as the node showed them before the reference moved them."""
    return {link["ifname"]: link for link in recorded("node-before") if link["ifname"] in CARDS}


@contextlib.asynccontextmanager
async def after_the_reference(*flags: str) -> AsyncIterator[tuple[Bench, SandboxPod, Path]]:
    """A node on which the reference has given eight cards to a pod and is gone."""
    async with bench(cards=0, start=False) as b:
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
    """A card as it was, then moved and configured as the reference does."""
    b.add_card(name)
    assert pod.netns is not None
    inside = "dranet0" if name == "rx7" else name
    with b.node.route() as route, NetlinkSocket(namespace_fd=pod.netns.fd) as there:
        card = links.get_link(route, name)
        assert card is not None
        route.request(links.change(card.index, up=False, mac=link["address"], mtu=link["mtu"]))
        route.request(links.change(card.index, namespace_fd=pod.netns.fd, name=inside))
        moved = links.get_link(there, inside)
        assert moved is not None
        there.request(links.change(moved.index, mtu=1400 if name == "rx7" else link["mtu"]))
        for cidr in cidrs(link):
            there.request(addresses.add(addresses.from_cidr(cidr, moved.index)))
        there.request(links.change(moved.index, up=True))


def cidrs(link: dict[str, Any]) -> list[str]:
    return [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["scope"] == "global"]


def home(b: Bench) -> dict[str, tuple[int, str, list[str]]]:
    """Name, MTU, MAC and addresses of each card on the node."""
    found = {}
    with b.node.route() as route:
        for link in links.list_links(route):
            own = sorted(a.cidr for a in addresses.list_addresses(route, link.index) if a.scope == 0)
            found[link.name] = (link.mtu, link.mac, own)
    found.pop("lo")
    return found


async def taken_over(b: Bench) -> None:
    """The plan is rebuilt, and the pod's namespace is held from then on: CRI-O removes it before it tells of a stop,
    and virtual cards would go with it."""
    log = b.node.driver.tail
    await until(lambda: "rebuilt 1 plans" in log(200) and "compared 1 claims with the runtime's pods" in log(200))


async def test_the_pod_keeps_its_cards_and_they_come_home_as_they_were_before_the_reference() -> None:
    async with after_the_reference() as (b, pod, theirs):
        file = theirs.read_bytes()
        await b.node.start_driver()
        await taken_over(b)
        assert b.names(pod.netns) == {*CARDS[:7], "dranet0"}
        await until(lambda: sorted(b.published()) == CARDS)
        await b.node.stop_pod(pod)
        assert home(b) == {name: (card["mtu"], card["address"], cidrs(card)) for name, card in before().items()}
        with b.node.route() as route:
            static = {r.destination: r.gateway for r in routes.list_made_routes(route) if r.gateway}
        wanted = {r["dst"]: r["gateway"] for r in recorded("routes-before") if r.get("dev") in CARDS and "gateway" in r}
        assert static == wanted
        assert theirs.read_bytes() == file


async def test_their_database_may_lie_in_a_folder_of_its_own_to_which_nothing_is_added() -> None:
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
        assert set(home(b)) == set(CARDS)


async def test_our_store_lies_beside_theirs() -> None:
    async with after_the_reference() as (b, _, theirs):
        await b.node.start_driver()
        assert (b.node.folder / "dranet.sqlite").read_bytes().startswith(b"SQLite format 3")
        assert theirs.read_bytes().startswith(bytes(8))


async def test_an_account_that_may_only_get_claims_is_enough() -> None:
    async with after_the_reference() as (b, pod, _):
        b.api.forbid("list", resources.RESOURCE_CLAIMS)
        b.api.forbid("get", resources.PODS)
        await b.node.start_driver()
        await taken_over(b)
        assert "claims cannot be listed" in b.node.driver.tail(80)
        await b.node.stop_pod(pod)
        assert set(home(b)) == set(CARDS)


async def test_a_database_of_theirs_that_cannot_be_read_is_said_and_left_as_it_is() -> None:
    async with after_the_reference() as (b, _, theirs):
        theirs.write_bytes(b"torn" * 5000)
        await b.node.start_driver()
        assert "cannot be used" in b.node.driver.tail(80)
        assert theirs.read_bytes() == b"torn" * 5000


def test_a_store_of_ours_that_lies_in_the_references_place_stays_there(tmp_path: Path) -> None:
    """An earlier version put it there; it may have it open, in an update, or come back to it."""
    theirs = tmp_path / "dranet.db"
    theirs.write_bytes(b"SQLite format 3\0...")
    (tmp_path / "dranet.db-wal").write_bytes(b"...")
    assert own_store(str(theirs)) == str(theirs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dranet.db", "dranet.db-wal"]


@pytest.mark.parametrize("name", ["dranet.sqlite", "state"])
def test_any_other_name_is_ours_as_it_stands(tmp_path: Path, name: str) -> None:
    assert own_store(str(tmp_path / name)) == str(tmp_path / name)


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
def test_a_folder_in_a_container_s_own_root_is_not_the_host_s(tmp_path: Path, mounts: str, hosts: bool) -> None:
    (tmp_path / "mountinfo").write_text(mounts)
    assert is_hosts("/data/cdi", str(tmp_path / "mountinfo")) is hosts
