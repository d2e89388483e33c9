"""All published attributes and capacities: one table for code, docs and lint.

Attributes of a cloud are in the module of that cloud (`dranet.node.inventory.cloud`). The names are a public contract
(claims, dashboards and constraints of other drivers use them), so they are those of the reference driver.
`docs/reference/attributes.md` is generated from this table.
"""

from __future__ import annotations

import msgspec

STANDARD_DOMAIN = "resource.kubernetes.io"


class AttributeDoc(msgspec.Struct, frozen=True):
    """One attribute: its name, API kind, meaning, and when it is absent."""

    name: str
    kind: str
    meaning: str
    absent: str = "never"
    ours: bool = False
    """True if the reference driver has no such attribute."""


_DOCS: list[AttributeDoc] = []


def _attribute(name: str, kind: str, meaning: str, absent: str = "never", *, ours: bool = False) -> str:
    _DOCS.append(AttributeDoc(name, kind, meaning, absent, ours))
    return name


_NO_NETDEV = "the device has no interface in the host network namespace"

IF_NAME = _attribute("dra.net/ifName", "string", "interface name in the host network namespace", _NO_NETDEV)
MAC = _attribute("dra.net/mac", "string", "hardware address, lower case with colons", _NO_NETDEV)
MTU = _attribute("dra.net/mtu", "int", "MTU of the link", _NO_NETDEV)
ENCAPSULATION = _attribute("dra.net/encapsulation", "string", "link layer: ether, infiniband, ...", _NO_NETDEV)
ALIAS = _attribute("dra.net/alias", "string", "the link's alias; may be empty", _NO_NETDEV)
STATE = _attribute("dra.net/state", "string", "operational state: up, down, lower-layer-down, ...", _NO_NETDEV)
TYPE = _attribute("dra.net/type", "string", "device for hardware, else the kernel's kind: veth, dummy, ...", _NO_NETDEV)
IPV4 = _attribute(
    "dra.net/ipv4", "string", "global IPv4 addresses, sorted, comma-joined, cut to 64 bytes", "there are none"
)
IPV6 = _attribute(
    "dra.net/ipv6", "string", "global IPv6 addresses, sorted, comma-joined, cut to 64 bytes", "there are none"
)
TC_FILTER_NAMES = _attribute(
    "dra.net/tcFilterNames", "string", "BPF classifiers on clsact, comma-joined, cut to 64 bytes", "there are none"
)
TCX_PROGRAM_NAMES = _attribute(
    "dra.net/tcxProgramNames", "string", "TCX programs, comma-joined, cut to 64 bytes", "there are none"
)
EBPF = _attribute("dra.net/ebpf", "bool", "a tc or TCX program is attached", _NO_NETDEV)
SRIOV = _attribute("dra.net/sriov", "bool", "the NIC can create virtual functions", _NO_NETDEV)
SRIOV_VFS = _attribute("dra.net/sriovVfs", "int", "virtual functions that exist now", "sriov is false")
IS_SRIOV_VF = _attribute("dra.net/isSriovVf", "bool", "the device is a virtual function", "it is not")
SRIOV_PF = _attribute(
    "dra.net/sriovPf",
    "string",
    "PCI address of the physical function of a virtual one (ours)",
    "`--sriov-vfs` does not publish it",
)
VIRTUAL = _attribute("dra.net/virtual", "bool", "the link is not backed by hardware", _NO_NETDEV)
RDMA = _attribute("dra.net/rdma", "bool", "an RDMA device belongs to it")
RDMA_DEVICE = _attribute("dra.net/rdmaDevice", "string", "name of that RDMA device, such as mlx5_0", "rdma is false")
IB_ONLY = _attribute(
    "dra.net/ibOnly", "bool", "an RDMA device without an interface in any network namespace", "rdma is false", ours=True
)
RAIL = _attribute(
    "dra.net/rail",
    "string",
    "the rail: devices with equal values reach each other, others may not (docs/concepts/rails.md)",
    "the network connects all devices, or the rail is unknown",
    ours=True,
)
PCI_ADDRESS = _attribute("dra.net/pciAddress", "string", "PCI address dddd:bb:dd.f", "not a PCI device")
PCI_VENDOR = _attribute("dra.net/pciVendor", "string", "vendor name from the PCI ID list", "not a PCI device")
PCI_DEVICE = _attribute("dra.net/pciDevice", "string", "product name from the PCI ID list", "not a PCI device")
PCI_SUBSYSTEM = _attribute("dra.net/pciSubsystem", "string", "subsystem device ID, four hex digits", "not a PCI device")
NUMA_NODE = _attribute("dra.net/numaNode", "int", "NUMA node (older name)", "the firmware does not report it")
STANDARD_NUMA_NODE = _attribute(
    "resource.kubernetes.io/numaNode",
    "int",
    "NUMA node; with the gate DRAListTypeAttributes a list, nearest nodes of the same socket after the first",
    "the firmware does not report it",
)
PCIE_ROOT = _attribute(
    "resource.kubernetes.io/pcieRoot",
    "string",
    "PCIe root complex, such as pci0000:10; what GPU and NIC constraints match on",
    "not a PCI device, or the machine hides its PCIe tree (Hyper-V)",
)
PCI_BUS_ID = _attribute(
    "resource.kubernetes.io/pciBusID", "string", "PCI address under the standard name", "not a PCI device", ours=True
)

LINK_SPEED = "dra.net/linkSpeed"
"""Capacity: link speed in bits per second."""

BANDWIDTH = "dra.net/bandwidth"
"""Capacity of a shared device that claims get shares of, in bits per second."""

CAPACITIES = (
    AttributeDoc(LINK_SPEED, "quantity", "link speed in bits per second", "the link does not report one", ours=True),
    AttributeDoc(
        BANDWIDTH, "quantity", "bandwidth for shares, in bits per second", "the device is not shared", ours=True
    ),
)

ATTRIBUTES: tuple[AttributeDoc, ...] = tuple(_DOCS)

DEFAULT_FILTER = '!("dra.net/type" in attributes) || attributes["dra.net/type"].StringValue  != "veth"'
"""The default of `--filter`, identical to the reference driver's: everything except veth pairs."""
