"""One scan of the node: the devices to publish, and why others are skipped.

A scan cannot see the netdev of a device in a pod, so the driver passes the claimed devices in. A claimed device stays
published exactly as it was: a slice must not change under an allocation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from dranet.core.attributes import LINK_SPEED
from dranet.core.device import Device
from dranet.core.names import link_device_name, pci_device_name
from dranet.core.pci import PciAddress
from dranet.core.slices import device_problems
from dranet.linux.hardware import PciFunction, net_device
from dranet.node.inventory import attributes as make
from dranet.node.inventory.claimed import with_claimed_devices
from dranet.node.inventory.device_builder import DeviceBuilder
from dranet.node.inventory.infrastructure import LinkPolicy, vfs_in_use_reason
from dranet.node.inventory.kernel_records import KernelRecords
from dranet.node.inventory.nics import Port, no_interface_reason, primary_port_first, unusable_reason
from dranet.node.inventory.sharing import make_shareable
from dranet.node.inventory.snapshot import Accelerator, NodeDevice, Skipped, Snapshot
from dranet.node.inventory.virtual_functions import offer_virtual_functions, split_functions

_PROBLEMS_SHOWN = 20

Refusals = dict[str, tuple[Device, str | None]]
"""By name, each device as it was checked, and why it is not published; kept between scans to save work."""


class Filters(msgspec.Struct, frozen=True):
    """The operator's CEL expressions, as functions of a device."""

    keeps: Callable[[Device], bool]
    """``--filter``"""
    shares: Callable[[Device], bool] | None = None
    """``--shared-cards``"""
    splits: Callable[[Device], bool] | None = None
    """``--sriov-vfs``"""


