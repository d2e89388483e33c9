"""A shape from hwloc's export (``lstopo machine.xml``): the whole PCI tree with NUMA nodes and names.

A host bridge is below the smallest object that is near it. If that object has several NUMA nodes (AWS p3dn attaches
everything to the machine), the NUMA node is unknown. Link speeds are not used: those of a guest are not real. hwloc
numbers the types of OS devices differently up to version 2 and from version 3 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

import msgspec

from dranet.core.errors import InvalidInput
from dranet.core.pci import PciAddress
from dranet.machines.importers.common import PciIdentity, format_cpu_list, gpu_kind, nic_kind, parse_cpu_mask, rdma_name
from dranet.machines.machine import natural_sort_key
from dranet.machines.shape import Gpu, GpuKind, Nic, NicKind, Numa, Shape

_NETWORK, _RDMA = {"2", "Network"}, {"3", "OpenFabrics"}
_NETWORK_3, _RDMA_3 = {"8", "Network"}, {"16", "OpenFabrics"}
_TYPE = re.compile(r"(H) \[(H):(H)\](?: \[(H):(H)\])?.*".replace("H", "[0-9a-fA-F]{4}"))
"""Class, vendor, device and the subsystem's: ``0302 [10de:2335] [10de:18be] a1``."""


class _Found(msgspec.Struct):
    network: set[str]
    rdma: set[str]
    numa: list[Numa] = msgspec.field(default_factory=list)
    gpus: list[Gpu] = msgspec.field(default_factory=list)
    gpu_kinds: dict[str, GpuKind] = msgspec.field(default_factory=dict)
    nics: list[Nic] = msgspec.field(default_factory=list)
    nic_kinds: dict[str, NicKind] = msgspec.field(default_factory=dict)


def shape_of_hwloc(root: Element, name: str, *, nvlinks: int = 0, nvlink_gbytes: float = 0) -> Shape:
    """The machine of a ``<topology>``. The caller passes the NVLinks, which hwloc does not have."""
    if root.tag != "topology":
        raise InvalidInput(f"the root element is <{root.tag}>; an hwloc export has <topology>")
    third = root.get("version", "").startswith("3")
    found = _Found(_NETWORK_3 if third else _NETWORK, _RDMA_3 if third else _RDMA)
    found.numa = [_numa(node) for node in root.iter("object") if node.get("type") == "NUMANode"]
    links = {"nvlinks": nvlinks, "nvlink_gbytes": nvlink_gbytes}
    _walk(found, root, "", _only_node(found), links)
    if not found.gpus and not found.nics:
        raise InvalidInput("the export has no GPU and no NIC; export it again without --no-io")
    gpus = sorted(found.gpus, key=lambda gpu: gpu.pci)
    return Shape(
        name=name,
        title=f"{len(found.gpus)} GPUs, {len(found.nics)} NICs",
        sources=["an export of hwloc"],
        unknown=_unknown(found, nvlinks),
        numa=sorted(found.numa, key=lambda one: one.node),
        gpu_kinds=found.gpu_kinds,
        nic_kinds=found.nic_kinds,
        gpus=[Gpu(name=f"gpu-{i}", kind=g.kind, path=g.path, numa=g.numa) for i, g in enumerate(gpus)],
        nics=sorted(found.nics, key=lambda nic: natural_sort_key(nic.rdma or nic.interface)),
    )


def _unknown(found: _Found, nvlinks: int) -> list[str]:
    lines = [] if nvlinks else ["NVLinks between the GPUs: not in hwloc's export (--nvlinks)"]
    if any(gpu.numa is None for gpu in found.gpus) or any(nic.numa is None for nic in found.nics):
        lines.append("NUMA nodes of devices that are attached to the whole machine")
    if any(kind.speed_gbit == 0 for kind in found.nic_kinds.values()):
        lines.append("line rate of the NICs: hwloc has only that of the PCIe slot")
    return lines


def _numa(node: Element) -> Numa:
    index = node.get("os_index", "0")
    if not index.isdecimal() or len(index) > 6:
        raise InvalidInput(f"a NUMANode has os_index={index[:20]!r}, which is not a number")
    return Numa(node=int(index), cpus=format_cpu_list(parse_cpu_mask(node.get("cpuset", ""))))


def _only_node(found: _Found) -> int | None:
    return found.numa[0].node if len(found.numa) == 1 else None


