"""A shape as the files that the kernel would show below ``/sys``: the discovery reads them instead of a real machine.

Only what discovery and RDMA setup read is written. The tree is a mapping from path to content or symlink target, so
that tests can compare it; `dranet.testing.sysfs_tree` writes it to a disk.
"""

from __future__ import annotations

import ipaddress
import posixpath

import msgspec

from dranet.core.pci import PciAddress
from dranet.machines.shape import Gpu, Nic, Shape
from dranet.machines.shape_devices import node_addresses, node_mac

UVERBS_MAJOR = 231
UMAD_BASE_MINOR = 0
UVERBS_BASE_MINOR = 192
_ARP_TYPES = {"ether": 1, "infiniband": 32}


class SysfsTree(msgspec.Struct, frozen=True):
    """Relative paths with file content, and relative paths with the relative target of a symlink."""

    files: dict[str, str] = msgspec.field(default_factory=dict)
    symlinks: dict[str, str] = msgspec.field(default_factory=dict)

    def write(self, path: str, value: object) -> None:
        """One attribute file; the kernel ends them with a newline."""
        self.files[path] = f"{value}\n"

    def link(self, path: str, target: str) -> None:
        """A symlink to another path of the tree, stored relative as the kernel does."""
        self.symlinks[path] = posixpath.relpath(target, posixpath.dirname(path))


def sysfs_tree(shape: Shape, index: int = 0) -> SysfsTree:
    """The ``/sys`` of the ``index``-th node of this shape."""
    tree = SysfsTree()
    _numa_nodes(tree, shape)
    for gpu in shape.gpus:
        _pci_function(tree, shape, gpu)
    for number, nic in enumerate(shape.nics):
        _pci_function(tree, shape, nic)
        if nic.interface:
            _netdev(tree, shape, nic, number, index)
        if nic.rdma:
            _rdma_device(tree, shape, nic, number, index)
    if any(nic.rdma for nic in shape.nics):
        tree.write("class/misc/rdma_cm/dev", "10:121")
    return tree


