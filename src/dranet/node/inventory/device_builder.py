"""Builds a `NodeDevice` from the kernel records of a PCI function or link: attributes, capacity, location, faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dranet.core.attributes import LINK_SPEED, RAIL
from dranet.core.device import AttributeValue, Device
from dranet.core.names import link_device_name
from dranet.core.pci import PciAddress
from dranet.core.pciids import PciIds
from dranet.core.slices import ATTRIBUTES_PER_DEVICE
from dranet.linux.hardware import PciFunction
from dranet.linux.routes import Route
from dranet.node.inventory import attributes as make
from dranet.node.inventory import faults, rails
from dranet.node.inventory.cloud.provider import CloudProvider
from dranet.node.inventory.kernel_records import KernelRecords
from dranet.node.inventory.nics import Port, is_infiniband, location_without_link, primary_port_first
from dranet.node.inventory.options import InventoryOptions
from dranet.node.inventory.snapshot import Fault, Netdev, NetdevLocation, NodeDevice

VirtualDevices = dict[int, tuple[object, NodeDevice]]
"""By link index, each device without a PCI function and the facts it was built from."""


class DeviceBuilder:
    """Builds the devices of one scan."""

    def __init__(
        self,
        options: InventoryOptions,
        records: KernelRecords,
        cloud: CloudProvider | None,
        pci_ids: PciIds,
        routes: Sequence[Route],
        last_virtual: VirtualDevices,
    ) -> None:
        self._options, self._records, self._cloud, self._routes = options, records, cloud, routes
        self._pci_ids, self._last_virtual = pci_ids, last_virtual
        self.virtual_devices: VirtualDevices = {}
        self._nearest = make.nearest_numa_nodes(records.sysfs) if options.list_attributes else None
        self._ports: dict[str, list[Port]] = {}
        """All ports of each PCI function."""
        for port in records.ports:
            if port.netdev is not None and port.netdev.pci_address is not None:
                self._ports.setdefault(port.netdev.pci_address, []).append(port)
        self.problems: list[str] = []

    def nic(
        self, function: PciFunction, pci: PciAddress, name: str, port: Port | None, *, has_vfs: bool
    ) -> NodeDevice | None:
        """The device of a PCI function, or of one of its ports; None where it has neither a netdev nor RDMA."""
        finder = self._records.rdma_finder
        rdma = finder.for_port(port) if port is not None else finder.for_function(function)
        netdev = self._netdev(function, port, rdma)
        if netdev.location is NetdevLocation.NONE and rdma is None:
            return None
        own: make.Attributes = make.link_attributes(port, self._details(port)) if port is not None else {}
        product = self._pci_ids.names(function.vendor, function.device)
        own |= make.function_attributes(function, product, with_link=port is not None)
        own |= make.numa_attributes(function.numa_node, self._nearest)
        own |= make.rdma_attributes(rdma, rdma_only=netdev.location is NetdevLocation.NONE)
        device = NodeDevice(
            device=Device(name=name, attributes=own, capacity=self._capacity(port, rdma)),
            netdev=netdev,
            pci=pci,
            numa_node=function.numa_node,
            pcie_root=function.root or "",
            kernel_driver=function.driver or "",
            rdma_device=rdma,
            is_vf=function.physical_function is not None,
            pf=PciAddress.find(function.physical_function or ""),
            pf_interface=self._interface_of(function.physical_function),
            gateway6=self._records.gateways6.get(netdev.index, ""),
            offered_explicitly=port is not None and (has_vfs or self._is_infrastructure(port)),
            faults=tuple(self._faults(netdev, port, rdma)),
        )
        return self._with_cloud(device)

    def virtual(self, port: Port) -> NodeDevice:
        """The device of a link without a PCI function."""
        index = port.link.index
        rdma, gateway6 = self._records.rdma_finder.for_port(port), self._records.gateways6.get(index, "")
        facts = (port, self._details(port), rdma, gateway6, self._is_infrastructure(port))
        known = self._last_virtual.get(index)
        # A node may have hundreds of such links, and one event changes one of them.
        built = known if known is not None and known[0] == facts else (facts, _virtual_device(*facts))
        self.virtual_devices[index] = built
        return self._with_cloud(built[1])

    def speed(self, path: str) -> str | None:
        """The speed of the link at this sysfs path, as a quantity."""
        return make.speed(self._records.sysfs.read_number(path, "speed"))

    def _is_infrastructure(self, port: Port) -> bool:
        return port.link.index in self._records.infrastructure

    def _netdev(self, function: PciFunction, port: Port | None, rdma: str | None) -> Netdev:
        if port is not None:
            return Netdev(location=NetdevLocation.HOST, name=port.link.name, index=port.link.index)
        infiniband = is_infiniband(function, self._records.rdma.get(rdma or ""))
        move_ib = self._options.move_ib_interfaces
        sysfs = self._records.sysfs
        return Netdev(location=location_without_link(function, sysfs, infiniband=infiniband, move_ib=move_ib))

    def _interface_of(self, address: str | None) -> str:
        """The netdev of a physical function, offered or not."""
        real, _ = primary_port_first(self._ports.get(address or "", ()), self._records.sysfs)
        return real[0].link.name if real else ""

    def _details(self, port: Port) -> make.LinkDetails:
        return self._records.details.get(port.link.index, make.NO_DETAILS)

    def _capacity(self, port: Port | None, rdma: str | None) -> dict[str, str]:
        speed = self.speed(port.netdev.path) if port is not None and port.netdev is not None else None
        device = self._records.rdma.get(rdma or "")
        if speed is None and device is not None:
            rates = [make.rdma_rate(p.rate) for p in device.ports if p.state.endswith("ACTIVE")]
            speed = make.speed(max((rate for rate in rates if rate), default=None))
        return {LINK_SPEED: speed} if speed else {}

    def _faults(self, netdev: Netdev, port: Port | None, rdma: str | None) -> Iterator[Fault]:
        if port is not None:
            yield from faults.port_faults(port)
        yield from faults.rdma_faults(self._records.rdma.get(rdma or ""))
        yield from faults.location_faults(netdev.location)

    def _with_cloud(self, device: NodeDevice) -> NodeDevice:
        cloud = self._cloud.attributes(device.identity) if self._cloud is not None else {}
        rail = self._rail(device, cloud)
        if not cloud and not rail:
            return device
        own, capacity = {**device.device.attributes, **rail}, device.device.capacity
        merged = make.with_cloud(own, cloud, ATTRIBUTES_PER_DEVICE - len(capacity))
        self.problems += [f"{device.name}: {problem}" for problem in merged.problems]
        published = Device(name=device.name, attributes=merged.attributes, capacity=capacity)
        return msgspec.structs.replace(device, device=published)

    def _rail(self, device: NodeDevice, cloud: Mapping[str, AttributeValue]) -> make.Attributes:
        if not device.netdev.in_host_netns:
            return {}
        index, addresses, routes = device.netdev.index, [], []
        if self._options.rails.kind == rails.SUBNET:
            details = self._records.details.get(index, make.NO_DETAILS)
            addresses = [address.cidr for address in details.addresses]
            routes = [route for route in self._routes if route.leaves_by(index)]
        cloud_name = self._cloud.name if self._cloud is not None else ""
        found = rails.rail(self._options.rails, device.netdev.name, cloud_name, cloud, addresses, routes)
        return {RAIL: make.text(found)} if found else {}


def _virtual_device(
    port: Port, details: make.LinkDetails, rdma: str | None, gateway6: str, offered_explicitly: bool
) -> NodeDevice:
    link = port.link
    own = make.link_attributes(port, details) | make.rdma_attributes(rdma, rdma_only=False)
    return NodeDevice(
        device=Device(name=link_device_name(link.name), attributes=own),
        netdev=Netdev(location=NetdevLocation.HOST, name=link.name, index=link.index),
        rdma_device=rdma,
        gateway6=gateway6,
        offered_explicitly=offered_explicitly,
    )
