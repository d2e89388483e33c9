"""A DHCP lease: obtained on the host at prepare, renewed in the pod, released on the host.

For a child link it is requested through the parent, with the child's MAC: the answer is a broadcast, and the child
exists only in the pod. A lease is stored with its device, so that a restarted driver goes on renewing it. It is not a
feature with steps: it adds addresses and routes to the interface. `claims.leases` renews it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from dranet.core.errors import KernelError
from dranet.core.logs import get_logger
from dranet.linux import addresses, links, routes
from dranet.linux.dhcp import DhcpClient, DhcpError, Lease
from dranet.linux.links import Link
from dranet.node.features.base import raise_first
from dranet.node.features.child import FEATURE as CHILD
from dranet.node.features.child import ChildFeature
from dranet.node.features.interface import pod_config_of
from dranet.node.features.netdev import FEATURE as NETDEV
from dranet.node.features.netdev import NetdevFeature
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.kernel_rows import AddressRow, RouteRow
from dranet.node.records.plan import DevicePlan, PodConfig

log = get_logger(__name__)

_RENEW_SECONDS = 10.0
SHORTEST_PAUSE = 1.0


def record(lease: Lease, boot: str) -> dict[str, Any]:
    """The lease as it is stored, with the time it was granted.

    In uptime, which does not jump, and in wall-clock time for a driver that reads it after a reboot.
    """
    return {"lease": msgspec.to_builtins(lease), "granted": time.time(), "boot": boot, "uptime": _uptime()}


def read(stored: Mapping[str, Any], boot: str) -> tuple[Lease, float]:
    """The lease and its age in seconds. A negative age means that the clock was set back: the lease is due now."""
    lease = msgspec.convert(stored["lease"], Lease)
    age = _uptime() - stored["uptime"] if stored.get("boot") == boot else time.time() - stored["granted"]
    return lease, age if age >= 0 else lease.renew_after


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def obtain(host: Host, device: DevicePlan, patience: float) -> DevicePlan:
    """The device with the addresses from DHCP; raises DhcpError without an answer. Brings the link up."""
    config, child = pod_config_of(device), CHILD.record_of(device)
    link = _find_on_host(host, device)
    if link is None:
        raise DhcpError(f"the link of {device.name} is not on this node")
    mac = (child.mac if child else config.mac) or link.mac
    changes = [links.change(link.index, up=False), links.change(link.index, mac=mac)]
    if child or mac == link.mac:
        changes = []
    raise_first(host.route.batch([*changes, links.change(link.index, up=True)]))
    with DhcpClient(link.name, mac, namespace_fd=host.namespace.fd) as client:
        lease = client.obtain(patience)
    address = f"{lease.address}/{lease.prefix}"
    log.info("Obtained DHCP lease", device=device.name, address=address, lifetime_s=lease.lifetime)
    leased = with_lease(config, lease)
    if child and leased.mtu is not None and leased.mtu > link.mtu:  # the kernel refuses a child MTU above the parent's
        leased = msgspec.structs.replace(leased, mtu=None)
    return msgspec.structs.replace(device, pod_config=leased, lease=record(lease, host.boot))


def _find_on_host(host: Host, device: DevicePlan) -> Link | None:
    """The link on the host that DHCP packets go through: the device itself, or the parent of a child."""
    return _provider(device).find_on_host(host, [device])[0]


def _find_in_pod(host: Host, pod: PodNamespace, device: DevicePlan) -> Link | None:
    return _provider(device).find_in_pod(host, pod, [device])[0]


def _provider(device: DevicePlan) -> ChildFeature | NetdevFeature:
    return CHILD if CHILD.record_of(device) else NETDEV


def with_lease(config: PodConfig, lease: Lease) -> PodConfig:
    """The interface with the leased address, routes and, if the claim sets none, MTU."""
    configured = {route.destination for route in config.routes}
    offered = [
        routes.to(destination, index=0, gateway=gateway or None, scope=0 if gateway else routes.SCOPE_LINK)
        for destination, gateway in lease.effective_routes
        if destination not in configured
    ]
    own = addresses.from_cidr(f"{lease.address}/{lease.prefix}", 0)
    return msgspec.structs.replace(
        config,
        addresses=(*config.addresses, AddressRow.of(own)),
        routes=(*config.routes, *map(RouteRow.of, offered)),
        mtu=config.mtu if config.mtu is not None else lease.mtu,
    )


def without_lease(config: PodConfig, lease: Lease) -> PodConfig:
    """The interface without the address and routes of the lease; the MTU stays."""
    leased = set(lease.effective_routes)
    return msgspec.structs.replace(
        config,
        addresses=tuple(a for a in config.addresses if a.local != lease.address),
        routes=tuple(r for r in config.routes if (r.destination, r.gateway or "") not in leased),
    )


def remove_address(host: Host, device: DevicePlan, lease: Lease, netns: str) -> None:
    """Remove an expired address and its routes from the pod: the server may have given it to another host."""
    with PodNamespace.open(netns) as pod:
        link = _find_in_pod(host, pod, device)
        if link is None:
            return
        leased = set(lease.effective_routes)
        leaving = [r for r in routes.list_routes(pod.route) if r.leaves_by(link.index)]
        gone = [routes.delete(r) for r in leaving if (r.destination, r.gateway or "") in leased]
        own = [a for a in addresses.list_addresses(pod.route, link.index) if a.local == lease.address]
        pod.route.batch([*gone, *map(addresses.delete, own)])


def pause_before_renewal(lease: Lease, age: float) -> float:
    """Seconds until the next renewal, as RFC 2131 says, with a minimum.

    From T1 on half of the time to T2, when any server may be asked; from then on half of the remaining time.
    """
    if age < lease.renew_after:
        return max(lease.renew_after - age, SHORTEST_PAUSE)
    end = lease.rebind_after if age < lease.rebind_after else lease.lifetime
    return max((end - age) / 2, SHORTEST_PAUSE)


def renew(
    host: Host, device: DevicePlan, stored: Mapping[str, Any], netns: str, patience: float = _RENEW_SECONDS
) -> Lease:
    """Renew a lease from inside the pod: from its own server, or from any server after T2."""
    lease, age = read(stored, host.boot)
    with PodNamespace.open(netns) as pod:
        link = _find_in_pod(host, pod, device)
        if link is None:
            raise DhcpError(f"{device.name} is no longer in its pod")
        with DhcpClient(link.name, link.mac, namespace_fd=pod.namespace.fd) as client:
            ask = client.renew if age < lease.rebind_after else client.rebind
            return ask(lease, patience)


def release(host: Host, device: DevicePlan) -> None:
    """Tell the server that the address is free, if the link is up; nothing depends on it."""
    link, child = _find_on_host(host, device) if device.lease else None, CHILD.record_of(device)
    if link is None or not link.is_up:
        return
    lease, _ = read(device.lease, host.boot)
    mac = (child.mac if child else None) or link.mac
    try:
        with DhcpClient(link.name, mac, namespace_fd=host.namespace.fd) as client:
            client.release(lease)
    except (KernelError, OSError) as error:
        log.info("Cannot release DHCP lease", device=device.name, address=lease.address, error=error)
