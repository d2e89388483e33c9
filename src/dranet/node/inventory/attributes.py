"""Turns kernel records into published attributes, within the limits of the API.

One string that is too long makes the API server reject the whole slice. So every text is cut here, lists between two
items, and a device with too many attributes loses the least useful ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from socket import AF_INET

import msgspec

from dranet.core import attributes as names
from dranet.core.device import AttributeValue, Device
from dranet.core.pciids import PciNames
from dranet.core.slices import ATTRIBUTES_PER_DEVICE, STRING_BYTES, device_problems
from dranet.linux.addresses import Address
from dranet.linux.hardware import NumaNode, PciFunction, cpu_package, numa_nodes
from dranet.linux.sysfs import Sysfs
from dranet.node.inventory.nics import Port

Attributes = dict[str, AttributeValue]

_MAX_NUMA_NODES = 16
"""A longer list would exceed the limit of values in one device."""

_LEAST_USEFUL = (
    names.ALIAS,
    names.PCI_SUBSYSTEM,
    names.TCX_PROGRAM_NAMES,
    names.TC_FILTER_NAMES,
    names.ENCAPSULATION,
    names.NUMA_NODE,
    names.IPV6,
    names.IPV4,
)
"""Dropped first, in this order, when a device has too many attributes. ``numaNode`` is published twice."""


class LinkDetails(msgspec.Struct, frozen=True, gc=False):
    """What other kernel tables say about a link; only global addresses."""

    addresses: list[Address] = []
    classifiers: list[str] = []
    programs: list[str] = []


class MergedAttributes(msgspec.Struct):
    """Attributes within the limits, and a message for each that was dropped."""

    attributes: Attributes
    problems: list[str] = msgspec.field(default_factory=list)


NO_DETAILS = LinkDetails()


def link_attributes(port: Port, details: LinkDetails) -> Attributes:
    """Attributes from the link's own record."""
    link = port.link
    found: Attributes = {
        names.IF_NAME: text(link.name),
        names.MAC: text(link.mac),
        names.MTU: link.mtu,
        names.ENCAPSULATION: text(link.encapsulation),
        names.ALIAS: text(link.alias),
        names.STATE: link.operstate,
        names.TYPE: text(link.kind),
        names.EBPF: bool(details.classifiers or details.programs),
        names.SRIOV: False,
        names.VIRTUAL: port.is_virtual,
    }
    return found | _lists(details) if details is not NO_DETAILS else found


def _lists(details: LinkDetails) -> Attributes:
    """Attributes with several values; absent where there are none."""
    lists = {
        names.IPV4: sorted(address.cidr for address in details.addresses if address.family == AF_INET),
        names.IPV6: sorted(address.cidr for address in details.addresses if address.family != AF_INET),
        names.TC_FILTER_NAMES: sorted(set(details.classifiers)),
        names.TCX_PROGRAM_NAMES: sorted(set(details.programs)),
    }
    return {name: joined for name, items in lists.items() if items and (joined := join(items))}


def function_attributes(function: PciFunction, product: PciNames, *, with_link: bool) -> Attributes:
    """Attributes from the PCI function; some are published only together with a link."""
    found: Attributes = {
        names.PCI_ADDRESS: function.address,
        names.PCI_BUS_ID: function.address,
        names.PCI_VENDOR: text(product.vendor),
        names.PCI_DEVICE: text(product.product),
    }
    if function.subsystem_device:
        found[names.PCI_SUBSYSTEM] = text(function.subsystem_device)
    if function.root is not None:
        found[names.PCIE_ROOT] = text(function.root)
    if function.physical_function is not None:
        found[names.IS_SRIOV_VF] = True
    if with_link:
        found[names.SRIOV] = function.sriov_total_vfs > 0
        if function.sriov_total_vfs > 0:
            found[names.SRIOV_VFS] = function.sriov_num_vfs
    return found


def numa_attributes(node: int | None, nearest: Mapping[int, tuple[int, ...]] | None) -> Attributes:
    """The NUMA node under both names; as a list under the standard one where ``nearest`` is given."""
    if node is None:
        return {}
    standard: AttributeValue = node if nearest is None else nearest.get(node, (node,))
    return {names.NUMA_NODE: node, names.STANDARD_NUMA_NODE: standard}


def nearest_numa_nodes(sysfs: Sysfs) -> Mapping[int, tuple[int, ...]]:
    """For each NUMA node: itself, then the nearest nodes of its socket in ascending order.

    Machines that split a socket into several nodes (sub-NUMA clustering) make an exact match too narrow: a GPU and a
    NIC may be on neighbouring nodes of one socket. A constraint on the list matches any of them.
    """
    nodes = numa_nodes(sysfs)
    sockets = {node.number: _socket(sysfs, node) for node in nodes}
    return {node.number: (node.number, *_nearest(node, nodes, sockets))[:_MAX_NUMA_NODES] for node in nodes}


