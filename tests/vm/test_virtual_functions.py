"""A NIC whole or as its virtual functions, never both, on a NIC that has real ones.

One test with the whole daemon; the others call prepare and attach themselves, for starting a daemon takes long here.
Making and removing seven virtual functions takes seconds, so a sample: `make vm
ARGS="tests/vm/test_virtual_functions.py --function-claims 1000 --every-point"` plays as many random claims as you like
(others with another --first-seed), and kills the driver at every point.
"""

import asyncio
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.core.errors import Busy
from dranet.core.names import ClaimRef
from dranet.core.pciids import PciIds
from dranet.kubernetes.api.errors import ObjectNotFound
from dranet.linux.namespaces import Namespace
from dranet.linux.sysfs import Sysfs
from dranet.node import faultpoints
from dranet.node.claims.leases import Leases
from dranet.node.claims.planner import Planner
from dranet.node.claims.prepare import Preparer
from dranet.node.claims.profiles import Profiles
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.inventory import Inventory, InventoryOptions, LiveKernel, NodeDevice, Snapshot
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.records.plan import PodRef
from dranet.node.server.node_devices import in_use
from dranet.node.store import Store
from dranet.testing.waiting import until
from tests import pictures
from tests.vm.machine import SRIOV_NODE1, SRIOV_TOTAL_VFS
from tests.vm.node import guest_node
from tests.vm.parts import PATIENCE_SECONDS, name_at
from tests.vm.world import NamedNamespace, named_namespace, netdev_of, tool

PF = name_at(SRIOV_NODE1.address)
ALL = [f"{PF}-vf{number}" for number in range(SRIOV_TOTAL_VFS)]
FOLDER = Path("/sys/bus/pci/devices") / SRIOV_NODE1.address
POINTS = (*faultpoints.FUNCTION_POINTS, "prepare.stored", "attach.moved", "detach.vf")
FURTHER_POINTS = (
    "prepare.planned",
    "prepare.set_up",
    "attach.done",
    "detach.restored",
    "unprepare.detached",
    "unprepare.deleted",
)
_PCI_IDS = PciIds()


class Node:
    """The driver's own parts on this machine, as a daemon puts them together; claims are what tests say they are."""

    def __init__(self, folder: Path) -> None:
        self.host = Host.open()
        self.store = Store(str(folder / "store.db"))
        self.lifecycle = DeviceLifecycle(self.host, self.store, ReadinessGates(str(folder / "cdi")))
        self.claims: dict[str, dict[str, Any]] = {}
        self.preparer = Preparer(
            node="node",
            store=self.store,
            lifecycle=self.lifecycle,
            planner=Planner(self.host, Sysfs()),
            cluster=self,
            inventory=self,
            profiles=Profiles(),
            leases=Leases(self.host, self.store),
            patience=0.2,
        )

    def scan(self) -> Snapshot:
        with LiveKernel() as kernel:
            return Inventory(InventoryOptions(sriov_vfs="true"), kernel, pci_ids=_PCI_IDS).scan(
                lambda: in_use(self.store)
            )

    async def claim(self, namespace: str, name: str) -> dict[str, Any]:
        if name not in self.claims:  # another process has made it, and then it has ended
            raise ObjectNotFound(f"GET {namespace}/{name}", 404, {})
        return self.claims[name]

    async def pod(self, namespace: str, name: str) -> None:
        return None

    async def pci_addresses(self, node: str, devices: object) -> list[str]:
        return []

    def find(self, name: str) -> NodeDevice | None:
        return self.scan().find(name)

    def skip_reason(self, name: str) -> str:
        return self.scan().skip_reason(name)

    async def rescan(self) -> None:
        return

    async def prepare(self, device: str, name: str, parameters: dict[str, Any] | None = None) -> None:
        user = {"resource": "pods", "name": name, "uid": name}
        results = [{"driver": "dra.net", "pool": "node", "device": device, "request": "nic"}]
        opaque = {"driver": "dra.net", "parameters": parameters or {"interface": {"name": "net1"}}}
        allocation = {"devices": {"results": results, "config": [{"source": "FromClass", "opaque": opaque}]}}
        meta = {"name": name, "namespace": "default", "uid": name}
        self.claims[name] = {"metadata": meta, "status": {"reservedFor": [user], "allocation": allocation}}
        await self.preparer.prepare(ClaimRef("default", name, name))

    def attach(self, name: str, pod: NamedNamespace) -> None:
        self.lifecycle.attach(name, f"/run/netns/{pod.name}", seconds=PATIENCE_SECONDS)

    async def unprepare(self, name: str) -> None:
        await self.preparer.unprepare(ClaimRef("default", name, name))

    def close(self) -> None:
        self.lifecycle.close()
        self.store.close()
        self.host.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made_here = Node(tmp_path)
    yield made_here
    made_here.close()


