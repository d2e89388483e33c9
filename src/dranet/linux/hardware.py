"""PCI functions, RDMA devices, netdevs and NUMA nodes as sysfs shows them.

All reads go through a `Sysfs`, so the same code reads real and synthetic machines. `/sys/class/net` and, in
RDMA's exclusive mode, `/sys/class/infiniband` show only devices of the namespace in which sysfs was mounted;
`/sys/bus/pci` shows all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dranet.linux.sysfs import Sysfs, natural_key

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MODALIAS = re.compile(
    r"pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv0000([0-9A-F]{4})sd0000([0-9A-F]{4})"
    r"bc([0-9A-F]{2})sc([0-9A-F]{2})i([0-9A-F]{2})",
    re.IGNORECASE,
)
_CHAR_DEVICE_CLASSES = ("infiniband_cm", "infiniband_mad", "infiniband_verbs")


class PciFunction(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One PCI function. Identifiers are lower-case hex without prefix; `class_code` has six digits (`020000`)."""

    address: str
    path: str
    vendor: str
    device: str
    subsystem_vendor: str
    subsystem_device: str
    class_code: str
    driver: str | None
    numa_node: int | None
    sriov_total_vfs: int
    sriov_num_vfs: int
    physical_function: str | None
    netdevs: tuple[str, ...]
    rdma_devices: tuple[str, ...]

    @property
    def root(self) -> str | None:
        """The host bridge above (`pci0000:10`), None where sysfs shows none (some virtual machines)."""
        parts = self.path.split("/")
        return parts[1] if len(parts) > 2 and parts[0] == "devices" and parts[1].startswith("pci") else None

    @property
    def bridges(self) -> tuple[str, ...]:
        """The addresses of the bridges between the root and this function, from the root down."""
        return tuple(part for part in self.path.split("/")[:-1] if _ADDRESS.fullmatch(part))


class SysfsRdmaPort(msgspec.Struct, frozen=True, gc=False):
    """One port of an RDMA device, with sysfs's values (`4: ACTIVE`, `InfiniBand` or `Ethernet`)."""

    number: int
    state: str
    link_layer: str
    rate: str


class SysfsRdmaDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One RDMA device; `char_devices` are names below /dev/infiniband, without `rdma_cm`, which all share."""

    name: str
    path: str
    pci_address: str | None
    node_guid: str
    ports: tuple[SysfsRdmaPort, ...]
    char_devices: tuple[str, ...]


class NetDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The parent of a netdev: a PCI function, none (`virtual`), or a device on another bus."""

    name: str
    path: str
    pci_address: str | None
    virtual: bool


class NumaNode(msgspec.Struct, frozen=True, gc=False):
    """One NUMA node: its distance to every node, and its processors."""

    number: int
    distances: tuple[int, ...]
    cpus: tuple[int, ...]


def pci_functions(sysfs: Sysfs, base_classes: frozenset[str] | None = None) -> list[PciFunction]:
    """All PCI functions, or those of some base classes (`02` network, `03` display, `12` accelerator)."""
    places: dict[str, str] | dict[str, None] = dict.fromkeys(sysfs.names("bus/pci/devices"))
    if not sysfs.exists("bus/pci/devices"):
        places = dict(sorted(_walk(sysfs, "devices")))
    found = (_pci_function(sysfs, address, base_classes, path) for address, path in places.items())
    return [function for function in found if function is not None]


def _walk(sysfs: Sysfs, folder: str) -> Iterator[tuple[str, str]]:
    """Address and path of every function below a folder, for a tree without /sys/bus/pci."""
    for name in sysfs.names(folder):
        path = f"{folder}/{name}"
        is_function = _ADDRESS.fullmatch(name) is not None
        if not (is_function or (folder == "devices" and name.startswith("pci"))) or sysfs.resolve(path) != path:
            continue
        if is_function:
            yield name, path
        yield from _walk(sysfs, path)


def pci_function(sysfs: Sysfs, address: str, path: str | None = None) -> PciFunction | None:
    """One function by its address; ``path`` is used if /sys/bus/pci does not list it."""
    return _pci_function(sysfs, address, None, path) if _ADDRESS.fullmatch(address) else None


def _pci_function(
    sysfs: Sysfs, address: str, base_classes: frozenset[str] | None, unlisted: str | None = None
) -> PciFunction | None:
    path = sysfs.resolve(f"bus/pci/devices/{address}") or unlisted
    if path is None:
        return None
    vendor, device, subsystem_vendor, subsystem_device, class_code = _identity(sysfs, path)
    if base_classes is not None and class_code[:2] not in base_classes:
        return None
    numa_node = sysfs.read_number(path, "numa_node")
    return PciFunction(
        address=address,
        path=path,
        vendor=vendor,
        device=device,
        subsystem_vendor=subsystem_vendor,
        subsystem_device=subsystem_device,
        class_code=class_code,
        driver=sysfs.link_name(f"{path}/driver"),
        numa_node=None if numa_node is None or numa_node < 0 else numa_node,
        sriov_total_vfs=sysfs.read_number(path, "sriov_totalvfs") or 0,
        sriov_num_vfs=sysfs.read_number(path, "sriov_numvfs") or 0,
        physical_function=sysfs.link_name(f"{path}/physfn"),
        netdevs=_netdevs_below(sysfs, path),
        rdma_devices=tuple(sysfs.names(path, "infiniband")),
    )


