"""The driver's hooks against `ip -batch` doing the same kernel work, and the daemon's appetite; prints JSON.

Rounds of ours, of `ip` and of the bare kernel (the same messages, made beforehand) alternate on the same veth NICs,
and medians are compared. The kernel's own move of a link between namespaces dominates all three: for every move it
waits until all its processors have passed a quiet moment. Its share of `ip`'s time is the best ratio there is.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dranet.core.attributes import BANDWIDTH
from dranet.core.device import Device
from dranet.core.names import ClaimRef
from dranet.core.netconfig_parse import parse
from dranet.kubernetes.api import resources
from dranet.kubernetes.nri import messages
from dranet.linux import addresses, links, sysctl, virtual_links
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest, Planner
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.records.plan import ClaimPlan, PodRef
from dranet.node.store import Store
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.node import SandboxNode, SandboxPod

ROUNDS = 30
SETTLE_SECONDS = 0.3
"""Before a round, and between taking the NICs down and moving them, as between prepare and the hook of a real pod:
what the kernel has still to clear away (namespaces of the round before, addresses) would make moves wait at random."""
STEPS = ("prepare", "after_reply", "attach", "detach", "cpu")
CYCLES = int(os.environ.get("BENCH_CYCLES", "10000"))


def measure() -> dict[str, Any]:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        return {"skipped": str(error)}
    return {
        "one_nic": _hooks(1),
        "eight_nics": _hooks(8),
        "children": children(),
        "daemon": asyncio.run(_daemon()),
        "reference": {"prepare_8_ms": [2.7, 3.5], "start_s": [2.1, 3.1], "rss_mb": [62, 77], "attach_8_ms": [142, 151]},
    }


class Node:
    """A host namespace with NICs, in this process; their other ends are in a namespace of their own that is quiet."""

    def __init__(self, nics: int, folder: str) -> None:
        self.namespace = Namespace.create()
        self.host = Host(self.namespace, NetlinkSocket(namespace_fd=self.namespace.fd))
        self.far_end = Namespace.create()
        sysctl.write_all(self.far_end.fd, {"net/ipv6/conf/default/disable_ipv6": "1"})
        self.names = [f"nic{i}" for i in range(nics)]
        for number, name in enumerate(self.names):
            self.host.route.request(virtual_links.create_veth(name, f"peer{number}"))
            nic, peer = (_index(self.host.route, link) for link in (name, f"peer{number}"))
            self.host.route.request(links.change(peer, namespace_fd=self.far_end.fd, up=True))
            self.host.route.request(links.change(nic, up=True))
            self.host.route.request(addresses.add(addresses.from_cidr(f"10.{number}.0.1/24", nic)))
        self.store = Store(os.path.join(folder, "dranet.db"))
        self.lifecycle = DeviceLifecycle(self.host, self.store, ReadinessGates(os.path.join(folder, "cdi")))
        self.planner = Planner(self.host, Sysfs(folder), folder)

    def requests(self) -> list[DeviceRequest]:
        """All NICs for one claim, as the inventory knows them."""
        found = {link.name: link.index for link in links.list_links(self.host.route)}
        return [
            DeviceRequest(
                AllocatedDevice("nic", "n", name, None, False),
                NodeDevice(
                    device=Device(name=name), netdev=Netdev(location=NetdevLocation.HOST, name=name, index=found[name])
                ),
                parse(None),
            )
            for name in self.names
        ]

    def prepare(self, requests: list[DeviceRequest]) -> ClaimPlan:
        user = PodRef(uid="pod", name="pod", namespace="d")
        plan = ClaimPlan(uid="claim", namespace="d", name="claim", pod=user, devices=tuple(self.planner.plan(requests)))
        self.store.put(plan, survives_reboot=False)
        return plan

    def close(self) -> None:
        self.store.close()
        self.host.close()
        self.far_end.close()


def _index(route: NetlinkSocket, name: str) -> int:
    link = links.get_link(route, name)
    assert link is not None
    return link.index


def _hooks(nics: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        node = Node(nics, folder)
        times: dict[str, list[float]] = {
            k: [] for k in (*STEPS, "ip_attach", "ip_detach", "kernel_attach", "kernel_detach")
        }
        for _ in range(ROUNDS):
            for round_of in (_ours, _with_ip, _bare_kernel):
                time.sleep(SETTLE_SECONDS)
                round_of(node, times)
        node.close()
    p50 = {key: statistics.median(values) * 1000 for key, values in times.items()}
    return {
        "prepare_ms_p50": round(p50["prepare"], 2),
        "after_prepare_ms_p50": round(p50["after_reply"], 2),
        "attach_ms_p50": round(p50["attach"], 2),
        "detach_ms_p50": round(p50["detach"], 2),
        "ip_batch_attach_ms_p50": round(p50["ip_attach"], 2),
        "ip_batch_detach_ms_p50": round(p50["ip_detach"], 2),
        "attach_ratio": round(p50["attach"] / p50["ip_attach"], 3),
        "detach_ratio": round(p50["detach"] / p50["ip_detach"], 3),
        "bare_kernel_attach_ratio": round(p50["kernel_attach"] / p50["ip_attach"], 3),
        "bare_kernel_detach_ratio": round(p50["kernel_detach"] / p50["ip_detach"], 3),
        "own_user_cpu_ms_per_nic": round(statistics.mean(times["cpu"]) * 1000 / nics, 2),
    }


def _ours(node: Node, times: dict[str, list[float]], requests: list[DeviceRequest] | None = None) -> None:
    requests = requests or node.requests()
    start = time.perf_counter()
    plan = node.prepare(requests)
    prepared = time.perf_counter()
    node.lifecycle.set_up_late(plan.uid)
    followed_up = time.perf_counter()
    with Namespace.create() as pod:
        time.sleep(SETTLE_SECONDS)
        cpu = _user_cpu()
        ready = time.perf_counter()
        node.lifecycle.attach("pod", pod.path)
        attached = time.perf_counter()
        cpu = _user_cpu() - cpu
        for problem in node.lifecycle.detach(plan.uid):
            raise RuntimeError(problem)
        home = time.perf_counter()
        node.store.delete(plan.uid)
    taken = (prepared - start, followed_up - prepared, attached - ready, home - attached, cpu)
    for key, value in zip(STEPS, taken, strict=True):
        times[key].append(value)


def children() -> dict[str, Any]:
    """Pods that get one and eight shares of one NIC: nothing moves, so nothing waits for the kernel's quiet moment."""
    return {f"{count}_attach_ms_p50": round(_children(count) * 1000, 2) for count in (1, 8)}


