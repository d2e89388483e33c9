"""A shape as NCCL's topology file, for ``NCCL_TOPO_FILE``.

NCCL walks sysfs upwards two steps at a time, because a switch is an upstream and a downstream port: the same walk over
a shape's paths gives the elements that NCCL would write. Functions of one PCI device become one element, as in NCCL. A
shape that was imported from such a file returns that file, without the devices that it no longer has.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dranet.core.errors import InvalidInput
from dranet.core.pci import PciAddress
from dranet.machines.importers.common import parse_cpu_list, parse_xml
from dranet.machines.shape import Gpu, GpuKind, Nic, Shape

_SPEEDS = {"Volta": "8.0 GT/s PCIe", "Ampere": "16.0 GT/s PCIe", "Ada": "16.0 GT/s PCIe"}
_SPEED, _WIDTH = "32.0 GT/s PCIe", "16"
"""PCIe generation 5, which all GPUs since Hopper have; NCCL rejects a file without link speeds."""
_SWITCH = {"vendor": "0x1000", "device": "0xc030", "class": "0x060400"}
_FUNCTION = slice(0, -1)
"""A PCI address without its function."""


def to_nccl_xml(shape: Shape, only: Collection[str] | None = None) -> str:
    """The file; with ``only`` for these PCI addresses."""
    wanted = {str(part.pci) for part in shape.parts}
    if only is not None and (missing := sorted(set(only) - wanted)):
        raise InvalidInput(f"shape {shape.name} has no {', '.join(missing)}")
    wanted &= set(only if only is not None else wanted)
    system = parse_xml(shape.nccl) if shape.nccl else _build(shape)
    _prune(system, {address[_FUNCTION] for address in wanted}, whole=only is None)
    indent(system)
    # NCCL's XML reader takes a space before the closing slash for another attribute.
    return tostring(system, encoding="unicode").replace(" />", "/>") + "\n"


def _prune(element: Element, wanted: Collection[str], *, whole: bool) -> bool:
    """Remove devices that are not wanted; True if something is left. Whole files keep what is neither GPU nor NIC."""
    for child in list(element):
        if child.tag in {"cpu", "pci"} and not _prune(child, wanted, whole=whole):
            element.remove(child)
    if element.tag != "pci":
        return element.tag == "system" or bool(len(element)) or whole
    is_leaf = not element.findall("pci")
    end_device = element.get("class", "").removeprefix("0x")[:2] in {"02", "03", "12"}
    if is_leaf and end_device:
        return element.get("busid", "")[_FUNCTION] in wanted
    return not is_leaf or whole


def _build(shape: Shape) -> Element:
    system = Element("system", version="1")
    cpus: dict[int, Element] = {}
    known = {numa.node: numa.cpus for numa in shape.numa}
    for part in shape.parts:
        node = -1 if part.numa is None else part.numa
        if node not in cpus:
            place = {"numaid": str(node), "affinity": _mask(known.get(node, ""))}
            cpus[node] = SubElement(system, "cpu", {**place, **_cpu(shape)})
        parent = cpus[node]
        for switch in _switches(part.path):
            parent = _child(parent, switch, {**_SWITCH, "link_speed": _speed(shape)})
        _device(shape, parent, part)
    system[:] = [cpus[node] for node in sorted(cpus)]
    return system


def _speed(shape: Shape) -> str:
    """By the GPUs: links of NICs and switches are as fast as those of the GPUs."""
    architectures = {str(kind.attributes.get("architecture", "")) for kind in shape.gpu_kinds.values()}
    return next((_SPEEDS[one] for one in sorted(architectures) if one in _SPEEDS), _SPEED)


def _cpu(shape: Shape) -> dict[str, str]:
    """NCCL tunes by the CPU. GPUs that share the CPU's address space mean ARM; otherwise x86 is assumed."""
    arm = any(shape.gpu_kind(gpu).attributes.get("addressingMode") == "ATS" for gpu in shape.gpus)
    if arm:
        return {"arch": "arm64", "vendor": "", "familyid": "0", "modelid": "0"}
    return {"arch": "x86_64", "vendor": "GenuineIntel", "familyid": "6", "modelid": "143"}


def _mask(cpus: str) -> str:
    bits = sum(1 << cpu for cpu in parse_cpu_list(cpus))
    words = [f"{bits >> 32 * i & 0xFFFFFFFF:08x}" for i in range(max(1, -(-bits.bit_length() // 32)))]
    return ",".join(reversed(words))


def _switches(path: str) -> list[str]:
    """Upstream ports from the root down: every second step above the function, as NCCL walks."""
    steps = [step for step in path.split("/") if PciAddress.find(step) is not None]
    return list(reversed(steps[-3::-2]))


def _child(parent: Element, busid: str, values: dict[str, str]) -> Element:
    for child in parent.findall("pci"):
        if child.get("busid") == busid:
            return child
    pci_class = values.pop("class")
    return SubElement(parent, "pci", {"busid": busid, "class": pci_class, **values, "link_width": _WIDTH})


def _device(shape: Shape, parent: Element, part: Gpu | Nic) -> None:
    kind = shape.gpu_kind(part) if isinstance(part, Gpu) else shape.nic_kind(part)
    values = {"class": f"0x{kind.pci_class}", "vendor": f"0x{kind.vendor_id}", "device": f"0x{kind.device_id}"}
    values["link_speed"] = _speed(shape)
    if isinstance(part, Gpu):
        _gpu(shape, _child(parent, str(part.pci), values), part)
    else:
        _net(shape, _child(parent, f"{str(part.pci)[_FUNCTION]}0", values), part)


def _gpu(shape: Shape, pci: Element, gpu: Gpu) -> None:
    kind, dev = shape.gpu_kind(gpu), str(shape.gpus.index(gpu))
    element = SubElement(pci, "gpu", {"dev": dev, **_generation(kind), "rank": dev, "gdr": "1"})
    links = kind.nvlinks if gpu.nvlinks is None else gpu.nvlinks
    tag, tclass = ("xgmi" if kind.fabric == "xgmi" else "nvlink"), f"0x{kind.pci_class}"
    peers = {link.to: link.count for link in gpu.links}
    if links and kind.fabric == "xgmi":  # a mesh: one link to every other GPU
        peers |= {str(other.pci): 1 for other in shape.gpus if other is not gpu}
    elif links:
        SubElement(element, "nvlink", target="fffffff:ffff:ff", count=str(links), tclass="0x068000")
    for target, count in peers.items():
        SubElement(element, tag, target=target, count=str(count), tclass=tclass)


def _generation(kind: GpuKind) -> dict[str, str]:
    """The GPU's generation as NCCL or RCCL writes it; they detect an unknown one themselves."""
    if kind.fabric == "xgmi":
        return {"sm": "304", "gcn": "gfx942", "arch": "38911"}
    version = kind.attributes.get("cudaComputeCapability")
    written = re.match(r"(\d+)\.(\d+)", str(version.get("version")) if isinstance(version, dict) else "")
    return {"sm": f"{written[1]}{written[2]}"} if written else {}


def _net(shape: Shape, pci: Element, nic: Nic) -> None:
    found = pci.find("nic")
    inner = SubElement(pci, "nic") if found is None else found
    speed = str(shape.nic_kind(nic).speed_gbit * 1000 or 10000)
    values = {"name": nic.rdma or nic.interface, "dev": str(shape.nics.index(nic)), "speed": speed, "port": "1"}
    SubElement(inner, "net", {**values, "guid": f"0x{nic.pci.bus:x}", "maxconn": "131072", "gdr": "1"})
