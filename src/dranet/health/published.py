"""Cards as their node published them: read from ResourceSlices, so that a whole cluster can be judged from afar.

A slice says less than the node: links, speeds, MTUs and the taints of faults that the node's own driver counts. What it
does not say stays unknown. A card in use is published as it was when its claim was prepared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dranet.health.reading import CardReading
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.faults import FaultKind
from dranet.model.names import DRIVER_NAME

_MEGABITS = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}


def devices_by_node(slices: Iterable[Mapping[str, Any]]) -> dict[str, list[Device]]:
    """The devices of each node, of the newest generation of its pool."""
    newest: dict[str, int] = {}
    found: dict[str, list[Device]] = {}
    for one in slices:
        spec = one["spec"]
        node, generation = spec.get("nodeName") or spec["pool"]["name"], spec["pool"].get("generation", 0)
        if generation > newest.get(node, -1):
            newest[node], found[node] = generation, []
        if generation == newest[node]:
            found[node] += [Device.from_api(device) for device in spec.get("devices") or ()]
    return dict(sorted(found.items()))


def published_cards(devices: Iterable[Device]) -> list[CardReading]:
    """What the slices say of each PCI or RDMA card."""
    return [_reading(device) for device in devices if _is_card(device)]


def pci_addresses(devices: Iterable[Device]) -> dict[str, str]:
    """By device."""
    return {device.name: str(device.attributes.get(attributes.PCI_ADDRESS, "")) for device in devices}


def _is_card(device: Device) -> bool:
    return attributes.PCI_ADDRESS in device.attributes or device.attributes.get(attributes.RDMA) is True


def _reading(device: Device) -> CardReading:
    said = device.attributes
    mtu = said.get(attributes.MTU)
    return CardReading(
        device=device.name,
        at=0.0,
        model=f"{said.get(attributes.PCI_VENDOR, '')} {said.get(attributes.PCI_DEVICE, '')}".strip(),
        certain=tuple(_faults(device)),
        interface=str(said.get(attributes.IF_NAME, "")),
        speed_mbps=_megabits(device.capacity.get(attributes.LINK_SPEED, "")),
        mtu=mtu if isinstance(mtu, int) else None,
    )


def _faults(device: Device) -> Iterator[tuple[FaultKind, str]]:
    for taint in device.taints:
        domain, _, name = taint.key.partition("/")
        if domain == DRIVER_NAME and name in FaultKind.__members__.values():
            yield FaultKind(name), f"its node has tainted it ({taint.effect})"


def _megabits(quantity: str) -> int | None:
    number = quantity.rstrip("kMGT")
    unit = quantity[len(number) :]
    try:
        return round(float(number) * _MEGABITS[unit]) or None
    except (ValueError, KeyError):
        return None
