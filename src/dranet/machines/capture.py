"""Records the machine this runs on as a shape, from its sysfs.

Addresses are not recorded: they belong to a node, not to a machine type. NVLinks are not in sysfs, so the caller passes
their number.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from dranet.core.errors import NotFound
from dranet.core.pci import PciAddress
from dranet.machines.importers.common import PciIdentity, gpu_kind, nic_kind
from dranet.machines.machine import natural_sort_key
from dranet.machines.shape import Gpu, GpuKind, Nic, NicKind, Numa, Shape


def capture(
    name: str, root: str | Path = "/sys", *, nvlinks: int = 0, nvlink_gbytes: float = 0, fabric: str = "nvlink"
) -> Shape:
    """The shape of the machine whose sysfs is at ``root``."""
    base = Path(root)
    bus = base / "bus/pci/devices"
    if not bus.is_dir():
        raise NotFound(f"{bus}: no such directory; --sysfs must name a sysfs with a PCI bus")
    functions = sorted(path for path in bus.iterdir() if PciAddress.find(path.name))
    gpus = [path for path in functions if _identity(path).is_gpu]
    nics = [path for path in functions if not _identity(path).is_gpu and _is_nic(path)]
    gpu_kinds = {_kind_name(path): _gpu_kind(path, nvlinks, nvlink_gbytes) for path in gpus}
    nic_kinds = {_kind_name(path): _nic_kind(path) for path in nics}
    return Shape(
        name=name,
        title=f"{len(gpus)} GPUs, {len(nics)} NICs",
        numa=_numa(base),
        gpu_kinds=gpu_kinds,
        nic_kinds=nic_kinds,
        gpus=[
            Gpu(name=f"gpu-{i}", kind=_kind_name(path), path=_path(base, path), numa=_numa_node(path))
            for i, path in enumerate(gpus)
        ],
        nics=sorted((_nic(base, path) for path in nics), key=lambda n: natural_sort_key(n.rdma or n.interface)),
    )


def _read(path: Path, default: str = "") -> str:
    """One attribute; sysfs files may disappear or become unreadable at any time."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return default


def _number(path: Path) -> int:
    text = _read(path)
    return int(text) if text.lstrip("-").isdecimal() else -1


def _id(path: Path) -> str:
    return _read(path, "0x0000").removeprefix("0x").lower()


def _class(path: Path) -> str:
    return _id(path / "class").zfill(6)


def _is_nic(path: Path) -> bool:
    return _class(path).startswith("02") or (path / "infiniband").is_dir()


def _kind_name(path: Path) -> str:
    return f"{_id(path / 'vendor')}-{_id(path / 'device')}-{_id(path / 'subsystem_device')}"


def _path(base: Path, path: Path) -> str:
    return path.resolve().relative_to((base / "devices").resolve()).as_posix()


def _numa_node(path: Path) -> int | None:
    node = _number(path / "numa_node")
    return node if node >= 0 else None


def _first(path: Path) -> str:
    try:
        return min(os.listdir(path), key=natural_sort_key, default="")
    except OSError:
        return ""


def _interface(path: Path) -> Path | None:
    """The folder of the function's interface; virtio has it one level deeper."""
    for folder in (path / "net", *sorted(path.glob("virtio*/net"))):
        if name := _first(folder):
            return folder / name
    return None


def _driver(path: Path) -> str:
    return (path / "driver").resolve().name if (path / "driver").exists() else ""


def _identity(path: Path) -> PciIdentity:
    numbers = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    return PciIdentity(_class(path), *(_id(path / name) for name in numbers))


def _gpu_kind(path: Path, nvlinks: int, nvlink_gbytes: float) -> GpuKind:
    fabric = "xgmi" if _id(path / "vendor") == "1002" else "nvlink"
    kind = gpu_kind(_identity(path), nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes, fabric=fabric)
    return replace(kind, kernel_driver=_driver(path))


def _nic_kind(path: Path) -> NicKind:
    interface = _interface(path) or path
    rdma = path / "infiniband" / _first(path / "infiniband")
    return replace(
        nic_kind(_identity(path)),
        kernel_driver=_driver(path),
        link_layer="infiniband" if _read(rdma / "ports/1/link_layer") == "InfiniBand" else "ether",
        speed_gbit=max(_number(interface / "speed"), 0) // 1000 or _rate(_read(rdma / "ports/1/rate")),
        mtu=max(_number(interface / "mtu"), 0) or 1500,
    )


def _rate(text: str) -> int:
    """``400 Gb/sec (4X NDR)`` is 400."""
    first = text.partition(" ")[0]
    return int(first) if first.isdecimal() else 0


def _nic(base: Path, path: Path) -> Nic:
    interface = _interface(path)
    return Nic(
        kind=_kind_name(path),
        path=_path(base, path),
        numa=_numa_node(path),
        interface=interface.name if interface else "",
        rdma=_first(path / "infiniband"),
        mac=_read(interface / "address") if interface else "",
    )


def _numa(base: Path) -> list[Numa]:
    nodes = sorted(base.glob("devices/system/node/node*"), key=lambda path: natural_sort_key(path.name))
    return [
        Numa(node=int(path.name.removeprefix("node")), cpus=_read(path / "cpulist"))
        for path in nodes
        if path.name.removeprefix("node").isdecimal()
    ]
