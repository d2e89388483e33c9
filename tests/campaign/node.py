"""A node with differently configured NICs, and where each of them is at any moment."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dranet.linux import addresses, codec, links, neighbours, routes, sysctl, virtual_links
from dranet.linux.codec import Message
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.traffic import htb
from tests import pictures

NICS = ("nic0", "nic1", "nic2", "nic3")
RARE_SETTINGS = {
    "nic0": (
        "ip nexthop add id 100 via 10.0.0.254 dev nic0",
        "ip route add 10.210.0.0/16 nhid 100 proto bgp",
        "ip neigh add proxy 10.0.0.77 dev nic0",
        "ip neigh add 10.0.0.78 lladdr 02:00:00:00:00:78 nud noarp dev nic0",
        "ip maddr add 01:00:5e:00:00:55 dev nic0",
    ),
    "nic1": (
        "ip token set ::a1 dev nic1",
        "tc qdisc add dev nic1 clsact",
        "tc filter add dev nic1 ingress protocol ip prio 3 u32 match ip src 10.7.0.0/16 flowid 1:1",
        "tc filter add dev nic1 egress protocol ip prio 4 u32 match ip dst 10.7.0.0/16 flowid 1:1",
    ),
    "nic2": (
        "ip route add local 10.166.0.0/24 dev nic2",
        "bridge fdb add 02:00:00:00:00:aa dev nic2",
        "ip -6 neigh add proxy fd00:2::77 dev nic2",
    ),
}
"""What administrators and routing daemons put on NICs before these are given out, besides `configure_link`."""
CLASSES = {
    "nic2": (
        "tc qdisc add dev nic2 root handle 1: htb default 20",
        "tc class add dev nic2 parent 1: classid 1:1 htb rate 100mbit",
        "tc class add dev nic2 parent 1:1 classid 1:20 htb rate 60mbit ceil 90mbit",
        "tc filter add dev nic2 parent 1: protocol ip prio 5 u32 match ip dst 10.7.0.0/16 flowid 1:20",
    ),
}
"""The same for kernels that have HTB."""
NOT_SHARED = frozenset({"nic2"})
"""A shared NIC has the classes of its shares at its root, in the place of others."""
WAIT_SECONDS = 20.0
"""Only a failure takes so long; on a busy machine the kernel may take seconds to remove a namespace."""


class Node:
    """The interface of every kind of node."""

    namespace: Namespace
    route: NetlinkSocket
    nics: Sequence[str]
    hardware = False
    addresses: Mapping[str, str] = MappingProxyType({})
    """The PCI functions of NICs by name."""
    not_nics = frozenset({"lo", "eth0"})

    def __init__(self) -> None:
        self.known: dict[str, pictures.Picture] = {}
        """The expected state of NICs: as the last sequence left them after its checks."""

    @cached_property
    def kinds_of_children(self) -> tuple[str, ...]:
        return tuple(_possible_children(self.route, self.nics[0]))

    @cached_property
    def keeps_bandwidth(self) -> bool:
        """Whether the kernel has HTB."""
        with Namespace.create() as trial, NetlinkSocket(namespace_fd=trial.fd) as route:
            (error,) = route.batch([htb.create(1)])  # its own loopback
        return error is None

    def names(self) -> set[str]:
        return pictures.link_names(self.namespace.fd) - self.not_nics

    def tables(self) -> list[Any]:
        """The rules of the host, and groups of nexthops; routes belong to the pictures of NICs."""
        return pictures.node_tables(self.namespace.fd)

    def picture(self, nic: str) -> pictures.Picture:
        return pictures.take(self.namespace.fd, nic)

    def known_picture(self, nic: str) -> pictures.Picture:
        if nic not in self.known:
            comes_true(lambda: self._is_settled(nic))  # after a move the carrier may come late
            self.known[nic] = self.picture(nic)
        return self.known[nic]

    def where(self, nic: str, pod: Namespace | None) -> str:
        """`host`, `pod`, `gone` or `elsewhere`."""
        raise NotImplementedError

    def recreate_missing(self) -> list[str]:
        """Create destroyed NICs again; returns their names."""
        return []

    def unplug(self, nic: str) -> bool:
        """The NIC dies wherever it is; False where this node cannot do that."""
        return False

    def close(self) -> None:
        self.route.close()
        self.namespace.close()

    def _is_settled(self, name: str) -> bool:
        nic = links.get_link(self.route, name)
        return nic is not None and (not nic.is_up or nic.operstate == "up")


class VirtualNode(Node):
    """NICs are veth pairs; the other ends are in a namespace that no pod can reach."""

    nics = NICS

    def __init__(self) -> None:
        super().__init__()
        self.namespace, self.fabric = Namespace.create(), Namespace.create()
        self.route = NetlinkSocket(namespace_fd=self.namespace.fd)
        self._far = NetlinkSocket(namespace_fd=self.fabric.fd)
        self.route.request(links.change(1, up=True))
        self.route.request(virtual_links.create_veth("eth0", "eth0", peer_namespace_fd=self.fabric.fd))
        self.recreate_missing()

    def recreate_missing(self) -> list[str]:
        """Create destroyed NICs again; returns their names."""
        destroyed = [name for name in self.nics if links.get_link(self._far, name) is None]
        for name in destroyed:
            self._make(name)
            self.known.pop(name, None)
        return destroyed

    def _make(self, name: str) -> None:
        self.route.request(virtual_links.create_veth(name, name, peer_namespace_fd=self.fabric.fd))
        nic, peer = links.get_link(self.route, name), links.get_link(self._far, name)
        assert nic is not None and peer is not None
        self._far.request(links.change(peer.index, up=True))
        configure_link(self.namespace, self.route, name, self.nics.index(name))
        classes = CLASSES.get(name, ()) if self.keeps_bandwidth else ()
        for command in (*RARE_SETTINGS.get(name, ()), *classes):
            run_in(self.namespace, command)
        comes_true(lambda: self._is_settled(name))

    def where(self, nic: str, pod: Namespace | None) -> str:
        """`host`, `pod`, `gone` or `elsewhere`, by the other end of the veth, which a pod cannot change."""
        peer = links.get_link(self._far, nic)
        if peer is None or peer.parent_netnsid is None:
            return "gone"
        if peer.parent_netnsid == links.get_nsid(self._far, self.namespace.fd):
            return "host"
        if pod is not None and pod.fd >= 0 and peer.parent_netnsid == links.get_nsid(self._far, pod.fd):
            return "pod"
        return "elsewhere"

    def unplug(self, nic: str) -> bool:
        peer = links.get_link(self._far, nic)
        if peer is None:
            return False
        self._far.request(links.delete(peer.index))  # both ends of a veth go together
        return True

    def close(self) -> None:
        super().close()
        self._far.close()
        self.fabric.close()


def run_in(namespace: Namespace, command: str) -> None:
    inside = f"--net=/proc/{os.getpid()}/fd/{namespace.fd}"
    subprocess.run(["nsenter", inside, *command.split()], check=True, capture_output=True)


def _possible_children(route: NetlinkSocket, nic: str) -> Iterator[str]:
    """The kinds of child links that this kernel has."""
    parent = links.get_link(route, nic)
    assert parent is not None
    children = {
        "Macvlan": virtual_links.create_macvlan("probe", parent.index, "bridge"),
        "IPVLAN": virtual_links.create_ipvlan("probe", parent.index, "l2"),
    }
    for kind, message in children.items():
        try:
            route.request(message)
        except NetlinkError:
            continue  # this kernel has none
        probe = links.get_link(route, "probe")
        assert probe is not None
        route.request(links.delete(probe.index))
        yield kind


def configure_link(namespace: Namespace, route: NetlinkSocket, name: str, number: int) -> None:
    """Configure each NIC differently: some have defaults, others settings of an administrator."""
    nic = links.get_link(route, name)
    assert nic is not None
    messages: list[Message] = [links.add_altname(nic.index, f"rail{number}")]
    if number == 0:
        messages += [links.change(nic.index, mtu=1400, alias="first", txqlen=500)]
    if number == 1:
        messages += [
            links.change(nic.index, gso_max_segs=100, gso_max_size=30000, group=7),
            links.add_altname(nic.index, "a-second-alternative-name"),
            Message(36, 0x500, _pfifo(nic.index), "put a qdisc on a link"),
        ]
        sysctl.write_all(namespace.fd, {f"net/ipv4/conf/{name}/arp_ignore": "1"})
    route_messages = []
    if number != 3:  # the last one is down and bare
        cidrs = (f"10.{number}.0.1/24", f"fd00:{number}::1/64")
        found = [addresses.from_cidr(cidr, nic.index, flags=addresses.IFA_F_NODAD) for cidr in cidrs]
        messages += [addresses.add(address) for address in found]
        messages += [links.change(nic.index, up=True)]
        route_messages = [
            routes.add(routes.to(f"10.20{number}.0.0/16", index=nic.index, gateway=f"10.{number}.0.254")),
            neighbours.add(neighbours.permanent(nic.index, f"10.{number}.0.9", "02:00:00:00:00:09")),
        ]
    for message in (*messages, *route_messages):
        route.request(message)


def _pfifo(index: int) -> bytes:
    from dranet.linux.traffic import tc

    return tc.TCMSG.pack(0, index, 0, 0xFFFFFFFF, 0) + codec.text(1, "pfifo") + codec.u32(2, 33)


def comes_true(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    """Whether a condition becomes true in time: the kernel does some work in the background."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def same(before: pictures.Picture, take: Callable[[], pictures.Picture]) -> list[str]:
    """The differences that remain."""
    now = take()
    end = time.monotonic() + WAIT_SECONDS
    while now != before and time.monotonic() < end:
        time.sleep(0.01)
        now = take()
    return pictures.differences(before, now)


def folder_for(parent: Path) -> Path:
    for part in ("cdi", "netns", "mounts"):
        (parent / part).mkdir(parents=True, exist_ok=True)
    return parent
