"""Shares of a NIC under TCP: what each gets when all send, what one gets alone, and what holding them costs.

All as ratios, taken in one run on one virtual NIC, for the speed of a machine says little about another's. Processor
time is that of the two processes that send and receive, for each byte, with a share and, in turn, without one. Both
times the program sends 10 Gbit/s and no more (TCP paces it): one that is faster without its share would read and write
larger pieces, and that, not the share, would be compared. A virtual NIC has no queue, a real one always has: so the
share is also compared with the queue that this kernel gives to real NICs, in whose place a share comes there.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from msgspec.structs import replace

from bench.driver import Node
from dranet.core.attributes import BANDWIDTH
from dranet.core.device import Device
from dranet.core.netconfig_parse import parse
from dranet.linux import addresses, links
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import tc
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest
from dranet.node.records.plan import ClaimPlan, PodRef

SECONDS = 4.0
SETTLE_SECONDS = 1.0
ROUNDS = 30
"""Of a second each way: neighbours in time, so that what else the machine does is the same."""
SHARE, BARE, QUEUE = "10G", "", "pfifo_fast"
"""A child with a share; one on a NIC without a queue; one on a NIC with the kernel's own."""
PACE = 10e9
PORT = 7000
FAR = "10.9.0.254"
ON_THE_WIRE = 1514 / 1448
"""Headers of Ethernet, IP and TCP: the NIC counts them, the programs do not."""
CHUNK = bytes(1 << 18)
SO_MAX_PACING_RATE = 47
"""Python has no name for it."""


class Flow(NamedTuple):
    """What one sender got through, in bits per second on the wire, and processor seconds for each gigabyte."""

    rate: float
    cost: float


def measure() -> dict[str, Any]:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        return {"skipped": str(error)}
    with tempfile.TemporaryDirectory() as folder:
        node = Node(1, folder)
        _answer(node)
        both = _together(node, ("250M", "750M"), "1G")
        (alone,) = _together(node, ("250M",), "1G")
        ways = _ways(node)
        node.close()
    return {
        "contention_got_of_share": [round(both[0].rate / 250e6, 3), round(both[1].rate / 750e6, 3)],
        "alone_got_of_nic": round(alone.rate / 1e9, 3),
        "cpu_with_share_over_the_kernels_queue": _over(ways, QUEUE),
        "cpu_with_share_over_no_queue": _over(ways, BARE),
        "gbit": {way or "no queue": _gbit(flows) for way, flows in ways.items()},
    }


def _answer(node: Node) -> None:
    with NetlinkSocket(namespace_fd=node.far_end.fd) as far:
        peer = links.get_link(far, "peer0")
        assert peer is not None
        far.request(addresses.add(addresses.from_cidr(f"{FAR}/24", peer.index)))


def _ways(node: Node) -> dict[str, list[Flow]]:
    """One sender on a NIC of 25 Gbit/s, each way in turn."""
    flows: dict[str, list[Flow]] = {SHARE: [], BARE: [], QUEUE: []}
    order = list(flows)
    for number in range(ROUNDS):
        for way in order[number % 3 :] + order[: number % 3]:
            with _queued(node) if way == QUEUE else nullcontext():
                flows[way] += _together(node, (way if way == SHARE else "",), "25G", 1.0, PACE)
    return flows


def _over(ways: dict[str, list[Flow]], other: str) -> dict[str, Any]:
    ratios = [mine.cost / its.cost for mine, its in zip(ways[SHARE], ways[other], strict=True)]
    return {
        "median_of_pairs": round(statistics.median(ratios), 3),
        "quartiles": [round(one, 3) for one in statistics.quantiles(ratios)[::2]],
        "of_the_cheaper_halves": round(_cheaper_half(ways[SHARE]) / _cheaper_half(ways[other]), 3),
    }


def _gbit(flows: list[Flow]) -> float:
    return round(statistics.median(flow.rate for flow in flows) / 1e9, 1)


