"""Checks of a scenario: while pods run, and after they were deleted. Pure functions over the observed state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dranet.core.names import DRIVER_NAME, pci_device_name
from dranet.linux import hardware
from dranet.linux.chardev import INFINIBAND
from dranet.linux.sysfs import Sysfs
from dranet.machines.shape_devices import ShapeLink, shape_links
from dranet.testing.cluster import ClusterNode
from dranet.testing.observing import Fit, Interface
from dranet.testing.running import RunningPod
from dranet.testing.scenarios import Stage

Object = dict[str, Any]
_HostInterfaces = Mapping[str, Mapping[str, Interface]]


@dataclass(frozen=True, slots=True)
class Check:
    """A fact, and the difference if it does not hold."""

    what: str
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class PodView:
    """The observed state of a running pod."""

    pod: RunningPod
    interfaces: Mapping[str, Interface]
    fit: Fit
    claims: tuple[Object, ...]


def expect(what: str, found: object, wanted: object) -> Check:
    """`found` equals `wanted`."""
    return Check(what, None if found == wanted else f"{what}: expected {_show(wanted)}, found {_show(found)}")


def check_pods(stage: Stage, views: Sequence[PodView], host: _HostInterfaces) -> Iterator[Check]:
    """Every pod has its allocated devices and no others."""
    workers = [view for view in views if view.pod.devices]
    yield expect(f"{stage.title}: some pod has a claim", bool(workers), True)
    for view in views:
        yield from _check_worker(stage, view, host) if view.pod.devices else _check_pod_without_claim(view)
    held = [(item.pool, item.driver, item.device) for view in workers for item in view.pod.devices]
    yield expect("no device is in two pods", len(set(held)), len(held))


def _check_worker(stage: Stage, view: PodView, host: _HostInterfaces) -> Iterator[Check]:
    pod, name = view.pod, view.pod.name
    yield expect(f"{name}: number of NICs", len(pod.nics), stage.nics)
    yield expect(f"{name}: worst distance between GPU and NIC", view.fit.worst, stage.alignment)
    yield from _check_interfaces(stage, view, host[pod.node.plan.name])
    yield from _check_char_devices(stage, view)
    ready = {device: conditions == {"Ready": "True", "NetworkReady": "True"} for device, conditions in _status(view)}
    wanted = dict.fromkeys(pod.nics, True)
    if any(not link for link in _links(pod).values()):
        ready = {device: conditions.get("Ready") == "True" for device, conditions in _status(view)}
    yield expect(f"{name}: every NIC is ready in the claim's status", ready, wanted)


def _check_interfaces(stage: Stage, view: PodView, host: Mapping[str, Interface]) -> Iterator[Check]:
    pod, name = view.pod, view.pod.name
    nics = [link for link in _links(pod).values() if link is not None]
    found = sorted((i.mac, i.mtu, i.up, i.addresses) for i in view.interfaces.values())
    wanted = sorted((nic.mac, nic.mtu, True, tuple(sorted(nic.addresses))) for nic in nics)
    yield expect(f"{name}: addresses, MAC and MTU of all interfaces", found, wanted)
    names = stage.interfaces if stage.interfaces and nics else tuple(sorted(nic.name for nic in nics))
    yield expect(f"{name}: interface names", tuple(sorted(view.interfaces)), names)
    left = sorted({nic.name for nic in nics} & set(host))
    yield expect(f"{name}: its interfaces left the host {pod.node.plan.name}", left, [])


def _check_char_devices(stage: Stage, view: PodView) -> Iterator[Check]:
    pod = view.pod
    if not pod.node.char_devices:
        return
    parts = {part.device: part.title for part in pod.node.machine.nics if part.rdma}
    by_rdma = hardware.rdma_char_devices(Sysfs(str(pod.node.node.folder / "sys")))
    wanted = {"rdma_cm"} | {name for nic in pod.nics if nic in parts for name in by_rdma[parts[nic]]}
    found = [path.removeprefix(f"{INFINIBAND}/") for path in pod.char_devices]
    yield expect(f"{pod.name}: {INFINIBAND} contains only devices of its NICs", found, sorted(wanted))
    if stage.char_devices:
        yield expect(f"{pod.name}: {INFINIBAND} as in the recipe", tuple(found), stage.char_devices)


def _check_pod_without_claim(view: PodView) -> Iterator[Check]:
    found = [*view.interfaces, *view.pod.char_devices]
    yield expect(f"{view.pod.name}, which has no claim, gets no device", found, [])


def check_restored(
    before: _HostInterfaces, after: _HostInterfaces, nodes: Mapping[str, ClusterNode], claims: Sequence[Object]
) -> Iterator[Check]:
    """The state of all nodes is the same as before the pods."""
    for name, node in nodes.items():
        yield expect(f"{name}: host interfaces are restored", dict(after[name]), dict(before[name]))
        specs = sorted(path.name for path in (node.node.folder / "cdi").glob("*.json"))
        yield expect(f"{name}: no CDI spec is left", specs, [])
    yield expect("no claim is left", [claim["metadata"]["name"] for claim in claims], [])


def _links(pod: RunningPod) -> dict[str, ShapeLink | None]:
    """The pod's NICs with their host interfaces; None for NICs without an interface."""
    made = {str(pci_device_name(link.pci)): link for link in shape_links(pod.node.plan.shape, pod.node.plan.index)}
    return {nic: made.get(nic) for nic in pod.nics}


def _status(view: PodView) -> Iterator[tuple[str, dict[str, str]]]:
    for claim in view.claims:
        for device in (claim.get("status") or {}).get("devices") or ():
            if device["driver"] == DRIVER_NAME:
                yield device["device"], {c["type"]: c["status"] for c in device.get("conditions") or ()}


def _show(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
