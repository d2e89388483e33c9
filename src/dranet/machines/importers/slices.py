"""A shape from the ResourceSlices of one node: names and attributes as published, positions as far as slices have them.

Slices have at most a PCIe root and a NUMA node. If a known machine has the same functions, its paths are used;
otherwise a device is directly below its root, or below none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dranet.core import attributes as attr
from dranet.core.device import Device, Version
from dranet.core.errors import InvalidInput
from dranet.core.pci import GPU_DRIVERS, PciAddress
from dranet.machines.identify import device_address, device_numa, identify_shape, is_gpu, is_nic
from dranet.machines.machine import natural_sort_key
from dranet.machines.shape import Gpu, GpuKind, Nic, NicKind, Numa, Shape

_PARTITION_TYPES = {"mig", "vfio"}
_OWN = {
    "uuid",
    attr.PCI_BUS_ID,
    attr.PCIE_ROOT,
    attr.STANDARD_NUMA_NODE,
    "pciAddr",
    "cardIndex",
    "renderIndex",
    "index",
    "minor",
}
"""Attributes that differ between GPUs of one kind."""
Published = Sequence[tuple[str, Device]]


def shape_of_slices(slices: Iterable[Mapping[str, Any]], name: str, node: str | None = None) -> Shape:
    """The machine of one node; ``node`` selects one of several."""
    nodes: dict[str, list[tuple[str, Device]]] = {}
    for raw in slices:
        spec = raw.get("spec") or {}
        if owner := spec.get("nodeName"):
            devices = [(spec.get("driver", ""), Device.from_api(one)) for one in spec.get("devices") or ()]
            nodes.setdefault(owner, []).extend(devices)
    chosen = _choose(sorted(nodes), node)
    devices = list(_functions(nodes[chosen]))
    if not devices:
        raise InvalidInput(f"node {chosen}: its slices have no GPU and no NIC with a PCI address")
    return _shape(devices, name, chosen, len(nodes[chosen]) - len(devices))


def _functions(devices: Published) -> Iterator[tuple[str, Device]]:
    """GPUs and NICs on the PCI bus, one for each function: MIG partitions have the address of their GPU."""
    seen: set[str] = set()
    for driver, device in sorted(
        devices, key=lambda one: (one[1].attributes.get("type") in _PARTITION_TYPES, one[1].name)
    ):
        address = device_address(device)
        if PciAddress.find(address) and address not in seen and (is_gpu(driver, device) or is_nic(driver, device)):
            seen.add(address)
            yield driver, device


def _choose(nodes: list[str], wanted: str | None) -> str:
    if wanted is not None and wanted not in nodes:
        raise InvalidInput(f"no slices of node {wanted}; nodes with slices: {', '.join(nodes[:8]) or 'none'}")
    if not nodes:
        raise InvalidInput("no slice has a nodeName; a shape needs the slices of one node")
    if wanted is None and len(nodes) != 1:
        raise InvalidInput(f"slices of {len(nodes)} nodes; select one with --node: {', '.join(nodes[:8])}")
    return wanted or nodes[0]


def _shape(devices: Published, name: str, node: str, others: int) -> Shape:
    known = identify_shape(list(devices))
    places = {str(part.pci): (part.path, part.numa) for part in known.parts} if known else {}
    gpus = sorted(
        (one for one in devices if is_gpu(*one)),
        key=lambda one: (device_address(one[1]), natural_sort_key(one[1].name)),
    )
    nics = sorted((d for driver, d in devices if not is_gpu(driver, d)), key=lambda d: natural_sort_key(_title(d)))
    unknown = [] if known else ["PCIe switches: slices have only the root, so devices of one root count as PHB"]
    unknown += ["NVLinks: not in slices"] if not known else []
    if others:
        unknown.append(f"{others} devices that are neither a GPU nor a NIC on the PCI bus are omitted")
    gpu_kinds = {_gpu_kind_name(driver, d): _gpu_kind(driver, d, known) for driver, d in gpus}
    shape = Shape(
        name=name,
        title=f"{len(gpus)} GPUs, {len(nics)} NICs",
        sources=[f"ResourceSlices of a node{f', a {known.name}' if known else ''}"],
        unknown=unknown,
        network=known.network if known else "",
        cloud_attributes=_cloud(nics),
        gpu_kinds=gpu_kinds,
        nic_kinds={_nic_kind_name(d): _nic_kind(d, known) for d in nics},
        gpus=[_gpu(driver, d, gpu_kinds[_gpu_kind_name(driver, d)], places) for driver, d in gpus],
        nics=[_nic(d, places) for d in nics],
        numa=known.numa if known else [],
    )
    nodes = sorted({part.numa for part in shape.parts if part.numa is not None})
    return shape if known else msgspec.structs.replace(shape, numa=[Numa(node=one) for one in nodes])


def _title(device: Device) -> str:
    return str(device.attributes.get(attr.RDMA_DEVICE) or device.attributes.get(attr.IF_NAME) or device.name)


def _toml(values: Mapping[str, Any]) -> dict[str, Any]:
    """Attribute values as a shape file writes them."""
    return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Version):
        return {"version": str(value)}
    return list(value) if isinstance(value, tuple) else value


def _shared(device: Device) -> dict[str, Any]:
    return _toml({key: value for key, value in device.attributes.items() if key not in _OWN})


def _gpu_kind_name(driver: str, device: Device) -> str:
    product = str(device.attributes.get("productName", "gpu"))
    words = re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")
    return words if driver.startswith("gpu.") else f"{driver}-{words}"


def _gpu_kind(driver: str, device: Device, known: Shape | None) -> GpuKind:
    kind = next(iter(known.gpu_kinds.values())) if known and known.gpu_kinds else None
    vendor = next((v for v, name in GPU_DRIVERS.items() if name == driver), "10de")
    made = GpuKind(
        vendor_id=vendor,
        device_id=kind.device_id if kind else "0000",
        driver=driver,
        memory=device.capacity.get("memory", ""),
        attributes=_shared(device),
    )
    if kind is None:
        return made
    links = {"nvlinks": kind.nvlinks, "nvlink_gbytes": kind.nvlink_gbytes, "fabric": kind.fabric}
    return msgspec.structs.replace(made, pci_class=kind.pci_class, kernel_driver=kind.kernel_driver, **links)


def _gpu(driver: str, device: Device, kind: GpuKind, places: Mapping[str, tuple[str, int | None]]) -> Gpu:
    path, numa = _place(device, places)
    own = {k: v for k, v in _toml(device.attributes).items() if kind.attributes.get(k) != v}
    computed = {"uuid", attr.PCI_BUS_ID, attr.PCIE_ROOT} | ({"pciAddr"} if driver == "gpu.amd.com" else set())
    values = {key: value for key, value in own.items() if key not in computed}
    return Gpu(
        name=device.name,
        kind=_gpu_kind_name(driver, device),
        path=path,
        numa=numa,
        uuid=str(device.attributes.get("uuid", "")),
        attributes=values,
    )


def _place(device: Device, places: Mapping[str, tuple[str, int | None]]) -> tuple[str, int | None]:
    address, numa = PciAddress.parse(device_address(device)), device_numa(device)
    path, shape_numa = places.get(str(address), ("", None))
    root = device.attributes.get(attr.PCIE_ROOT)
    hidden = f"hidden/{address}"
    return path or (f"{root}/{address}" if isinstance(root, str) else hidden), numa if numa is not None else shape_numa


_OWN_ATTRIBUTES = {doc.name for doc in attr.ATTRIBUTES}


def _cloud(nics: Sequence[Device]) -> dict[str, Any]:
    """Attributes that all NICs share and that our own inventory does not publish."""
    if not nics:
        return {}
    first = _toml(nics[0].attributes)
    return {
        k: v
        for k, v in first.items()
        if k not in _OWN_ATTRIBUTES and all(_toml(c.attributes).get(k) == v for c in nics)
    }


def _nic_kind_name(device: Device) -> str:
    values = device.attributes
    words = f"{values.get(attr.PCI_DEVICE, 'card')}-{values.get(attr.PCI_SUBSYSTEM, '')}-{values.get(attr.MTU, '')}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _nic_kind(device: Device, known: Shape | None) -> NicKind:
    values, address = device.attributes, device_address(device)
    same = next((known.nic_kind(nic) for nic in known.nics if str(nic.pci) == address), None) if known else None
    speed = re.fullmatch(r"(\d+)G", device.capacity.get(attr.LINK_SPEED, ""))
    infiniband = values.get(attr.ENCAPSULATION) == "infiniband" or values.get(attr.IB_ONLY) is True
    made = NicKind(
        vendor_id=same.vendor_id if same else "0000",
        device_id=same.device_id if same else "0000",
        kernel_driver=same.kernel_driver if same else "unknown",
        subsystem_id=str(values.get(attr.PCI_SUBSYSTEM, "0000")),
        vendor=str(values.get(attr.PCI_VENDOR, "unknown")),
        product=str(values.get(attr.PCI_DEVICE, "unknown")),
        link_layer=same.link_layer if same else "infiniband" if infiniband else "ether",
        speed_gbit=int(speed[1]) if speed else same.speed_gbit if same else 0,
        mtu=int(values[attr.MTU]) if isinstance(values.get(attr.MTU), int) else 1500,
    )
    if same is None:
        return made
    return msgspec.structs.replace(
        made, pci_class=same.pci_class, subsystem_vendor_id=same.subsystem_vendor_id, direct_over=same.direct_over
    )


def _nic(device: Device, places: Mapping[str, tuple[str, int | None]]) -> Nic:
    values = device.attributes
    path, numa = _place(device, places)
    addresses = [a for key in (attr.IPV4, attr.IPV6) for a in str(values.get(key, "")).split(",") if a]
    return Nic(
        kind=_nic_kind_name(device),
        path=path,
        numa=numa,
        interface=str(values.get(attr.IF_NAME, "")),
        rdma=str(values.get(attr.RDMA_DEVICE, "")),
        mac=str(values.get(attr.MAC, "")),
        addresses=addresses,
        rail=str(values.get(attr.RAIL, "")),
    )