def _cheaper_half(flows: list[Flow]) -> float:
    """What others do on the machine only ever adds."""
    return statistics.mean(sorted(flow.cost for flow in flows)[: len(flows) // 2])


@contextmanager
def _queued(node: Node) -> Iterator[None]:
    (nic,) = links.get_links(node.host.route, node.names)
    assert nic is not None
    queue = tc.Qdisc(index=nic.index, parent=tc.ROOT, handle=1 << 16, kind=QUEUE)
    node.host.route.request(tc.replace_qdisc(queue))
    try:
        yield
    finally:
        node.host.route.request(tc.delete_qdisc(queue))


def _together(
    node: Node, shares: tuple[str, ...], total: str, seconds: float = SECONDS, pace: float = 0.0
) -> list[Flow]:
    """Pods with these shares, all sending at once; an empty share is a child without one."""
    pods = [Namespace.create() for _ in shares]
    plans = [_attached(node, number, share, total, pods[number]) for number, share in enumerate(shares)]
    senders = [_Sender(node.far_end, pod, PORT + number, seconds, pace) for number, pod in enumerate(pods)]
    flows = [sender.flow() for sender in senders]
    for plan in plans:
        node.lifecycle.detach(plan.uid, stopping="")
        node.lifecycle.release(plan)
    for pod in pods:
        pod.close()
    return flows


def _attached(node: Node, number: int, share: str, total: str, pod: Namespace) -> ClaimPlan:
    (whole,) = node.requests()
    nic = replace(whole.device, device=Device(name="nic0", capacity={BANDWIDTH: total}))
    item = AllocatedDevice("nic", "n", "nic0", None, False)
    if share:
        item = item._replace(share_id=f"share-{number}", consumed={BANDWIDTH: share})
    link = {"type": "Macvlan", "name": "net1", "addresses": [f"10.9.0.{number + 1}/24"]}
    devices = node.planner.plan(
        [DeviceRequest(item, nic, parse({"interface": link}))], others=node.store.devices_of_others("")
    )
    uid = f"claim-{number}"
    user = PodRef(uid=f"pod-{number}", name="pod", namespace="d")
    plan = ClaimPlan(uid=uid, namespace="d", name=uid, pod=user, devices=tuple(devices), boot=node.host.boot)
    node.store.put(plan)
    node.lifecycle.set_up(plan)
    node.lifecycle.attach(user.uid, f"/proc/{os.getpid()}/fd/{pod.fd}")
    return plan


class _Sender:
    """Two processes, one at each end of a connection."""

    def __init__(self, far_end: Namespace, pod: Namespace, port: int, seconds: float, pace: float) -> None:
        server = far_end.run(lambda: socket.create_server((FAR, port)))
        opened = pod.run(lambda: socket.socket())
        opened.settimeout(20)
        if pace:
            opened.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", int(pace / 8 / ON_THE_WIRE)))
        opened.connect((FAR, port))
        opened.settimeout(None)
        accepted, _ = server.accept()
        server.close()
        self._said, says = os.pipe()
        self._receiver = _forked(lambda: _receive(accepted, says, seconds), opened)
        self._sender = _forked(lambda: _send(opened, seconds), accepted)
        for end in (opened, accepted):
            end.close()
        os.close(says)

    def flow(self) -> Flow:
        cpu = 0.0
        for pid in (self._sender, self._receiver):
            _, _, usage = os.wait4(pid, 0)
            cpu += usage.ru_utime + usage.ru_stime
        measured, seconds, everything = struct.unpack("=QdQ", os.read(self._said, 24))
        os.close(self._said)
        return Flow(measured * 8 * ON_THE_WIRE / seconds, cpu / everything * 1e9)


def _forked(work: Any, not_its_own: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            not_its_own.close()
            work()
        finally:
            os._exit(0)
    return pid


def _send(opened: socket.socket, seconds: float) -> None:
    end = time.monotonic() + SETTLE_SECONDS + seconds + SETTLE_SECONDS
    while time.monotonic() < end:
        opened.send(CHUNK)
    opened.close()


def _receive(accepted: socket.socket, says: int, seconds: float) -> None:
    """Counts all, and apart what comes once TCP has found its speed and before the first sender ends."""
    buffer = bytearray(1 << 20)
    everything = measured = 0
    begin = time.monotonic() + SETTLE_SECONDS
    last = begin
    while got := accepted.recv_into(buffer):
        now = time.monotonic()
        everything += got
        if begin <= now <= begin + seconds:
            measured, last = measured + got, now
    os.write(says, struct.pack("=QdQ", measured, max(last - begin, 0.001), everything))