def _children(count: int) -> float:
    times: dict[str, list[float]] = {key: [] for key in STEPS}
    with tempfile.TemporaryDirectory() as folder:
        node = Node(1, folder)
        for _ in range(ROUNDS):
            _ours(node, times, _shares(node, count))
        node.close()
    return statistics.median(times["attach"])


def _shares(node: Node, count: int) -> list[DeviceRequest]:
    """So many shares of the one NIC for one claim."""
    (whole,) = node.requests()
    nic = replace(whole.device, device=Device(name="nic0", capacity={BANDWIDTH: "10G"}))
    return [
        DeviceRequest(
            AllocatedDevice(f"nic-{i}", "n", "nic0", f"share-{i}", False, {BANDWIDTH: "1G"}),
            nic,
            parse({"interface": {"type": "Macvlan", "name": f"net{i}", "addresses": [f"10.9.0.{i + 1}/24"]}}),
        )
        for i in range(count)
    ]


def _user_cpu() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _with_ip(node: Node, times: dict[str, list[float]]) -> None:
    """The same kernel work by `ip -batch`: down, move, address, up; and back with address and state."""
    with Namespace.create() as pod:
        inside, outside = f"/proc/{os.getpid()}/fd/{pod.fd}", f"/proc/{os.getpid()}/fd/{node.namespace.fd}"
        downs = "".join(f"link set {name} down\n" for name in node.names)
        _ip(node.namespace, downs)
        time.sleep(SETTLE_SECONDS)
        start = time.perf_counter()
        _ip(node.namespace, "".join(f"link set {n} netns {inside} name {n}\n" for n in node.names))
        ups = [f"addr add 10.{i}.0.1/24 dev {n}\nlink set {n} up\n" for i, n in enumerate(node.names)]
        _ip(pod, "".join(ups))
        attached = time.perf_counter()
        _ip(pod, downs + "".join(f"link set {n} netns {outside} name {n}\n" for n in node.names))
        _ip(node.namespace, "".join(ups))
        home = time.perf_counter()
    times["ip_attach"].append(attached - start)
    times["ip_detach"].append(home - attached)