def _nearest(node: NumaNode, nodes: list[NumaNode], sockets: Mapping[int, int | None]) -> list[int]:
    distances = dict(zip((n.number for n in nodes), node.distances, strict=False))
    others = {number: distance for number, distance in distances.items() if number != node.number}
    nearest = min(others.values(), default=0)
    return [
        n for n, distance in others.items() if distance == nearest and _same_socket(sockets[n], sockets[node.number])
    ]


def _same_socket(one: int | None, other: int | None) -> bool:
    """An unknown socket counts as the same one."""
    return one is None or other is None or one == other


def _socket(sysfs: Sysfs, node: NumaNode) -> int | None:
    return cpu_package(sysfs, node.cpus[0]) if node.cpus else None


def rdma_attributes(rdma_device: str | None, *, rdma_only: bool) -> Attributes:
    """Whether there is RDMA, by which device, and whether there is no netdev."""
    if rdma_device is None:
        return {names.RDMA: False}
    return {names.RDMA: True, names.RDMA_DEVICE: text(rdma_device), names.IB_ONLY: rdma_only}


def with_cloud(
    own: Attributes, cloud: Mapping[str, AttributeValue], limit: int = ATTRIBUTES_PER_DEVICE
) -> MergedAttributes:
    """Both together without what the API would reject, at most ``limit``; the cloud's value of an attribute wins."""
    merged = MergedAttributes(dict(own))
    for key in sorted(cloud):
        value = cloud[key]
        value = _cut_list(value) if type(value) is str else value
        if rejected := device_problems(Device(name="x", attributes={key: value})):
            merged.problems.append(f"dropped the cloud attribute {key}: {rejected[0].message}")
        else:
            merged.attributes[key] = value
    return _within(limit, merged)


def _within(limit: int, merged: MergedAttributes) -> MergedAttributes:
    """Drops our least useful attributes first, then the provider's last ones by name."""
    found = merged.attributes
    if len(found) <= limit:
        return merged
    foreign = sorted((key for key in found if key not in _OWN), reverse=True)
    surplus = [*(key for key in _LEAST_USEFUL if key in found), *foreign][: len(found) - limit]
    for key in surplus:
        del found[key]
    merged.problems.append(f"too many attributes, dropped: {', '.join(surplus)}")
    return merged


_OWN = frozenset(doc.name for doc in names.ATTRIBUTES)


def text(raw: str) -> str:
    """Valid UTF-8 of at most 64 bytes; invalid characters become question marks."""
    if len(raw) <= STRING_BYTES and raw.isascii():
        return raw
    return raw.encode("utf-8", "replace")[:STRING_BYTES].decode("utf-8", "ignore")


def join(items: Iterable[str]) -> str:
    """As many whole items as fit into 64 bytes, comma-separated."""
    joined, size = [], -1
    for item in items:
        clean = item.encode("utf-8", "replace")
        size += len(clean) + 1
        if size > STRING_BYTES:
            break
        joined.append(clean.decode())
    return ",".join(joined)


def _cut_list(value: str) -> str:
    """A text, possibly a comma-separated list, within 64 bytes."""
    return (
        value
        if len(value.encode("utf-8", "surrogatepass")) <= STRING_BYTES or "," not in value
        else join(value.split(","))
    )


def is_global(address: str) -> bool:
    """Whether it is not a loopback, link-local, multicast or unspecified address."""
    return not address.startswith(_NOT_GLOBAL) and address not in _UNUSABLE


_NOT_GLOBAL = ("fe8", "fe9", "fea", "feb", "ff", "169.254.", "127.", *(f"{n}." for n in range(224, 240)))
_UNUSABLE = frozenset({"::", "::1", "0.0.0.0", "255.255.255.255"})


def speed(megabits: int | None) -> str | None:
    """A link speed as a quantity in bits per second; sysfs has megabits, and -1 or 0 for unknown."""
    if megabits is None or megabits <= 0 or megabits >= 2**31:
        return None
    return f"{megabits // 1000}G" if megabits % 1000 == 0 else f"{megabits}M"


def rdma_rate(rate: str) -> int | None:
    """Megabits of an RDMA port's rate, such as ``400 Gb/sec (4X NDR)``."""
    number, _, unit = rate.partition(" ")
    try:
        return round(float(number) * 1000) if unit.startswith("Gb/sec") else None
    except ValueError:
        return None