def made() -> int:
    return int((FOLDER / "sriov_numvfs").read_text())


def picture() -> pictures.Picture:
    with Namespace.current() as here:
        return pictures.take(here.fd, netdev_of(SRIOV_NODE1))


def decided(number: int) -> dict[str, Any]:
    """What the physical function decides over a virtual one, as the tools tell it."""
    (link,) = json.loads(tool("ip", "-j", "-d", "link", "show", netdev_of(SRIOV_NODE1)))
    found: dict[str, Any] = next(one for one in link["vfinfo_list"] if one["vf"] == number)
    return found


async def test_the_daemon_makes_them_when_the_first_is_claimed_and_removes_them_after_the_last() -> None:
    before = picture()
    async with guest_node("--sriov-vfs=true") as guest:
        await until(lambda: ALL[0] in guest.published(), "the virtual functions to be published")
        assert made() == 0
        first, second = guest.claim(ALL[0], "a", {"interface": {"name": "net1"}}), guest.claim(ALL[6], "b")
        await guest.start_pod(first)
        assert made() == SRIOV_TOTAL_VFS
        await guest.start_pod(second)
        await guest.stop_pod(first)
        assert made() == SRIOV_TOTAL_VFS
        await guest.stop_pod(second)
        assert made() == 0
    assert picture() == before


async def test_what_a_claim_asks_is_decided_by_the_nic_and_reset_after_it(node: Node, pod: NamedNamespace) -> None:
    await node.prepare(ALL[1], "other")  # keeps the virtual functions there, so that one can be seen after its claim
    before = decided(0)
    asked = {
        "interface": {"name": "net1", "hardwareAddr": "02:00:00:00:00:77"},
        "vf": {"vlan": 100, "vlanPriority": 3, "trust": True, "spoofCheck": False},
    }
    await node.prepare(ALL[0], "pod", asked)
    node.attach("pod", pod)
    now = decided(0)
    assert (now["address"], now["trust"], now["spoofchk"]) == ("02:00:00:00:00:77", True, False)
    assert (now["vlan_list"][0]["vlan"], now["vlan_list"][0]["qos"]) == (100, 3)
    await node.unprepare("pod")
    assert decided(0) == before
    await node.unprepare("other")
    assert made() == 0


def test_virtual_functions_that_another_program_made_are_not_ours(virtual_functions: list[str], node: Node) -> None:
    snapshot = node.scan()
    names = [device.name for device in snapshot.published]
    assert set(map(name_at, virtual_functions)) <= set(names)
    assert not [name for name in names if name.startswith(PF)]
    assert f"{len(virtual_functions)} virtual functions" in snapshot.skip_reason(PF)


async def test_with_a_lost_store_the_virtual_function_of_a_running_pod_is_known_again(
    node: Node, pod: NamedNamespace, tmp_path: Path
) -> None:
    before = picture()
    await node.prepare(ALL[4], "pod")
    node.attach("pod", pod)
    published = {device.name: device for device in node.scan().published}
    (tmp_path / "again").mkdir()
    after = Node(tmp_path / "again")
    user = PodRef(uid="pod", name="pod", namespace="default")
    assert await after.preparer.recover(node.claims["pod"], user, [f"/run/netns/{pod.name}"], published)
    assert {device.name for device in after.scan().published} == set(published)
    await after.unprepare("pod")
    after.close()
    assert made() == 0
    tool("ip", "link", "set", netdev_of(SRIOV_NODE1), "down")  # the record that it was down before is lost
    assert picture() == before


