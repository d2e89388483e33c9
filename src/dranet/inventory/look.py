"""One look at the node: what there is, what is offered, and why the rest is not.

What a pod holds is not seen here any more, so the driver says what is in use: such a device stays published exactly as
it was, because a slice that changes under an allocation confuses everybody who reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from dranet.inventory import attributes as make
from dranet.inventory import health, rails
from dranet.inventory.cards import Port, nothing_to_give, place_without_link, primary_first, speaks_infiniband, unusable
from dranet.inventory.cloud.provider import CloudProvider, ParentProvider
from dranet.inventory.in_use import with_those_in_use
from dranet.inventory.infrastructure import AGGREGATES, immovable, is_named, live_functions
from dranet.inventory.kernel_records import KernelRecords
from dranet.inventory.numa import nearest_nodes
from dranet.inventory.pciids import PciIds
from dranet.inventory.rails import RailSource
from dranet.inventory.sharing import shared
from dranet.inventory.snapshot import Accelerator, Fault, Netdev, NodeDevice, Place, Skipped, Snapshot
from dranet.inventory.virtual_functions import partition, split_by_us
from dranet.kernel.hardware import PciFunction, net_device
from dranet.kernel.links import Link
from dranet.kernel.routes import Route
from dranet.model.attributes import DEFAULT_FILTER, LINK_SPEED, RAIL
from dranet.model.device import AttributeValue, Device
from dranet.model.limits import ATTRIBUTES_PER_DEVICE, device_problems
from dranet.model.names import link_device_name, pci_device_name
from dranet.model.pci import PciAddress

_PROBLEMS_SHOWN = 20


class Options(msgspec.Struct, frozen=True):
    """How to look."""

    filter: str = DEFAULT_FILTER
    """CEL over ``attributes``; empty keeps everything."""
    move_ib_interfaces: bool = True
    """False: IPoIB interfaces stay on the node and their cards are offered as RDMA-only devices."""
    uplink_interfaces: tuple[str, ...] = ()
    """Patterns of the node's uplinks; empty: those that carry default routes."""
    offer_interfaces: tuple[str, ...] = ()
    """Patterns of interfaces (or PCI addresses) to offer although the node's network is built of them."""
    rails: RailSource = RailSource()
    """Where a card's rail is read from."""
    shared_cards: str = ""
    """CEL like `filter`: cards it is true for are published so that several claims may have shares; empty: none."""
    sriov_vfs: str = ""
    """CEL like `filter`: physical functions it is true for are offered whole or as their virtual ones; empty: none."""
    list_attributes: bool = False
    """Publish the standard NUMA attribute as a list (feature gate DRAListTypeAttributes)."""


class Memory(msgspec.Struct):
    """What the last look made of each link and device: what did not change is not thought about again.

    On a node with hundreds of links one event changes one of them.
    """

    links: dict[int, tuple[object, NodeDevice]] = msgspec.field(default_factory=dict)
    refusals: dict[str, tuple[Device, str | None]] = msgspec.field(default_factory=dict)