class Scan:
    """Turns one set of kernel records into one snapshot; used once."""

    def __init__(
        self,
        records: KernelRecords,
        builder: DeviceBuilder,
        links: LinkPolicy,
        filters: Filters,
        claimed: Mapping[str, NodeDevice],
        last_refusals: Refusals,
    ) -> None:
        self._records, self._builder, self._links, self._filters = records, builder, links, filters
        self._claimed = claimed
        self._split = split_functions(claimed.values())
        self._last_refusals = last_refusals
        self.refusals: Refusals = {}
        self._skipped: list[Skipped] = []
        self._ports: dict[str, list[Port]] = defaultdict(list)
        """Ports that may be offered, by PCI function; those without one under the empty name."""
        self._required_functions: set[str] = set()
        """Functions whose own netdev stays on the host, so that they are not offered under their own name."""

    def snapshot(self, problems: Sequence[str], pci_names_problem: Callable[[], str | None]) -> Snapshot:
        """Everything found, in order."""
        for port in self._records.ports:
            self._classify(port)
        found = [*self._nics(), *map(self._builder.virtual, self._ports[""])]
        offered = self._offered(device for device in found if device is not None)
        devices = sorted(self._with_virtual_functions(offered), key=lambda device: device.order)
        unnamed = [problem] if (problem := pci_names_problem()) else []
        own = [*self._records.problems, *unnamed, *self._builder.problems, *_missing_roots(devices)]
        return Snapshot(
            devices=tuple(devices),
            skipped=tuple(sorted(set(self._skipped))),
            problems=_limited([*problems, *own, *self._records.sysfs.problems]),
            gpus=tuple(_accelerators(self._records.gpus)),
        )

    def _classify(self, port: Port) -> None:
        """Sort a port to its PCI function, or skip it."""
        address = port.netdev.pci_address if port.netdev is not None else None
        required = self._links.required_reason(port.link, address)
        reason = required or self._links.ipoib_reason(port.link)
        if address is not None:
            if required:
                self._required_functions.add(address)
            reason = reason or self._function_reason(address)
        if reason is None:
            self._ports[address or ""].append(port)
        else:
            pci = PciAddress.find(address or "")
            self._skip(port.link.name, reason, pci_device_name(pci) if pci else link_device_name(port.link.name))

    def _function_reason(self, address: str) -> str | None:
        function = self._records.functions.get(address)
        if function is None:
            return f"its PCI device {address} is not a network device"
        return self._unusable_reason(function)

    def _unusable_reason(self, function: PciFunction) -> str | None:
        return unusable_reason(function, has_rdma=self._records.rdma_finder.for_function(function) is not None)

    def _nics(self) -> Iterator[NodeDevice | None]:
        for address in sorted(self._records.functions):
            function = self._records.functions[address]
            pci = PciAddress.find(address)
            if pci is None:
                self._skip(address, "PCI domains beyond ffff are not supported")
            elif reason := self._unusable_reason(function):
                if pci_device_name(pci) not in self._claimed:
                    self._skip(address, reason)
            else:
                yield from self._function(function, pci)

    def _function(self, function: PciFunction, pci: PciAddress) -> Iterator[NodeDevice | None]:
        """The device of a function, and one for each further port of it, named after the port."""
        ports, representors = primary_port_first(self._ports.get(function.address, ()), self._records.sysfs)
        for port in representors:
            self._skip(port.link.name, f"it is a switch representor of a virtual function of {function.address}")
        if function.address not in self._required_functions:
            yield self._own_device(function, pci, ports[0] if ports else None)
            ports = ports[1:]
        for port in ports:
            yield self._nic(function, pci, link_device_name(port.link.name), port)

    def _own_device(self, function: PciFunction, pci: PciAddress, port: Port | None) -> NodeDevice | None:
        """The function's own device. Without a netdev nothing takes it down, so virtual functions do not matter."""
        vfs = self._vfs_reason(function, pci)
        if port is not None and (reason := self._links.unless_offered(vfs, port.link.name, function.address)):
            self._skip(port.link.name, reason, pci_device_name(pci))
            return None
        return self._nic(function, pci, pci_device_name(pci), port)

    def _nic(self, function: PciFunction, pci: PciAddress, name: str, port: Port | None) -> NodeDevice | None:
        device = self._builder.nic(function, pci, name, port, has_vfs=self._vfs_reason(function, pci) is not None)
        if device is None:
            self._skip(function.address, no_interface_reason(function, self._records.sysfs))
        return device

    def _vfs_reason(self, function: PciFunction, pci: PciAddress) -> str | None:
        """Virtual functions that this driver created do not block the physical one: the scheduler counts both."""
        return None if self._filters.splits is not None and pci in self._split else vfs_in_use_reason(function)

    def _with_virtual_functions(self, offered: Sequence[NodeDevice]) -> list[NodeDevice]:
        """A claimed physical function may be split, and a virtual function may be claimed: so add claimed devices
        before and after."""
        known = with_claimed_devices(offered, self._claimed, self._records)
        split = offer_virtual_functions(known, self._records, self._filters.splits, self._split)
        for device, instead in split.replaced:
            self._skip(device.netdev.name or str(device.pci), f"it is offered as {instead}", device.name)
        virtual = {name: device for name, device in self._claimed.items() if device.vf is not None}
        return with_claimed_devices(split.devices, virtual, self._records)

    def _offered(self, found: Iterable[NodeDevice]) -> list[NodeDevice]:
        """Without devices that the filter drops, whose name is used already, or that the API server would reject."""
        offered: dict[str, NodeDevice] = {}
        for device in found:
            if reason := self._refusal(device, offered):
                self._skip(device.netdev.name or str(device.pci), reason, device.name)
            else:
                offered[device.name] = self._shareable(device) if self._is_shared(device) else device
        return list(offered.values())

    def _is_shared(self, device: NodeDevice) -> bool:
        shares = self._filters.shares
        return device.netdev.in_host_netns and shares is not None and shares(device.device)

    def _shareable(self, device: NodeDevice) -> NodeDevice:
        """A virtual link (bond, veth) is published without its speed, unless it is shared: a share is a part of it."""
        if LINK_SPEED in device.device.capacity:
            return make_shareable(device)
        netdev = net_device(self._records.sysfs, device.netdev.name)
        speed = self._builder.speed(netdev.path) if netdev else None
        if speed is None:
            return device
        fast = msgspec.structs.replace(device.device, capacity={**device.device.capacity, LINK_SPEED: speed})
        found = make_shareable(msgspec.structs.replace(device, device=fast))
        return found if found.device.shares else device

    def _refusal(self, device: NodeDevice, offered: Mapping[str, NodeDevice]) -> str | None:
        published, name = device.device, device.device.name
        if name in offered:
            return f"another device has the name {name}"
        if name in self._claimed:
            return None  # published as it was
        known = self._last_refusals.get(name)
        refusal = known[1] if known is not None and known[0] == published else self._check(published)
        self.refusals[name] = (published, refusal)
        return refusal

    def _check(self, device: Device) -> str | None:
        if not self._filters.keeps(device):
            return "excluded by --filter"
        rejected = device_problems(device)
        return f"the API server would reject it: {rejected[0]}" if rejected else None

    def _skip(self, name: str, reason: str, device: str = "") -> None:
        self._skipped.append(Skipped(make.text(name), reason, device))


def _accelerators(gpus: Iterable[PciFunction]) -> Iterator[Accelerator]:
    found = {pci: gpu for gpu in gpus if (pci := PciAddress.find(gpu.address)) is not None}
    for pci in sorted(found):
        gpu = found[pci]
        yield Accelerator(
            pci=pci, vendor=gpu.vendor, product=gpu.device, numa_node=gpu.numa_node, pcie_root=gpu.root or ""
        )


def _missing_roots(devices: Iterable[NodeDevice]) -> Iterator[str]:
    count = sum(device.pci is not None and not device.pcie_root for device in devices)
    if count:
        yield (
            f"{count} device{'s have' if count > 1 else ' has'} no PCIe root in sysfs (some virtual machines hide it): "
            "constraints on resource.kubernetes.io/pcieRoot cannot be met; match on resource.kubernetes.io/numaNode"
        )


def _limited(problems: Sequence[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(problems))
    rest = len(unique) - _PROBLEMS_SHOWN
    return (*unique[:_PROBLEMS_SHOWN], *([f"and {rest} more problems"] if rest > 0 else []))
