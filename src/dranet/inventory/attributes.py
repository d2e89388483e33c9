"""From kernel records to published attributes, always within the API's limits.

One string that is too long makes the API server refuse the whole slice, so every text is cut here, lists between two
items, and where a device has more attributes than the API takes, the least useful ones are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from socket import AF_INET

import msgspec

from dranet.inventory.cards import Port
from dranet.inventory.pciids import PciNames
from dranet.kernel.addresses import Address
from dranet.kernel.hardware import PciFunction
from dranet.model import attributes as names
from dranet.model.device import AttributeValue, Device
from dranet.model.limits import ATTRIBUTES_PER_DEVICE, STRING_BYTES, device_problems

Attributes = dict[str, AttributeValue]

LEAST_USEFUL = (
    names.ALIAS,
    names.PCI_SUBSYSTEM,
    names.TCX_PROGRAM_NAMES,
    names.TC_FILTER_NAMES,
    names.ENCAPSULATION,
    names.NUMA_NODE,
    names.IPV6,
    names.IPV4,
)
"""What goes first where there is no room for everything (``numaNode`` is there twice)."""


class LinkDetails(msgspec.Struct, frozen=True, gc=False):
    """What is known about a link besides its own record; only addresses that others can reach."""

    addresses: list[Address] = []
    classifiers: list[str] = []
    programs: list[str] = []


class Outcome(msgspec.Struct):
    """Attributes that fit, and in words what had to go."""

    attributes: Attributes
    problems: list[str] = msgspec.field(default_factory=list)


NO_DETAILS = LinkDetails()


def link_attributes(port: Port, details: LinkDetails) -> Attributes:
    """What the link says about itself."""
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
    """What a link has several of; absent where it has none."""
    lists = {
        names.IPV4: sorted(address.cidr for address in details.addresses if address.family == AF_INET),
        names.IPV6: sorted(address.cidr for address in details.addresses if address.family != AF_INET),
        names.TC_FILTER_NAMES: sorted(set(details.classifiers)),
        names.TCX_PROGRAM_NAMES: sorted(set(details.programs)),
    }
    return {name: joined for name, items in lists.items() if items and (joined := join(items))}


def function_attributes(function: PciFunction, product: PciNames, *, with_link: bool) -> Attributes:
    """What the PCI function says about itself; some of it is told only together with a link."""
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
    """The NUMA node under both its names; a list under the standard one where ``nearest`` is given."""
    if node is None:
        return {}
    standard: AttributeValue = node if nearest is None else nearest.get(node, (node,))
    return {names.NUMA_NODE: node, names.STANDARD_NUMA_NODE: standard}


def rdma_attributes(rdma_device: str | None, *, rdma_only: bool) -> Attributes:
    """Whether there is RDMA, by which device, and whether there is nothing but RDMA."""
    if rdma_device is None:
        return {names.RDMA: False}
    return {names.RDMA: True, names.RDMA_DEVICE: text(rdma_device), names.IB_ONLY: rdma_only}


def with_cloud(own: Attributes, cloud: Mapping[str, AttributeValue], room: int = ATTRIBUTES_PER_DEVICE) -> Outcome:
    """Both together, cloud values winning, minus what the API would refuse; at most ``room`` of them."""
    outcome = Outcome(dict(own))
    for key in sorted(cloud):
        value = cloud[key]
        value = cut_list(value) if type(value) is str else value
        if refused := device_problems(Device(name="x", attributes={key: value})):
            outcome.problems.append(f"the cloud attribute {key} is left out: {refused[0].message}")
        else:
            outcome.attributes[key] = value
    return _within(room, outcome)


def _within(room: int, outcome: Outcome) -> Outcome:
    """Our least useful attributes go first, then the provider's last ones."""
    found = outcome.attributes
    if len(found) <= room:
        return outcome
    foreign = sorted((key for key in found if key not in _OWN), reverse=True)
    surplus = [*(key for key in LEAST_USEFUL if key in found), *foreign][: len(found) - room]
    for key in surplus:
        del found[key]
    outcome.problems.append(f"too many attributes, left out: {', '.join(surplus)}")
    return outcome


_OWN = frozenset(doc.name for doc in names.ATTRIBUTES)


def text(raw: str) -> str:
    """Clean text of at most 64 bytes; what is no UTF-8 becomes a question mark."""
    if len(raw) <= STRING_BYTES and raw.isascii():
        return raw
    return raw.encode("utf-8", "replace")[:STRING_BYTES].decode("utf-8", "ignore")


def join(items: Iterable[str]) -> str:
    """The items with commas between, as many whole ones as 64 bytes hold."""
    joined, size = [], -1
    for item in items:
        clean = item.encode("utf-8", "replace")
        size += len(clean) + 1
        if size > STRING_BYTES:
            break
        joined.append(clean.decode())
    return ",".join(joined)


def cut_list(value: str) -> str:
    """A text that may be a comma-joined list, within 64 bytes."""
    return (
        value
        if len(value.encode("utf-8", "surrogatepass")) <= STRING_BYTES or "," not in value
        else join(value.split(","))
    )


def is_global(address: str) -> bool:
    """Whether others can reach it: no loopback, link-local, multicast or unspecified address."""
    return not address.startswith(_NOT_GLOBAL) and address not in _UNUSABLE


_NOT_GLOBAL = ("fe8", "fe9", "fea", "feb", "ff", "169.254.", "127.", *(f"{n}." for n in range(224, 240)))
_UNUSABLE = frozenset({"::", "::1", "0.0.0.0", "255.255.255.255"})


def speed(megabits: int | None) -> str | None:
    """A link speed as a quantity in bits per second; sysfs counts in megabits and says -1 or 0 for unknown."""
    if megabits is None or megabits <= 0 or megabits >= 2**31:
        return None
    return f"{megabits // 1000}G" if megabits % 1000 == 0 else f"{megabits}M"


def rdma_rate(rate: str) -> int | None:
    """Megabits of an RDMA port's rate, written like ``400 Gb/sec (4X NDR)``."""
    number, _, unit = rate.partition(" ")
    try:
        return round(float(number) * 1000) if unit.startswith("Gb/sec") else None
    except ValueError:
        return None