class Look:
    """Turns one world into one snapshot; used once."""

    def __init__(
        self,
        *,
        options: Options,
        world: KernelRecords,
        keeps: Callable[[Device], bool],
        cloud: CloudProvider | None,
        pci_ids: PciIds,
        in_use: Mapping[str, NodeDevice],
        memory: Memory,
        routes: Sequence[Route] = (),
        shares: Callable[[Device], bool] | None = None,
        splits: Callable[[Device], bool] | None = None,
    ) -> None:
        self._options, self._world, self._keeps, self._cloud = options, world, keeps, cloud
        self._pci_ids, self._in_use = pci_ids, in_use
        self._last, self.memory = memory, Memory()
        self._routes = routes
        self._shares = shares
        self._splits = splits
        self._split = split_by_us(in_use.values())
        self._skipped: list[Skipped] = []
        self._problems: list[str] = []
        self._nearest = nearest_nodes(world.sysfs) if options.list_attributes else None
        self._ports: dict[str, list[Port]] = defaultdict(list)
        """Links that may be offered, by their PCI function; those without one under the empty name."""
        self._all_ports: dict[str, list[Port]] = defaultdict(list)
        """The same for all links that have a PCI function."""
        self._kept_functions: set[str] = set()
        """Functions whose own netdev stays on the node, so that they are not offered under their own name."""

    def snapshot(self, standing_problems: Sequence[str] = ()) -> Snapshot:
        """Everything found, in order."""
        for port in self._world.ports:
            self._sort_in(port)
        found = [*self._cards(), *(self._link(port) for port in self._ports[""])]
        offered = self._offered(device for device in found if device is not None)
        devices = sorted(self._with_virtual_functions(offered), key=lambda device: device.order)
        unnamed = [self._pci_ids.problem] if self._pci_ids.problem else []
        problems = [*standing_problems, *self._world.problems, *unnamed, *self._problems, *_missing_roots(devices)]
        return Snapshot(
            devices=tuple(devices),
            skipped=tuple(sorted(set(self._skipped))),
            problems=_shortened([*problems, *self._world.sysfs.problems]),
            gpus=tuple(_neighbours(self._world.gpus)),
        )

    def _with_virtual_functions(self, offered: Sequence[NodeDevice]) -> list[NodeDevice]:
        """Physical functions that are split are found among those in use as well, and virtual ones are in use in turn:
        so what is in use is brought in on both sides."""
        known = with_those_in_use(offered, self._in_use, self._world)
        parts = partition(known, self._world, self._splits, self._split)
        for device, instead in parts.replaced:
            self._skip(device.netdev.name or str(device.pci), f"it is offered as {instead}", device.name)
        virtual = {name: device for name, device in self._in_use.items() if device.vf is not None}
        return with_those_in_use(parts.devices, virtual, self._world)

    def _sort_in(self, port: Port) -> None:
        """Put a link where it belongs, or aside."""
        address = port.netdev.pci_address if port.netdev is not None else None
        kept = self._needed_by_the_node(port, address)
        reason = kept or self._stays(port.link)
        if address is not None:
            self._all_ports[address].append(port)
            if kept:
                self._kept_functions.add(address)
            reason = reason or self._unknown_function(address)
        if reason is None:
            self._ports[address or ""].append(port)
        else:
            pci = PciAddress.find(address or "")
            self._skip(port.link.name, reason, pci_device_name(pci) if pci else link_device_name(port.link.name))

    def _needed_by_the_node(self, port: Port, address: str | None) -> str | None:
        """Why the node cannot do without a link, which only the operator may overrule, and not for all."""
        link = port.link
        if link.is_loopback:
            return "it is the loopback interface"
        if link.index in self._world.uplinks:
            return self._world.uplinks[link.index]
        reason = self._world.infrastructure.get(link.index)
        return self._cannot_move(link) or self._unless_named(reason, link.name, address)

    def _cannot_move(self, link: Link) -> str | None:
        """Why a link cannot be given away, unless children are to be made of it, which it stays for."""
        reason = immovable(link)
        if reason is None or (isinstance(self._cloud, ParentProvider) and self._cloud.offers(link.name)):
            return None
        if link.kind not in AGGREGATES:
            return reason
        # By its name in full: who writes `*` thinks of cards, and a claim for a whole bond is refused.
        wanted = link.name in self._options.offer_interfaces
        return None if wanted else f"{reason}; --offer-interfaces={link.name} would offer it for children"

    def _unless_named(self, reason: str | None, interface: str, address: str | None) -> str | None:
        if reason is None or is_named((interface, address or ""), self._options.offer_interfaces):
            return None
        return f"{reason}; --offer-interfaces={interface} would offer it"

    def _stays(self, link: Link) -> str | None:
        if link.kind == "ipoib" and not self._options.move_ib_interfaces:
            return "IPoIB interfaces stay on the node (--move-ib-interfaces=false); its card is offered as RDMA-only"
        return None

    def _unknown_function(self, address: str) -> str | None:
        function = self._world.functions.get(address)
        if function is None:
            return f"the PCI device {address} that it hangs on is no network card"
        return self._unusable(function)

    def _unusable(self, function: PciFunction) -> str | None:
        return unusable(function, has_rdma=self._world.rdma_finder.for_function(function) is not None)

    def _cards(self) -> Iterator[NodeDevice | None]:
        for address in sorted(self._world.functions):
            function = self._world.functions[address]
            pci = PciAddress.find(address)
            reason = self._unusable(function) if pci is not None else "PCI domains beyond ffff are not supported"
            if pci is None or reason is not None:
                if pci is None or pci_device_name(pci) not in self._in_use:
                    self._skip(address, reason or "")
                continue
            yield from self._function(function, pci)

    def _function(self, function: PciFunction, pci: PciAddress) -> Iterator[NodeDevice | None]:
        """The device of a function, and one more for each further netdev on it, named after that."""
        ports, representors = primary_first(self._ports.get(function.address, ()), self._world.sysfs)
        for port in representors:
            self._skip(port.link.name, f"it is the switch's end of a virtual function of {function.address}")
        if function.address not in self._kept_functions:
            yield self._own_card(function, pci, ports[0] if ports else None)
            ports = ports[1:]
        for port in ports:
            yield self._card(function, pci, link_device_name(port.link.name), port)

    def _own_card(self, function: PciFunction, pci: PciAddress, port: Port | None) -> NodeDevice | None:
        """The function's own device. One without a netdev is never taken down, whatever lives by it."""
        live = self._live_functions(function, pci)
        if port is not None and (reason := self._unless_named(live, port.link.name, function.address)):
            self._skip(port.link.name, reason, pci_device_name(pci))
            return None
        return self._card(function, pci, pci_device_name(pci), port)

    def _live_functions(self, function: PciFunction, pci: PciAddress) -> str | None:
        """Those we made ourselves keep nobody away but by the count of the scheduler."""
        return None if self._splits is not None and pci in self._split else live_functions(function)

    def _card(self, function: PciFunction, pci: PciAddress, name: str, port: Port | None) -> NodeDevice | None:
        finder = self._world.rdma_finder
        rdma = finder.for_port(port) if port is not None else finder.for_function(function)
        netdev = self._netdev(function, port, rdma)
        if netdev.place is Place.NONE and rdma is None:
            self._skip(function.address, nothing_to_give(function, self._world.sysfs))
            return None
        own: make.Attributes = make.link_attributes(port, self._details(port)) if port is not None else {}
        product = self._pci_ids.names(function.vendor, function.device)
        own |= make.function_attributes(function, product, with_link=port is not None)
        own |= make.numa_attributes(function.numa_node, self._nearest)
        own |= make.rdma_attributes(rdma, rdma_only=netdev.place is Place.NONE)
        pf = PciAddress.find(function.physical_function or "")
        device = NodeDevice(
            device=Device(name=name, attributes=own, capacity=self._capacity(port, rdma)),
            netdev=netdev,
            pci=pci,
            numa_node=function.numa_node,
            pcie_root=function.root or "",
            kernel_driver=function.driver or "",
            rdma_device=rdma,
            is_vf=function.physical_function is not None,
            pf=pf,
            pf_interface=self._interface_of(function.physical_function),
            gateway6=self._world.gateways6.get(netdev.index, ""),
            insisted=self._is_built_in(port) or (port is not None and self._live_functions(function, pci) is not None),
            faults=tuple(self._faults(netdev, port, rdma)),
        )
        return self._with_cloud(device)

    def _link(self, port: Port) -> NodeDevice:
        """A link without a PCI function."""
        index = port.link.index
        rdma, gateway6 = self._world.rdma_finder.for_port(port), self._world.gateways6.get(index, "")
        facts = (port, self._details(port), rdma, gateway6, self._is_built_in(port))
        known = self._last.links.get(index)
        device = known[1] if known is not None and known[0] == facts else _virtual_device(*facts)
        self.memory.links[index] = (facts, device)
        return self._with_cloud(device)

    def _is_built_in(self, port: Port | None) -> bool:
        return port is not None and port.link.index in self._world.infrastructure

    def _netdev(self, function: PciFunction, port: Port | None, rdma: str | None) -> Netdev:
        if port is not None:
            return Netdev(place=Place.HERE, name=port.link.name, index=port.link.index)
        infiniband = speaks_infiniband(function, self._world.rdma.get(rdma or ""))
        move_ib = self._options.move_ib_interfaces
        return Netdev(place=place_without_link(function, self._world.sysfs, infiniband=infiniband, move_ib=move_ib))

    def _interface_of(self, address: str | None) -> str:
        """The netdev of a physical function, offered or not."""
        real, _ = primary_first(self._all_ports.get(address or "", ()), self._world.sysfs)
        return real[0].link.name if real else ""

    def _details(self, port: Port) -> make.LinkDetails:
        return self._world.details.get(port.link.index, make.NO_DETAILS)

    def _capacity(self, port: Port | None, rdma: str | None) -> dict[str, str]:
        megabits = None
        if port is not None and port.netdev is not None:
            megabits = self._world.sysfs.read_number(port.netdev.path, "speed")
        device = self._world.rdma.get(rdma or "")
        if make.speed(megabits) is None and device is not None:
            rates = [make.rdma_rate(p.rate) for p in device.ports if p.state.endswith("ACTIVE")]
            megabits = max((rate for rate in rates if rate), default=None)
        speed = make.speed(megabits)
        return {LINK_SPEED: speed} if speed else {}

    def _faults(self, netdev: Netdev, port: Port | None, rdma: str | None) -> Iterator[Fault]:
        if port is not None:
            yield from health.link_faults(port)
        yield from health.rdma_faults(self._world.rdma.get(rdma or ""))
        yield from health.place_faults(netdev.place)

    def _with_cloud(self, device: NodeDevice) -> NodeDevice:
        cloud = self._cloud.attributes(device.identity) if self._cloud is not None else {}
        rail = self._rail(device, cloud)
        if not cloud and not rail:
            return device
        own, capacity = {**device.device.attributes, **rail}, device.device.capacity
        outcome = make.with_cloud(own, cloud, ATTRIBUTES_PER_DEVICE - len(capacity))
        self._problems += [f"{device.name}: {problem}" for problem in outcome.problems]
        published = Device(name=device.name, attributes=outcome.attributes, capacity=capacity)
        return msgspec.structs.replace(device, device=published)

    def _rail(self, device: NodeDevice, cloud: Mapping[str, AttributeValue]) -> make.Attributes:
        if not device.netdev.is_here:
            return {}
        index, by_subnet = device.netdev.index, self._options.rails.kind == rails.SUBNET
        found = rails.rail(
            self._options.rails,
            device.netdev.name,
            self._cloud.name if self._cloud is not None else "",
            cloud,
            [address.cidr for address in self._world.details.get(index, make.NO_DETAILS).addresses]
            if by_subnet
            else (),
            [route for route in self._routes if route.leaves_by(index)] if by_subnet else (),
        )
        return {RAIL: make.text(found)} if found else {}

    def _offered(self, found: Iterable[NodeDevice]) -> list[NodeDevice]:
        """Without what the filter drops, what has a name that is taken, and what the API would refuse."""
        offered: dict[str, NodeDevice] = {}
        for device in found:
            if reason := self._refusal(device, offered):
                self._skip(device.netdev.name or str(device.pci), reason, device.name)
            else:
                offered[device.name] = self._shared(device) if self._is_shared(device) else device
        return list(offered.values())

    def _shared(self, device: NodeDevice) -> NodeDevice:
        """A virtual link (a bond, a veth) is published without its speed, which a share is a part of."""
        if LINK_SPEED in device.device.capacity:
            return shared(device)
        netdev = net_device(self._world.sysfs, device.netdev.name)
        speed = make.speed(self._world.sysfs.read_number(netdev.path, "speed")) if netdev else None
        if speed is None:
            return device
        fast = msgspec.structs.replace(device.device, capacity={**device.device.capacity, LINK_SPEED: speed})
        found = shared(msgspec.structs.replace(device, device=fast))
        return found if found.device.shares else device

    def _is_shared(self, device: NodeDevice) -> bool:
        return device.netdev.is_here and self._shares is not None and self._shares(device.device)

    def _refusal(self, device: NodeDevice, offered: Mapping[str, NodeDevice]) -> str | None:
        published, name = device.device, device.device.name
        if name in offered:
            return f"the device name {name} is taken"
        if name in self._in_use:
            return None  # published as it was, whatever it looks like now
        known = self._last.refusals.get(name)
        refusal = known[1] if known is not None and known[0] == published else self._judge(published)
        self.memory.refusals[name] = (published, refusal)
        return refusal

    def _judge(self, device: Device) -> str | None:
        if not self._keeps(device):
            return "the filter (--filter) leaves it out"
        refused = device_problems(device)
        return f"the API would refuse it: {refused[0]}" if refused else None

    def _skip(self, name: str, reason: str, device: str = "") -> None:
        self._skipped.append(Skipped(make.text(name), reason, device))


