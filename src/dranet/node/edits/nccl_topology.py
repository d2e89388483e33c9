"""NCCL's topology file for a pod: exactly its GPUs and NICs, with the PCIe tree that the node's sysfs shows.

It has only positions: `cpu`, `pci`, and the name of the `net` of each NIC. NCCL adds GPUs, NVLinks and all figures. It
keeps a net where the file places it, and otherwise searches a sysfs that a pod or a virtual machine may hide. Every
value is read and none is guessed, so on a machine that hides nothing the file equals what NCCL finds by itself. The
steps are NCCL's own: from a function two ports upwards to the switch, and so on to the root, where the CPU is.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dranet.core.pci import PciAddress
from dranet.linux.hardware import PciFunction, pci_function
from dranet.linux.pci import best_link
from dranet.linux.sysfs import Sysfs

_UNKNOWN_NODE = -1
_NETWORK_CLASS = "02"


def topology_file(sysfs: Sysfs, nets: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """The file for the functions at these PCI addresses, and those that sysfs does not show.

    The value of a NIC is NCCL's name for it in the pod, its RDMA device or else its interface; of a GPU it is empty.
    """
    system = Element("system", version="1")
    missing: list[str] = []
    for address, net in sorted(nets.items()):
        function = pci_function(sysfs, address)
        if function is None:
            missing.append(address)
        else:
            _add(sysfs, system, function, net)
    system[:] = sorted(system, key=lambda cpu: int(cpu.get("numaid", "0")))
    indent(system)
    # NCCL's parser takes a space before the closing slash for another attribute.
    return tostring(system).replace(b" />", b"/>") + b"\n", missing


def _add(sysfs: Sysfs, system: Element, function: PciFunction, net: str) -> None:
    steps = [step for step in function.path.split("/") if PciAddress.find(step)]
    parent = _cpu(sysfs, system, function.numa_node)
    for step in reversed(steps[-3::-2]):
        if (switch := pci_function(sysfs, step)) is not None:
            parent = _pci(sysfs, parent, switch, switch.address)
    own = _pci(sysfs, parent, function, _nccl_address(function))
    if net:
        nic = own.find("nic")
        SubElement(SubElement(own, "nic") if nic is None else nic, "net", name=net)


def _nccl_address(function: PciFunction) -> str:
    """The address under which NCCL searches: the first function of a NIC, or of the physical NIC of a virtual one."""
    if not function.class_code.startswith(_NETWORK_CLASS):
        return function.address
    device = function.address.rpartition(".")[0]
    return f"{device[:-2]}00.0" if function.physical_function else f"{device}.0"


def _cpu(sysfs: Sysfs, system: Element, node: int | None) -> Element:
    number = _UNKNOWN_NODE if node is None else node
    for cpu in system:
        if cpu.get("numaid") == str(number):
            return cpu
    mask = sysfs.read("devices/system/node", f"node{number}", "cpumap")
    return SubElement(system, "cpu", {"numaid": str(number), **({"affinity": mask} if mask else {})})


def _pci(sysfs: Sysfs, parent: Element, function: PciFunction, address: str) -> Element:
    for child in parent:
        if child.get("busid") == address:
            return child
    link = best_link(sysfs, function.path)
    values = {
        "busid": address,
        "class": f"0x{function.class_code}",
        "vendor": f"0x{function.vendor}",
        "device": f"0x{function.device}",
        # NCCL refuses an element without these two; it takes a width of 0 as 16 lanes.
        "link_speed": f"{link.speed:.1f} GT/s PCIe" if link else sysfs.read(function.path, "max_link_speed") or "",
        "link_width": str(link.width if link else 0),
    }
    return SubElement(parent, "pci", values)