@pytest.mark.timeout(0)  # as long as it takes to play what was asked for; the run itself has an end
async def test_over_random_claims_it_is_the_nic_or_its_virtual_functions_and_never_both(
    request: pytest.FixtureRequest, node: Node, pod: NamedNamespace, other_pod: NamedNamespace
) -> None:
    count, before = int(request.config.getoption("--function-claims")), picture()
    dice = random.Random(int(request.config.getoption("--first-seed")))
    # Making or removing seven takes five seconds here, all the rest of a claim less than one: the whole NIC seldom,
    # and in between the last of them is kept.
    wholes = {1, *dice.sample(range(count), count // 33)}
    out: dict[str, str] = {}
    kinds = {"whole": 0, "part": 0}
    for number in range(count):
        whole = number in wholes
        # As the scheduler counts: the whole needs all slots, a virtual function one.
        while out and (whole or PF in out or len(out) == SRIOV_TOTAL_VFS or (len(out) > 1 and dice.random() < 0.4)):
            await node.unprepare(out.pop(dice.choice(sorted(out))))
        name, claim = PF if whole else dice.choice([one for one in ALL if one not in out]), f"c{number}"
        await node.prepare(name, claim, {"interface": {"name": f"net{number}"}})
        out[name] = claim
        kinds["whole" if whole else "part"] += 1
        where = dice.choice([pod, other_pod])
        node.attach(claim, where)
        if whole or number % 10 == 0:  # now and then, for a refusal waits for the holder first
            with pytest.raises(Busy, match=r"is held by claim default/c\d+"):
                await node.prepare(dice.choice(ALL) if whole else PF, f"greedy{number}")
        assert made() == (0 if whole else SRIOV_TOTAL_VFS), out
        assert pictures.take(where.fd, f"net{number}") != {}
    for claim in out.values():
        await node.unprepare(claim)
    print(f"{kinds['whole']} claims of the whole NIC, {kinds['part']} of virtual functions")
    assert all(kinds.values())
    assert made() == 0
    assert picture() == before


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "point" in metafunc.fixturenames:
        further = FURTHER_POINTS if metafunc.config.getoption("--every-point") else ()
        metafunc.parametrize("point", (*POINTS, *further))


@pytest.fixture
def given_address() -> Iterator[str]:
    """Of the NIC, which is down: the kernel takes it from one that was raised and goes down."""
    tool("ip", "address", "add", "fd00:62::1/64", "dev", netdev_of(SRIOV_NODE1))
    yield "fd00:62::1"
    tool("ip", "address", "flush", "dev", netdev_of(SRIOV_NODE1))


def test_dying_there_leaves_no_virtual_function_behind_and_the_nic_as_it_was(
    point: str, given_address: str, tmp_path: Path
) -> None:
    before = picture()
    assert given_address in str(before["addresses"])
    with named_namespace("dying") as pod:
        child = os.fork()
        if child == 0:
            _live_and_die(point, tmp_path, pod)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"{point} was not reached: {os.waitstatus_to_exitcode(status)}"
        assert os.WTERMSIG(status) == signal.SIGKILL
        after = Node(tmp_path)
        asyncio.run(after.unprepare("pod"))
        after.close()
    assert made() == 0
    assert picture() == before


def _live_and_die(point: str, folder: Path, pod: NamedNamespace) -> None:
    """A claim's whole life in a process of its own; never returns."""
    faultpoints.arm(point)

    async def live() -> None:
        node = Node(folder)
        await node.prepare(ALL[3], "pod", {"interface": {"name": "net1"}, "vf": {"vlan": 7}})
        node.attach("pod", pod)
        await node.unprepare("pod")

    try:
        asyncio.run(live())
    finally:
        os._exit(3)