def _virtual_device(
    port: Port, details: make.LinkDetails, rdma: str | None, gateway6: str, insisted: bool
) -> NodeDevice:
    link = port.link
    own = make.link_attributes(port, details) | make.rdma_attributes(rdma, rdma_only=False)
    return NodeDevice(
        device=Device(name=link_device_name(link.name), attributes=own),
        netdev=Netdev(place=Place.HERE, name=link.name, index=link.index),
        rdma_device=rdma,
        gateway6=gateway6,
        insisted=insisted,
    )


def _neighbours(gpus: Iterable[PciFunction]) -> Iterator[Accelerator]:
    found = {pci: gpu for gpu in gpus if (pci := PciAddress.find(gpu.address)) is not None}
    for pci in sorted(found):
        gpu = found[pci]
        yield Accelerator(
            pci=pci, vendor=gpu.vendor, product=gpu.device, numa_node=gpu.numa_node, pcie_root=gpu.root or ""
        )


def _missing_roots(devices: Iterable[NodeDevice]) -> Iterator[str]:
    rootless = [device for device in devices if device.pci is not None and not device.pcie_root]
    if rootless:
        cards = "1 card has" if len(rootless) == 1 else f"{len(rootless)} cards have"
        yield (
            f"{cards} no PCIe root in sysfs (some virtual machines hide it), so constraints on "
            "resource.kubernetes.io/pcieRoot cannot be met; match on resource.kubernetes.io/numaNode instead"
        )


def _shortened(problems: Sequence[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(problems))
    rest = len(unique) - _PROBLEMS_SHOWN
    return (*unique[:_PROBLEMS_SHOWN], *([f"and {rest} more problems"] if rest > 0 else []))