def _identity(sysfs: Sysfs, path: str) -> tuple[str, str, str, str, str]:
    """Five identifiers from one read of `modalias`, else from five files."""
    match = _MODALIAS.match(sysfs.read(path, "modalias") or "")
    if match:
        vendor, device, subsystem_vendor, subsystem_device, *code = match.groups()
        return vendor.lower(), device.lower(), subsystem_vendor.lower(), subsystem_device.lower(), "".join(code).lower()
    files = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    vendor, device, subsystem_vendor, subsystem_device = (_hex(sysfs.read(path, name), 4) for name in files)
    return vendor, device, subsystem_vendor, subsystem_device, _hex(sysfs.read(path, "class"), 6)


def _hex(text: str | None, digits: int) -> str:
    return (text or "").lower().removeprefix("0x").rjust(digits, "0") if text else ""


def _netdevs_below(sysfs: Sysfs, path: str) -> tuple[str, ...]:
    """The netdevs of a function; those of virtio are one level deeper."""
    direct = sysfs.names(path, "net")
    deeper = [n for child in sysfs.names(path) if child.startswith("virtio") for n in sysfs.names(path, child, "net")]
    return tuple(direct + deeper)


def net_device(sysfs: Sysfs, name: str) -> NetDevice | None:
    """The parent of a netdev; None if sysfs does not show it or the name is invalid."""
    path = sysfs.link_target(f"class/net/{name}") if is_one_component(name) else None
    if path is None:
        return None
    if path.startswith("devices/virtual/"):
        return NetDevice(name=name, path=path, pci_address=None, virtual=True)
    address = pci_address_in(path) or pci_address_in(sysfs.resolve(f"{path}/device") or "")
    return NetDevice(name=name, path=path, pci_address=address, virtual=False)


def is_one_component(name: str) -> bool:
    """Whether a name is one path component, so that it can be used in a path."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def pci_address_in(path: str) -> str | None:
    """The PCI function nearest to the end of a device path."""
    return next((part for part in reversed(path.split("/")) if _ADDRESS.fullmatch(part)), None)


def rdma_devices(sysfs: Sysfs, functions: Iterable[PciFunction] = ()) -> list[SysfsRdmaDevice]:
    """All RDMA devices of the namespace in which sysfs was mounted: those of its class and of these functions."""
    places = {name: sysfs.resolve(f"class/infiniband/{name}") for name in sysfs.names("class/infiniband")}
    owners = {name: function for function in functions for name in function.rdma_devices}
    for name, function in owners.items():
        places.setdefault(name, f"{function.path}/infiniband/{name}")
    char_devices = rdma_char_devices(sysfs)
    return [
        _rdma_device(sysfs, name, path, owners.get(name), char_devices.get(name, ()))
        for name, path in sorted(places.items(), key=lambda place: natural_key(place[0]))
        if path is not None
    ]


def _rdma_device(
    sysfs: Sysfs, name: str, path: str, owner: PciFunction | None, char_devices: tuple[str, ...]
) -> SysfsRdmaDevice:
    device = sysfs.resolve(f"{path}/device")
    return SysfsRdmaDevice(
        name=name,
        path=path,
        pci_address=pci_address_in(device or path) or (owner.address if owner else None),
        node_guid=sysfs.read(path, "node_guid") or "",
        ports=tuple(_rdma_port(sysfs, path, number) for number in sysfs.names(path, "ports") if number.isdigit()),
        char_devices=char_devices,
    )


def _rdma_port(sysfs: Sysfs, path: str, number: str) -> SysfsRdmaPort:
    state, layer, rate = (sysfs.read(path, "ports", number, name) or "" for name in ("state", "link_layer", "rate"))
    return SysfsRdmaPort(int(number), state, layer, rate)


def rdma_port_netdevs(sysfs: Sysfs, device: str) -> tuple[str, ...]:
    """The netdevs named in the GID tables of an RDMA device; slow (one file per entry), RDMA netlink is faster."""
    path = f"class/infiniband/{device}/ports"
    entries = ((p, i) for p in sysfs.names(path) for i in sysfs.names(path, p, "gid_attrs/ndevs"))
    names = {sysfs.read(path, port, "gid_attrs/ndevs", entry) for port, entry in entries}
    return tuple(sorted(name for name in names if name))


def rdma_char_devices(sysfs: Sysfs) -> dict[str, tuple[str, ...]]:
    """By RDMA device, the names of its character devices (`ucm0`, `issm0`, `umad0`, `uverbs0`)."""
    found: dict[str, tuple[str, ...]] = {}
    for folder in _CHAR_DEVICE_CLASSES:
        for name in sysfs.names("class", folder):
            owner = sysfs.read("class", folder, name, "ibdev")
            if owner:
                found[owner] = (*found.get(owner, ()), name)
    return found


def numa_nodes(sysfs: Sysfs) -> list[NumaNode]:
    """The machine's NUMA nodes in order; one node or none on machines without NUMA."""
    base = "devices/system/node"
    numbers = [int(name[4:]) for name in sysfs.names(base) if name.startswith("node") and name[4:].isdigit()]
    return [
        NumaNode(
            number,
            tuple(int(d) for d in (sysfs.read(base, f"node{number}", "distance") or "").split() if d.isdigit()),
            cpu_list(sysfs.read(base, f"node{number}", "cpulist") or ""),
        )
        for number in sorted(numbers)
    ]


def cpu_package(sysfs: Sysfs, cpu: int) -> int | None:
    """The CPU socket of a processor."""
    return sysfs.read_number(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id")


def cpu_list(text: str) -> tuple[int, ...]:
    """Parse `0-3,8`; other parts are ignored."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
