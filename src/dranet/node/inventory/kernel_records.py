"""The kernel records of one scan, all read before any of them is interpreted.

That fixes the number of requests and keeps the interpretation pure. If the kernel refuses one table, the scan goes on
without it and reports a problem. Without links, routes and rules there is no scan: guessing the uplinks is dangerous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from dranet.core.errors import KernelError
from dranet.core.pci import GPU_BASE_CLASSES, is_gpu
from dranet.linux import hardware
from dranet.linux.addresses import Address
from dranet.linux.hardware import NetDevice, PciFunction, SysfsRdmaDevice
from dranet.linux.links import Link
from dranet.linux.rdma import RdmaPort
from dranet.linux.routes import TABLE_MAIN
from dranet.linux.sysfs import Sysfs
from dranet.node.inventory.attributes import LinkDetails, is_global
from dranet.node.inventory.infrastructure import infrastructure_links
from dranet.node.inventory.nics import NETWORK_CLASS, Port, RdmaFinder
from dranet.node.inventory.sources import Kernel
from dranet.node.inventory.uplinks import Tables, UplinkTargets, uplink_links, uplink_roots

T = TypeVar("T")
_CLASSES = GPU_BASE_CLASSES | {NETWORK_CLASS}


class KernelRecords(msgspec.Struct, frozen=True):
    """Everything a scan needs."""

    sysfs: Sysfs
    functions: Mapping[str, PciFunction]
    """Network functions and functions with an RDMA device, by address."""
    gpus: Sequence[PciFunction]
    rdma: Mapping[str, SysfsRdmaDevice]
    rdma_finder: RdmaFinder
    ports: Sequence[Port]
    uplinks: Mapping[int, str]
    infrastructure: Mapping[int, str]
    details: Mapping[int, LinkDetails]
    gateways6: Mapping[int, str]
    problems: list[str]


def read_kernel(
    kernel: Kernel, targets: UplinkTargets | None = None, uplink_names: Sequence[str] = ()
) -> KernelRecords:
    """Read every table once."""
    problems: list[str] = []
    sysfs = kernel.sysfs()
    if not sysfs.entries("") & {"bus", "class", "devices"}:
        problems.append(f"{sysfs.root} has no bus, class or devices folder; check that sysfs is mounted there")
    links = kernel.links()
    routes = kernel.default_routes()
    rules = kernel.rules()
    addresses = _attempt(kernel.addresses, problems)
    functions = {function.address: function for function in hardware.pci_functions(sysfs, _CLASSES)}
    rdma = {device.name: device for device in hardware.rdma_devices(sysfs, functions.values())}
    rdma_ports = _attempt(kernel.rdma_ports, problems)
    network = {a: f for a, f in functions.items() if f.class_code.startswith(NETWORK_CLASS)}
    finder = RdmaFinder(rdma.values(), rdma_ports, _names_in_gid_tables(sysfs, rdma, rdma_ports))
    ports = _ports(sysfs, links, functions.values())
    roots = uplink_roots(
        Tables(links, routes, rules, addresses),
        targets or UplinkTargets(),
        kernel.egress_link,
        named=uplink_names,
        rdma={port.link.index for port in ports if finder.for_port(port) is not None},
    )
    return KernelRecords(
        sysfs=sysfs,
        functions={**network, **_rdma_functions(sysfs, network, rdma)},
        gpus=[f for f in functions.values() if is_gpu(f.class_code)],
        rdma=rdma,
        rdma_finder=finder,
        ports=ports,
        uplinks=uplink_links(links, roots),
        infrastructure=infrastructure_links(links),
        details=_details(kernel, links, addresses, problems),
        gateways6={
            r.index: r.gateway
            for r in routes
            if r.destination == "::/0" and r.table == TABLE_MAIN and r.gateway and r.index
        },
        problems=problems,
    )


def _attempt(ask: Callable[[], Sequence[T]], problems: list[str]) -> Sequence[T]:
    try:
        return ask()
    except KernelError as error:
        problems.append(str(error))
        return ()


def _rdma_functions(
    sysfs: Sysfs, known: Mapping[str, PciFunction], rdma: Mapping[str, SysfsRdmaDevice]
) -> dict[str, PciFunction]:
    """Functions with RDMA whose PCI class is not a network class, such as eRDMA's."""
    missing = {d.pci_address: d for d in rdma.values() if d.pci_address and d.pci_address not in known}
    found = (
        hardware.pci_function(sysfs, address, sysfs.resolve(f"{missing[address].path}/device"))
        for address in sorted(missing)
    )
    return {function.address: function for function in found if function is not None}


def _names_in_gid_tables(
    sysfs: Sysfs, rdma: Mapping[str, SysfsRdmaDevice], ports: Sequence[RdmaPort]
) -> dict[str, str]:
    """Links of software RDMA devices that RDMA netlink does not report."""
    known = {port.device for port in ports}
    unknown = [device for device in rdma.values() if device.pci_address is None and device.name not in known]
    return {name: d.name for d in unknown for name in hardware.rdma_port_netdevs(sysfs, d.name)}


def _ports(sysfs: Sysfs, links: Sequence[Link], functions: Iterable[PciFunction]) -> list[Port]:
    """Virtual links are listed in one folder, which saves following a symlink for each."""
    virtual = sysfs.entries("devices/virtual/net")
    owners = {name: function for function in functions for name in function.netdevs}
    return [
        Port(link, _virtual(link.name) if link.name in virtual else _netdev(sysfs, link, owners.get(link.name)))
        for link in links
    ]


def _virtual(name: str) -> NetDevice:
    return NetDevice(name=name, path=f"devices/virtual/net/{name}", pci_address=None, virtual=True)


def _netdev(sysfs: Sysfs, link: Link, owner: PciFunction | None) -> NetDevice | None:
    """The netdev of a link; by its PCI function where /sys/class/net does not show it."""
    found = hardware.net_device(sysfs, link.name)
    if owner is None or (found is not None and (found.virtual or found.pci_address)):
        return found
    path = found.path if found is not None else f"{owner.path}/net/{link.name}"
    return NetDevice(name=link.name, path=path, pci_address=owner.address, virtual=False)


def _details(
    kernel: Kernel, links: Sequence[Link], all_addresses: Sequence[Address], problems: list[str]
) -> dict[int, LinkDetails]:
    addresses, classifiers, programs = defaultdict(list), defaultdict(list), defaultdict(list)
    for address in all_addresses:
        if is_global(address.local):
            addresses[address.index].append(address)
    for classifier in _attempt(kernel.classifiers, problems):
        classifiers[classifier.index].append(classifier.name)
    indexes = [link.index for link in links if not link.is_loopback]
    for program in _attempt(lambda: kernel.programs(indexes), problems):
        programs[program.index].append(program.name)
    some = addresses.keys() | classifiers.keys() | programs.keys()
    return {i: LinkDetails(addresses.get(i, []), classifiers.get(i, []), programs.get(i, [])) for i in some}
