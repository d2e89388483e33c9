"""Reads the state of one device from sysfs: a few dozen small files, and netlink only for pause frames.

The PCI side of a device in a pod is read on the host, its interface and RDMA port in the sysfs of the pod's network
namespace. Values that cannot change while the device stays where it is are read once.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from dranet.core.device import FaultKind
from dranet.core.errors import KernelError
from dranet.linux import gids, pci
from dranet.linux.ethtool import Ethtool
from dranet.linux.gids import ROCE_V2, Gid
from dranet.linux.hardware import PciFunction
from dranet.linux.namespaces import Namespace
from dranet.linux.sysfs import Sysfs
from dranet.node.health.gpudirect import gpudirect_obstacle
from dranet.node.health.readings import DeviceReading
from dranet.node.inventory.faults import link_down

ERROR_COUNTERS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_xmit_discards",
)
TRANSPORT_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "roce_slow_restart",
)
NETDEV_STATISTICS = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
PORT_TRAFFIC = ("port_rcv_data", "port_xmit_data", "port_xmit_wait")
ROCE_CONGESTION = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")
_INTERFACE_FILES = ("flags", "operstate", "speed", "mtu", "carrier_changes")
_FILE_BYTES = 4096
_PAUSE_SECONDS = 60.0

Read = Callable[[], bytes | None]
"""Returns the content, or None if the file is gone; may raise OSError."""
_Folder = tuple[Sysfs, str, tuple[str, ...]]
"""A sysfs, a folder in it, and the names of files to read there."""


class OpenFiles:
    """Sysfs files that stay open: reading one again costs a sixth of opening it again.

    The kernel generates the content for each read from offset 0. The files of a removed device answer with errors,
    like the speed of a link that is down; readers treat both as unknown. Uses at most half of the process's file
    descriptors; further files are opened for each read.
    """

    def __init__(self) -> None:
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._open: list[int] = []

    def reader(self, sysfs: Sysfs, *path: str) -> Read | None:
        """A function that reads this file; None where it does not exist."""
        fd = sysfs.open(*path)
        if fd is None:
            return None
        if len(self._open) >= self._limit:
            os.close(fd)
            return lambda: sysfs.read_bytes(*path)
        self._open.append(fd)
        # A partial of a C function: thousands of these run each minute, without a Python frame.
        return partial(os.pread, fd, _FILE_BYTES, 0)

    def close(self) -> None:
        """Invalidates all readers of these files."""
        while self._open:
            os.close(self._open.pop())


class PauseFrames:
    """Pause frame counters of the links in one pod. No sysfs file has them, so ethtool netlink is asked once a minute:
    it takes the RTNL lock, which device moves need too, and some drivers ask their firmware."""

    def __init__(self, netns: str) -> None:
        self._netns = netns
        self._asked: float | None = None
        self._found: Mapping[int, tuple[int, int]] = {}

    def counters(self, index: int | None, at: float) -> dict[str, int]:
        """Counters of the link with this index; empty where its driver has none."""
        if self._asked is None or at - self._asked >= _PAUSE_SECONDS:
            self._asked, self._found = at, self._ask()
        frames = self._found.get(index) if index is not None else None
        return {} if frames is None else {"rx_pause_frames": frames[0], "tx_pause_frames": frames[1]}

    def _ask(self) -> Mapping[int, tuple[int, int]]:
        try:
            # A new socket each time: an open one would keep the pod's namespace alive, and its devices in it.
            with Namespace.open(self._netns) as namespace, Ethtool(namespace.fd) as ethtool:
                return ethtool.pause_frames()
        except KernelError:
            return {}  # the pod is terminating, or this kernel lacks the netlink family


class DeviceLocation(msgspec.Struct, frozen=True):
    """Where to read a device, and what the inventory knows about it."""

    device: str
    function: PciFunction | None = None
    interface: str = ""
    """Its interface, on the host or in its pod; empty where it has none or is out of reach."""
    rdma_device: str = ""
    addresses: tuple[str, ...] = ()
    """Without prefix length."""
    claim: str = ""
    """UID of the claim that holds it; empty on the host."""
    known_faults: tuple[tuple[FaultKind, str], ...] = ()
    """Faults that the inventory found."""

    @property
    def port(self) -> str:
        """The sysfs folder of its RDMA port."""
        return f"class/infiniband/{self.rdma_device}/ports/1"


class DeviceReader:
    """Reads one device again and again, until it moves."""

    def __init__(
        self,
        host: Sysfs,
        location: DeviceLocation,
        files: OpenFiles,
        gpus: Sequence[PciFunction] = (),
        pod: Sysfs | None = None,
        pause_frames: PauseFrames | None = None,
    ) -> None:
        self.device = location.device
        self._location, self._is_in_pod = location, pod is not None
        net = pod or host
        # In RDMA's shared mode the RDMA device stays in the host namespace, and the pod may not see it.
        in_pod = pod is not None and bool(location.rdma_device) and pod.exists("class/infiniband", location.rdma_device)
        self._rdma = pod if pod is not None and in_pod else host
        self._open_files = files
        self._files = _readers(files, _state_files(location, host, net, self._rdma))
        self._counters = _readers(files, _counter_files(location, self._rdma))
        self._traffic = _readers(files, _traffic_files(location, net, self._rdma)) if location.claim else {}
        self._pause_frames = pause_frames
        self._index = net.read_number(f"class/net/{location.interface}", "ifindex") if location.interface else None
        self._speed: int | None = None
        self._speed_key: tuple[bool, int | None] | None = None
        is_roce = self._rdma.read(location.port, "link_layer") == "Ethernet"
        self._checks_gids = bool(location.interface and location.rdma_device) and is_roce
        self._fixed = self._fixed_values(host, gpus)

    def _fixed_values(self, host: Sysfs, gpus: Sequence[PciFunction]) -> DeviceReading:
        location, function = self._location, self._location.function
        rdma = location.rdma_device
        return DeviceReading(
            device=location.device,
            at=0.0,
            model=f"{function.vendor}:{function.device}" if function else "",
            claim=location.claim,
            interface=location.interface,
            pcie_max=pci.best_link(host, function.path) if function else None,
            rdma_device=rdma,
            firmware=(self._rdma.read(f"class/infiniband/{rdma}", "fw_ver") or "") if rdma else "",
            has_address=bool(location.addresses),
            gpudirect_obstacle=gpudirect_obstacle(host, function, gpus, bool(rdma)) if function else "",
        )

    def read(self, at: float) -> DeviceReading:
        """The device now."""
        is_up = bool((self._number("flags") or 0) & 1)
        carrier_changes = self._number("carrier_changes")
        # Reading the speed takes the RTNL lock, which device moves need: read it only after the link changed.
        if self._speed_key != (is_up, carrier_changes):
            self._speed_key, self._speed = (is_up, carrier_changes), self._read_speed()
        return msgspec.structs.replace(
            self._fixed,
            at=at,
            known_faults=(*self._location.known_faults, *self._link_down_in_pod(is_up)),
            is_up=is_up,
            speed_mbps=self._speed,
            mtu=self._number("mtu"),
            carrier_changes=carrier_changes,
            pcie=pci.link_state(self._text("current_link_speed"), self._text("current_link_width")),
            has_gid=self._has_gid() if self._checks_gids else None,
            counters=_numbers(self._counters),
            traffic=_numbers(self._traffic) | self._pause_counters(at),
        )

    def _text(self, name: str) -> str | None:
        raw = self._raw(name)
        return None if raw is None else raw.decode(errors="replace").strip()

    def _number(self, name: str) -> int | None:
        raw = self._raw(name)
        try:
            return None if raw is None else int(raw, 0)
        except ValueError:
            return None

    def _raw(self, name: str) -> bytes | None:
        read = self._files.get(name)
        try:
            return read() if read is not None else None
        except OSError:
            return None

    def _link_down_in_pod(self, is_up: bool) -> Iterator[tuple[FaultKind, str]]:
        """Only in a pod: on the host the inventory reports it."""
        if self._is_in_pod and is_up and self._location.function is not None:
            for fault in link_down(self._location.interface, self._text("operstate") or "", "in its pod "):
                yield fault.kind, fault.detail

    def _pause_counters(self, at: float) -> dict[str, int]:
        if self._pause_frames is None or not self._location.interface:
            return {}
        return self._pause_frames.counters(self._index, at)

    def _read_speed(self) -> int | None:
        """In Mb/s. For a link that is down the kernel answers EINVAL, some drivers -1: both are unknown."""
        speed = self._number("speed")
        if speed is not None and speed > 0:
            return speed
        rate = (self._text("rate") or "").partition(" ")[0]
        try:
            return int(float(rate) * 1000) or None
        except ValueError:
            return None

    def _has_gid(self) -> bool | None:
        """Whether any address has a RoCE v2 GID. Tables are long: the last matching slot stays open and is read
        first."""
        if self._is_own(self._last_gid()):
            return True
        empty = True
        for gid in gids.read_gids(self._rdma, self._location.rdma_device):
            empty = False
            if self._is_own(gid):
                self._keep_gid_open(gid.index)
                return True
        return None if empty else False

    def _last_gid(self) -> Gid | None:
        address = gids.parse_gid(self._text("gid") or "")
        if address is None:
            return None
        return Gid(0, address, self._text("gid type") or "", self._text("gid netdev") or "")

    def _keep_gid_open(self, index: int) -> None:
        paths = gids.gid_files(self._location.rdma_device, index)
        for name, path in zip(("gid", "gid type", "gid netdev"), paths, strict=True):
            self._files[name] = self._open_files.reader(self._rdma, path) or (lambda: None)

    def _is_own(self, gid: Gid | None) -> bool:
        if gid is None or gid.kind != ROCE_V2 or gid.interface != self._location.interface:
            return False
        return str(gid.address) in self._location.addresses


def _state_files(location: DeviceLocation, host: Sysfs, net: Sysfs, rdma: Sysfs) -> Iterator[_Folder]:
    if location.interface:
        yield net, f"class/net/{location.interface}", _INTERFACE_FILES
    if location.rdma_device:
        yield rdma, location.port, ("rate",)
    if location.function:
        yield host, location.function.path, ("current_link_speed", "current_link_width")


def _counter_files(location: DeviceLocation, rdma: Sysfs) -> Iterator[_Folder]:
    if location.rdma_device:
        yield rdma, f"{location.port}/counters", ERROR_COUNTERS
        # Soft-RoCE has all of them in hw_counters; those in counters exist and answer with errors.
        yield rdma, f"{location.port}/hw_counters", (*ERROR_COUNTERS, *TRANSPORT_COUNTERS)


def _traffic_files(location: DeviceLocation, net: Sysfs, rdma: Sysfs) -> Iterator[_Folder]:
    if location.interface:
        yield net, f"class/net/{location.interface}/statistics", NETDEV_STATISTICS
    if location.rdma_device:
        yield rdma, f"{location.port}/counters", PORT_TRAFFIC
        yield rdma, f"{location.port}/hw_counters", ROCE_CONGESTION


def _readers(files: OpenFiles, folders: Iterable[_Folder]) -> dict[str, Read]:
    """Readers of the files that exist, by name. Of a name in two folders the later one is read."""
    found = [(name, files.reader(sysfs, folder, name)) for sysfs, folder, names in folders for name in names]
    return {name: read for name, read in found if read is not None}


def _numbers(readers: Mapping[str, Read]) -> dict[str, int]:
    found = {}
    for name, read in readers.items():
        try:
            found[name] = int(read() or b"", 0)
        except (OSError, ValueError):
            continue  # soft-RoCE has files that answer with errors
    return found
