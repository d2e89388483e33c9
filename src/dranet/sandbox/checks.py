"""What must be true while pods run and after they are gone; each fact is checked against the kernel or the API server.

Pure judgement over what was seen: a check is a sentence and, where it does not hold, what was found instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dranet.kernel import hardware
from dranet.kernel.chardev import INFINIBAND
from dranet.kernel.sysfs import Sysfs
from dranet.model.names import DRIVER_NAME, pci_device_name
from dranet.sandbox.cluster import ClusterNode
from dranet.sandbox.observing import Fit, Interface
from dranet.sandbox.running import RunningPod
from dranet.sandbox.stories import Act
from dranet.topology.shape_devices import ShapeLink, links

Object = dict[str, Any]
Homes = Mapping[str, Mapping[str, Interface]]


@dataclass(frozen=True, slots=True)
class Check:
    """A sentence, and what was found instead of it."""

    what: str
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class PodView:
    """A running pod, as one would look at it."""

    pod: RunningPod
    interfaces: Mapping[str, Interface]
    fit: Fit
    claims: tuple[Object, ...]


def expect(what: str, found: object, wanted: object) -> Check:
    """`found` equals `wanted`."""
    return Check(what, None if found == wanted else f"{what}: expected {_show(wanted)}, found {_show(found)}")


def check_pods(act: Act, views: Sequence[PodView], home: Homes) -> Iterator[Check]:
    """Every pod has what it was given, and nothing else."""
    workers = [view for view in views if view.pod.devices]
    yield expect(f"{act.title}: some pod has a claim", bool(workers), True)
    for view in views:
        yield from _check_worker(act, view, home) if view.pod.devices else _check_bystander(view)
    held = [(item.pool, item.driver, item.device) for view in workers for item in view.pod.devices]
    yield expect("no device is in two pods", len(set(held)), len(held))


def _check_worker(act: Act, view: PodView, home: Homes) -> Iterator[Check]:
    pod, name = view.pod, view.pod.name
    yield expect(f"{name} has its cards", len(pod.cards), act.cards)
    yield expect(f"{name}: farthest pair of GPU and card", view.fit.worst, act.alignment)
    yield from _check_interfaces(act, view, home[pod.node.plan.name])
    yield from _check_char_devices(act, view)
    ready = {device: conditions == {"Ready": "True", "NetworkReady": "True"} for device, conditions in _status(view)}
    wanted = dict.fromkeys(pod.cards, True)
    if any(not link for link in _links(pod).values()):
        ready = {device: conditions.get("Ready") == "True" for device, conditions in _status(view)}
    yield expect(f"{name}: the claim's status calls every card ready", ready, wanted)


def _check_interfaces(act: Act, view: PodView, home: Mapping[str, Interface]) -> Iterator[Check]:
    pod, name = view.pod, view.pod.name
    cards = [link for link in _links(pod).values() if link is not None]
    found = sorted((i.mac, i.mtu, i.up, i.addresses) for i in view.interfaces.values())
    wanted = sorted((card.mac, card.mtu, True, tuple(sorted(card.addresses))) for card in cards)
    yield expect(f"{name} sees its cards and no others, with address, MAC and MTU", found, wanted)
    names = act.interfaces if act.interfaces and cards else tuple(sorted(card.name for card in cards))
    yield expect(f"{name}: interfaces are named as asked", tuple(sorted(view.interfaces)), names)
    left = sorted({card.name for card in cards} & set(home))
    yield expect(f"{name}: its cards are no longer on {pod.node.plan.name}", left, [])


def _check_char_devices(act: Act, view: PodView) -> Iterator[Check]:
    pod = view.pod
    if not pod.node.char_devices:
        return
    parts = {part.device: part.title for part in pod.node.machine.nics if part.rdma}
    by_rdma = hardware.rdma_char_devices(Sysfs(str(pod.node.node.folder / "sys")))
    wanted = {"rdma_cm"} | {name for card in pod.cards if card in parts for name in by_rdma[parts[card]]}
    found = [path.removeprefix(f"{INFINIBAND}/") for path in pod.char_devices]
    yield expect(f"{pod.name}: {INFINIBAND} holds its cards' devices only", found, sorted(wanted))
    if act.char_devices:
        yield expect(f"{pod.name}: {INFINIBAND} as in the document", tuple(found), act.char_devices)


def _check_bystander(view: PodView) -> Iterator[Check]:
    found = [*view.interfaces, *view.pod.char_devices]
    yield expect(f"{view.pod.name}, which has no claim, gets no card", found, [])


def check_home(
    before: Homes, after: Homes, nodes: Mapping[str, ClusterNode], claims: Sequence[Object]
) -> Iterator[Check]:
    """Everything is as it was before the pods."""
    for name, node in nodes.items():
        yield expect(f"{name}: every card is home as it left", dict(after[name]), dict(before[name]))
        receipts = sorted(path.name for path in (node.node.folder / "cdi").glob("*.json"))
        yield expect(f"{name}: no receipt is left", receipts, [])
    yield expect("no claim is left", [claim["metadata"]["name"] for claim in claims], [])


def _links(pod: RunningPod) -> dict[str, ShapeLink | None]:
    """The pod's cards with the interface each had on its machine; None for cards that have none."""
    made = {str(pci_device_name(link.pci)): link for link in links(pod.node.plan.shape, pod.node.plan.index)}
    return {card: made.get(card) for card in pod.cards}


def _status(view: PodView) -> Iterator[tuple[str, dict[str, str]]]:
    for claim in view.claims:
        for device in (claim.get("status") or {}).get("devices") or ():
            if device["driver"] == DRIVER_NAME:
                yield device["device"], {c["type"]: c["status"] for c in device.get("conditions") or ()}


def _show(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
