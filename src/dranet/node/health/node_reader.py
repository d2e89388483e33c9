"""Reads all devices of a node: on the host as the inventory found them, in pods in the pod's network namespace.

`dranet check` reads twice, the driver every few seconds. Opening a file costs more than reading it, so files stay open
until a device moves, and at most five minutes, because firmware may be updated in place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from dranet.core import attributes
from dranet.core.errors import KernelError
from dranet.core.logs import get_logger
from dranet.core.pci import GPU_BASE_CLASSES, is_gpu
from dranet.linux import hardware
from dranet.linux.namespaces import Namespace, NamespaceGone
from dranet.linux.sysfs import Sysfs, mount_sysfs
from dranet.node.health.checks import Expected
from dranet.node.health.device_reader import DeviceLocation, DeviceReader, OpenFiles, PauseFrames
from dranet.node.health.readings import DeviceReading
from dranet.node.inventory.nics import NETWORK_CLASS
from dranet.node.inventory.snapshot import NodeDevice, Snapshot

if TYPE_CHECKING:
    from dranet.machines.shape import Shape

log = get_logger(__name__)

_OPEN_SECONDS = 300.0


class ClaimedDevice(msgspec.Struct, frozen=True):
    """The claim that holds a device, and where the device is."""

    claim: str
    netns: str = ""
    """The pod's network namespace; empty while the device is on the host."""
    interface: str = ""
    addresses: tuple[str, ...] = ()
    """Without prefix length."""


class NodeReader:
    """Reads all devices of a node. For devices in pods it holds a sysfs mount for each pod until `close`."""

    def __init__(
        self,
        sysfs_root: str = "/sys",
        *,
        in_pods: bool = True,
        moves: Callable[[str], int] = lambda name: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`moves` returns how many moves of a device the driver began and finished."""
        self._sysfs_root, self._in_pods, self._moves, self._clock = sysfs_root, in_pods, moves, clock
        self._known: tuple[Sequence[NodeDevice], Mapping[str, ClaimedDevice]] | None = None
        self._opened_at = 0.0
        self._readers: list[DeviceReader] = []
        self._mounts, self._files = ExitStack(), OpenFiles()
        self._logged: set[str] = set()

    def __call__(self, snapshot: Snapshot, claimed: Mapping[str, ClaimedDevice] | None = None) -> list[DeviceReading]:
        """Every PCI and RDMA device now."""
        now, known = self._clock(), (snapshot.devices, claimed or {})
        if known != self._known or now - self._opened_at > _OPEN_SECONDS:
            self.close()
            self._readers = list(self._open(*known))
            self._known, self._opened_at = known, now
        readings = [self._read(reader, now) for reader in self._readers]
        if any(device.interface and device.mtu is None for device in readings):
            self._known = None  # an interface is being moved: open its files again next time
        return readings

    def _read(self, reader: DeviceReader, now: float) -> DeviceReading:
        before = self._moves(reader.device)
        reading = reader.read(now)
        after = self._moves(reader.device)
        # A reading during which a move began or finished counts as taken during the move (odd).
        return msgspec.structs.replace(reading, moves=after if after == before else after | 1) if after else reading

    def close(self) -> None:
        """Release the pods' namespaces; the next reading opens them again."""
        self._known = None
        self._files.close()
        self._mounts.close()

    def _open(self, devices: Sequence[NodeDevice], claimed: Mapping[str, ClaimedDevice]) -> Iterator[DeviceReader]:
        host = Sysfs(self._sysfs_root)
        functions = {f.address: f for f in hardware.pci_functions(host, GPU_BASE_CLASSES | {NETWORK_CLASS})}
        gpus = [f for f in functions.values() if is_gpu(f.class_code)]
        pods = {netns: self._open_pod(netns) for netns in {held.netns for held in claimed.values() if held.netns}}
        for device in devices:
            if device.pci or device.rdma_device:
                held = claimed.get(device.name)
                pod = pods.get(held.netns) if held is not None else None
                location = _location(device, held, functions, pod is not None)
                yield DeviceReader(host, location, self._files, gpus, *(pod or ()))

    def _open_pod(self, netns: str) -> tuple[Sysfs, PauseFrames] | None:
        if not self._in_pods:
            return None
        try:
            with Namespace.open(netns) as namespace:
                sysfs = self._mounts.enter_context(mount_sysfs(namespace.fd))
                return sysfs, PauseFrames(netns)
        except NamespaceGone:
            return None  # the pod is terminating
        except KernelError as error:
            if str(error) not in self._logged:
                self._logged.add(str(error))
                log.warning("Reading only the PCI side of the devices in a pod", netns=netns, error=error)
            return None


def _location(
    device: NodeDevice, held: ClaimedDevice | None, functions: Mapping[str, hardware.PciFunction], in_pod: bool
) -> DeviceLocation:
    published = device.device.attributes
    cidrs = (c for key in (attributes.IPV4, attributes.IPV6) for c in str(published.get(key, "")).split(",") if c)
    own = tuple(cidr.partition("/")[0] for cidr in cidrs)
    on_host = device.netdev.name if device.netdev.in_host_netns else ""
    return DeviceLocation(
        device=device.name,
        function=functions.get(str(device.pci)) if device.pci else None,
        interface=held.interface if held and in_pod else on_host,
        rdma_device=device.rdma_device or "",
        addresses=held.addresses if held and in_pod else own,
        claim=held.claim if held else "",
        known_faults=tuple((fault.kind, fault.detail) for fault in device.faults),
    )


def expected_from_shape(shape: Shape, pci: Mapping[str, str]) -> Expected:
    """What the shape says about devices with these PCI addresses (by device name)."""
    kinds = {str(nic.pci): shape.nic_kind(nic) for nic in shape.nics}
    speeds = {device: kinds[address].speed_gbit for device, address in pci.items() if address in kinds}
    return Expected(
        speed_mbps={name: gbit * 1000 for name, gbit in speeds.items() if gbit},
        nics=len(shape.nics),
    )


def pci_by_device(devices: Sequence[NodeDevice]) -> dict[str, str]:
    """PCI addresses by device name."""
    return {device.name: str(device.pci) for device in devices if device.pci}