def _numa_nodes(tree: SysfsTree, shape: Shape) -> None:
    nodes = sorted(shape.numa, key=lambda n: n.node)
    for numa in nodes:
        base = f"devices/system/node/node{numa.node}"
        tree.write(f"{base}/cpulist", numa.cpus)
        tree.write(f"{base}/distance", " ".join("10" if other is numa else "21" for other in nodes))
        for cpu in _first_cpus(numa.cpus):
            tree.write(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", numa.node)
    if nodes:
        tree.write("devices/system/node/online", ",".join(str(n.node) for n in nodes))


def _first_cpus(cpulist: str) -> list[str]:
    return [part.partition("-")[0] for part in cpulist.split(",") if part]


def _pci_function(tree: SysfsTree, shape: Shape, part: Gpu | Nic) -> None:
    kind = shape.gpu_kind(part) if isinstance(part, Gpu) else shape.nic_kind(part)
    base = f"devices/{part.path}"
    subsystem = getattr(kind, "subsystem_id", "") or "0000"
    sub_vendor = getattr(kind, "subsystem_vendor_id", "") or kind.vendor_id
    numbers = {"vendor": kind.vendor_id, "device": kind.device_id, "class": kind.pci_class}
    for name, value in (numbers | {"subsystem_vendor": sub_vendor, "subsystem_device": subsystem}).items():
        tree.write(f"{base}/{name}", f"0x{value}")
    tree.write(f"{base}/modalias", _modalias(kind.vendor_id, kind.device_id, sub_vendor, subsystem, kind.pci_class))
    tree.write(f"{base}/numa_node", -1 if part.numa is None else part.numa)
    tree.write(f"{base}/local_cpulist", next((n.cpus for n in shape.numa if n.node == part.numa), ""))
    tree.write(f"{base}/uevent", f"DRIVER={kind.kernel_driver}\nPCI_SLOT_NAME={part.pci}")
    tree.link(f"{base}/driver", f"bus/pci/drivers/{kind.kernel_driver}")
    tree.link(f"{base}/subsystem", "bus/pci")
    tree.link(f"bus/pci/devices/{part.pci}", base)
    tree.link(f"bus/pci/drivers/{kind.kernel_driver}/{part.pci}", base)
    _bridges(tree, part.path, part.numa)


def _bridges(tree: SysfsTree, path: str, numa: int | None) -> None:
    """Every PCI address in the path is a bridge, which the bus lists as a device."""
    steps = path.split("/")
    for depth, step in enumerate(steps[:-1]):
        if PciAddress.find(step) is not None:
            base = "devices/" + "/".join(steps[: depth + 1])
            ids = {"vendor": "0x1000", "device": "0xc030", "class": "0x060400"}
            for name, value in ids.items():
                tree.write(f"{base}/{name}", value)
            tree.write(f"{base}/modalias", _modalias("1000", "c030", "0000", "0000", "060400"))
            tree.write(f"{base}/numa_node", -1 if numa is None else numa)
            tree.link(f"{base}/driver", "bus/pci/drivers/pcieport")
            tree.link(f"bus/pci/devices/{step}", base)
            tree.link(f"bus/pci/drivers/pcieport/{step}", base)


def _modalias(vendor: str, device: str, sub_vendor: str, subsystem: str, pci_class: str) -> str:
    v, d, sv, sd = (number.upper().zfill(8) for number in (vendor, device, sub_vendor, subsystem))
    base, sub, interface = (pci_class[i : i + 2].upper() for i in (0, 2, 4))
    return f"pci:v{v}d{d}sv{sv}sd{sd}bc{base}sc{sub}i{interface}"


def _netdev(tree: SysfsTree, shape: Shape, nic: Nic, number: int, index: int) -> None:
    kind = shape.nic_kind(nic)
    base = f"devices/{nic.path}/net/{nic.interface}"
    mac = node_mac(nic.mac, index) or "00:00:00:00:00:00"
    facts = {
        "address": mac,
        "mtu": kind.mtu,
        "type": _ARP_TYPES.get(kind.link_layer, 1),
        "operstate": "up",
        "carrier": 1,
        "flags": "0x1003",
        "ifindex": number + 4,
        "iflink": number + 4,
        "dev_id": "0x0",
        "dev_port": 0,
        "ifalias": "",
        "addr_len": len(mac.split(":")),
        "tx_queue_len": 1000,
        "speed": kind.speed_gbit * 1000 or -1,
    }
    for name, value in facts.items():
        tree.write(f"{base}/{name}", value)
    tree.link(f"{base}/device", f"devices/{nic.path}")
    tree.link(f"class/net/{nic.interface}", base)


def _rdma_device(tree: SysfsTree, shape: Shape, nic: Nic, number: int, index: int) -> None:
    kind = shape.nic_kind(nic)
    function = f"devices/{nic.path}"
    base = f"{function}/infiniband/{nic.rdma}"
    is_roce = kind.link_layer != "infiniband"
    guid = f"{number:04x}:{index:04x}:0300:{nic.pci.bus:04x}"
    tree.write(f"{base}/node_guid", guid)
    tree.write(f"{base}/node_type", "1: CA")
    tree.write(f"{base}/fw_ver", "28.39.1002")
    tree.write(f"{base}/ports/1/state", "4: ACTIVE")
    tree.write(f"{base}/ports/1/phys_state", "5: LinkUp")
    tree.write(f"{base}/ports/1/link_layer", "Ethernet" if is_roce else "InfiniBand")
    tree.write(f"{base}/ports/1/rate", f"{kind.speed_gbit} Gb/sec (4X NDR)")
    own = [ipaddress.ip_interface(cidr).ip for cidr in (node_addresses(nic, index) if is_roce else ())]
    for slot, gid in enumerate(["fe80:0000:0000:0000:" + guid, *map(_gid, own)]):
        tree.write(f"{base}/ports/1/gids/{slot}", gid)
        if nic.interface:
            tree.write(f"{base}/ports/1/gid_attrs/ndevs/{slot}", nic.interface)
            tree.write(f"{base}/ports/1/gid_attrs/types/{slot}", "RoCE v2")
    tree.link(f"{base}/device", function)
    tree.link(f"class/infiniband/{nic.rdma}", base)
    for kernel_class, name, minor in (
        ("infiniband_verbs", f"uverbs{number}", UVERBS_BASE_MINOR + number),
        ("infiniband_mad", f"umad{number}", UMAD_BASE_MINOR + number),
    ):
        node = f"{function}/{kernel_class}/{name}"
        tree.write(f"{node}/dev", f"{UVERBS_MAJOR}:{minor}")
        tree.write(f"{node}/ibdev", nic.rdma)
        tree.link(f"{node}/device", function)
        tree.link(f"class/{kernel_class}/{name}", node)


def _gid(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return (ip if ip.version == 6 else ipaddress.IPv6Address(f"::ffff:{ip}")).exploded
