"""The GID index a pod gets is the one the kernel uses for its address, whatever came before, and verbs work with it.

RDMA in both of the kernel's modes, NICs that are moved and children of a NIC that stays, IPv4 and IPv6. The other
side of every comparison is a scan of the pod's own `gid_attrs` by a shell, which shares nothing with the driver.
"""

import ipaddress
import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dranet.core import podinfo
from dranet.node.edits.edits_writer import ContainerEditsWriter
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.records.plan import ClaimPlan
from dranet.node.store import Store
from dranet.testing.waiting import wait_until
from tests.vm.parts import Driver, name_at
from tests.vm.world import NamedNamespace, SoftRoce, named_namespace, set_rdma_mode, tool

Pair = tuple[SoftRoce, SoftRoce]

FAMILIES = (4, 6)
EMPTY = 200
"""A slot that nothing is in."""
AT_ONCE = 4
"""Pods that have children of one NIC at the same time, whose slots are then neighbours."""
KINDS = [
    ("exclusive", "Passthrough"),
    ("shared", "Passthrough"),
    ("shared", "Macvlan"),
    ("shared", "IPVLAN"),
]
SCAN = r"""
cd /sys/class/infiniband/$1/ports/1
{ grep -slx "RoCE v2" gid_attrs/types/*; grep -slx "$2" gid_attrs/ndevs/*; grep -slx "$3" gids/*; } |
  sed 's,.*/,,' | sort | uniq -c | sed -n 's/^ *3 //p'
"""
"""Slots that all three files say the wanted of: with a thousand slots, a shell that opens each takes a minute here."""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """One that tells containers what they have."""
    host = Host.open()
    store = Store(str(tmp_path / "store.db"))
    gates = ReadinessGates(str(tmp_path / "cdi"))
    lifecycle = DeviceLifecycle(host, store, gates, edits=ContainerEditsWriter(tmp_path / "edits"))
    yield Driver(host, store, lifecycle, gates)
    lifecycle.close()
    store.close()
    host.close()


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Before anything that makes a namespace or a device."""
    if request.param == "exclusive":
        set_rdma_mode(shared=False)
    yield request.param
    set_rdma_mode(shared=True)


def asked(kind: str, *addresses: str) -> dict[str, Any]:
    link: dict[str, Any] = {"name": "net1", "addresses": list(addresses)}
    return {"interface": {**link, **({} if kind == "Passthrough" else {"type": kind})}, "environment": ["nccl"]}


def edits(driver: Driver, plan: ClaimPlan) -> dict[str, Any]:
    (device,) = json.loads(driver.gates.path(plan.uid).read_text())["devices"]
    found: dict[str, Any] = device["containerEdits"]
    return found


def reported_index(driver: Driver, plan: ClaimPlan) -> int | None:
    """What a container reads: in the metadata, and the same in NCCL's file."""
    mounts = {mount["containerPath"]: Path(mount["hostPath"]) for mount in edits(driver, plan)["mounts"]}
    (metadata,) = [path for place, path in mounts.items() if place.endswith("-metadata.json")]
    (request,) = podinfo.first_known(metadata.read_text())["requests"]
    index = request["devices"][0]["attributes"].get("dra.net/gidIndex", {}).get("int")
    assert f"NCCL_IB_GID_INDEX={index}" in mounts["/etc/nccl.conf"].read_text().splitlines()
    return None if index is None else int(index)


def scanned(pod: NamedNamespace, device: str, address: str) -> list[int]:
    """Every slot of the pod's own table that is RoCE v2, of its interface and for its address."""
    ip = ipaddress.ip_interface(address).ip
    digits = f"{0xFFFF00000000 + int(ip) if ip.version == 4 else int(ip):032x}"
    gid = ":".join(digits[at : at + 4] for at in range(0, 32, 4))
    return [int(line) for line in pod.tool("sh", "-c", SCAN, "scan", device, "net1", gid).split()]


FIRST = 11
"""Of the pods' addresses: the node has lower ones, which a child interface cannot have too."""


def address_of(number: int, version: int) -> str:
    return f"10.8.0.{number}/24" if version == 4 else f"fd08::{number:x}/64"


@pytest.mark.parametrize(("mode", "kind"), KINDS, indirect=["mode"])
def test_the_index_a_pod_gets_is_the_one_its_own_table_shows(
    mode: str, kind: str, soft_roce: Pair, driver: Driver, pytestconfig: pytest.Config
) -> None:
    made, chance = soft_roce[1], random.Random(f"{mode} {kind}")
    for number in range(chance.randrange(3)):
        tool("ip", "address", "add", f"10.9.{number}.1/24", "dev", made.netdev)
    running: list[ClaimPlan] = []
    with ExitStack() as stack:
        try:
            for number in range(pytestconfig.getoption("--gid-pods")):
                while len(running) >= (1 if kind == "Passthrough" else chance.randrange(1, AT_ONCE + 1)):
                    driver.detach(running.pop(chance.randrange(len(running))))
                pod = stack.enter_context(named_namespace(f"pod-{number}"))
                addresses = [
                    address_of(20 + 4 * number + n, FAMILIES[number % 2]) for n in range(chance.randrange(1, 4))
                ]
                plan = driver.prepare(name_at(made.nic.address), f"claim-{number}", asked(kind, *addresses))
                driver.attach(plan, pod)
                running.append(plan)
                assert scanned(pod, made.device, addresses[0]) == [reported_index(driver, plan)]
        finally:
            for plan in running:
                driver.detach(plan)


@pytest.mark.parametrize(("mode", "kind"), KINDS, indirect=["mode"])
def test_verbs_work_between_two_pods_with_the_indexes_they_got_and_not_with_an_empty_one(
    mode: str, kind: str, soft_roce: Pair, pod: NamedNamespace, other_pod: NamedNamespace, driver: Driver
) -> None:
    for version in FAMILIES:
        plans = []
        try:
            for number, (made, inside) in enumerate(zip(soft_roce, (pod, other_pod), strict=True), start=FIRST):
                config = asked(kind, address_of(number, version))
                plans.append(driver.prepare(name_at(made.nic.address), f"claim-{version}-{number}", config))
                driver.attach(plans[-1], inside)
                wait_until(lambda inside=inside: "state ACTIVE" in inside.tool("rdma", "link"), "an active port")  # type: ignore[misc]
            indexes = [reported_index(driver, plan) for plan in plans]
            assert ping_pong(soft_roce, (pod, other_pod), indexes, address_of(FIRST, version)) == 0
            assert ping_pong(soft_roce, (pod, other_pod), [indexes[0], EMPTY], address_of(FIRST, version)) != 0
        finally:
            for plan in plans:
                driver.detach(plan)


def ping_pong(
    devices: Pair, pods: tuple[NamedNamespace, NamedNamespace], indexes: list[int | None], server: str
) -> int:
    """The client's exit code of ten RDMA round trips."""

    def command(at: int, *more: str) -> list[str]:
        program = ["timeout", "60", "ibv_rc_pingpong", "-d", devices[at].device, "-g", str(indexes[at]), "-n", "10"]
        return ["ip", "netns", "exec", pods[at].name, *program, *more]

    address = str(ipaddress.ip_interface(server).ip)
    with subprocess.Popen(command(0), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as listening:
        wait_until(lambda: ":18515 " in pods[0].tool("ss", "-Hltn"), "the server to listen")
        try:
            done = subprocess.run(command(1, address), capture_output=True, text=True, check=False)
            print(done.stdout, done.stderr)
            return done.returncode
        finally:
            listening.terminate()