def _walk(found: _Found, parent: Element, path: str, numa: int | None, links: dict[str, float]) -> None:
    for child in parent.findall("object"):
        kind = child.get("type")
        if kind == "Bridge" and child.get("bridge_type", "").startswith("0-"):
            _walk(found, child, _host_bridge(child), numa, links)
        elif kind in {"Bridge", "PCIDev"}:
            _function(found, child, path, numa, links)
        elif kind not in {"OSDev", "NUMANode"} or child.findall("object"):
            _walk(found, child, path, _numa_of(child, numa, found), links)


def _numa_of(place: Element, above: int | None, found: _Found) -> int | None:
    """The one NUMA node of an object; None if it has several and no object above it has one."""
    if place.get("type") == "NUMANode":
        return _numa(place).node
    nodes = parse_cpu_mask(place.get("nodeset", ""))
    if nodes and nodes & (nodes - 1) == 0:
        return nodes.bit_length() - 1
    inside = [node for node in place.findall("object") if node.get("type") == "NUMANode"]
    if not nodes and len(inside) == 1:
        return _numa(inside[0]).node
    return above if len(found.numa) == 1 or not nodes else None


def _host_bridge(bridge: Element) -> str:
    match = re.match(r"([0-9a-fA-F]{4}):\[([0-9a-fA-F]{2})-", bridge.get("bridge_pci", ""))
    if match is None:
        raise InvalidInput(
            f"a host bridge has bridge_pci={bridge.get('bridge_pci', '')[:30]!r}; expected a value such as 0000:[44-5c]"
        )
    return f"pci{match[1]}:{match[2]}".lower()


def _function(found: _Found, element: Element, path: str, numa: int | None, links: dict[str, float]) -> None:
    address = PciAddress.find(element.get("pci_busid", ""))
    if address is None:
        raise InvalidInput(
            f"a PCI object has pci_busid={element.get('pci_busid', '')[:30]!r}, which is not a PCI address"
        )
    here = f"{path or f'pci{address.domain:04x}:{address.bus:02x}'}/{address}"
    numbers = _numbers(element)
    names = dict(_os_names(found, element))
    if element.get("type") == "Bridge":
        _walk(found, element, here, numa, links)
    elif numbers.is_gpu:
        kind = gpu_kind(numbers, nvlinks=int(links["nvlinks"]), nvlink_gbytes=links["nvlink_gbytes"])
        found.gpu_kinds.setdefault(numbers.kind, kind)
        found.gpus.append(Gpu(name=str(address), kind=numbers.kind, path=here, numa=numa))
    elif numbers.is_nic or "rdma" in names:
        found.nic_kinds.setdefault(numbers.kind, nic_kind(numbers))
        plain = Nic(kind=numbers.kind, path=here, numa=numa)
        found.nics.append(_nic(found, msgspec.structs.replace(plain, **names), numbers))


def _nic(found: _Found, nic: Nic, numbers: PciIdentity) -> Nic:
    """InfiniBand and EFA are RDMA devices even if the export does not name them."""
    kind = found.nic_kinds[nic.kind]
    if nic.rdma or nic.interface or not (numbers.is_infiniband or kind.kernel_driver == "efa"):
        return nic
    return Nic(kind=nic.kind, path=nic.path, numa=nic.numa, rdma=rdma_name(kind, nic, len(found.nics)))


def _numbers(element: Element) -> PciIdentity:
    match = _TYPE.fullmatch(element.get("pci_type", ""))
    if match is None:
        return PciIdentity("")
    pci_class, vendor, device, sub_vendor, subsystem = (group.lower() if group else "" for group in match.groups())
    return PciIdentity(pci_class, vendor, device, sub_vendor, subsystem)


def _os_names(found: _Found, element: Element) -> Iterator[tuple[str, str]]:
    """Interface, MAC and RDMA device of a function, if the export has them."""
    for device in element.findall("object"):
        kind, name = device.get("osdev_type", ""), device.get("name", "")
        if device.get("type") == "OSDev" and kind in found.rdma:
            yield "rdma", name
        elif device.get("type") == "OSDev" and kind in found.network:
            yield "interface", name
            for info in device.findall("info"):
                if info.get("name") == "Address" and len(info.get("value", "")) == 17:
                    yield "mac", info.get("value", "").lower()