def _bare_kernel(node: Node, times: dict[str, list[float]]) -> None:
    """The same once more with nothing between us and the kernel: messages made before the clock starts."""
    with Namespace.create() as pod, NetlinkSocket(namespace_fd=pod.fd) as inside:
        outside = node.host.route
        indexes = [link.index for link in links.get_links(outside, node.names) if link]
        downs = [links.change(index, up=False) for index in indexes]
        ups = [
            message
            for number, index in enumerate(indexes)
            for message in (
                addresses.add(addresses.from_cidr(f"10.{number}.0.1/24", index)),
                links.change(index, up=True),
            )
        ]
        outside.batch(downs)
        into, home = (
            [links.change(i, namespace_fd=fd, name=n) for i, n in zip(indexes, node.names, strict=True)]
            for fd in (pod.fd, node.namespace.fd)
        )
        time.sleep(SETTLE_SECONDS)
        start = time.perf_counter()
        outside.batch(into)
        inside.batch(ups)
        attached = time.perf_counter()
        inside.batch([*downs, *home])
        outside.batch(ups)
        times["kernel_attach"].append(attached - start)
        times["kernel_detach"].append(time.perf_counter() - attached)


def _ip(namespace: Namespace, lines: str) -> None:
    command = ["nsenter", f"--net=/proc/self/fd/{namespace.fd}", "ip", "-batch", "-"]
    subprocess.run(command, input=lines, text=True, check=True, pass_fds=[namespace.fd])


async def _daemon() -> dict[str, Any]:
    """Start, no-op hooks and memory of the real process."""
    api = SandboxApiServer()
    api.put(resources.NODES, {"metadata": {"name": "n"}})
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with SandboxNode("n", api, Path(folder)) as node:
            with node.route() as route:
                route.request(virtual_links.create_veth("nic0", "peer0"))
            start = time.perf_counter()
            child = await node.start_driver()
            registered = time.perf_counter() - start
            while not api.objects(resources.RESOURCE_SLICES):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.005)
            published = time.perf_counter() - start
            await asyncio.sleep(1)
            after_start = _rss(child.pid)
            noop = await _noop(node)
            memory = await _cycles(node, api, child.pid)
            return {
                "registered_s": round(registered, 2),
                "first_slice_s": round(published, 2),
                "noop_hook_us_p50": round(noop * 1e6),
                "rss_mb_after_start": after_start,
                "cycles": CYCLES,
                **memory,
            }


async def _noop(node: SandboxNode) -> float:
    pod = messages.PodSandbox(id="x", name="x", uid="x", namespace="d")
    times = []
    for _ in range(300):
        start = time.perf_counter()
        await node.runtime.run_pod_sandbox(pod)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


async def _cycles(node: SandboxNode, api: SandboxApiServer, pid: int) -> dict[str, list[float]]:
    """Whole lives of pods; memory after each tenth of them. After the first it should stay."""
    seen: list[float] = []
    for number in range(CYCLES):
        pod = SandboxPod(f"p{number}", f"p{number}", claims=[ClaimRef("d", "c", f"u{number}")])
        _put_claim(api, number)
        await node.start_pod(pod)
        await node.stop_pod(pod)
        api.remove(resources.RESOURCE_CLAIMS, "c", "d")
        api.compact_history()
        if (number + 1) % max(CYCLES // 10, 1) == 0:
            seen.append(_rss(pid))
    return {"rss_mb_after_each_tenth": seen}


def _put_claim(api: SandboxApiServer, number: int) -> None:
    results = [{"driver": "dra.net", "pool": "n", "device": "nic0", "request": "nic"}]
    user = {"resource": "pods", "name": f"p{number}", "uid": f"p{number}"}
    status = {"reservedFor": [user], "allocation": {"devices": {"results": results}}}
    metadata = {"name": "c", "namespace": "d", "uid": f"u{number}"}
    api.put(resources.RESOURCE_CLAIMS, {"metadata": metadata, "spec": {}, "status": status})


def _rss(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
