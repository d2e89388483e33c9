"""One consistent set of kernel records for a look: read first, then thought about.

Reading everything up front keeps the number of requests fixed and lets the thinking be pure. A part of the kernel that
refuses to answer costs that part only and is reported; without links and routes there is no look, because guessing
which link carries the node would be dangerous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from dranet.inventory.attributes import LinkDetails, is_global
from dranet.inventory.cards import NETWORK_CLASS, Port, RdmaFinder
from dranet.inventory.infrastructure import infrastructure
from dranet.inventory.sources import Kernel
from dranet.inventory.uplinks import Lifelines, Tables, roots, uplinks
from dranet.kernel import hardware
from dranet.kernel.addresses import Address
from dranet.kernel.errors import KernelError
from dranet.kernel.hardware import NetDevice, PciFunction, SysfsRdmaDevice
from dranet.kernel.links import Link
from dranet.kernel.rdma import RdmaPort
from dranet.kernel.routes import TABLE_MAIN
from dranet.kernel.sysfs import Sysfs
from dranet.model.gpus import BASE_CLASSES, is_gpu

T = TypeVar("T")
_CLASSES = BASE_CLASSES | {NETWORK_CLASS}


class KernelRecords(msgspec.Struct, frozen=True):
    """Everything a look needs."""

    sysfs: Sysfs
    functions: Mapping[str, PciFunction]
    """Network functions and those that carry an RDMA device, by address."""
    gpus: Sequence[PciFunction]
    rdma: Mapping[str, SysfsRdmaDevice]
    rdma_finder: RdmaFinder
    ports: Sequence[Port]
    uplinks: Mapping[int, str]
    infrastructure: Mapping[int, str]
    details: Mapping[int, LinkDetails]
    gateways6: Mapping[int, str]
    problems: list[str]


def read_kernel(kernel: Kernel, lifelines: Lifelines | None = None, uplink_names: Sequence[str] = ()) -> KernelRecords:
    """Ask the kernel everything, once."""
    problems: list[str] = []
    sysfs = kernel.sysfs()
    if not sysfs.entries("") & {"bus", "class", "devices"}:
        problems.append(f"{sysfs.root} has neither bus nor class nor devices: is sysfs mounted there?")
    links = kernel.links()
    routes = kernel.wide_routes()
    rules = kernel.rules()
    addresses = _attempt(kernel.addresses, problems)
    functions = {function.address: function for function in hardware.pci_functions(sysfs, _CLASSES)}
    rdma = {device.name: device for device in hardware.rdma_devices(sysfs, functions.values())}
    rdma_ports = _attempt(kernel.rdma_ports, problems)
    network = {a: f for a, f in functions.items() if f.class_code.startswith(NETWORK_CLASS)}
    finder = RdmaFinder(rdma.values(), rdma_ports, _names_in_gid_tables(sysfs, rdma, rdma_ports))
    ports = _ports(sysfs, links, functions.values())
    ways_out = roots(
        Tables(links, routes, rules, addresses),
        lifelines or Lifelines(),
        kernel.way_to,
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
        uplinks=uplinks(links, ways_out),
        infrastructure=infrastructure(links),
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
    """Functions that do not call themselves network cards but carry RDMA, such as eRDMA's."""
    missing = {d.pci_address: d for d in rdma.values() if d.pci_address and d.pci_address not in known}
    found = (
        hardware.pci_function(sysfs, address, sysfs.resolve(f"{missing[address].path}/device"))
        for address in sorted(missing)
    )
    return {function.address: function for function in found if function is not None}


def _names_in_gid_tables(
    sysfs: Sysfs, rdma: Mapping[str, SysfsRdmaDevice], ports: Sequence[RdmaPort]
) -> dict[str, str]:
    """Links of software RDMA devices, where RDMA netlink does not know the device."""
    known = {port.device for port in ports}
    unknown = [device for device in rdma.values() if device.pci_address is None and device.name not in known]
    return {name: d.name for d in unknown for name in hardware.rdma_port_netdevs(sysfs, d.name)}


def _ports(sysfs: Sysfs, links: Sequence[Link], functions: Iterable[PciFunction]) -> list[Port]:
    """All virtual links are listed in one folder, which saves following a symlink for each."""
    virtual = sysfs.entries("devices/virtual/net")
    owners = {name: function for function in functions for name in function.netdevs}
    return [
        Port(link, _virtual(link.name) if link.name in virtual else _netdev(sysfs, link, owners.get(link.name)))
        for link in links
    ]


def _virtual(name: str) -> NetDevice:
    return NetDevice(name=name, path=f"devices/virtual/net/{name}", pci_address=None, virtual=True)


def _netdev(sysfs: Sysfs, link: Link, owner: PciFunction | None) -> NetDevice | None:
    """Where a link hangs; its function says so where its class does not."""
    found = hardware.net_device(sysfs, link.name)
    if owner is None or (found is not None and (found.virtual or found.pci_address)):
        return found
    path = found.path if found is not None else f"{owner.path}/net/{link.name}"
    return NetDevice(name=link.name, path=path, pci_address=owner.address, virtual=False)


def _details(
    kernel: Kernel, links: Sequence[Link], told: Sequence[Address], problems: list[str]
) -> dict[int, LinkDetails]:
    addresses, classifiers, programs = defaultdict(list), defaultdict(list), defaultdict(list)
    for address in told:
        if is_global(address.local):
            addresses[address.index].append(address)
    for classifier in _attempt(kernel.classifiers, problems):
        classifiers[classifier.index].append(classifier.name)
    indexes = [link.index for link in links if not link.is_loopback]
    for program in _attempt(lambda: kernel.programs(indexes), problems):
        programs[program.index].append(program.name)
    some = addresses.keys() | classifiers.keys() | programs.keys()
    return {i: LinkDetails(addresses.get(i, []), classifiers.get(i, []), programs.get(i, [])) for i in some}
