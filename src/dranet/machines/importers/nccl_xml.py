"""A shape from the topology file of NCCL or RCCL, which a cloud ships or ``NCCL_TOPO_DUMP_FILE`` writes.

A ``pci`` element with others inside is a switch, named by its upstream port: the file has neither downstream ports nor
PCIe roots. Both are invented here, a downstream port for every child and a root for every topmost element. So two
devices below one CPU without a common switch are NODE apart, the farthest possible. NCCL merges the functions of a NIC
with several ports into one element with several ``net``: they become functions again.

The shape keeps the file, so that `dranet topo -o nccl-xml` returns it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

import msgspec

from dranet.core.errors import InvalidInput
from dranet.core.pci import PciAddress
from dranet.machines.importers.common import PciIdentity, format_cpu_list, gpu_kind, nic_kind, parse_cpu_mask, rdma_name
from dranet.machines.machine import natural_sort_key
from dranet.machines.shape import Gpu, GpuKind, GpuLink, Nic, NicKind, Numa, Shape

_NUMBERS = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
_SWITCH_CLASS = "0680"
"""PCI class of an NVSwitch, where an ``nvlink`` leads to one."""


class _Found(msgspec.Struct):
    """Everything found so far."""

    gpus: list[tuple[int, PciAddress, Element, str, int | None]] = msgspec.field(default_factory=list)
    nics: list[Nic] = msgspec.field(default_factory=list)
    nic_kinds: dict[str, NicKind] = msgspec.field(default_factory=dict)
    unnamed: bool = False
    without_address: int = 0


def shape_of_nccl(root: Element, text: str, name: str) -> Shape:
    """The machine of a ``<system>``."""
    if root.tag != "system":
        raise InvalidInput(f"the root element is <{root.tag}>; an NCCL topology file has <system>")
    found, numa = _Found(), []
    for cpu in root.iter("cpu"):
        node = _number(cpu, "numaid", -1)
        if node >= 0:
            numa.append(Numa(node=node, cpus=format_cpu_list(parse_cpu_mask(cpu.get("affinity", "")))))
        _below(found, cpu, "", node if node >= 0 else None)
    if not found.gpus and not found.nics:
        raise InvalidInput("<system> has no GPU and no NIC")
    gpus, kinds = _gpus(found)
    nics = _named(found)
    return Shape(
        name=name,
        title=f"{len(gpus)} GPUs, {len(nics)} NICs",
        sources=["an NCCL topology file"],
        unknown=_unknown(found),
        numa=sorted(numa, key=lambda one: one.node),
        gpu_kinds=kinds,
        nic_kinds=found.nic_kinds,
        gpus=gpus,
        nics=nics,
        nccl=text,
    )


def _unknown(found: _Found) -> list[str]:
    lines = ["PCIe roots and downstream ports: invented, the file has only switches"]
    if found.unnamed:
        lines.append("names of the RDMA devices: numbered by PCI address")
    if found.without_address:
        lines.append(f"{found.without_address} NICs without a PCI address: in the file, not in the shape")
    return lines


def _number(element: Element, name: str, default: int) -> int:
    try:
        return int(element.get(name, default))
    except ValueError as error:
        raise InvalidInput(f"<{element.tag}>: {name}={element.get(name)!r} is not a number") from error


def _below(found: _Found, parent: Element, path: str, numa: int | None) -> None:
    """All ``pci`` elements below a CPU or a switch whose path is known."""
    found.without_address += sum(len(list(nic.iter("net"))) for nic in parent.findall("nic") if parent.tag == "cpu")
    for port, pci in enumerate(parent.findall("pci")):
        address = _address(pci)
        above = f"{path}/{_port(address, port)}" if path else _root(address, bool(pci.findall("pci")))
        here = f"{above}/{address}"
        numbers = PciIdentity(*(_hex(pci, key) for key in _NUMBERS))
        if pci.find("gpu") is not None or numbers.is_gpu:
            dev = _number(gpu, "dev", -1) if (gpu := pci.find("gpu")) is not None else -1
            found.gpus.append((dev, address, pci, here, numa))
        elif pci.find("nic") is not None or numbers.is_nic:
            _nics(found, pci, here, numa, numbers)
        _below(found, pci, here, numa)


def _address(pci: Element) -> PciAddress:
    text = pci.get("busid", "")
    address = PciAddress.find(text) or PciAddress.find(text[4:] if len(text) == 16 else "")
    if address is None:
        raise InvalidInput(f"<pci>: busid={text!r} is not a PCI address such as 0000:8f:00.0")
    return address


def _hex(pci: Element, key: str) -> str:
    value = pci.get(key, "").removeprefix("0x").lower()
    return "" if value == "ffff" else value


def _root(address: PciAddress, is_switch: bool) -> str:
    """A switch has its own root; functions directly below a CPU share that of their bus."""
    return f"pci{address}" if is_switch else f"pci{address.domain:04x}:{address.bus:02x}"


def _port(child: PciAddress, number: int) -> str:
    """An invented downstream port for each child, on a bus without functions."""
    return f"{child.domain:04x}:fe:{number % 32:02x}.{number // 32:x}"


def _nics(found: _Found, pci: Element, path: str, numa: int | None, numbers: PciIdentity) -> None:
    nets = list(pci.iter("net"))
    for port, net in enumerate(nets or [None]):
        gbit = max(_number(net, "speed", 0), 0) // 1000 if net is not None else 0
        name = net.get("name", "") if net is not None else ""
        kind = f"{numbers.kind}-{gbit}" if gbit else numbers.kind
        found.nic_kinds.setdefault(kind, nic_kind(numbers, speed_gbit=gbit))
        found.nics.append(Nic(kind=kind, path=f"{path[:-1]}{port:x}" if port else path, numa=numa, rdma=name))


def _named(found: _Found) -> list[Nic]:
    """NICs by name; those without one are numbered by PCI address."""
    found.unnamed = any(not nic.rdma for nic in found.nics)
    by_address = sorted(found.nics, key=lambda nic: nic.pci)
    if found.unnamed:
        by_address = [
            msgspec.structs.replace(nic, rdma=nic.rdma or rdma_name(found.nic_kinds[nic.kind], nic, i))
            for i, nic in enumerate(by_address)
        ]
    return sorted(by_address, key=lambda nic: natural_sort_key(nic.rdma))


def _gpus(found: _Found) -> tuple[list[Gpu], dict[str, GpuKind]]:
    """In NCCL's own order where it gives one, else by address."""
    gpus: list[Gpu] = []
    kinds: dict[str, GpuKind] = {}
    for i, (_, _, pci, path, numa) in enumerate(sorted(found.gpus, key=lambda one: one[:2])):
        numbers = PciIdentity(_hex(pci, "class"), _hex(pci, "vendor"), _hex(pci, "device"))
        to_switch, links, fabric = _links(pci)
        kinds.setdefault(numbers.kind, gpu_kind(numbers, nvlinks=to_switch, fabric=fabric))
        differs = to_switch if to_switch != kinds[numbers.kind].nvlinks else None
        gpus.append(Gpu(name=f"gpu-{i}", kind=numbers.kind, path=path, numa=numa, nvlinks=differs, links=links))
    return gpus, kinds


def _links(pci: Element) -> tuple[int, list[GpuLink], str]:
    """The number of links to switches, and each link to another GPU."""
    to_switch, links, fabric = 0, [], "nvlink"
    for link, tag in _link_elements(pci):
        fabric = "xgmi" if tag == "xgmi" else fabric
        count = _number(link, "count", 1)
        target = PciAddress.find(link.get("target", ""))
        if target is None or link.get("tclass", "").removeprefix("0x").startswith(_SWITCH_CLASS):
            to_switch += count
        elif target != _address(pci):
            links.append(GpuLink(str(target), count))
    return to_switch, links, fabric


def _link_elements(pci: Element) -> Iterator[tuple[Element, str]]:
    gpu = pci.find("gpu")
    for tag in ("nvlink", "xgmi"):
        yield from ((link, tag) for link in (gpu.findall(tag) if gpu is not None else ()))
