"""A DHCP lease: asked for on the host at prepare, renewed in the pod, where the address lives, given back at home.

For a child of a card it is asked for through the card, with the child's hardware address: the answer comes by
broadcast, and the child itself exists only in the pod.

Kept with the device it belongs to, so that a restarted driver goes on renewing where the old one stopped. It has no
steps of its own: what it gives are addresses and routes of the interface. Who renews it is `claims.leases`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import raise_first
from dranet.driver.parts.child import PART as CHILD
from dranet.driver.parts.interface import wanted_of
from dranet.driver.parts.netdev_identity import find_at_home, find_in_pod
from dranet.driver.records.kernel_rows import AddressRow, RouteRow
from dranet.driver.records.plan import DevicePlan, Found, Wanted
from dranet.kernel import addresses, links, routes
from dranet.kernel.dhcp import DhcpClient, DhcpError, Lease
from dranet.kernel.errors import KernelError
from dranet.kernel.links import Link

log = logging.getLogger(__name__)

RENEW_SECONDS = 10.0
SHORTEST_PAUSE = 1.0

Record = Mapping[str, Any]


def record(lease: Lease, boot: str) -> dict[str, Any]:
    """As it is kept on disk, with the moment it was granted.

    By the time since the machine was started, which nobody can set, and by the clock for whoever reads it after that.
    """
    return {"lease": msgspec.to_builtins(lease), "granted": time.time(), "boot": boot, "uptime": _uptime()}


def read(kept: Record, boot: str) -> tuple[Lease, float]:
    """The lease and its age in seconds. One that seems to come from the future is due now: the clock was set back."""
    lease = msgspec.convert(kept["lease"], Lease)
    age = _uptime() - kept["uptime"] if kept.get("boot") == boot else time.time() - kept["granted"]
    return lease, age if age >= 0 else lease.renew_after


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def obtain(host: Host, device: DevicePlan, patience: float) -> DevicePlan:
    """The device with what DHCP says; raises DhcpError where nobody answers. Raises the card."""
    wanted, child = wanted_of(device), CHILD.of(device)
    card = _at_home(host, device)
    if card is None:
        raise DhcpError(f"the card of {device.name} is not on this node")
    mac = (child.mac if child else wanted.mac) or card.mac
    changes = [links.change(card.index, up=False), links.change(card.index, mac=mac)]
    if child or mac == card.mac:
        changes = []
    raise_first(host.route.batch([*changes, links.change(card.index, up=True)]))
    with DhcpClient(card.name, mac, namespace_fd=host.namespace.fd) as client:
        lease = client.obtain(patience)
    log.info("%s: DHCP gave %s/%s for %s s", device.name, lease.address, lease.prefix, lease.lifetime)
    given = with_lease(wanted, lease)
    if child and given.mtu is not None and given.mtu > card.mtu:  # more than the kernel lets a child have
        given = msgspec.structs.replace(given, mtu=None)
    return msgspec.structs.replace(device, wanted=given, lease=record(lease, host.boot))


def _at_home(host: Host, device: DevicePlan) -> Link | None:
    """The card on the node that packets go through."""
    if CHILD.of(device):
        return CHILD.at_home(host, [device])[0]
    return find_at_home(host.route, [(_found(device), wanted_of(device))])[0]


def _in_pod(host: Host, pod: PodNamespace, device: DevicePlan) -> Link | None:
    if CHILD.of(device):
        return CHILD.in_pod(host, pod, [device])[0]
    return find_in_pod(pod, [(_found(device), device.wanted)])[0]


def _found(device: DevicePlan) -> Found:
    assert device.found is not None, f"{device.name} is neither moved nor a child"
    return device.found


def with_lease(wanted: Wanted, lease: Lease) -> Wanted:
    """The interface with the leased address, routes and, where the user said nothing, MTU."""
    said = {route.destination for route in wanted.routes}
    offered = [
        routes.to(destination, index=0, gateway=gateway or None, scope=0 if gateway else routes.SCOPE_LINK)
        for destination, gateway in lease.effective_routes
        if destination not in said
    ]
    own = addresses.from_cidr(f"{lease.address}/{lease.prefix}", 0)
    return msgspec.structs.replace(
        wanted,
        addresses=(*wanted.addresses, AddressRow.of(own)),
        routes=(*wanted.routes, *map(RouteRow.of, offered)),
        mtu=wanted.mtu if wanted.mtu is not None else lease.mtu,
    )


def without_lease(wanted: Wanted, lease: Lease) -> Wanted:
    """The interface without what the lease gave it; its MTU stays, which harms nobody."""
    given = set(lease.effective_routes)
    return msgspec.structs.replace(
        wanted,
        addresses=tuple(a for a in wanted.addresses if a.local != lease.address),
        routes=tuple(r for r in wanted.routes if (r.destination, r.gateway or "") not in given),
    )


def take_off(host: Host, device: DevicePlan, lease: Lease, netns: str) -> None:
    """Remove an address that is ours no longer from the pod, with the routes that came with it: somebody else may have
    it by now."""
    with PodNamespace.open(netns) as pod:
        card = _in_pod(host, pod, device)
        if card is None:
            return
        given = set(lease.effective_routes)
        leaving = [r for r in routes.list_routes(pod.route) if r.leaves_by(card.index)]
        gone = [routes.delete(r) for r in leaving if (r.destination, r.gateway or "") in given]
        own = [a for a in addresses.list_addresses(pod.route, card.index) if a.local == lease.address]
        pod.route.batch([*gone, *map(addresses.delete, own)])


def pause_before_renewal(lease: Lease, age: float) -> float:
    """Until half of what is left before the next milestone, as the standard says, but never in a tight loop."""
    if age < lease.renew_after:
        return max(lease.renew_after - age, SHORTEST_PAUSE)
    return max((lease.lifetime - age) / 2, SHORTEST_PAUSE)


def renew(host: Host, device: DevicePlan, lease: Lease, netns: str) -> Lease:
    """Ask the server again, from inside the pod."""
    with PodNamespace.open(netns) as pod:
        card = _in_pod(host, pod, device)
        if card is None:
            raise DhcpError(f"{device.name} is not in its pod any more")
        with DhcpClient(card.name, card.mac, namespace_fd=pod.namespace.fd) as client:
            return client.renew(lease, RENEW_SECONDS)


def release(host: Host, device: DevicePlan) -> None:
    """Tell the server that the address is free; nothing depends on it. A card that is down at home cannot."""
    card, child = _at_home(host, device) if device.lease else None, CHILD.of(device)
    if card is None or not card.is_up:
        return
    lease, _ = read(device.lease, host.boot)
    mac = (child.mac if child else None) or card.mac
    try:
        with DhcpClient(card.name, mac, namespace_fd=host.namespace.fd) as client:
            client.release(lease)
    except (KernelError, OSError) as error:
        log.info("the lease of %s could not be given back: %s", lease.address, error)
